#pragma once
// Variables and tensor descriptions on the wire. Private to framework/io.

#include <coracle/framework/io/internal/wire.h>
#include <coracle/framework/ir/var.h>

#include <vector>

namespace coracle::inline internal {

// A VarType.TensorDesc as read: any numbers, any rank.
struct WireTensorDesc {
  int64_t dtype = -1;  // -1: absent
  std::vector<int64_t> dims;
};
WireTensorDesc DecodeTensorDesc(std::string_view message, const wire::Source& source);
// Writes the fields of a VarType.TensorDesc.
void EncodeTensorDesc(DType dtype, const Shape& shape, wire::Encoder& out);

// Reads only the name, so that the variable can be made in its block first; throws if it
// is missing.
std::string_view DecodeVarName(std::string_view message, const wire::Source& source);
// Returns whether a dim is below -1. Such a dim counts as unknown, because old exporters multiplied
// unknown dims.
bool DecodeVar(std::string_view message, const wire::Source& source, VarDesc& var);
// With `say_parameter`, a persistable variable records whether it is a parameter.
void EncodeVar(int field_number, const VarDesc& var, bool say_parameter, wire::Encoder& out);

}  // namespace coracle::inline internal

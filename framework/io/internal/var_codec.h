#pragma once
// Variables and tensor descriptions on the wire. Private to framework/io.

#include <coracle/framework/io/internal/wire.h>
#include <coracle/framework/ir/var.h>

#include <vector>

namespace coracle {

// A VarType.TensorDesc as it was read: any numbers, any rank.
struct WireTensorDesc {
  int64_t dtype = -1;  // -1: not said
  std::vector<int64_t> dims;
};
WireTensorDesc DecodeTensorDesc(std::string_view message, const wire::Source& source);
// The fields of a VarType.TensorDesc.
void EncodeTensorDesc(DType dtype, const Shape& shape, wire::Encoder& out);

// Only its name, so that it can be made in its block first; throws when it has none.
std::string_view DecodeVarName(std::string_view message, const wire::Source& source);
void DecodeVar(std::string_view message, const wire::Source& source, VarDesc& var);
// With `say_parameter` a persistable variable says whether it is a parameter.
void EncodeVar(int field_number, const VarDesc& var, bool say_parameter, wire::Encoder& out);

}  // namespace coracle

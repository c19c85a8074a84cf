#pragma once
// What kernels of control flow do with values of any kind.

#include <coracle/framework/op/op_spec.h>
#include <coracle/framework/op/prepare_context.h>

#include <cstdint>

namespace coracle {

// *value = zeros of the kind, dtype and shape of `like` (a tensor array: of its length, no element
// written). Memory of *value is used again.
void SetZerosLike(const VarValue& like, VarValue* value);

// *total += value, element by element; an unwritten element of a tensor array counts as zeros, and
// selected rows are appended to selected rows, or added to a tensor. Throws kInvalidArgument when
// the two differ in kind, dtype or shape.
void AddValue(const VarValue& value, VarValue* total);

// The one element of a bool tensor. Throws kInvalidArgument for anything else: "while: Condition
// must be one bool, got float32[2]".
bool ReadBool(Workspace& ws, const TensorArg& arg, const char* op, const char* slot);

// The one element of an int32 or int64 tensor that indexes something, not negative.
// Throws kOutOfRange else.
class IndexArg {
 public:
  IndexArg(const PrepareContext& ctx, const char* slot);
  size_t operator()(Workspace& ws) const;

 private:
  std::string op_;
  const char* slot_;
  TensorArg arg_;
};

}  // namespace coracle

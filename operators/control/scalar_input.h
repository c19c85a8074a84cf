#pragma once
// Inputs of ops that hold one number: conditions, counters and indices of control flow.

#include <coracle/framework/op/op_spec.h>
#include <coracle/framework/op/prepare_context.h>

#include <cstddef>
#include <string>

namespace coracle {

// The one element of a bool tensor. Throws kInvalidArgument for anything else: "while: Condition
// must be one bool, got float32[2]".
bool ReadBool(Workspace& ws, const TensorArg& arg, const char* op, const char* slot);

// The one element of an int32 or int64 tensor that indexes something, not negative.
// Throws kOutOfRange otherwise.
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

#pragma once
// Inputs of ops that hold one number: rates, limits, conditions, counters and indices.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>

#include <cstddef>
#include <string>

namespace coracle::inline internal {

// A one-element float32 or float64 input, or a constant.
class ScalarInput {
 public:
  explicit ScalarInput(TensorArg arg, double otherwise = 0) : arg_(arg), value_(otherwise) {}
  double operator()(Workspace& ws) const {
    if (!arg_) return value_;
    return arg_.dtype == DType::kFloat64 ? *ws.Data<const double>(arg_)
                                         : double{*ws.Data<const float>(arg_)};
  }

 private:
  TensorArg arg_;
  double value_;
};

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

}  // namespace coracle::inline internal

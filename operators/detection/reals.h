#pragma once
// Float32 and float64 tensors, read and written as double. Detection ops compute in double for both
// dtypes, so that one loop serves both and thresholds mean the same in both.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace coracle::inline internal {

// REQUIRES: the arg is float32 or float64, or absent and never read.
class Reals {
 public:
  Reals(const Workspace& ws, const TensorArg& arg)
      : data_(arg ? ws.Data<const void>(arg) : nullptr), wide_(arg.dtype == DType::kFloat64) {}
  double operator[](int64_t i) const {
    return wide_ ? static_cast<const double*>(data_)[i]
                 : static_cast<double>(static_cast<const float*>(data_)[i]);
  }

 private:
  const void* data_;
  bool wide_;
};

class RealsOut {
 public:
  RealsOut(const Workspace& ws, const TensorArg& arg)
      : data_(ws.Data<void>(arg)), wide_(arg.dtype == DType::kFloat64) {}
  explicit RealsOut(Tensor& tensor)
      : data_(tensor.raw()), wide_(tensor.dtype() == DType::kFloat64) {}
  void Set(int64_t i, double value) const {
    if (wide_)
      static_cast<double*>(data_)[i] = value;
    else
      static_cast<float*>(data_)[i] = static_cast<float>(value);
  }
  void Add(int64_t i, double value) const {
    if (wide_)
      static_cast<double*>(data_)[i] += value;
    else
      static_cast<float*>(data_)[i] += static_cast<float>(value);
  }

 private:
  void* data_;
  bool wide_;
};

// For OpDef::Reference<float, double>: prepares a kernel that reads and writes through
// these classes.
struct ForReals {
  Kernel (*prepare)(const PrepareContext&);
  template <class T>
  Kernel operator()(const PrepareContext& ctx) const {
    return prepare(ctx);
  }
};

// Requires these inputs, if present, to have the dtype of `like`, which selects the kernel.
inline void RequireDTypeOf(const InferContext& ctx, std::string_view id, std::string_view like,
                           std::initializer_list<std::string_view> slots) {
  const DType dtype = ctx.InputDType(like);
  for (std::string_view slot : slots) {
    for (size_t i = 0; ctx.HasInput(slot) && i < ctx.NumInputs(slot); ++i) {
      const DType other = ctx.InputDType(slot, i);
      ctx.Require(id, other == dtype, slot, other, like, dtype);
    }
  }
}

}  // namespace coracle::inline internal

#pragma once
// Real and complex operands X and Y of one op. As in Paddle, the real one is converted to complex.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/kernel/forwarding_args.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/operators.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// The dtype in which an op computes. Equal dtypes of X and Y are kept. If one is complex, and the
// other complex or a float, the result is complex128 if one of them has 64-bit parts, else
// complex64. Other pairs violate `id`.
inline DType RequirePromotable(const InferContext& ctx, std::string_view id) {
  const DType x = ctx.InputDType("X"), y = ctx.InputDType("Y");
  if (x == y) return x;
  const auto taken = [](DType d) {
    return IsComplex(d) || d == DType::kFloat32 || d == DType::kFloat64;
  };
  ctx.Require(id, (IsComplex(x) || IsComplex(y)) && taken(x) && taken(y), "X", x, "Y", y);
  const bool wide = RealOf(x) == DType::kFloat64 || RealOf(y) == DType::kFloat64;
  return wide ? DType::kComplex128 : DType::kComplex64;
}

// Whether X and Y have different dtypes.
inline bool MixesDTypes(const PrepareContext& ctx) {
  return ctx.Input("X").dtype != ctx.Input("Y").dtype;
}

// The args of an op converted to Out's complex dtype: other inputs are copied to scratch memory.
class ComplexArgs : public ForwardingArgs {
 public:
  explicit ComplexArgs(const PrepareContext& ctx)
      : ForwardingArgs(ctx.args()), dtype_(ctx.Output("Out").dtype) {}

  TensorArg Read(const std::string& name) override {
    const TensorArg given = args_.Read(name);
    if (given.dtype == dtype_) return given;
    for (const auto& [from, to] : copies_) {
      if (from.index == given.index) return to;
    }
    TensorArg copy = given;
    copy.dtype = dtype_;
    copy.index = args_.Scratch(dtype_, given.shape).index;
    copies_.emplace_back(given, copy);
    return copy;
  }
  const Tensor* Constant(const std::string&) override { return nullptr; }
  std::shared_ptr<const Tensor> Packed(const std::string&, const PackedLayout&) override {
    return nullptr;
  }

  Kernel Around(Kernel kernel) const {
    return [copies = copies_, kernel = std::move(kernel)](Workspace& ws) {
      for (const auto& [from, to] : copies) {
        if (to.dtype == DType::kComplex64)
          Copy<complex64>(ws, from, to);
        else
          Copy<complex128>(ws, from, to);
      }
      kernel(ws);
    };
  }

 private:
  template <class To>
  static void Copy(Workspace& ws, const TensorArg& from, const TensorArg& to) {
    const auto copy = [&](const auto* in) {
      To* out = ws.Data<To>(to);
      for (int64_t i = 0; i < from.numel; ++i) out[i] = To(in[i]);
    };
    switch (from.dtype) {
      case DType::kFloat32:
        return copy(ws.Data<const float>(from));
      case DType::kFloat64:
        return copy(ws.Data<const double>(from));
      default:
        return copy(ws.Data<const complex64>(from));
    }
  }

  DType dtype_;
  std::vector<std::pair<TensorArg, TensorArg>> copies_;
};

// The op's reference kernel on operands converted to Out's dtype.
inline Kernel PrepareComplex(const PrepareContext& ctx) {
  ComplexArgs args(ctx);
  const PrepareContext complex(ctx.spec(), ctx.op(), args);
  return args.Around(ctx.spec().reference(complex));
}

// Sets the gradients of X and Y if their dtypes differ: computes them for complex operands and
// takes the real part for a real operand. `type`_grad has inputs X, Y, Out@GRAD and `more`. Returns
// false if X and Y have one dtype.
inline bool SetMixedGradient(GradientContext& g, const AttrList& attrs, const SlotList& more = {}) {
  if (g.MetaOf(g.Input("X")).dtype == g.MetaOf(g.Input("Y")).dtype) return false;
  const Variable x = g.In("X"), y = g.In("Y");
  const DType wide = g.Grad("Out").dtype();
  SlotList inputs = {{"X", {Cast(x, wide).name()}},
                     {"Y", {Cast(y, wide).name()}},
                     {"Out@GRAD", {g.OutputGrad("Out")}}};
  inputs.insert(inputs.end(), more.begin(), more.end());
  for (const Variable& operand : {x, y}) {
    const std::string slot = operand.name() == x.name() ? "X" : "Y";
    const Variable grad = g.Make(g.op().type() + "_grad", inputs, attrs, slot + "@GRAD");
    g.Set(slot, Cast(grad, operand.dtype()));
  }
  return true;
}

}  // namespace coracle::inline internal

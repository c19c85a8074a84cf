#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/reduce.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::mean_op {

template <class T>
KernelOf<T> MeanReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    std::conditional_t<kIsComplex<T>, complex128, double> sum = 0;
    for (T value : ws.Span<const T>(x)) sum += value;
    ws.Data<T>(out)[0] = static_cast<T>(sum / static_cast<double>(x.numel));
  };
}

Kernel MeanFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32 || x.numel == 0) return {};
  const bool all[] = {true};
  const FastSumPlan plan = MakeFastSumPlan(MakeReduceNest(Shape{x.numel}, all));
  TensorArg scratch;
  if (plan.scratch_floats > 0) scratch = ctx.Scratch(DType::kFloat32, {plan.scratch_floats});
  const float scale = static_cast<float>(1.0 / static_cast<double>(x.numel));
  return [=](Workspace& ws) {
    const float* in = ws.Data<const float>(x);
    const auto terms = [in](int64_t offset, int64_t, float*) { return in + offset; };
    FastSum(plan, terms, scale, ws.Data<float>(out), scratch ? ws.Data<float>(scratch) : nullptr);
    RepairFastSum(plan, terms, scale, ws.Data<float>(out));
  };
}

void InferMeanGrad(InferContext& ctx) {
  const Shape& dout = ctx.InputShape("Out@GRAD");
  ctx.Require("C1", !dout.IsKnown() || dout.numel() == 1, dout);
  RequireSameDType(ctx, "C2", "Out@GRAD", "X");
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

template <class T>
KernelOf<T> MeanGradReference(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(dx);
    const T value = ws.Data<const T>(dout)[0] / static_cast<T>(dx.numel);
    ParallelFor(dx.numel, 65536,
                [&](int64_t begin, int64_t end) { std::fill(o + begin, o + end, value); });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("mean")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = the mean of all elements of X (nan when there are none).")
              .Input("X", "floating-point or complex tensor")
              .Output("Out", "tensor [1]")
              .NoLod()
              .Rows(RowRule::kMean)
              .Linear({"X"})
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.InputDType("X"), {1}); })
              .GradientOp({"X"})
              .Reference(MeanReference<float>, MeanReference<double>, MeanReference<complex64>,
                         MeanReference<complex128>)
              .Fast(MeanFast));
  ops.Add(OpDef("mean_grad")
              .Doc("Gradient of mean: every element of X@GRAD is Out@GRAD / numel(X).")
              .Constraint("C1", "Out@GRAD must hold one element")
              .Constraint("C2", "X and Out@GRAD must have one dtype")
              .Input("X", "mean's X, for its shape alone")
              .Input("Out@GRAD", "gradient of mean's Out")
              .Output("X@GRAD", "gradient of mean's X")
              .NoGradientTo({"X"})
              .Infer(InferMeanGrad)
              .Gradient([](GradientContext& g) { g.Set("Out@GRAD", Mean(g.Grad("X@GRAD"))); })
              .Reference(MeanGradReference<float>, MeanGradReference<double>,
                         MeanGradReference<complex64>, MeanGradReference<complex128>));
}

}  // namespace coracle::mean_op

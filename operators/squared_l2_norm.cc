#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/common/sum_of_squares.h>

namespace coracle {
namespace {

template <class T>
Kernel SquaredNormReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    double sum = 0;
    for (T value : ws.Span<const T>(x))
      sum += static_cast<double>(value) * static_cast<double>(value);
    ws.Data<T>(out)[0] = static_cast<T>(sum);
  };
}

Kernel SquaredNormFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32) return {};
  return [=, sum = SumOfSquares(ctx, x)](Workspace& ws) {
    ws.Data<float>(out)[0] = static_cast<float>(sum(ws));
  };
}

// dX = 2 dOut X.
void SquaredNormGradient(GradientContext& g) {
  const std::string product = g.Temp(g.Input("X") + "@TERM");
  if (!g.NeedsInputGrad("X")) return;
  g.Append("elementwise_mul", {{"X", {g.Input("X")}}, {"Y", {g.OutputGrad("Out")}}},
           {{"Out", {product}}});
  g.Append("scale", {{"X", {product}}}, {{"Out", {g.InputGrad("X")}}}, {{"scale", 2.0f}});
}

}  // namespace

void RegisterSquaredL2Norm(OpRegistry& ops) {
  ops.Add(OpDef("squared_l2_norm")
              .Doc("Out = the sum of the squares of all elements of X.")
              .Input("X", "floating-point tensor")
              .Output("Out", "tensor [1]")
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.InputDType("X"), {1}); })
              .Gradient(SquaredNormGradient)
              .Reference<float, double>(
                  []<class T>(const PrepareContext& c) { return SquaredNormReference<T>(c); })
              .Fast(SquaredNormFast));
}

}  // namespace coracle

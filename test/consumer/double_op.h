#pragma once
// An op of the consumer's own: Out = 2 X, differentiable by composition.
#include <coracle/coracle.h>

template <class T>
coracle::KernelOf<T> Double(const coracle::PrepareContext& ctx) {
  const coracle::TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](coracle::Workspace& ws) {
    for (int64_t i = 0; i < x.numel; ++i) ws.Data<T>(out)[i] = 2 * ws.Data<const T>(x)[i];
  };
}

inline void RegisterDouble(coracle::OpRegistry& ops) {
  using namespace coracle;
  ops.Add(
      OpDef("my_double")
          .Doc("Out = 2 X.")
          .Input("X", "floating-point tensor")
          .Output("Out", "tensor of X's shape")
          .Elementwise()
          .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
          .Gradient([](GradientContext& g) {
            g.Append("my_double", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X")}}});
          })
          .Reference(Double<float>, Double<double>));
}

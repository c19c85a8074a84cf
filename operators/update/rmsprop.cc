#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update_loop.h>

#include <cmath>

namespace coracle::rmsprop_op {

template <class T>
Kernel Uncentered(const PrepareContext& ctx) {
  const std::array<StateSlots, 2> state = {
      {{"MeanSquare", "MeanSquareOut"}, {"Moment", "MomentOut"}}};
  return ElementwiseSweep<T, 2>(ctx, state, [](const PrepareContext& item) {
    const ScalarInput rate(item.Input("LearningRate"));
    const double rho = HyperParameter(item, "decay");
    const double epsilon = HyperParameter(item, "epsilon");
    const double momentum = HyperParameter(item, "momentum");
    return [=](Workspace& ws) {
      return [=, lr = rate(ws)](double p, double g, double* s) {
        s[0] = rho * s[0] + (1 - rho) * g * g;
        s[1] = momentum * s[1] + lr * g / std::sqrt(s[0] + epsilon);
        return p - s[1];
      };
    };
  });
}

template <class T>
Kernel Centered(const PrepareContext& ctx) {
  const std::array<StateSlots, 3> state = {
      {{"MeanSquare", "MeanSquareOut"}, {"Moment", "MomentOut"}, {"MeanGrad", "MeanGradOut"}}};
  return ElementwiseSweep<T, 3>(ctx, state, [](const PrepareContext& item) {
    const ScalarInput rate(item.Input("LearningRate"));
    const double rho = HyperParameter(item, "decay");
    const double epsilon = HyperParameter(item, "epsilon");
    const double momentum = HyperParameter(item, "momentum");
    return [=](Workspace& ws) {
      return [=, lr = rate(ws)](double p, double g, double* s) {
        s[0] = rho * s[0] + (1 - rho) * g * g;
        s[2] = rho * s[2] + (1 - rho) * g;
        // Rounding may make the variance negative.
        const double variance = std::max(s[0] - s[2] * s[2], 0.0);
        s[1] = momentum * s[1] + lr * g / std::sqrt(variance + epsilon);
        return p - s[1];
      };
    };
  });
}

void InferRmsprop(InferContext& ctx) {
  InferUpdate(
      ctx, {{"MeanSquare", "MeanSquareOut"}, {"Moment", "MomentOut"}, {"MeanGrad", "MeanGradOut"}},
      {"LearningRate"});
  ctx.Require(
      "C3",
      !ctx.Attr<bool>("centered") || (ctx.HasInput("MeanGrad") && ctx.HasOutput("MeanGradOut")),
      "MeanGrad", ctx.HasInput("MeanGrad"), "MeanGradOut", ctx.HasOutput("MeanGradOut"));
}

// Without `centered`, MeanGrad is unchanged.
template <class T>
KernelOf<T> Rmsprop(const PrepareContext& ctx) {
  if (ctx.Attr<bool>("centered")) return Centered<T>(ctx);
  const std::vector<TensorArg> in = ctx.Inputs("MeanGrad"), out = ctx.Outputs("MeanGradOut");
  return [=, update = Uncentered<T>(ctx)](Workspace& ws) {
    update(ws);
    for (size_t k = 0; k < out.size(); ++k) {
      if (!out[k]) continue;
      T* to = ws.Data<T>(out[k]);
      const T* from = k < in.size() && in[k] ? ws.Data<const T>(in[k]) : nullptr;
      if (to == from) continue;
      for (int64_t i = 0; i < out[k].numel; ++i) to[i] = from ? from[i] : T{0};
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("rmsprop")
              .Doc("MeanSquareOut = decay MeanSquare + (1 - decay) Grad^2; with centered also "
                   "MeanGradOut = decay MeanGrad + (1 - decay) Grad and d = MeanSquareOut - "
                   "MeanGradOut^2, else d = MeanSquareOut; MomentOut = momentum Moment + "
                   "LearningRate Grad / sqrt(d + epsilon); ParamOut = Param - MomentOut.")
              .Constraint("C1",
                          "Grad, MeanSquare, MeanGrad and Moment must be dense tensors of Param's "
                          "shape and dtype")
              .Constraint("C2", "LearningRate must hold one element")
              .Constraint("C3", "centered needs MeanGrad and MeanGradOut")
              .Input("Param", "the parameter")
              .Input("MeanSquare", "running mean of squared gradients")
              .OptionalInput("MeanGrad", "running mean of gradients")
              .Input("LearningRate", "tensor [1], float32 or float64")
              .Input("Grad", "the parameter's gradient")
              .Input("Moment", "running sum of updates")
              .Output("ParamOut", "the updated parameter, usually Param itself")
              .Output("MomentOut", "usually Moment itself")
              .Output("MeanSquareOut", "usually MeanSquare itself")
              .OptionalOutput("MeanGradOut", "usually MeanGrad itself; unchanged unless centered")
              .Attr<float>("epsilon", 1e-10f, "added under the square root")
              .Attr<float>("decay", 0.9f, "decay rate of the means")
              .Range(0, 1)
              .Attr<float>("momentum", 0.0f, "decay rate of Moment")
              .Attr<bool>("centered", false,
                          "divide by the estimated standard deviation of the gradient")
              .Inplace("Param", "ParamOut")
              .Inplace("Moment", "MomentOut")
              .Inplace("MeanSquare", "MeanSquareOut")
              .Inplace("MeanGrad", "MeanGradOut")
              .Rows(RowRule::kEach)
              .Infer(InferRmsprop)
              .MultiTensor({"LearningRate"})
              .NoGradient("an update of a parameter is not part of the loss")
              .Reference(Rmsprop<float>, Rmsprop<double>));
}

}  // namespace coracle::rmsprop_op

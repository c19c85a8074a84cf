#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update_loop.h>

#include <cmath>

namespace coracle::adadelta_op {

template <class T>
KernelOf<T> Adadelta(const PrepareContext& ctx) {
  const std::array<StateSlots, 2> state = {
      {{"AvgSquaredGrad", "AvgSquaredGradOut"}, {"AvgSquaredUpdate", "AvgSquaredUpdateOut"}}};
  return ElementwiseSweep<T, 2>(ctx, state, [](const PrepareContext& item) {
    const double rho = HyperParameter(item, "rho");
    const double epsilon = HyperParameter(item, "epsilon");
    const ScalarInput rate(item.Input("LearningRate"), 1);
    return [=](Workspace& ws) {
      return [=, lr = rate(ws)](double p, double g, double* s) {
        s[0] = rho * s[0] + (1 - rho) * g * g;
        // Not the root of the quotient, which may be next to 0 where its product with g is not.
        const double update = -std::sqrt(s[1] + epsilon) / std::sqrt(s[0] + epsilon) * g;
        s[1] = rho * s[1] + (1 - rho) * update * update;
        return p + lr * update;
      };
    };
  });
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("adadelta")
              .Doc("G = AvgSquaredGradOut = rho AvgSquaredGrad + (1 - rho) Grad^2; u = "
                   "-sqrt((AvgSquaredUpdate + epsilon) / (G + epsilon)) Grad; AvgSquaredUpdateOut "
                   "= rho AvgSquaredUpdate + (1 - rho) u^2; ParamOut = Param + LearningRate u "
                   "(Zeiler: \"ADADELTA\", 2012, who has no learning rate).")
              .Constraint("C1",
                          "Grad, AvgSquaredGrad and AvgSquaredUpdate must be dense tensors of "
                          "Param's shape and dtype")
              .Constraint("C2", "LearningRate must hold one element")
              .Input("Param", "the parameter")
              .Input("Grad", "the parameter's gradient")
              .Input("AvgSquaredGrad", "running mean of squared gradients")
              .Input("AvgSquaredUpdate", "running mean of squared updates")
              .OptionalInput("LearningRate", "tensor [1], float32 or float64; 1 if absent")
              .Output("ParamOut", "the updated parameter, usually Param itself")
              .Output("AvgSquaredGradOut", "usually AvgSquaredGrad itself")
              .Output("AvgSquaredUpdateOut", "usually AvgSquaredUpdate itself")
              .Attr<float>("rho", 0.95f, "decay rate of the means")
              .Range(0, 1)
              .Attr<float>("epsilon", 1e-6f,
                           "sets the size of the first updates, and avoids division by zero")
              .Inplace("Param", "ParamOut")
              .Inplace("AvgSquaredGrad", "AvgSquaredGradOut")
              .Inplace("AvgSquaredUpdate", "AvgSquaredUpdateOut")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) {
                InferUpdate(ctx,
                            {{"AvgSquaredGrad", "AvgSquaredGradOut"},
                             {"AvgSquaredUpdate", "AvgSquaredUpdateOut"}},
                            {"LearningRate"});
              })
              .MultiTensor({"LearningRate"})
              .NoGradient("an update of a parameter is not part of the loss")
              .Reference(Adadelta<float>, Adadelta<double>));
}

}  // namespace coracle::adadelta_op

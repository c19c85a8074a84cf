#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update_loop.h>

#include <cmath>

namespace coracle::adamax_op {

template <class T>
KernelOf<T> Adamax(const PrepareContext& ctx) {
  const std::array<StateSlots, 2> state = {{{"Moment", "MomentOut"}, {"InfNorm", "InfNormOut"}}};
  return ElementwiseSweep<T, 2>(ctx, state, [](const PrepareContext& item) {
    const ScalarInput rate(item.Input("LearningRate")), power(item.Input("Beta1Pow"));
    const double b1 = HyperParameter(item, "beta1"), b2 = HyperParameter(item, "beta2");
    const double epsilon = HyperParameter(item, "epsilon");
    return [=](Workspace& ws) {
      return [=, lr = rate(ws) / (1 - power(ws))](double p, double g, double* s) {
        s[0] = b1 * s[0] + (1 - b1) * g;
        s[1] = std::max(std::abs(g), b2 * s[1] + epsilon);
        return p - lr * (s[0] / s[1]);
      };
    };
  });
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("adamax")
              .Doc("MomentOut = beta1 Moment + (1 - beta1) Grad; InfNormOut = max(|Grad|, beta2 "
                   "InfNorm + epsilon); ParamOut = Param - LearningRate / (1 - Beta1Pow) MomentOut "
                   "/ InfNormOut. Beta1Pow is updated by a separate scale op.")
              .Constraint(
                  "C1", "Grad, Moment and InfNorm must be dense tensors of Param's shape and dtype")
              .Constraint("C2", "LearningRate and Beta1Pow must hold one element")
              .Input("Param", "the parameter")
              .Input("Grad", "the parameter's gradient")
              .Input("LearningRate", "tensor [1], float32 or float64")
              .Input("Moment", "running mean of gradients")
              .Input("InfNorm", "running maximum of absolute gradients")
              .Input("Beta1Pow", "tensor [1]: beta1 to the power of the step, counted from 1")
              .Output("ParamOut", "the updated parameter, usually Param itself")
              .Output("MomentOut", "usually Moment itself")
              .Output("InfNormOut", "usually InfNorm itself")
              .Attr<float>("beta1", 0.9f, "decay rate of Moment")
              .Attr<float>("beta2", 0.999f, "decay rate of InfNorm")
              .Attr<float>("epsilon", 1e-8f, "keeps InfNorm above zero")
              .Inplace("Param", "ParamOut")
              .Inplace("Moment", "MomentOut")
              .Inplace("InfNorm", "InfNormOut")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) {
                InferUpdate(ctx, {{"Moment", "MomentOut"}, {"InfNorm", "InfNormOut"}},
                            {"LearningRate", "Beta1Pow"});
              })
              .MultiTensor({"LearningRate"})
              .NoGradient("an update of a parameter is not part of the loss")
              .Reference(Adamax<float>, Adamax<double>));
}

}  // namespace coracle::adamax_op

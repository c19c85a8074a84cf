#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update_loop.h>

#include <cmath>

namespace coracle::lion_op {

template <class T>
KernelOf<T> Lion(const PrepareContext& ctx) {
  return ElementwiseSweep<T, 1>(ctx, {{{"Moment", "MomentOut"}}}, [](const PrepareContext& item) {
    const ScalarInput rate(item.Input("LearningRate"));
    const double b1 = HyperParameter(item, "beta1"), b2 = HyperParameter(item, "beta2");
    const double decay = HyperParameter(item, "weight_decay");
    return [=](Workspace& ws) {
      return [=, lr = rate(ws)](double p, double g, double* state) {
        const double c = b1 * state[0] + (1 - b1) * g;
        state[0] = b2 * state[0] + (1 - b2) * g;
        // A nan stays nan.
        const double sign = c > 0 ? 1 : c < 0 ? -1 : c;
        return p - lr * (sign + DecayOf(decay, p));
      };
    };
  });
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("lion")
              .Doc("c = beta1 Moment + (1 - beta1) Grad; ParamOut = Param - LearningRate (sign(c) "
                   "+ weight_decay Param); MomentOut = beta2 Moment + (1 - beta2) Grad (Chen et "
                   "al.: \"Symbolic Discovery of Optimization Algorithms\", 2023).")
              .Constraint("C1", "Grad and Moment must be dense tensors of Param's shape and dtype")
              .Constraint("C2", "LearningRate must hold one element")
              .Input("Param", "the parameter")
              .Input("Grad", "the parameter's gradient")
              .Input("LearningRate", "tensor [1], float32 or float64")
              .Input("Moment", "running mean of gradients")
              .Output("ParamOut", "the updated parameter, usually Param itself")
              .Output("MomentOut", "usually Moment itself")
              .Attr<float>("beta1", 0.9f, "weight of Moment in the direction of the update")
              .Range(0, 1)
              .Attr<float>("beta2", 0.99f, "decay rate of Moment")
              .Range(0, 1)
              .Attr<float>("weight_decay", 0.0f, "decoupled decay: times the learning rate")
              .Inplace("Param", "ParamOut")
              .Inplace("Moment", "MomentOut")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) {
                InferUpdate(ctx, {{"Moment", "MomentOut"}}, {"LearningRate"});
              })
              .MultiTensor({"LearningRate"})
              .NoGradient("an update of a parameter is not part of the loss")
              .Reference(Lion<float>, Lion<double>));
}

}  // namespace coracle::lion_op

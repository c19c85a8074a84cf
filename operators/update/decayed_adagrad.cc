#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update_loop.h>

#include <cmath>

namespace coracle::decayed_adagrad_op {

template <class T>
KernelOf<T> DecayedAdagrad(const PrepareContext& ctx) {
  return ElementwiseSweep<T, 1>(ctx, {{{"Moment", "MomentOut"}}}, [](const PrepareContext& item) {
    const ScalarInput rate(item.Input("LearningRate"));
    const double decay = HyperParameter(item, "decay");
    const double epsilon = HyperParameter(item, "epsilon");
    return [=](Workspace& ws) {
      return [=, lr = rate(ws)](double p, double g, double* state) {
        state[0] = decay * state[0] + (1 - decay) * g * g;
        return p - lr * g / (std::sqrt(state[0]) + epsilon);
      };
    };
  });
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("decayed_adagrad")
              .Doc("MomentOut = decay Moment + (1 - decay) Grad^2; ParamOut = Param - LearningRate "
                   "Grad / (sqrt(MomentOut) + epsilon).")
              .Constraint("C1", "Grad and Moment must be dense tensors of Param's shape and dtype")
              .Constraint("C2", "LearningRate must hold one element")
              .Input("Param", "the parameter")
              .Input("Grad", "the parameter's gradient")
              .Input("Moment", "running mean of squared gradients")
              .Input("LearningRate", "tensor [1], float32 or float64")
              .Output("ParamOut", "the updated parameter, usually Param itself")
              .Output("MomentOut", "usually Moment itself")
              .Attr<float>("decay", 0.95f, "decay rate of Moment")
              .Range(0, 1)
              .Attr<float>("epsilon", 1e-6f, "avoids division by zero")
              .Inplace("Param", "ParamOut")
              .Inplace("Moment", "MomentOut")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) {
                InferUpdate(ctx, {{"Moment", "MomentOut"}}, {"LearningRate"});
              })
              .MultiTensor({"LearningRate"})
              .NoGradient("an update of a parameter is not part of the loss")
              .Reference(DecayedAdagrad<float>, DecayedAdagrad<double>));
}

}  // namespace coracle::decayed_adagrad_op

#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update_loop.h>

#include <cmath>

namespace coracle::proximal_op {

// The point nearest to q under the penalties: l1 pulls towards zero, l2 shrinks.
struct Proximal {
  double l1, l2;
  explicit Proximal(const PrepareContext& ctx)
      : l1(HyperParameter(ctx, "l1")), l2(HyperParameter(ctx, "l2")) {}
  double operator()(double q, double lr) const {
    if (l1 > 0) q = std::copysign(std::max(std::abs(q) - lr * l1, 0.0), q);
    return q / (1 + lr * l2);
  }
};

template <class T>
KernelOf<T> ProximalGd(const PrepareContext& ctx) {
  return ElementwiseSweep<T, 0>(ctx, {}, [](const PrepareContext& item) {
    const ScalarInput rate(item.Input("LearningRate"));
    const Proximal proximal(item);
    return [=](Workspace& ws) {
      return [=, lr = rate(ws)](double p, double g, double*) { return proximal(p - lr * g, lr); };
    };
  });
}

template <class T>
KernelOf<T> ProximalAdagrad(const PrepareContext& ctx) {
  return ElementwiseSweep<T, 1>(ctx, {{{"Moment", "MomentOut"}}}, [](const PrepareContext& item) {
    const ScalarInput rate(item.Input("LearningRate"));
    const Proximal proximal(item);
    return [=](Workspace& ws) {
      return [=, lr = rate(ws)](double p, double g, double* state) {
        state[0] += g * g;
        const double step = state[0] == 0 ? 0 : lr * g / std::sqrt(state[0]);
        return proximal(p - step, lr);
      };
    };
  });
}

OpDef Def(const char* type, const std::string& doc) {
  return OpDef(type)
      .Doc(doc)
      .Constraint("C2", "LearningRate must hold one element")
      .Input("Param", "the parameter")
      .Input("Grad", "the parameter's gradient")
      .Input("LearningRate", "tensor [1], float32 or float64")
      .Output("ParamOut", "the updated parameter, usually Param itself")
      .Attr<float>("l1", 0.0f, "coefficient of the L1 penalty")
      .Range(0, {})
      .Attr<float>("l2", 0.0f, "coefficient of the L2 penalty")
      .Range(0, {})
      .Inplace("Param", "ParamOut")
      .MultiTensor({"LearningRate"})
      .Rows(RowRule::kEach)
      .NoGradient("an update of a parameter is not part of the loss");
}

void Register(OpRegistry& ops) {
  const std::string tail =
      "ParamOut = sign(q) max(|q| - LearningRate l1, 0) / (1 + LearningRate l2).";
  ops.Add(Def("proximal_gd", "q = Param - LearningRate Grad; " + tail)
              .Constraint("C1", "Grad must be a dense tensor of Param's shape and dtype")
              .Infer([](InferContext& ctx) { InferUpdate(ctx, {}, {"LearningRate"}); })
              .Reference(ProximalGd<float>, ProximalGd<double>));
  ops.Add(Def("proximal_adagrad",
              "MomentOut = Moment + Grad^2; q = Param - LearningRate Grad / sqrt(MomentOut), or "
              "Param where MomentOut is 0; " +
                  tail)
              .Constraint("C1", "Grad and Moment must be dense tensors of Param's shape and dtype")
              .Input("Moment", "sum of squared gradients")
              .Output("MomentOut", "usually Moment itself")
              .Inplace("Moment", "MomentOut")
              .Infer([](InferContext& ctx) {
                InferUpdate(ctx, {{"Moment", "MomentOut"}}, {"LearningRate"});
              })
              .Reference(ProximalAdagrad<float>, ProximalAdagrad<double>));
}

}  // namespace coracle::proximal_op

#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update_loop.h>

#include <cmath>

namespace coracle::ftrl_op {

// x to the power -k; k = -1/2 is the usual case.
double NegativePower(double x, double k) { return k == -0.5 ? std::sqrt(x) : std::pow(x, -k); }

template <class T>
KernelOf<T> Ftrl(const PrepareContext& ctx) {
  const std::array<StateSlots, 2> state = {
      {{"SquaredAccumulator", "SquaredAccumOut"}, {"LinearAccumulator", "LinearAccumOut"}}};
  return ElementwiseSweep<T, 2>(ctx, state, [](const PrepareContext& item) {
    const ScalarInput rate(item.Input("LearningRate"));
    // Added by Paddle, so that l1 = l2 = 0 does not divide by zero.
    const double l1 = HyperParameter(item, "l1") + 1e-10, l2 = HyperParameter(item, "l2") + 1e-10;
    const double k = HyperParameter(item, "lr_power");
    return [=](Workspace& ws) {
      return [=, lr = rate(ws)](double p, double g, double* s) {
        if (lr == 0) return p;
        const double squared = s[0] + g * g;
        const double now = NegativePower(squared, k), before = NegativePower(s[0], k);
        s[0] = squared;
        s[1] += g - (now - before) / lr * p;
        if (std::abs(s[1]) <= l1) return 0.0;
        return (std::copysign(l1, s[1]) - s[1]) / (now / lr + 2 * l2);
      };
    };
  });
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("ftrl")
          .Doc("Follow the regularized leader (McMahan et al.: \"Ad Click Prediction\", 2013). n = "
               "SquaredAccumOut = SquaredAccumulator + Grad^2; L = LinearAccumOut = "
               "LinearAccumulator + Grad - (n^-lr_power - SquaredAccumulator^-lr_power) / "
               "LearningRate Param; ParamOut = (l1 sign(L) - L) / (n^-lr_power / LearningRate + 2 "
               "l2) where |L| > l1, else 0; 1e-10 is added to l1 and l2. A LearningRate of 0 "
               "changes nothing.")
          .Constraint("C1",
                      "Grad and the accumulators must be dense tensors of Param's shape and dtype")
          .Constraint("C2", "LearningRate must hold one element")
          .Input("Param", "the parameter")
          .Input("SquaredAccumulator", "sum of squared gradients")
          .Input("LinearAccumulator", "the linear term")
          .Input("Grad", "the parameter's gradient")
          .Input("LearningRate", "tensor [1], float32 or float64")
          .Output("ParamOut", "the updated parameter, usually Param itself")
          .Output("SquaredAccumOut", "usually SquaredAccumulator itself")
          .Output("LinearAccumOut", "usually LinearAccumulator itself")
          .Attr<float>("l1", 0.0f, "coefficient of the L1 penalty")
          .Range(0, {})
          .Attr<float>("l2", 0.0f, "coefficient of the L2 penalty")
          .Range(0, {})
          .Attr<float>("lr_power", -0.5f,
                       "exponent by which the learning rate falls with the squared gradients")
          .Range({}, 0)
          .Inplace("Param", "ParamOut")
          .Inplace("SquaredAccumulator", "SquaredAccumOut")
          .Inplace("LinearAccumulator", "LinearAccumOut")
          .Rows(RowRule::kEach)
          .Infer([](InferContext& ctx) {
            InferUpdate(ctx,
                        {{"SquaredAccumulator", "SquaredAccumOut"},
                         {"LinearAccumulator", "LinearAccumOut"}},
                        {"LearningRate"});
          })
          .MultiTensor({"LearningRate"})
          .NoGradient("an update of a parameter is not part of the loss")
          .Reference(Ftrl<float>, Ftrl<double>));
}

}  // namespace coracle::ftrl_op

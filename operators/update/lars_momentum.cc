#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update_loop.h>

#include <cmath>

namespace coracle::lars_momentum_op {

struct Norms {
  TensorArg param, grad;
  BlockedSum sum;
  explicit Norms(const PrepareContext& ctx)
      : param(UpdatedParam(ctx).in), grad(ctx.Input("Grad")), sum(ctx, ctx.Input("Param").numel) {}
  template <class T>
  double Of(Workspace& ws, const TensorArg& arg) const {
    const T* x = ws.Data<const T>(arg);
    return sum.Norm(ws, [x](int64_t i) { return x[i]; });
  }
};

template <class T>
KernelOf<T> LarsMomentum(const PrepareContext& ctx) {
  const ScalarInput rate(ctx.Input("LearningRate"));
  const Norms norms(ctx);
  const double coeff = HyperParameter(ctx, "lars_coeff"),
               decay = HyperParameter(ctx, "lars_weight_decay");
  const double epsilon = HyperParameter(ctx, "epsilon"),
               rescale = HyperParameter(ctx, "rescale_grad");
  const double mu = HyperParameter(ctx, "mu");
  return ElementwiseUpdate<T, 1>(ctx, {{{"Velocity", "VelocityOut"}}}, [=](Workspace& ws) {
    double local = rate(ws);
    const double p_norm = norms.template Of<T>(ws, norms.param);
    const double g_norm = norms.template Of<T>(ws, norms.grad) * std::abs(rescale);
    if (decay > 0 && p_norm > 0 && g_norm > 0)
      local *= coeff * p_norm / (g_norm + decay * p_norm + epsilon);
    return [=](double p, double g, double* state) {
      state[0] = mu * state[0] + local * (rescale * g + DecayOf(decay, p));
      return p - state[0];
    };
  });
}

void InferLars(InferContext& ctx) {
  InferUpdate(ctx, {{"Velocity", "VelocityOut"}}, {"LearningRate"});
  InferMasterParam(ctx, "C3");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("lars_momentum")
          .Doc("Layer-wise adaptive rate (You, Gitman, Ginsburg: \"Large Batch Training of "
               "Convolutional Networks\", 2017). g = rescale_grad Grad; l = LearningRate "
               "lars_coeff |Param| / (|g| + lars_weight_decay |Param| + epsilon) when "
               "lars_weight_decay and both norms exceed 0, else LearningRate; VelocityOut = mu "
               "Velocity + l (g + lars_weight_decay Param); ParamOut = Param - VelocityOut. If "
               "there is a MasterParam, it is updated, and ParamOut is a rounded copy of it.")
          .Constraint("C1", "Grad and Velocity must be dense tensors of Param's shape and dtype")
          .Constraint("C2", "LearningRate must hold one element")
          .Constraint("C3", "a MasterParam needs MasterParamOut")
          .Input("Param", "the parameter")
          .Input("Grad", "the parameter's gradient")
          .Input("Velocity", "the running sum of updates")
          .Input("LearningRate", "tensor [1], float32 or float64")
          .OptionalInput("MasterParam", "float32 values of a 16-bit Param")
          .Output("ParamOut", "the updated parameter, usually Param itself")
          .Output("VelocityOut", "usually Velocity itself")
          .OptionalOutput("MasterParamOut", "the updated MasterParam")
          .Attr<float>("mu", "decay rate of the velocity")
          .Attr<float>("lars_coeff", 0.001f, "trust coefficient: factor of the ratio of the norms")
          .Attr<float>("lars_weight_decay", 0.0005f, "coefficient of the weight decay")
          .Attr<float>("epsilon", 0.0f, "added to the denominator of the ratio")
          .Attr<bool>("multi_precision", false, "accepted from files: for float16 parameters")
          .Attr<float>("rescale_grad", 1.0f, "factor applied to the gradient first")
          .Inplace("Param", "ParamOut")
          .Inplace("Velocity", "VelocityOut")
          .Inplace("MasterParam", "MasterParamOut")
          .Rows(RowRule::kMixes)
          .Infer(InferLars)
          .NoGradient("an update of a parameter is not part of the loss")
          .Reference(LarsMomentum<float>, LarsMomentum<double>));
}

}  // namespace coracle::lars_momentum_op

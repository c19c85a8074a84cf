#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update_loop.h>

#include <cmath>

namespace coracle::dpsgd_op {

template <class T>
KernelOf<T> Dpsgd(const PrepareContext& ctx) {
  const ScalarInput rate(ctx.Input("LearningRate"));
  const TensorArg grad = ctx.Input("Grad");
  const BlockedSum sum(ctx, grad.numel);
  const double clip = HyperParameter(ctx, "clip"), batch = HyperParameter(ctx, "batch_size");
  const double sigma = HyperParameter(ctx, "sigma");
  const auto seed = static_cast<uint64_t>(static_cast<int64_t>(ctx.Attr<int32_t>("seed")));
  const uint64_t stream = ctx.RandomStream("ParamOut");
  return ElementwiseUpdate<T, 0>(ctx, {}, [=](Workspace& ws) {
    const T* g = ws.Data<const T>(grad);
    const double norm = sum.Norm(ws, [g](int64_t i) { return g[i]; });
    const double factor = norm > clip ? clip / norm : 1;
    const double draw = Philox(seed != 0 ? seed : ws.seed(), stream, ws.step()).Normal(0);
    const double noise = draw * sigma / batch, lr = rate(ws);
    return [=](double p, double gradient, double*) { return p - lr * (factor * gradient + noise); };
  });
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("dpsgd")
              .Doc("Differentially private descent: ParamOut = Param - LearningRate (Grad / max(1, "
                   "|Grad| / clip) + n / batch_size), with n a single normal draw of standard "
                   "deviation sigma per tensor and step.")
              .Constraint("C1", "Grad must be a dense tensor of Param's shape and dtype")
              .Constraint("C2", "LearningRate must hold one element")
              .Constraint("C3", "clip and batch_size must exceed 0")
              .Input("Param", "the parameter")
              .Input("Grad", "the parameter's gradient")
              .Input("LearningRate", "tensor [1], float32 or float64")
              .Output("ParamOut", "the updated parameter, usually Param itself")
              .Attr<float>("clip", 10.0f, "the norm that Grad is clipped to")
              .Attr<float>("batch_size", 16.0f, "divisor of the noise")
              .Attr<float>("sigma", 1.0f, "standard deviation of the noise")
              .Range(0, {})
              .Attr<int32_t>("seed", 0, "seed of the noise; 0: the program's seed")
              .Inplace("Param", "ParamOut")
              .Random()
              .Rows(RowRule::kMixes)
              .Infer([](InferContext& ctx) {
                InferUpdate(ctx, {}, {"LearningRate"});
                ctx.Require("C3", ctx.Attr<float>("clip") > 0 && ctx.Attr<float>("batch_size") > 0,
                            "clip", ctx.Attr<float>("clip"), "batch_size",
                            ctx.Attr<float>("batch_size"));
              })
              .NoGradient("an update of a parameter is not part of the loss")
              .Reference(Dpsgd<float>, Dpsgd<double>));
}

}  // namespace coracle::dpsgd_op

#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update_loop.h>

#include <cmath>

namespace coracle::lamb_op {

// One element of the update, in double, so that only results leave the range of a float.
struct Step {
  double b1, b2, correct1, root_correct2, epsilon, decay;

  double Moment1(double g, double m) const { return b1 * m + (1 - b1) * g; }
  double Moment2(double g, double v) const { return b2 * v + (1 - b2) * g * g; }
  double Direction(double p, double m, double v) const {
    return m / (std::sqrt(v) * root_correct2 + epsilon) * correct1 + DecayOf(decay, p);
  }
};

template <class T>
class Lamb {
 public:
  explicit Lamb(const PrepareContext& ctx)
      : param_(ctx.Input("Param")),
        param_out_(ctx.Output("ParamOut")),
        moment1_out_(ctx.Output("Moment1Out")),
        moment2_out_(ctx.Output("Moment2Out")),
        rate_(ctx.Input("LearningRate")),
        pow1_(ctx.Input("Beta1Pow"), ctx.Output("Beta1PowOut")),
        pow2_(ctx.Input("Beta2Pow"), ctx.Output("Beta2PowOut")),
        sum_(ctx, ctx.Input("Param").numel),
        b1_(HyperParameter(ctx, "beta1")),
        b2_(HyperParameter(ctx, "beta2")),
        epsilon_(HyperParameter(ctx, "epsilon")),
        decay_(HyperParameter(ctx, "weight_decay")),
        grad_(ctx.Input("Grad")),
        moment1_(ctx.Input("Moment1")),
        moment2_(ctx.Input("Moment2")) {}

  void operator()(Workspace& ws) const {
    const Step step = {b1_,      b2_,   1 / (1 - pow1_(ws)), 1 / std::sqrt(1 - pow2_(ws)),
                       epsilon_, decay_};
    const T *p = ws.Data<const T>(param_), *g = ws.Data<const T>(grad_);
    const T *m = ws.Data<const T>(moment1_), *v = ws.Data<const T>(moment2_);
    // From the moments of this step, which are stored only after the norm is known.
    const auto direction = [=](int64_t i) {
      const auto grad = static_cast<double>(g[i]);
      return step.Direction(static_cast<double>(p[i]),
                            step.Moment1(grad, static_cast<double>(m[i])),
                            step.Moment2(grad, static_cast<double>(v[i])));
    };
    const double p_norm = sum_.Norm(ws, [=](int64_t i) { return p[i]; });
    const double r_norm = sum_.Norm(ws, direction);
    const double trust = p_norm > 0 && r_norm > 0 ? p_norm / r_norm : 1, lr = rate_(ws) * trust;
    T *out = ws.Data<T>(param_out_), *m_out = ws.Data<T>(moment1_out_);
    T* v_out = ws.Data<T>(moment2_out_);
    ParallelFor(param_.numel, kUpdateGrain / 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto grad = static_cast<double>(g[i]);
        const double m1 = step.Moment1(grad, static_cast<double>(m[i]));
        const double m2 = step.Moment2(grad, static_cast<double>(v[i]));
        const auto param = static_cast<double>(p[i]);
        out[i] = static_cast<T>(param - lr * step.Direction(param, m1, m2));
        m_out[i] = static_cast<T>(m1);
        v_out[i] = static_cast<T>(m2);
      }
    });
    pow1_.Multiply(ws, b1_);
    pow2_.Multiply(ws, b2_);
  }

 private:
  TensorArg param_, param_out_, moment1_out_, moment2_out_;
  ScalarInput rate_;
  DecayPower pow1_, pow2_;
  BlockedSum sum_;
  double b1_, b2_, epsilon_, decay_;
  TensorArg grad_, moment1_, moment2_;
};

void InferLamb(InferContext& ctx) {
  InferUpdate(ctx, {{"Moment1", "Moment1Out"}, {"Moment2", "Moment2Out"}},
              {"LearningRate", "Beta1Pow", "Beta2Pow"});
  ctx.SetOutput("Beta1PowOut", ctx.Input("Beta1Pow"));
  ctx.SetOutput("Beta2PowOut", ctx.Input("Beta2Pow"));
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("lamb")
          .Doc("Moments as in adam, m and v their values divided by 1 - Beta1Pow and 1 - Beta2Pow; "
               "r = m / (sqrt(v) + epsilon) + weight_decay Param; ParamOut = Param - LearningRate "
               "t r, where t = |Param| / |r| when both norms exceed 0, else 1; then Beta1PowOut = "
               "beta1 Beta1Pow and Beta2PowOut = beta2 Beta2Pow (You et al.: \"Large Batch "
               "Optimization for Deep Learning\", 2019).")
          .Constraint("C1", "Grad and the moments must be dense tensors of Param's shape and dtype")
          .Constraint("C2", "LearningRate, Beta1Pow and Beta2Pow must hold one element")
          .Input("Param", "the parameter")
          .Input("Grad", "the parameter's gradient")
          .Input("LearningRate", "tensor [1], float32 or float64")
          .Input("Moment1", "running mean of gradients")
          .Input("Moment2", "running mean of squared gradients")
          .Input("Beta1Pow", "tensor [1]: beta1 to the power of the step, counted from 1")
          .Input("Beta2Pow", "tensor [1]: beta2 to the power of the step, counted from 1")
          .Output("ParamOut", "the updated parameter, usually Param itself")
          .Output("Moment1Out", "usually Moment1 itself")
          .Output("Moment2Out", "usually Moment2 itself")
          .OptionalOutput("Beta1PowOut", "usually Beta1Pow itself")
          .OptionalOutput("Beta2PowOut", "usually Beta2Pow itself")
          .Attr<float>("weight_decay", "coefficient of the weight decay")
          .Attr<float>("beta1", 0.9f, "decay rate of Moment1")
          .Attr<float>("beta2", 0.999f, "decay rate of Moment2")
          .Attr<float>("epsilon", 1e-6f, "avoids division by zero")
          .Inplace("Param", "ParamOut")
          .Inplace("Moment1", "Moment1Out")
          .Inplace("Moment2", "Moment2Out")
          .Inplace("Beta1Pow", "Beta1PowOut")
          .Inplace("Beta2Pow", "Beta2PowOut")
          .Rows(RowRule::kMixes)
          .Infer(InferLamb)
          .NoGradient("an update of a parameter is not part of the loss")
          .Reference<float, double>(
              []<class T>(const PrepareContext& c) -> Kernel { return Lamb<T>(c); }));
}

}  // namespace coracle::lamb_op

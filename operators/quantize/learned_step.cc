// Quantisation whose steps are trained (Esser et al. 2020, Learned Step Size Quantization).

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/quantize/quantize.h>

#include <algorithm>
#include <cmath>

namespace coracle::learned_step_op {

constexpr const char* kGradType = "fake_quantize_dequantize_learned_step_grad";
constexpr double kLeastStep = 1e-8;  // a smaller step counts as this one; a nan stays a nan
constexpr int64_t kGrain = 8192;

void CheckSteps(const InferContext& ctx) {
  const VarMeta x = ctx.Input("X"), step = ctx.Input("Step");
  const int axis = ctx.Attr<int32_t>("quant_axis");
  ctx.Require("C1", axis >= -1 && axis < x.shape.rank(), "quant_axis", axis, "X", x.shape);
  const Shape steps = {axis < 0 ? 1 : x.shape[axis]};
  ctx.Require("C2", step.dtype == x.dtype && step.shape.CompatibleWith(steps), step, "X", x);
}

void InferLearnedStep(InferContext& ctx) {
  CheckSteps(ctx);
  ctx.SetOutput("Out", ctx.Input("X"));
}

void InferGrad(InferContext& ctx) {
  CheckSteps(ctx);
  const VarMeta &x = ctx.Input("X"), &dout = ctx.Input("Out@GRAD");
  ctx.Require("C3", dout.dtype == x.dtype && dout.shape.CompatibleWith(x.shape), dout, "X", x);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Step@GRAD", ctx.Input("Step"));
}

// What both kernels read: the elements of each step, and the range of the integers.
struct Steps {
  explicit Steps(const PrepareContext& ctx)
      : channels(View(ctx.Input("X").shape, ctx.Attr<int32_t>("quant_axis"))),
        most(LargestInteger(ctx.Attr<int32_t>("bit_length"))),
        least(-most - 1) {}

  static Channels View(const Shape& x, int axis) {
    return axis < 0 ? Channels({1, 1, x.numel()}, 1) : Channels(x, axis);
  }
  template <class T>
  static double At(const T* steps, int64_t c) {
    const auto step = static_cast<double>(steps[c]);
    return step < kLeastStep ? kLeastStep : step;
  }

  Channels channels;
  double most, least;
};

template <class T>
KernelOf<T> LearnedStep(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), step = ctx.Input("Step"), out = ctx.Output("Out");
  const Steps steps(ctx);
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *sizes = ws.Data<const T>(step);
    T* o = ws.Data<T>(out);
    const auto quantize = [&](int64_t begin, int64_t end, double s) {
      for (int64_t i = begin; i < end; ++i) {
        const double q = std::nearbyint(static_cast<double>(in[i]) / s);
        o[i] = static_cast<T>(std::clamp(q, steps.least, steps.most) * s);
      }
    };
    const Channels& channels = steps.channels;
    if (channels.count == 1) {
      const double s = Steps::At(sizes, 0);
      ParallelFor(x.numel, kGrain, [&](int64_t begin, int64_t end) { quantize(begin, end, s); });
      return;
    }
    channels.ForEachRun(
        [&](int64_t c, int64_t at) { quantize(at, at + channels.inner, Steps::At(sizes, c)); });
  };
}

// The gradients of a run of elements. Returns the part of the step's gradient, without its factor.
template <class T>
double RunGradient(const Steps& steps, double s, const T* x, const T* dout, int64_t n, T* dx) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(x[i]) / s, g = static_cast<double>(dout[i]);
    const bool inside = !(v <= steps.least || v >= steps.most);
    if (dx) dx[i] = inside ? dout[i] : T(0);
    sum += g * (inside ? std::nearbyint(v) - v : v < 0 ? steps.least : steps.most);
  }
  return sum;
}

template <class T>
KernelOf<T> LearnedStepGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), step = ctx.Input("Step"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dstep = ctx.Output("Step@GRAD");
  const Steps steps(ctx);
  const Channels& channels = steps.channels;
  const bool one = channels.count == 1;
  // Elements that share a step, of one row of the batch if all of X does.
  const int64_t rows = ctx.Attr<int32_t>("quant_axis") >= 0 || x.shape.rank() == 0 ? 1 : x.shape[0];
  const double shared = static_cast<double>(x.numel) /
                        static_cast<double>(std::max<int64_t>(channels.count, 1)) /
                        static_cast<double>(std::max<int64_t>(rows, 1));
  const double factor = shared > 0 ? 1 / std::sqrt(shared * steps.most) : 0;
  // Partial sums of fixed parts, so that the result does not depend on the number of threads.
  const int64_t parts = one ? (x.numel + kGrain - 1) / kGrain : channels.count;
  const TensorArg partial = ctx.Scratch(DType::kFloat64, {parts});
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *sizes = ws.Data<const T>(step);
    const T* g = ws.Data<const T>(dout);
    T* to = dx ? ws.Data<T>(dx) : nullptr;
    auto* sums = ws.Data<double>(partial);
    const auto run = [&](double s, int64_t at, int64_t n) {
      return RunGradient(steps, s, in + at, g + at, n, to ? to + at : nullptr);
    };
    std::fill_n(sums, parts, 0.0);
    if (one) {
      const double s = Steps::At(sizes, 0);
      ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p)
          sums[p] = run(s, p * kGrain, std::min(kGrain, x.numel - p * kGrain));
      });
    } else {
      steps.channels.ForEachRun([&](int64_t c, int64_t at) {
        sums[c] += run(Steps::At(sizes, c), at, steps.channels.inner);
      });
    }
    if (!dstep) return;
    T* out = ws.Data<T>(dstep);
    if (one) {
      double sum = 0;
      for (int64_t p = 0; p < parts; ++p) sum += sums[p];
      out[0] = static_cast<T>(sum * factor);
      return;
    }
    for (int64_t c = 0; c < parts; ++c) out[c] = static_cast<T>(sums[c] * factor);
  };
}

void LearnedStepGradient(GradientContext& g) {
  g.Append(
      kGradType,
      {{"X", {g.Input("X")}}, {"Step", {g.Input("Step")}}, {"Out@GRAD", {g.OutputGrad("Out")}}},
      {{"X@GRAD", {g.InputGrad("X")}}, {"Step@GRAD", {g.InputGrad("Step")}}},
      g.ForwardAttrs({"bit_length", "quant_axis"}));
}

void DeclareSteps(OpDef& def) {
  def.ComputesIn(OpPrecision::kFloat32)
      .Input("X", "floating-point tensor")
      .Input("Step", "[1], or [C] for the channels of quant_axis")
      .Attr<int32_t>("quant_axis", -1, "the axis with a step for each index; -1: one step for all");
  DeclareBits(def);
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("fake_quantize_dequantize_learned_step")
          .Doc("With Q = 2^(bit_length - 1) - 1, Out = s min(max(round(X / s), -Q - 1), Q), halves "
               "to even, for the step s = max(Step, 1e-8), which is trained. The gradient of X is "
               "the one of Out where -Q - 1 < X / s < Q and 0 elsewhere. The gradient of Step is "
               "the sum of Out@GRAD (round(X / s) - X / s) there, and of Out@GRAD times -Q - 1 or "
               "Q elsewhere, divided by sqrt(N Q). N is the number of elements that share the "
               "step; with one step for all, it is the number of elements of one row of the batch.")
          .Constraint("C1", "quant_axis must be -1 or an axis of X")
          .Constraint("C2", "Step must have X's dtype and an element for each index of quant_axis")
          .Apply(DeclareSteps)
          .Output("Out", "tensor of X's shape and dtype")
          .Inplace("X", "Out")
          .Rows(RowRule::kEach)
          .Infer(InferLearnedStep)
          .Gradient(LearnedStepGradient)
          .Reference(LearnedStep<float>, LearnedStep<double>));
  ops.Add(OpDef(kGradType)
              .Doc("Gradient of fake_quantize_dequantize_learned_step.")
              .ConstraintsOf("fake_quantize_dequantize_learned_step", {"C1", "C2"})
              .Constraint("C3", "Out@GRAD must have X's shape and dtype")
              .Apply(DeclareSteps)
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("Step@GRAD", "gradient of Step")
              .Inplace("Out@GRAD", "X@GRAD")
              .NoGradient("steps of rounding have no second derivative")
              .Infer(InferGrad)
              .Reference(LearnedStepGrad<float>, LearnedStepGrad<double>));
}

}  // namespace coracle::learned_step_op

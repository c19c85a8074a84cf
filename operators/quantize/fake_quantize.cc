// Quantisation with one scale for a tensor. The rows of the family differ in how they compute
// the scale.

#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/quantize/quantize.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace coracle::fake_quantize_op {

void RequireOne(const InferContext& ctx, const char* slot) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta& meta = ctx.Input(slot);
  ctx.Require("C1",
              meta.dtype == ctx.InputDType("X") && InferContext::Matches(NumelOf(meta.shape), 1),
              slot, meta);
}

void InferScaled(InferContext& ctx) {
  for (const char* slot : {"InScale", "InAccum", "InState", "Largest"}) RequireOne(ctx, slot);
  const VarMeta x = ctx.Input("X");
  ctx.SetOutput("Out", x);
  for (const char* slot : {"OutScale", "OutAccum", "OutState"}) ctx.SetOutput(slot, x.dtype, {1});
}

// A number in a slot that may be absent.
template <class T>
class Number {
 public:
  explicit Number(const TensorArg& arg) : arg_(arg) {}
  explicit operator bool() const { return static_cast<bool>(arg_); }
  double Get(const Workspace& ws) const {
    return arg_ ? static_cast<double>(*ws.Data<const T>(arg_)) : 0;
  }
  void Set(const Workspace& ws, double value) const {
    if (arg_) *ws.Data<T>(arg_) = static_cast<T>(value);
  }

 private:
  TensorArg arg_;
};

// The rows: functors that return the scale for the elements of X and update their state.

template <class T>
struct AbsMax {
  explicit AbsMax(const PrepareContext& ctx) : numel(ctx.Input("X").numel) {}
  double operator()(const Workspace&, const T* x) const { return LargestOf(x, numel); }
  int64_t numel;
};

// The largest element of this step and of a window of previous steps.
template <class T>
struct RangeAbsMax {
  explicit RangeAbsMax(const PrepareContext& ctx)
      : numel(ctx.Input("X").numel),
        window(ctx.Attr<int32_t>("window_size")),
        test(ctx.Attr<bool>("is_test")),
        in_scale(ctx.Input("InScale")),
        iter(ctx.Input("Iter")),
        in_scales(ctx.Input("InScales")),
        out_scales(ctx.Output("OutScales")),
        failure(ctx.Failure("C4")) {}
  double operator()(const Workspace& ws, const T* x) const {
    const double before = in_scale.Get(ws);
    const T* held = in_scales ? ws.Data<const T>(in_scales) : nullptr;
    T* scales = out_scales ? ws.Data<T>(out_scales) : nullptr;
    if (scales && !held) std::fill_n(scales, window, T(0));
    if (scales && held && held != scales) std::copy_n(held, window, scales);
    if (test) return before;
    const double now = LargestOf(x, numel);
    const int64_t step = iter ? IndexReader(ws, iter)[0] : 0;
    if (step < 0) ThrowInvalid(failure + ", got " + std::to_string(step));
    if (!scales) return before < now ? now : before;
    const auto removed = static_cast<double>(scales[step % window]);
    scales[step % window] = static_cast<T>(now);
    if (!(before >= now)) return now;
    if (std::abs(removed - before) >= 1e-6) return before;
    return step == 0 ? now : LargestOf(scales, std::min(step, window));
  }
  int64_t numel, window;
  bool test;
  Number<T> in_scale;
  TensorArg iter, in_scales, out_scales;
  std::string failure;
};

// accum / state, two decaying sums: accum of the largest elements, state of ones. A batch counts
// like a test if it has a nan or an infinity, if it is empty, or if its sum would overflow, so that
// one such step does not spoil all that follow.
template <class T>
struct MovingAverage {
  explicit MovingAverage(const PrepareContext& ctx)
      : numel(ctx.Input("X").numel),
        rate(static_cast<double>(ctx.Attr<float>("moving_rate"))),
        test(ctx.Attr<bool>("is_test")),
        in_scale(ctx.Input("InScale")),
        in_accum(ctx.Input("InAccum")),
        in_state(ctx.Input("InState")),
        largest(ctx.Input("Largest")),
        out_accum(ctx.Output("OutAccum")),
        out_state(ctx.Output("OutState")) {}
  double operator()(const Workspace& ws, const T* x) const {
    double accum = in_accum.Get(ws), state = in_state.Get(ws);
    const double given = test ? 0 : largest ? largest.Get(ws) : LargestOf(x, numel);
    const bool empty = largest ? given < 0 : numel == 0;
    const double now = empty ? 0 : given;
    const double sum = rate * accum + now;
    const bool fixed = test || empty || !std::isfinite(static_cast<T>(sum));
    if (!fixed) {
      accum = sum;
      state = rate * state + 1;
    }
    const double scale = in_scale.Get(ws);
    out_accum.Set(ws, accum);
    out_state.Set(ws, state);
    if (fixed && in_scale) return scale;
    if (state != 0) return accum / state;
    return test ? LargestOf(x, numel) : now;
  }
  int64_t numel;
  double rate;
  bool test;
  Number<T> in_scale, in_accum, in_state, largest, out_accum, out_state;
};

template <template <class> class Scale, bool dequantize, class T>
KernelOf<T> FakeQuantize(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const Number<T> out_scale(ctx.Output("OutScale"));
  const Scale<T> scale_of(ctx);
  const Quantizer quantize{LargestInteger(ctx.Attr<int32_t>("bit_length")), dequantize};
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    const double scale = scale_of(ws, in);
    out_scale.Set(ws, scale);
    ParallelFor(x.numel, 8192, [&](int64_t begin, int64_t end) {
      quantize(in + begin, end - begin, scale, o + begin);
    });
  };
}

template <class T>
KernelOf<T> ScaleOnly(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const Number<T> out_scale(ctx.Output("OutScale"));
  const MovingAverage<T> scale_of(ctx);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    out_scale.Set(ws, scale_of(ws, in));
    if (out) CopyBytes(in, ws.Data<T>(out), x.nbytes());
  };
}

void InferRange(InferContext& ctx) {
  InferScaled(ctx);
  const int64_t window = ctx.Attr<int32_t>("window_size");
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C3", window >= 1, "window_size", window);
  if (ctx.HasInput("Iter")) {
    const VarMeta& iter = ctx.Input("Iter");
    ctx.Require("C2", IsIndexType(iter.dtype) && InferContext::Matches(NumelOf(iter.shape), 1),
                iter);
  }
  if (ctx.HasInput("InScales")) {
    const VarMeta& scales = ctx.Input("InScales");
    ctx.Require("C3", scales.dtype == x.dtype && scales.shape.CompatibleWith({window}), scales,
                "window_size", window);
  }
  ctx.SetOutput("OutScales", x.dtype, {window});
}

// Straight-through estimator: rounding is treated as noise, so dX = dOut.
void StraightThrough(GradientContext& g) {
  g.HasOutputGrad("OutScale");  // treated as constant
  g.HasOutputGrad("OutAccum");
  g.HasOutputGrad("OutState");
  if (!g.HasOutput("Out")) return;
  g.Set("X", g.Make("stright_throuth_estimator_grad", {{"Out@GRAD", {g.OutputGrad("Out")}}}, {},
                    "X@GRAD"));
}

// The declaration of one type; the two types of a row differ in `dequantize`.
OpDef ScaledDef(const std::string& type, bool dequantize, const std::string& scale) {
  OpDef def(type);
  const std::string out = dequantize ? " Out = that integer s / Q." : " Out = that integer.";
  def.ComputesIn(OpPrecision::kFloat32)
      .Doc(
          "With Q = 2^(bit_length - 1) - 1, X becomes the integer round(Q min(max(X, -s), s) / "
          "s)." +
          out + " The scale s = OutScale: " + scale)
      .Rows(FixedScaleRows, kFixedScaleRows)
      .Input("X", "floating-point tensor");
  DeclareBits(def);
  if (dequantize)
    def.Gradient(StraightThrough);
  else
    def.NoGradient("the type that takes the integers back at once has one");
  return def;
}

void DeclareOutputs(OpDef& def) {
  def.Output("Out", "tensor of X's shape and dtype")
      .Output("OutScale", "the scale [1]")
      .Inplace("X", "Out");
}

void DeclareMovingAverage(OpDef& def) {
  def.Constraint("C1", "scale, accumulator, state and Largest must hold one element of X's dtype")
      .OptionalInput("InAccum", "the previous accumulator [1]; 0 if absent")
      .OptionalInput("InState", "the previous state [1]; 0 if absent")
      .OptionalInput(
          "Largest",
          "max |X| of all ranks [1], below 0 if they have no elements; if absent, max |X| "
          "(Paddle has no such slot)")
      .OptionalOutput("OutState", "usually InState itself")
      .OptionalOutput("OutAccum", "usually InAccum itself")
      .Attr<float>("moving_rate", 0.9f, "weight of the old accumulator and state")
      .Attr<bool>("is_test", false, "do not update the state")
      .NoGradientTo({"InAccum", "InState", "Largest"})
      .Inplace("InAccum", "OutAccum")
      .Inplace("InState", "OutState")
      .Infer(InferScaled);
}

constexpr const char* kAverageDoc =
    "OutAccum / OutState with OutAccum = moving_rate InAccum + max |X| and OutState = moving_rate "
    "InState + 1 (an X that is empty, or that has a nan or an infinity, changes neither, nor the "
    "scale)";

void AddAbsMax(OpRegistry& ops) {
  const auto def = [](const char* type, bool dequantize) {
    return ScaledDef(type, dequantize, "max |X|.").Apply(DeclareOutputs).Infer(InferScaled);
  };
  ops.Add(def("fake_quantize_abs_max", false)
              .Reference(FakeQuantize<AbsMax, false, float>, FakeQuantize<AbsMax, false, double>));
  ops.Add(def("fake_quantize_dequantize_abs_max", true)
              .Reference(FakeQuantize<AbsMax, true, float>, FakeQuantize<AbsMax, true, double>));
}

void AddMovingAverage(OpRegistry& ops) {
  const auto def = [](const char* type, bool dequantize) {
    return ScaledDef(type, dequantize, fmt::format("{}; InScale under is_test.", kAverageDoc))
        .Input("InScale", "the previous scale [1]")
        .Apply(DeclareOutputs)
        .NoGradientTo({"InScale"})
        .Inplace("InScale", "OutScale")
        .Apply(DeclareMovingAverage);
  };
  ops.Add(def("fake_quantize_moving_average_abs_max", false)
              .Reference(FakeQuantize<MovingAverage, false, float>,
                         FakeQuantize<MovingAverage, false, double>));
  ops.Add(def("fake_quantize_dequantize_moving_average_abs_max", true)
              .Reference(FakeQuantize<MovingAverage, true, float>,
                         FakeQuantize<MovingAverage, true, double>));
  ops.Add(OpDef("moving_average_abs_max_scale")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = X, and OutScale = " + std::string(kAverageDoc) +
                   "; with is_test InScale or, without it, InAccum / InState. Without any state, "
                   "max |X|.")
              .Input("X", "floating-point tensor")
              .OptionalInput("InScale",
                             "the previous scale [1], read with is_test; if absent, the value of "
                             "OutScale's variable is used (Paddle has no such slot)")
              .OptionalOutput("Out", "X itself")
              .Output("OutScale", "the scale [1]")
              .Inplace("X", "Out")
              .Inplace("InScale", "OutScale")
              .KeepsOutputs({"OutScale"}, "is_test")
              .NoGradientTo({"InScale"})
              .Apply(DeclareMovingAverage)
              .Rows(FixedScaleRows, kFixedScaleRows)
              .Gradient(StraightThrough)
              .Reference(ScaleOnly<float>, ScaleOnly<double>));
}

void AddRange(OpRegistry& ops) {
  ops.Add(
      ScaledDef("fake_quantize_range_abs_max", false,
                "InScale with is_test. Otherwise OutScales = InScales with max |X| at Iter modulo "
                "window_size. If max |X| exceeds InScale, s = max |X|. If the replaced element was "
                "InScale, s = the largest of the first min(Iter, window_size) elements of "
                "OutScales; otherwise s = InScale. Without OutScales, s = max(InScale, max |X|).")
          .Constraint("C1", "InScale must hold one element of X's dtype")
          .Constraint("C2", "Iter must hold one int32 or int64")
          .Constraint("C3", "InScales must be [window_size] of X's dtype, one element or more")
          .Constraint("C4", "Iter must not be negative")
          .Input("InScale", "the previous scale [1]")
          .OptionalInput("Iter", "number of the step [1]; 0 if absent")
          .OptionalInput("InScales",
                         "the previous window [window_size]; if absent, the value of OutScales' "
                         "variable is used, or zeros (Paddle has no such slot)")
          .Apply(DeclareOutputs)
          .OptionalOutput("OutScales", "usually InScales itself")
          .Attr<int32_t>("window_size", 10000, "steps in the window")
          .Attr<bool>("is_test", false, "do not update the state")
          .Inplace("InScale", "OutScale")
          .Inplace("InScales", "OutScales")
          .KeepsOutputs({"OutScales"}, "is_test", false)
          .Infer(InferRange)
          .Reference(FakeQuantize<RangeAbsMax, false, float>,
                     FakeQuantize<RangeAbsMax, false, double>));
}

void AddStraightThrough(OpRegistry& ops) {
  ops.Add(OpDef("stright_throuth_estimator_grad")
              .Doc("Gradient of an op that quantizes and dequantizes, as if it were the identity: "
                   "X@GRAD = Out@GRAD.")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .Inplace("Out@GRAD", "X@GRAD")
              .Infer([](InferContext& ctx) { ctx.SetOutput("X@GRAD", ctx.Input("Out@GRAD")); })
              .Gradient([](GradientContext& g) { g.Set("Out@GRAD", g.Grad("X@GRAD")); })
              .Reference([](const PrepareContext& ctx) -> Kernel {
                const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
                return [=](Workspace& ws) {
                  CopyBytes(ws.Data<const void>(dout), ws.Data<void>(dx), dout.nbytes());
                };
              }));
}

void Register(OpRegistry& ops) {
  AddAbsMax(ops);
  AddMovingAverage(ops);
  AddRange(ops);
  AddStraightThrough(ops);
}

}  // namespace coracle::fake_quantize_op

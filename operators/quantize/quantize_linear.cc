// Paddle's quantize_linear and dequantize_linear. Their scale is a threshold, the number that the
// largest integer represents, and their zero point is 0.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/quantize/affine.h>
#include <coracle/operators/quantize/quantize.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

namespace coracle::quantize_linear_op {

constexpr int64_t kGrain = 8192;

// --- shape rules ---

// Returns the shape of the scales.
Shape CheckScale(const InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &scale = ctx.Input("Scale");
  const int axis = ctx.Attr<int32_t>("quant_axis");
  ctx.Require("C1", axis >= -1 && axis < x.shape.rank(), "quant_axis", axis, "X", x.shape);
  const Shape scales = {axis < 0 ? 1 : x.shape[axis]};
  ctx.Require("C2",
              IsFloating(scale.dtype) && InferContext::Matches(NumelOf(scale.shape), scales[0]),
              "Scale", scale, "X", x);
  for (const char* slot : {"InAccum", "InState"}) {
    if (!ctx.HasInput(slot)) continue;
    const VarMeta& meta = ctx.Input(slot);
    ctx.Require("C3", meta.dtype == scale.dtype && InferContext::Matches(NumelOf(meta.shape), 1),
                slot, meta, "Scale", scale);
  }
  return scales;
}

void SetState(InferContext& ctx, const Shape& scales) {
  const DType dtype = ctx.InputDType("Scale");
  ctx.SetOutput("OutScale", dtype, scales);
  for (const char* slot : {"OutAccum", "OutState"}) ctx.SetOutput(slot, dtype, {1});
}

void InferQuantize(InferContext& ctx) {
  const Shape scales = CheckScale(ctx);
  ctx.SetOutput("Y", ctx.Input("X"));
  SetState(ctx, scales);
}

void InferDequantize(InferContext& ctx) {
  const Shape scales = CheckScale(ctx);
  VarMeta y = ctx.Input("X");
  if (!IsFloating(y.dtype)) y.dtype = ctx.InputDType("Scale");
  ctx.SetOutput("Y", y);
  SetState(ctx, scales);
}

// --- kernels ---

// A float, or several, in a slot that may be absent.
class Reals {
 public:
  explicit Reals(const TensorArg& arg) : arg_(arg) {
    if (arg) read_ = FindRealReader(arg.dtype);
  }
  explicit operator bool() const { return static_cast<bool>(arg_); }
  int64_t count() const { return arg_.numel; }
  double Get(const Workspace& ws, int64_t i = 0) const {
    return arg_ ? read_(ws.Data<const void>(arg_), i) : 0;
  }
  void Set(const Workspace& ws, double value, int64_t i = 0) const {
    if (!arg_) return;
    DispatchDType(arg_.dtype, [&]<class T>() {
      if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>)
        ws.Data<T>(arg_)[i] = ToHalf<T>(value);
      else
        ws.Data<T>(arg_)[i] = static_cast<T>(value);
    });
  }

 private:
  TensorArg arg_;
  RealReader read_ = nullptr;
};

// The channels of the scales; without an axis, all of X is one.
Channels ChannelsOf(const PrepareContext& ctx) {
  const Shape shape = ctx.Input("X").shape;
  const int axis = ctx.Attr<int32_t>("quant_axis");
  return axis < 0 ? Channels(Shape{1, shape.numel()}, 0) : Channels(shape, axis);
}

// The scales and their state before and after the op.
struct State {
  explicit State(const PrepareContext& ctx)
      : scale(ctx.Input("Scale")),
        in_accum(ctx.Input("InAccum")),
        in_state(ctx.Input("InState")),
        out_scale(ctx.Output("OutScale")),
        out_accum(ctx.Output("OutAccum")),
        out_state(ctx.Output("OutState")) {}
  // Keeps the scales.
  void Copy(const Workspace& ws) const {
    for (int64_t c = 0; out_scale && c < out_scale.count(); ++c)
      out_scale.Set(ws, scale.Get(ws, c), c);
    out_accum.Set(ws, in_accum.Get(ws));
    out_state.Set(ws, in_state.Get(ws));
  }
  Reals scale, in_accum, in_state, out_scale, out_accum, out_state;
};

// round_type 0: to even, then clamped to one integer more at the negative end. 1: the formula of
// the fake_quantize ops.
struct Rounding {
  double largest;
  bool away;

  template <class T>
  void operator()(const T* x, int64_t n, double scale, T* y) const {
    if (away) return Quantizer{largest, false}(x, n, scale, y);
    const double divisor = scale <= 1e-30 ? scale + 1e-6 : scale;
    for (int64_t i = 0; i < n; ++i) {
      const double q = std::nearbyint(largest * static_cast<double>(x[i]) / divisor);
      y[i] = static_cast<T>(q < -largest - 1 ? -largest - 1 : q > largest ? largest : q);
    }
  }
};

// The scales of a training step, one for each channel: the largest elements; of all of X, their
// moving average.
template <class T>
void Observe(const Workspace& ws, const State& state, const Channels& channels, double rate,
             bool all, const T* x, double* scales) {
  std::fill_n(scales, channels.count, 0.0);
  channels.ForEachRun(
      [&](int64_t c, int64_t at) { scales[c] = LargestOf(x + at, channels.inner, scales[c]); });
  if (all) {
    const double accum = rate * state.in_accum.Get(ws) + scales[0];
    const double count = rate * state.in_state.Get(ws) + 1;
    state.out_accum.Set(ws, accum);
    state.out_state.Set(ws, count);
    scales[0] = accum / count;
  } else {
    state.out_accum.Set(ws, state.in_accum.Get(ws));
    state.out_state.Set(ws, state.in_state.Get(ws));
  }
  for (int64_t c = 0; c < channels.count; ++c) state.out_scale.Set(ws, scales[c], c);
}

template <class T>
KernelOf<T> Quantize(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Output("Y");
  const Channels channels = ChannelsOf(ctx);
  const TensorArg scratch = ctx.Scratch(DType::kFloat64, {channels.count});
  const State state(ctx);
  const Rounding rounding = {LargestInteger(ctx.Attr<int32_t>("bit_length")),
                             ctx.Attr<int32_t>("round_type") == 1};
  const bool test = ctx.Attr<bool>("is_test"), observes = ctx.Attr<bool>("only_observer");
  const bool all = ctx.Attr<int32_t>("quant_axis") < 0;
  const auto rate = static_cast<double>(ctx.Attr<float>("moving_rate"));
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* out = ws.Data<T>(y);
    auto* scales = ws.Data<double>(scratch);
    for (int64_t c = 0; test && c < channels.count; ++c) scales[c] = state.scale.Get(ws, c);
    if (test)
      state.Copy(ws);
    else
      Observe(ws, state, channels, rate, all, in, scales);
    if (observes) return CopyBytes(in, out, x.nbytes());
    channels.ForEachRun([&](int64_t c, int64_t at) {
      ParallelFor(channels.inner, kGrain, [&](int64_t begin, int64_t end) {
        rounding(in + at + begin, end - begin, scales[c], out + at + begin);
      });
    });
  };
}

template <class T, class Out>
Kernel DequantizeTo(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Output("Y");
  const Channels channels = ChannelsOf(ctx);
  const State state(ctx);
  const double largest = LargestInteger(ctx.Attr<int32_t>("bit_length"));
  const bool observes = ctx.Attr<bool>("only_observer");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    Out* out = ws.Data<Out>(y);
    channels.ForEachRun([&](int64_t c, int64_t at) {
      const double factor = observes ? 1 : state.scale.Get(ws, c) / largest;
      ParallelFor(channels.inner, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = at + begin; i < at + end; ++i) {
          const double value = static_cast<double>(in[i]) * factor;
          if constexpr (sizeof(Out) == 2)
            out[i] = ToHalf<Out>(value);
          else
            out[i] = static_cast<Out>(value);
        }
      });
    });
    state.Copy(ws);
  };
}

template <class T>
KernelOf<T> Dequantize(const PrepareContext& ctx) {
  return DispatchDType(ctx.Output("Y").dtype, [&]<class Out>() -> Kernel {
    if constexpr (std::is_integral_v<Out>)
      return {};
    else
      return DequantizeTo<T, Out>(ctx);
  });
}

// --- declarations ---

// The scales of all rows are their largest elements, unless is_test fixes them.
RowEffect ScaleRows(const RowQuery& query) {
  const bool fixed =
      !query.spec.FindAttr("is_test") || query.spec.AttrOf<bool>(query.op, "is_test");
  return fixed ? RowRule::kEach : RowRule::kMixes;
}

OpDef LinearDef(const char* type, const char* doc, const char* x) {
  OpDef def(type);
  def.ComputesIn(OpPrecision::kFloat32)
      .Doc(doc)
      .Constraint("C1", "quant_axis must be -1 or an axis of X")
      .Constraint("C2", "Scale must have floats: one, or one for each index of quant_axis")
      .Constraint("C3", "InAccum and InState must have one element of Scale's dtype")
      .Input("X", x)
      .Input("Scale", "the number that the largest integer represents [1], or [C]")
      .OptionalInput("ZeroPoint", "Paddle's zero points, which are 0; not read")
      .OptionalInput("InAccum", "the previous accumulator [1]; 0 if absent")
      .OptionalInput("InState", "the previous state [1]; 0 if absent")
      .Output("Y", "tensor of X's shape")
      .OptionalOutput("OutScale", "the scales, usually Scale itself")
      .OptionalOutput("OutAccum", "usually InAccum itself")
      .OptionalOutput("OutState", "usually InState itself")
      .Attr<int32_t>("quant_axis", 0, "the axis of the scales; -1: one scale")
      .Attr<bool>("only_observer", false, "only find the scales: Y = X")
      .Inplace("Scale", "OutScale")
      .Inplace("InAccum", "OutAccum")
      .Inplace("InState", "OutState")
      .Tables({"Scale", "ZeroPoint"});
  DeclareBits(def);
  return def;
}

void Register(OpRegistry& ops) {
  ops.Add(
      LinearDef("quantize_linear",
                "With Q = 2^(bit_length - 1) - 1 and the scale s, Y = min(max(round(Q X / s), -Q - "
                "1), Q), as floats. Without is_test, s = OutScale is the largest |X|: of each "
                "index of quant_axis, or of all of X, as OutAccum / OutState with OutAccum = "
                "moving_rate InAccum + max |X| and OutState = moving_rate InState + 1.",
                "floating-point tensor")
          .Attr<int32_t>("round_type", 0,
                         "0: halves to the even integer; 1: X is limited to [-s, s], and halves go "
                         "away from 0")
          .Range(0, 1)
          .Attr<bool>("is_test", true, "s = Scale")
          .Attr<float>("moving_rate", 0.9f, "weight of the old accumulator and state")
          .Inplace("X", "Y")
          .Rows(ScaleRows, "each by itself if is_test fixes the scale; otherwise they share it")
          .NoGradient("fake_quantize_dequantize ops, which also take the integers back, have one")
          .Infer(InferQuantize)
          .Reference(Quantize<float>, Quantize<double>));
  ops.Add(LinearDef("dequantize_linear",
                    "Y = X Scale / Q with Q = 2^(bit_length - 1) - 1, in X's dtype, or in Scale's "
                    "if X has integers.",
                    "int8 tensor, or a floating-point tensor of integer values")
              .Attr<int32_t>("round_type", 0, "not read")
              .Attr<bool>("is_test", true, "not read")
              .Attr<float>("moving_rate", 0.9f, "not read")
              .Rows(RowRule::kEach)
              .NoGradient("it dequantizes values of an inference program")
              .Infer(InferDequantize)
              .Reference(Dequantize<int8_t>, Dequantize<float>, Dequantize<double>));
}

}  // namespace coracle::quantize_linear_op

// Quantisation with a scale for each channel.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/quantize/quantize.h>

#include <algorithm>

namespace coracle::channel_wise_quantize_op {

void InferChannelWise(InferContext& ctx) {
  const VarMeta x = ctx.Input("X");
  const int axis = ctx.Attr<int32_t>("quant_axis");
  ctx.Require("C1", axis >= 0 && axis <= 1 && axis < x.shape.rank(), "quant_axis", axis, "X",
              x.shape);
  const Shape scales = {x.shape[axis]};
  if (ctx.HasInput("InScale")) {
    const VarMeta& given = ctx.Input("InScale");
    ctx.Require("C2", given.dtype == x.dtype && given.shape.CompatibleWith(scales), given, "X", x);
  } else if (ctx.exact() && ctx.spec().FindAttr("is_test")) {
    ctx.Require("C2", !ctx.Attr<bool>("is_test"), "is_test", true);
  }
  ctx.SetOutput("Out", x);
  ctx.SetOutput("OutScale", x.dtype, scales);
}

template <bool dequantize, class T>
KernelOf<T> ChannelWise(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), in_scale = ctx.Input("InScale");
  const TensorArg out_scale = ctx.Output("OutScale");
  const Channels channels(x.shape, ctx.Attr<int32_t>("quant_axis"));
  const Quantizer quantize{LargestInteger(ctx.Attr<int32_t>("bit_length")), dequantize};
  const bool given = !dequantize && ctx.Attr<bool>("is_test");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T *o = ws.Data<T>(out), *scales = ws.Data<T>(out_scale);
    if (given) {
      const T* from = ws.Data<const T>(in_scale);
      if (from != scales) std::copy_n(from, channels.count, scales);
    } else {
      std::fill_n(scales, channels.count, T(0));
      channels.ForEachRun([&](int64_t c, int64_t at) {
        scales[c] =
            static_cast<T>(LargestOf(in + at, channels.inner, static_cast<double>(scales[c])));
      });
    }
    channels.ForEachRun([&](int64_t c, int64_t at) {
      quantize(in + at, channels.inner, static_cast<double>(scales[c]), o + at);
    });
  };
}

OpDef ChannelDef(const std::string& type, const std::string& out) {
  OpDef def(type);
  def.ComputesIn(OpPrecision::kFloat32)
      .Doc(
          "With Q = 2^(bit_length - 1) - 1 and for each channel along quant_axis the scale s = the "
          "largest |X|, X becomes the integer round(Q X / s). " +
          out)
      .Constraint("C1", "quant_axis must be 0 or 1, an axis of X")
      .Input("X", "floating-point tensor, a filter or matrix of weights")
      .Output("Out", "tensor of X's shape and dtype")
      .Output("OutScale", "the scales [C]")
      .Attr<int32_t>("quant_axis", 0, "the axis of the channels");
  DeclareBits(def);
  return def.Inplace("X", "Out").Rows(FixedScaleRows, kFixedScaleRows).Infer(InferChannelWise);
}

void Register(OpRegistry& ops) {
  ops.Add(ChannelDef("fake_channel_wise_quantize_abs_max",
                     "Out = that integer. Under is_test the scales are InScale.")
              .Constraint("C2",
                          "InScale must have X's dtype and an element for each channel; with "
                          "is_test, InScale or OutScale must hold the scales")
              .OptionalInput("InScale",
                             "scales for is_test [C]; if absent, the value of OutScale's variable "
                             "is used (Paddle has no such slot)")
              .Attr<bool>("is_test", false, "take the scales from InScale")
              .Inplace("InScale", "OutScale")
              .KeepsOutputs({"OutScale"}, "is_test")
              .NoGradient("the op type that dequantizes at once has one")
              .Reference(ChannelWise<false, float>, ChannelWise<false, double>));
  ops.Add(ChannelDef("fake_channel_wise_quantize_dequantize_abs_max", "Out = that integer s / Q.")
              .Gradient([](GradientContext& g) {
                g.HasOutputGrad("OutScale");  // treated as constant
                g.Set("X", g.Make("stright_throuth_estimator_grad",
                                  {{"Out@GRAD", {g.OutputGrad("Out")}}}, {}, "X@GRAD"));
              })
              .Reference(ChannelWise<true, float>, ChannelWise<true, double>));
}

}  // namespace coracle::channel_wise_quantize_op

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/window.h>
#include <coracle/operators/norm/norm.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::affine_channel_op {

template <class Context>
int ChannelAxis(const Context& ctx, int rank) {
  return ImageLayoutOf(ctx.template Attr<std::string>("data_layout")).channels_last ? rank - 1 : 1;
}

void InferAffineChannel(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 2 || x.shape.rank() == 4, x.shape);
  const int64_t channels = x.shape[ChannelAxis(ctx, x.shape.rank())];
  for (const char* slot : {"Scale", "Bias"}) {
    const Shape& shape = ctx.InputShape(slot);
    ctx.Require("C2", shape.rank() == 1 && InferContext::Matches(shape[0], channels), slot, shape,
                "channels", channels);
    RequireSameDType(ctx, "C3", slot, "X");
  }
  ctx.SetOutput("Out", x);
}

NormView ViewOf(const PrepareContext& ctx, const Shape& x) {
  const int axis = ChannelAxis(ctx, x.rank());
  const bool last = axis == x.rank() - 1;
  return ChannelView(x[0], x[axis], last ? x.Product(1, axis) : x.Product(2, x.rank()), last);
}

template <class T>
KernelOf<T> AffineChannel(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), scale = ctx.Input("Scale"), bias = ctx.Input("Bias");
  const TensorArg out = ctx.Output("Out");
  const NormView v = ViewOf(ctx, x.shape);
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *a = ws.Data<const T>(scale), *b = ws.Data<const T>(bias);
    T* o = ws.Data<T>(out);
    for (int64_t c = 0; c < v.groups; ++c) {
      const double factor = static_cast<double>(a[c]), offset = static_cast<double>(b[c]);
      for (int64_t i = 0; i < v.size; ++i) {
        const auto value = static_cast<double>(in[v.At(c, i)]);
        o[v.At(c, i)] = static_cast<T>(value * factor + offset);
      }
    }
  };
}

Kernel AffineChannelFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), scale = ctx.Input("Scale"), bias = ctx.Input("Bias");
  const TensorArg out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32 || x.numel == 0) return {};
  const NormView v = ViewOf(ctx, x.shape);
  const TensorArg shift = ctx.Scratch(DType::kFloat32, {v.groups});
  return [=](Workspace& ws) {
    float* none = ws.Data<float>(shift);
    std::fill_n(none, v.groups, 0.0f);
    const float *a = ws.Data<const float>(scale), *b = ws.Data<const float>(bias);
    const auto factors_of = [=](int64_t c) -> NormFactors {
      return {0, static_cast<double>(a[c]), static_cast<double>(b[c]), 0};
    };
    ChannelAffine(v, NormAffine{ws.Data<const float>(x), nullptr, ws.Data<float>(out)}, none, a, b,
                  ExactFactors(factors_of));
  };
}

// dX = dOut Scale, dScale = sum of dOut X, dBias = sum of dOut.
void AffineChannelGradient(GradientContext& g) {
  const Variable x = g.In("X"), dout = g.Grad("Out");
  const int axis = ChannelAxis(g, x.shape().rank());
  std::vector<int32_t> others;
  for (int i = 0; i < x.shape().rank(); ++i) {
    if (i != axis) others.push_back(i);
  }
  g.Set("X", g.Make("elementwise_mul", {{"X", {dout.name()}}, {"Y", {g.Input("Scale")}}},
                    {{"axis", static_cast<int32_t>(axis)}}));
  g.Set("Scale", Sum(dout * x, others));
  g.Set("Bias", Sum(dout, others));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("affine_channel")
              .Doc("Out = X Scale[c] + Bias[c] for each channel c.")
              .Constraint("C1", "X must have rank 2 or 4")
              .Constraint("C2", "Scale and Bias must have shape [channels]")
              .Constraint("C3", "all inputs must have one dtype")
              .Input("X", "[N, C, H, W], or [N, H, W, C] for NHWC")
              .Input("Scale", "[C]")
              .Input("Bias", "[C]")
              .Output("Out", "tensor of X's shape")
              .Attr<std::string>("data_layout", "AnyLayout", "NHWC: channels last; else axis 1")
              .OneOf({"NCHW", "NHWC", "AnyLayout"})
              .ImageLayout("data_layout", {"X", "Out"})
              .Inplace("X", "Out")
              .Rows(RowRule::kEach)
              .Tables({"Bias"})
              .Infer(InferAffineChannel)
              .Gradient(AffineChannelGradient)
              .Reference(AffineChannel<float>, AffineChannel<double>)
              .Fast(AffineChannelFast));
}

}  // namespace coracle::affine_channel_op

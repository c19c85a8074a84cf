#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/conv.h>
#include <coracle/operators/conv/conv_rules.h>

#include <utility>

namespace coracle::inline internal {

ImageStrides StridesOf(int64_t channels, int64_t depth, int64_t height, int64_t width,
                       bool channels_last) {
  const int64_t plane = height * width, n = channels * depth * plane;
  if (channels_last) return {n, 1, plane * channels, width * channels, channels};
  return {n, depth * plane, plane, width, 1};
}

void LayFlat(WindowAxes& axes) {
  if (IsPoint(axes.w) && !IsPoint(axes.h)) std::swap(axes.h, axes.w);
}

ConvGeometry ConvGeometryOf(const PrepareContext& ctx, const TensorArg& input,
                            const TensorArg& filter) {
  const int axes = filter.shape.rank() - 2;
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"), axes);
  const WindowSpec spec = ConvWindow(ctx);
  ConvGeometry g;
  g.axes = axes;
  g.channels_last = layout.channels_last;
  g.batch = input.shape[0];
  g.in_channels = input.shape[layout.channel()];
  g.out_channels = filter.shape[0];
  g.groups = ctx.Attr<int32_t>("groups");
  for (int i = 0; i < axes; ++i)
    g.axis(i) = ResolveAxis(spec, i, input.shape[layout.axis(i)], filter.shape[2 + i]);
  LayFlat(g);
  return g;
}

namespace {

void RequireGroups(const InferContext& ctx, int64_t channels, const Shape& filter) {
  const int64_t groups = ctx.Attr<int32_t>("groups");
  ctx.Require("C6", groups > 0, "groups", groups);
  ctx.Require("C6", filter[0] < 0 || filter[0] % groups == 0, "filters", filter[0], "groups",
              groups);
  if (channels < 0) return;
  ctx.Require("C6", channels % groups == 0 && InferContext::Matches(channels / groups, filter[1]),
              "Filter.shape[1]", filter[1], "groups", groups, "channels", channels);
}

}  // namespace

ConvShapes CheckConvShapes(const InferContext& ctx) {
  const Shape& input = ctx.InputShape("Input");
  const Shape& filter = ctx.InputShape("Filter");
  const int axes = AxesOf(ctx.op().type());
  ctx.Require("C1", input.rank() == 2 + axes, input.rank());
  ctx.Require("C2", filter.rank() == 2 + axes, filter.rank());
  const WindowSpec spec = ConvWindow(ctx);
  ctx.Require("C3", StridesAreValid(spec, axes), spec.strides);
  ctx.Require("C4", PaddingsAreValid(spec, axes), "paddings", spec.paddings);
  ctx.Require("C5", DilationsAreValid(spec, axes), spec.dilations);
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"), axes);
  RequireGroups(ctx, input[layout.channel()], filter);
  ConvShapes shapes{input, filter[0]};
  shapes.output[layout.channel()] = filter[0];
  for (int axis = 0; axis < axes; ++axis) {
    const int dim = layout.axis(axis);
    const WindowAxis w = ResolveAxis(spec, axis, input[dim], filter[2 + axis]);
    ctx.Require("C7", w.out != 0, "kernel", w.kernel, "size", w.in);
    shapes.output[dim] = w.out;
  }
  return shapes;
}

// Each output element is a sum of products, one for each element of a row of the filter
// [out, in / groups, ...].
double ConvMultiplyAdds(const OpShapes& op) {
  const Shape *out = op.Out("Output"), *filter = op.In("Filter");
  return out && filter ? Elements(*out) * Elements(*filter, 1, filter->rank()) : 0;
}

template <class T>
void ConvBiasGrad(const ConvGeometry& g, const T* dout, T* dbias) {
  const ImageStrides s = g.OutStrides();
  const int64_t per_channel = g.batch * g.OutPixels();
  ParallelFor(g.out_channels, 1 + 65536 / (1 + per_channel), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double sum = 0;
      for (int64_t n = 0; n < g.batch; ++n) {
        for (int64_t y = 0; y < g.d.out * g.h.out; ++y) {
          const T* row = dout + n * s.n + c * s.c + y * s.h;
          for (int64_t x = 0; x < g.w.out; ++x) sum += static_cast<double>(row[x * s.w]);
        }
      }
      dbias[c] = static_cast<T>(sum);
    }
  });
}

template void ConvBiasGrad<float>(const ConvGeometry&, const float*, float*);
template void ConvBiasGrad<double>(const ConvGeometry&, const double*, double*);

}  // namespace coracle::inline internal

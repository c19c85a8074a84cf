#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/conv.h>

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

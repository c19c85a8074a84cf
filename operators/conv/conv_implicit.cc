#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/conv_implicit.h>
#include <coracle/operators/kernels/matrix_tile.h>
#include <coracle/operators/kernels/window_products.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

namespace coracle::inline internal {
namespace {

int64_t TapsOf(const ConvGeometry& g) { return g.h.kernel * g.w.kernel; }

// Whether the rows of the product are the pixels of the image, in order.
bool IsPointwise(const ConvGeometry& g) {
  const auto whole = [](const WindowAxis& a) {
    return a.kernel == 1 && a.stride == 1 && a.before == 0 && a.out == a.in;
  };
  return whole(g.h) && whole(g.w);
}

// By measurement with AVX2: oneDNN's kernels for 1 x 1 windows come close to peak performance, but
// a residual or an activation that it cannot apply exactly costs a sweep each, and a filter used
// for few pixels is not prefetched. Its kernels for larger windows lose up to a fifth if the
// windows are some pixels apart or the rows are short. If images have one row, they lose up to two
// thirds if the taps of a window are apart, and a third if they are many.
bool Pays(const ConvGeometry& g, const ConvForwardArgs& args) {
  if (VectorLanes() != 8 || g.in_channels < 16 || g.out_channels < 16) return false;
  const bool many = g.w.dilation > 1 || g.w.kernel >= 9;
  if (IsPoint(g.h) && many && g.in_channels >= 32 && g.out_channels >= 32) return true;
  if (!IsPointwise(g)) return g.in_channels >= 64 && (g.w.stride > 1 || g.w.out <= 8);
  if (g.batch * g.OutPixels() <= 8) return g.FilterNumel() >= 16 * 1024;
  const bool relu = args.activation.name() == std::string_view("relu");
  return (relu && g.in_channels <= 96) || (args.residual && g.in_channels <= 256);
}

// Filter [M, C, kh, kw] in the layout of the products, and back.
PackedLayout LayoutOf(const ConvGeometry& g, const TensorArg& filter) {
  const int64_t channels = g.in_channels, taps = TapsOf(g), columns = g.out_channels;
  const int64_t rows = CheckedMul(taps, channels), size = PackedWindowSize(rows, columns);
  const auto for_each = [=](auto&& f) {
    for (int64_t m = 0; m < columns; ++m) {
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t t = 0; t < taps; ++t)
          f((m * channels + c) * taps + t, PackedWindowAt(rows, t * channels + c, m));
      }
    }
  };
  PackedLayout layout{"conv_implicit", {}, {}};
  layout.pack = [=](const Tensor& plain) {
    Tensor packed = Tensor::Zeros(DType::kFloat32, {size});
    const float* from = plain.data<float>();
    float* to = packed.data<float>();
    for_each([&](int64_t i, int64_t at) { to[at] = from[i]; });
    return packed;
  };
  layout.unpack = [=, shape = filter.shape](const Tensor& packed) {
    Tensor plain(DType::kFloat32, shape);
    const float* from = packed.data<float>();
    float* to = plain.data<float>();
    for_each([&](int64_t i, int64_t at) { to[i] = from[at]; });
    return plain;
  };
  return layout;
}

// Offsets of the inputs of all windows: [taps][pixels], -1 outside of the image.
std::vector<int64_t> OffsetsOf(const ConvGeometry& g) {
  std::vector<int64_t> offsets;
  offsets.reserve(static_cast<size_t>(CheckedMul(TapsOf(g), g.batch * g.OutPixels())));
  for (int64_t t = 0; t < TapsOf(g); ++t) {
    for (int64_t n = 0; n < g.batch; ++n) {
      for (int64_t i = 0; i < g.h.out; ++i) {
        const int64_t y = g.h.Start(i) + t / g.w.kernel * g.h.dilation;
        for (int64_t j = 0; j < g.w.out; ++j) {
          const int64_t x = g.w.Start(j) + t % g.w.kernel * g.w.dilation;
          const bool inside = y >= 0 && y < g.h.in && x >= 0 && x < g.w.in;
          offsets.push_back(inside ? ((n * g.h.in + y) * g.w.in + x) * g.in_channels : -1);
        }
      }
    }
  }
  return offsets;
}

}  // namespace

Kernel ConvForwardImplicit(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvForwardArgs& args, bool by_rule) {
  if (args.input.dtype != DType::kFloat32 || g.axes != 2 || !g.channels_last || g.groups != 1)
    return {};
  if (g.IsEmpty() || (by_rule && !Pays(g, args))) return {};
  const std::shared_ptr<const Tensor> filter = ctx.Packed("Filter", LayoutOf(g, args.filter));
  if (!filter) return {};
  const bool pointwise = IsPointwise(g);
  const auto offsets = std::make_shared<const std::vector<int64_t>>(
      pointwise ? std::vector<int64_t>() : OffsetsOf(g));
  const TensorArg zeros = pointwise ? TensorArg() : ctx.Scratch(DType::kFloat32, {g.in_channels});
  WindowProducts all;
  all.taps = TapsOf(g);
  all.channels = g.in_channels;
  all.pixels = g.batch * g.OutPixels();
  all.columns = g.out_channels;
  all.relu = args.activation.name() == std::string_view("relu");
  const int64_t units = NumWindowUnits(all);
  const int64_t each = all.taps * all.channels * all.pixels * all.columns / units;
  return [=](Workspace& ws) {
    WindowProducts products = all;
    products.in = ws.Data<const float>(args.input);
    products.filter = filter->data<float>();
    if (!pointwise) products.offsets = offsets->data();
    if (args.bias) products.bias = ws.Data<const float>(args.bias);
    if (args.residual) products.residual = ws.Data<const float>(args.residual);
    products.out = ws.Data<float>(args.output);
    if (zeros) {
      std::fill_n(ws.Data<float>(zeros), g.in_channels, 0.0f);
      products.zeros = ws.Data<const float>(zeros);
    }
    ParallelFor(units, 1 + 300000 / (1 + each),
                [&](int64_t begin, int64_t end) { RunWindowUnits(products, begin, end); });
    if (all.relu || !args.activation) return;
    ParallelFor(g.OutputNumel(), 65536, [&](int64_t begin, int64_t end) {
      args.activation.ApplyFast(products.out + begin, end - begin);
    });
  };
}

}  // namespace coracle::inline internal

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/conv_direct.h>
#include <coracle/operators/conv/conv_direct_simd.h>
#include <coracle/operators/kernels/matrix_tile.h>

#include <algorithm>
#include <memory>
#include <string_view>

namespace coracle::inline internal {
namespace {

bool IsRelu(const ConvActivation& activation) {
  return activation.name() == std::string_view("relu");
}

// A filter in the layout of a loop: packed once if it is constant, else in each run, in
// scratch memory.
struct PackedFilter {
  using Pack = std::function<void(const float* plain, float* packed)>;

  PackedFilter(const PrepareContext& ctx, const TensorArg& from, const std::string& id,
               int64_t floats, const Pack& to, const Pack& back)
      : filter(from), pack(to) {
    PackedLayout layout{id, {}, {}};
    layout.pack = [=](const Tensor& plain) {
      Tensor packed(DType::kFloat32, {floats});
      to(plain.data<float>(), packed.data<float>());
      return packed;
    };
    layout.unpack = [=, shape = from.shape](const Tensor& packed) {
      Tensor plain(DType::kFloat32, shape);
      back(packed.data<float>(), plain.data<float>());
      return plain;
    };
    constant = ctx.Packed("Filter", layout);
    if (!constant) scratch = ctx.Scratch(DType::kFloat32, {floats});
  }
  const float* Read(Workspace& ws) const {
    if (constant) return constant->data<float>();
    pack(ws.Data<const float>(filter), ws.Data<float>(scratch));
    return ws.Data<const float>(scratch);
  }

  TensorArg filter, scratch = {};
  Pack pack;
  std::shared_ptr<const Tensor> constant;
};

// --- depthwise ---

bool HasRowLoop(const ConvGeometry& g) {
  return g.w.dilation == 1 && HasDepthwiseLoop(g.w.kernel, g.w.stride, g.in_channels);
}

// By measurement: with AVX2, oneDNN has only its reference loop for windows that are apart along
// the row, and is up to twenty times slower than ours; for images with one row it is slower, too.
bool IsOurs(const ConvGeometry& g) { return IsPoint(g.h) || g.w.dilation > 1; }

bool TakesDepthwise(const ConvGeometry& g, const ConvForwardArgs& args) {
  return g.axes == 2 && g.channels_last && g.groups == g.in_channels &&
         g.out_channels == g.in_channels && !args.residual &&
         (HasRowLoop(g) || (IsOurs(g) && HasAnyDepthwiseRow(g.in_channels)));
}

// Cuts rows of images that have one row into pieces of some outputs.
int64_t PieceOfRow(const ConvGeometry& g) { return IsPoint(g.h) ? 128 : g.w.out; }

Kernel MakeDepthwise(const PrepareContext& ctx, const ConvGeometry& g,
                     const ConvForwardArgs& args) {
  const int64_t taps = g.h.kernel * g.w.kernel, channels = g.in_channels;
  const auto transpose = [](int64_t rows, int64_t columns) {
    return [=](const float* from, float* to) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t k = 0; k < columns; ++k) to[k * rows + i] = from[i * columns + k];
      }
    };
  };
  const PackedFilter filter(ctx, args.filter, "conv_direct depthwise", args.filter.numel,
                            transpose(channels, taps), transpose(taps, channels));
  const int64_t piece = PieceOfRow(g), pieces = (g.w.out + piece - 1) / piece;
  const bool rows = HasRowLoop(g);
  const DepthwiseWindows windows = {g.w.kernel, g.w.stride, g.w.dilation};
  const int64_t together = rows ? MaxDepthwiseRows(g.h.stride, g.w.stride, g.h.dilation) : 1;
  const int64_t per_image = (g.h.out + together - 1) / together;
  const bool relu = IsRelu(args.activation);
  return [=](Workspace& ws) {
    DepthwiseRows all;
    all.image = ws.Data<const float>(args.input);
    all.height = g.h.in;
    all.width = g.w.in;
    all.channels = channels;
    all.kernel_h = g.h.kernel;
    all.dilation_h = g.h.dilation;
    all.filter = filter.Read(ws);
    all.bias = args.bias ? ws.Data<const float>(args.bias) : nullptr;
    all.out = ws.Data<float>(args.output);
    all.relu = relu;
    ParallelFor(g.batch * per_image * pieces, 1 + 65536 / (1 + piece * channels * taps),
                [&](int64_t begin, int64_t end) {
                  for (int64_t k = begin; k < end; ++k) {
                    const int64_t n = k / pieces / per_image, x = k % pieces * piece;
                    const int64_t y = k / pieces % per_image * together;
                    DepthwiseRows part = all;
                    part.image += n * g.h.in * g.w.in * channels;
                    part.top = g.h.Start(y);
                    part.left = g.w.Start(x);
                    part.out += ((n * g.h.out + y) * g.w.out + x) * channels;
                    part.out_width = std::min(piece, g.w.out - x);
                    part.rows = std::min(together, g.h.out - y);
                    if (rows)
                      RunDepthwiseRows(part, g.w.kernel, g.w.stride);
                    else
                      RunAnyDepthwiseRow(part, windows);
                    if (!relu)
                      args.activation.ApplyFast(part.out, part.rows * part.out_width * channels);
                  }
                });
  };
}

// --- pointwise ---

// Whether a filter outside of the caches is used for only a few pixels, as in gates, which have one
// pixel per image.
bool IsFar(const ConvGeometry& g) {
  const int64_t weights = g.in_channels * g.out_channels, pixels = g.batch * g.OutPixels();
  if (pixels <= 8) return weights >= 16 * 1024;
  // With fewer lanes, two vectors of a panel would use only every other cache line.
  if (VectorLanes() < 16) return false;
  return weights >= 256 * 1024 && g.out_channels >= g.in_channels && pixels <= 256;
}

// By measurement: oneDNN's products are about as fast, but an activation that it cannot apply
// exactly needs another sweep, which costs up to a fifth if there are few products for each output,
// and it does not prefetch a filter outside of the caches.
bool TakesPointwise(const ConvGeometry& g, const ConvForwardArgs& args) {
  const bool one = g.h.kernel == 1 && g.w.kernel == 1 && g.h.stride == 1 && g.w.stride == 1 &&
                   g.h.out == g.h.in && g.w.out == g.w.in && g.h.before == 0 && g.w.before == 0;
  const bool few = g.in_channels <= 96 && g.out_channels >= 16 && IsRelu(args.activation);
  return g.axes == 2 && g.channels_last && g.groups == 1 && one && (few || IsFar(g));
}

// The products of rows of pixels with one or several filters [columns, channels of the input]: each
// of the `strips` filters computes an output row from the same pixels.
struct Products {
  int64_t strips, channels, columns;

  int64_t StripSize() const { return PackedPointwiseSize(channels, columns); }
  int64_t PaddedColumns() const {
    return (columns + kPointwisePanel - 1) / kPointwisePanel * kPointwisePanel;
  }
  // `plain_at(strip, column, channel)` is the index of a weight in the original filter.
  template <class F>
  PackedFilter Pack(const PrepareContext& ctx, const TensorArg& filter, const std::string& id,
                    F plain_at) const {
    const Products p = *this;
    const auto for_each_of = [=](int64_t i, int64_t panel, auto&& f) {
      const int64_t end = std::min(panel + kPointwisePanel, p.columns);
      const int64_t strip = i * p.StripSize();
      // Works on a few channels at a time, so that both sides stay within a few pages.
      constexpr int64_t kBlock = 16;
      for (int64_t first = 0; first < p.channels; first += kBlock) {
        const int64_t last = std::min(first + kBlock, p.channels);
        for (int64_t m = panel; m < end; ++m) {
          for (int64_t c = first; c < last; ++c)
            f(plain_at(i, m, c), strip + PackedPointwiseAt(p.channels, m, c));
        }
      }
    };
    const auto for_each = [=](auto&& f) {
      for (int64_t i = 0; i < p.strips; ++i) {
        for (int64_t panel = 0; panel < p.columns; panel += kPointwisePanel)
          for_each_of(i, panel, f);
      }
    };
    const int64_t size = CheckedMul(strips, StripSize());
    return {ctx,
            filter,
            id,
            size,
            [=](const float* plain, float* packed) {
              if (p.columns < p.PaddedColumns()) std::fill_n(packed, size, 0.0f);
              for_each([&](int64_t from, int64_t to) { packed[to] = plain[from]; });
            },
            [=](const float* packed, float* plain) {
              for_each([&](int64_t to, int64_t from) { plain[to] = packed[from]; });
            }};
  }
  // The bias of every column; each element of `given` is repeated for several columns.
  const float* Bias(Workspace& ws, const TensorArg& given, const TensorArg& padded) const {
    if (!given) return nullptr;
    const float* from = ws.Data<const float>(given);
    float* to = ws.Data<float>(padded);
    for (int64_t m = 0; m < PaddedColumns(); ++m) to[m] = m < columns ? from[m % given.numel] : 0;
    return to;
  }
};

Kernel MakePointwise(const PrepareContext& ctx, const ConvGeometry& g,
                     const ConvForwardArgs& args) {
  const int64_t in = g.in_channels, out = g.out_channels;
  const Products products{1, in, out};
  const PackedFilter filter =
      products.Pack(ctx, args.filter, "conv_direct pointwise",
                    [=](int64_t, int64_t m, int64_t c) { return m * in + c; });
  const TensorArg padded =
      args.bias ? ctx.Scratch(DType::kFloat32, {products.PaddedColumns()}) : TensorArg();
  const int64_t pixels = CheckedMul(g.batch, g.OutPixels());
  const bool relu = IsRelu(args.activation), far = IsFar(g);
  return [=](Workspace& ws) {
    PointwiseRows all;
    all.in_channels = in;
    all.out_channels = out;
    all.filter = filter.Read(ws);
    all.bias = products.Bias(ws, args.bias, padded);
    all.relu = relu;
    const float* from = ws.Data<const float>(args.input);
    const float* residual = args.residual ? ws.Data<const float>(args.residual) : nullptr;
    float* to = ws.Data<float>(args.output);
    if (far) {
      all.in = from;
      all.pixels = pixels;
      all.residual = residual;
      all.out = to;
      ParallelFor(products.PaddedColumns() / kPointwisePanel, 1 + 8192 / (1 + in * pixels),
                  [&](int64_t begin, int64_t end) { RunPointwisePanels(all, begin, end); });
      if (relu || !args.activation) return;
      ParallelFor(pixels * out, 65536, [&](int64_t begin, int64_t end) {
        args.activation.ApplyFast(to + begin, end - begin);
      });
      return;
    }
    ParallelFor(pixels, 1 + 300000 / (1 + in * out), [&](int64_t begin, int64_t end) {
      PointwiseRows rows = all;
      rows.in = from + begin * in;
      rows.pixels = end - begin;
      rows.residual = residual ? residual + begin * out : nullptr;
      rows.out = to + begin * out;
      RunPointwiseRows(rows);
      if (!relu) args.activation.ApplyFast(rows.out, rows.pixels * out);
    });
  };
}

}  // namespace

Kernel ConvForwardDirect(const PrepareContext& ctx, const ConvGeometry& g,
                         const ConvForwardArgs& args) {
  if (TakesDepthwise(g, args)) return MakeDepthwise(ctx, g, args);
  if (TakesPointwise(g, args)) return MakePointwise(ctx, g, args);
  return {};
}

Kernel ConvTransposeDirect(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvForwardArgs& args) {
  const auto apart = [](const WindowAxis& axis) {
    return axis.stride == axis.kernel && (axis.dilation == 1 || axis.kernel == 1) &&
           axis.before == 0 && axis.after == 0 && axis.in == axis.out * axis.kernel;
  };
  if (g.axes != 2 || !g.channels_last || g.groups != 1 || !apart(g.h) || !apart(g.w)) return {};
  // Input row y times the filters of kernel row i gives output row y * kernel + i.
  const int64_t in = g.out_channels, out = g.in_channels, kh = g.h.kernel, kw = g.w.kernel;
  const Products products{kh, in, kw * out};
  const PackedFilter filter = products.Pack(  // [C, M, kh, kw]
      ctx, args.filter, "conv_direct transposed", [=](int64_t i, int64_t column, int64_t c) {
        return ((c * out + column % out) * kh + i) * kw + column / out;
      });
  const TensorArg padded =
      args.bias ? ctx.Scratch(DType::kFloat32, {products.PaddedColumns()}) : TensorArg();
  const int64_t in_row = g.w.out * in, out_row = g.w.in * out;
  const bool relu = IsRelu(args.activation);
  return [=](Workspace& ws) {
    const float* weights = filter.Read(ws);
    PointwiseRows all;
    all.in_channels = in;
    all.out_channels = products.columns;
    all.pixels = g.w.out;
    all.bias = products.Bias(ws, args.bias, padded);
    all.relu = relu;
    const float* from = ws.Data<const float>(args.input);
    float* to = ws.Data<float>(args.output);
    ParallelFor(g.batch * g.h.out, 1 + 300000 / (1 + in * out_row * kh),
                [&](int64_t begin, int64_t end) {
                  for (int64_t r = begin * kh; r < end * kh; ++r) {
                    PointwiseRows row = all;
                    row.in = from + r / kh * in_row;
                    row.filter = weights + r % kh * products.StripSize();
                    row.out = to + r * out_row;
                    RunPointwiseRows(row);
                    if (!relu) args.activation.ApplyFast(row.out, out_row);
                  }
                });
  };
}

}  // namespace coracle::inline internal

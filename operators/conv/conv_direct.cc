#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/conv_direct.h>
#include <coracle/operators/conv/conv_direct_simd.h>

#include <algorithm>
#include <memory>
#include <string_view>

namespace coracle {
namespace {

bool IsRelu(const ConvActivation& activation) {
  return activation.name() == std::string_view("relu");
}

// A filter in the layout of a loop: made once if it is constant, else in scratch memory in each
// run.
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

bool TakesDepthwise(const ConvGeometry& g, const ConvForwardArgs& args) {
  return g.axes == 2 && g.channels_last && g.groups == g.in_channels &&
         g.out_channels == g.in_channels && g.w.dilation == 1 && !args.residual &&
         HasDepthwiseLoop(g.w.kernel, g.w.stride, g.in_channels);
}

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
  const int64_t row_size = g.w.out * channels;
  const int64_t together = MaxDepthwiseRows(g.h.stride, g.w.stride, g.h.dilation);
  const int64_t per_image = (g.h.out + together - 1) / together;
  const bool relu = IsRelu(args.activation);
  return [=](Workspace& ws) {
    DepthwiseRows all;
    all.image = ws.Data<const float>(args.input);
    all.height = g.h.in;
    all.width = g.w.in;
    all.channels = channels;
    all.left = -g.w.before;
    all.kernel_h = g.h.kernel;
    all.dilation_h = g.h.dilation;
    all.filter = filter.Read(ws);
    all.bias = args.bias ? ws.Data<const float>(args.bias) : nullptr;
    all.out = ws.Data<float>(args.output);
    all.out_width = g.w.out;
    all.relu = relu;
    ParallelFor(g.batch * per_image, 1 + 65536 / (1 + row_size * taps),
                [&](int64_t begin, int64_t end) {
                  for (int64_t k = begin; k < end; ++k) {
                    const int64_t n = k / per_image, y = k % per_image * together;
                    DepthwiseRows part = all;
                    part.image += n * g.h.in * g.w.in * channels;
                    part.top = g.h.Start(y);
                    part.out += (n * g.h.out + y) * row_size;
                    part.rows = std::min(together, g.h.out - y);
                    RunDepthwiseRows(part, g.w.kernel, g.w.stride);
                    if (!relu) args.activation.ApplyFast(part.out, part.rows * row_size);
                  }
                });
  };
}

// --- pointwise ---

// Measured: oneDNN's products are as fast, but an activation that it does not apply as we do takes
// a sweep, which costs up to a fifth where there are few products for each output.
bool TakesPointwise(const ConvGeometry& g, const ConvForwardArgs& args) {
  const bool one = g.h.kernel == 1 && g.w.kernel == 1 && g.h.stride == 1 && g.w.stride == 1 &&
                   g.h.out == g.h.in && g.w.out == g.w.in && g.h.before == 0 && g.w.before == 0;
  return g.axes == 2 && g.channels_last && g.groups == 1 && one && g.in_channels <= 128 &&
         g.out_channels >= 16 && IsRelu(args.activation);
}

Kernel MakePointwise(const PrepareContext& ctx, const ConvGeometry& g,
                     const ConvForwardArgs& args) {
  const int64_t in = g.in_channels, out = g.out_channels;
  const PackedFilter filter(
      ctx, args.filter, "conv_direct pointwise", PackedPointwiseSize(in, out),
      [=](const float* plain, float* packed) { PackPointwise(plain, in, out, packed); },
      [=](const float* packed, float* plain) { UnpackPointwise(packed, in, out, plain); });
  const int64_t columns = (out + kPointwisePanel - 1) / kPointwisePanel * kPointwisePanel;
  const TensorArg padded = args.bias ? ctx.Scratch(DType::kFloat32, {columns}) : TensorArg();
  const int64_t pixels = CheckedMul(g.batch, g.OutPixels());
  return [=](Workspace& ws) {
    PointwiseRows all;
    all.in_channels = in;
    all.out_channels = out;
    all.filter = filter.Read(ws);
    if (args.bias) {
      float* bias = ws.Data<float>(padded);
      std::fill(std::copy_n(ws.Data<const float>(args.bias), out, bias), bias + columns, 0.0f);
      all.bias = bias;
    }
    all.relu = true;
    const float* from = ws.Data<const float>(args.input);
    const float* residual = args.residual ? ws.Data<const float>(args.residual) : nullptr;
    float* to = ws.Data<float>(args.output);
    ParallelFor(pixels, 1 + 300000 / (1 + in * out), [&](int64_t begin, int64_t end) {
      PointwiseRows rows = all;
      rows.in = from + begin * in;
      rows.pixels = end - begin;
      rows.residual = residual ? residual + begin * out : nullptr;
      rows.out = to + begin * out;
      RunPointwiseRows(rows);
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

}  // namespace coracle

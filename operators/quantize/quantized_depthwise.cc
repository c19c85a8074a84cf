#ifdef CORACLE_ONEDNN
#include <coracle/framework/base/checked.h>
#include <coracle/operators/conv/conv_parts.h>
#include <coracle/operators/quantize/depthwise_simd.h>
#include <coracle/operators/quantize/quantized.h>
#include <coracle/operators/quantize/quantized_conv_onednn.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

namespace coracle::inline internal {
namespace {

using Curve = DepthwiseFinish::Curve;

// Kernels with more rows are left to oneDNN.
constexpr int64_t kMostLines = 16;

int64_t GroupOf(int64_t channels) { return channels <= 16 ? 4 : channels <= 32 ? 2 : 1; }

int64_t QuadsOf(const ConvGeometry& g) { return (g.h.kernel + kTapsOfQuad - 1) / kTapsOfQuad; }

// The output rows that are computed from the lines of the quads.
int64_t RowsAtATime(const ConvGeometry& g) {
  if (g.h.dilation > 1) return 1;
  return (QuadsOf(g) * kTapsOfQuad - g.h.kernel) / g.h.stride + 1;
}

// The constants of all blocks of 64 channels; copies share them.
struct DepthwiseTables {
  std::vector<DepthwiseBlock> blocks;
  Tensor weights, add, scale, bias;
};

// Sum `i` of the 64 of a block gets the numbers of its channel; places without a channel get 0.
struct TableWriter {
  const QuantizedConvArgs& args;
  const ConvFilter& filter;
  const ConvConstants& constants;
  const Tensor* bias;
  double unit, out_scale;
  int32_t zero;  // of the images as uint8

  double BiasOf(int64_t m) const {
    if (!bias) return 0;
    if (bias->dtype() == DType::kFloat32) return static_cast<double>(bias->data<float>()[m]);
    return constants.RealScale(m) * bias->data<int32_t>()[m];
  }
  // Whether all numbers before rounding are in the range of int32.
  bool Fits(int64_t m) const {
    const double scale = constants.RealScale(m) / unit, added = BiasOf(m) / unit;
    const double most =
        std::abs(scale) * 255 * 255 * static_cast<double>(filter.rows.row) + std::abs(added);
    return most * std::max(1.0, unit / out_scale) < 1e9 &&
           (scale == 0 || std::isnormal(static_cast<float>(scale)));
  }
  void Write(const DepthwiseBlock& block, int8_t* weights, int64_t at, DepthwiseTables* to) const {
    for (int64_t i = 0; i < 64; ++i) {
      const int64_t c = DepthwiseBlock::OrderOf(i, block.group), m = block.first + c;
      if (c >= block.channels) continue;
      const int64_t place = at * 64 + i;
      to->add.data<int32_t>()[place] = -zero * filter.rows.sums[static_cast<size_t>(m)];
      to->scale.data<float>()[place] = static_cast<float>(constants.RealScale(m) / unit);
      to->bias.data<float>()[place] = static_cast<float>(BiasOf(m) / unit);
      for (int64_t r = 0; r < RowsAtATime(args.g); ++r) WriteTaps(m, i, r, weights);
    }
  }
  // The weights of sum `i` in output row r, whose kernel begins r strides after the first line.
  void WriteTaps(int64_t m, int64_t i, int64_t r, int8_t* weights) const {
    const WindowAxis &h = args.g.h, &w = args.g.w;
    const int64_t taps = h.kernel * w.kernel;
    const auto* values = filter.rows.values.data<int8_t>() + m * taps;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t line = tap / w.kernel + r * h.stride, x = tap % w.kernel;
      const int64_t quad = (r * w.kernel + x) * QuadsOf(args.g) + line / kTapsOfQuad;
      weights[quad * kBytesOfQuad + i * 4 + line % kTapsOfQuad] = values[tap];
    }
  }
};

std::shared_ptr<const DepthwiseTables> MakeTables(const TableWriter& writer) {
  const ConvGeometry& g = writer.args.g;
  const int64_t channels = g.in_channels;
  for (int64_t m = 0; m < channels; ++m) {
    if (!writer.Fits(m)) return nullptr;
  }
  auto made = std::make_shared<DepthwiseTables>();
  const int64_t count = (channels + 63) / 64;
  const int64_t of_block = RowsAtATime(g) * g.w.kernel * QuadsOf(g) * kBytesOfQuad;
  made->weights = Tensor::Zeros(DType::kInt8, {count * of_block});
  made->add = Tensor::Zeros(DType::kInt32, {count * 64});
  made->scale = Tensor::Zeros(DType::kFloat32, {count * 64});
  made->bias = Tensor::Zeros(DType::kFloat32, {count * 64});
  for (int64_t b = 0; b < count; ++b) {
    DepthwiseBlock block{b * 64, std::min<int64_t>(64, channels - b * 64)};
    block.group = GroupOf(block.channels);
    int8_t* weights = made->weights.data<int8_t>() + b * of_block;
    block.weights = weights;
    block.add = made->add.data<int32_t>() + b * 64;
    block.scale = made->scale.data<float>() + b * 64;
    block.bias = made->bias.data<float>() + b * 64;
    writer.Write(block, weights, b, made.get());
    made->blocks.push_back(block);
  }
  return made;
}

// A bound of the activation among the integers of the output.
int16_t Bound(double real, double out_scale, int32_t zero, int32_t least, int32_t most) {
  const double q = std::nearbyint(real / out_scale) + zero;
  return static_cast<int16_t>(q > least ? std::min<double>(q, most) : least);
}

// nullopt for other activations.
std::optional<DepthwiseFinish> FinishOf(const PrepareContext& ctx, const QuantizedConvArgs& args,
                                        const ConvConstants& constants) {
  DepthwiseFinish f;
  f.is_signed = args.output.dtype == DType::kInt8;
  const int32_t least = f.is_signed ? -128 : 0, most = least + 255, zero = constants.out_zero;
  const auto scale = static_cast<double>(constants.out_scale[0]);
  if (!(scale > 0)) return std::nullopt;
  f.zero = static_cast<int16_t>(zero);
  f.least = static_cast<int16_t>(least);
  f.most = static_cast<int16_t>(most);
  const auto bound = [&](double real) { return Bound(real, scale, zero, least, most); };
  const std::string_view name = args.activation.name();
  const auto alpha = static_cast<double>(ctx.Attr<float>("fuse_alpha"));
  const auto beta = static_cast<double>(ctx.Attr<float>("fuse_beta"));
  if (name == "relu") {
    f.least = bound(0);
  } else if (name == "relu6" && alpha >= 0) {
    f.least = bound(0);
    f.most = bound(alpha);
  } else if (name == "clip" && alpha <= beta) {
    f.least = bound(alpha);
    f.most = bound(beta);
  } else if (name == "leaky_relu" && std::abs(alpha) <= 1) {
    f.curve = Curve::kLeaky;
    f.slope = static_cast<float>(alpha);
  } else if (name == "hard_swish") {
    f.curve = Curve::kHardSwish;
    f.last = static_cast<float>(1 / (6 * scale));
    if (!std::isfinite(f.last)) return std::nullopt;
  } else if (!name.empty()) {
    return std::nullopt;
  }
  return f;
}

// A prepared convolution.
struct Depthwise {
  std::vector<ConvPart> parts;
  std::shared_ptr<const DepthwiseTables> tables;
  DepthwiseFinish finish;
  DepthwiseByteRows rows;
  int64_t threads = 1, buffer_size = 0, line_size = 0;
  uint8_t zero = 0;  // of the images

  // `padding`: a line of pixels of the padding.
  void Run(const ConvGeometry& g, const uint8_t* images, const uint8_t* padding, uint8_t* buffer,
           uint8_t* out) const {
    const int64_t line = g.w.in * g.in_channels, out_line = g.w.out * g.in_channels;
    DepthwiseByteRows r = rows;
    r.buffer = buffer;
    r.before = g.w.before;
    r.columns = g.w.in;
    r.pixels = g.w.out;
    for (int64_t n = 0; n < g.batch; ++n) {
      const uint8_t* image = images + n * g.h.in * line;
      for (int64_t y = 0; y < g.h.out; y += r.rows) {
        r.rows = std::min(RowsAtATime(g), g.h.out - y);
        r.out = out + (n * g.h.out + y) * out_line;
        RunRows(g, g.h.Start(y), image, padding, r);
      }
    }
  }

 private:
  // `start`: the first line of the image that the rows read.
  void RunRows(const ConvGeometry& g, int64_t start, const uint8_t* image, const uint8_t* padding,
               DepthwiseByteRows r) const {
    const int64_t line = g.w.in * g.in_channels;
    uint8_t* out = r.out;
    for (const DepthwiseBlock& block : tables->blocks) {
      const uint8_t* lines[kMostLines];
      for (int64_t k = 0; k < r.quads * kTapsOfQuad; ++k) {
        const int64_t y = start + k * g.h.dilation;
        lines[k] = (y < 0 || y >= g.h.in ? padding : image + y * line) + block.first;
      }
      r.lines = lines;
      r.out = out + block.first;
      DepthwiseVnni(block, r, finish);
    }
  }
};

bool Takes(const QuantizedConvArgs& args, const ConvFilter& filter) {
  const ConvGeometry& g = args.g;
  return HasDepthwiseVnni() && IsByte(args.output.dtype) && !args.residual && !filter.with_ones &&
         g.groups == g.in_channels && g.groups == g.out_channels && g.h.kernel <= kMostLines &&
         g.w.kernel * g.w.dilation <= 64 && g.w.stride <= 8;
}

DepthwiseByteRows MakeRows(const ConvGeometry& g, uint8_t flip, uint8_t zero) {
  DepthwiseByteRows rows;
  rows.flip = flip;
  rows.padding = zero;
  rows.quads = QuadsOf(g);
  rows.kernel_columns = g.w.kernel;
  rows.stride = g.w.stride;
  rows.dilation = g.w.dilation;
  rows.image_channels = g.in_channels;
  return rows;
}

}  // namespace

Kernel QuantizedDepthwise(const PrepareContext& ctx, const QuantizedConvArgs& args,
                          const ConvFilter& filter) {
  const auto constants = Takes(args, filter) ? ReadConvConstants(ctx) : std::nullopt;
  const auto finish = constants ? FinishOf(ctx, args, *constants) : std::nullopt;
  const Tensor* bias = args.bias ? ctx.Constant("Bias") : nullptr;
  if (!finish || (args.bias && !bias)) return {};
  const ConvGeometry& g = args.g;
  Depthwise d;
  const auto flip = static_cast<uint8_t>(args.input.dtype == DType::kInt8 ? 0x80 : 0);
  d.zero = static_cast<uint8_t>(constants->input_zero);
  const auto zero = static_cast<uint8_t>(d.zero ^ flip);
  d.rows = MakeRows(g, flip, zero);
  d.finish = *finish;
  const auto scale = static_cast<double>(constants->out_scale[0]);
  const double unit = finish->curve == Curve::kHardSwish ? 1 : scale;
  d.tables = MakeTables({args, filter, *constants, bias, unit, scale, zero});
  if (!d.tables) return {};
  d.parts = SplitOutputs(g, BytePartsWanted(g));
  d.buffer_size = d.rows.BufferSize();
  for (const ConvPart& part : d.parts)
    d.line_size = std::max(d.line_size, part.g.w.in * g.in_channels);
  d.threads = std::min<int64_t>(NumThreads(), static_cast<int64_t>(d.parts.size()));
  const TensorArg lines = ctx.Scratch(DType::kUInt8, {d.line_size});
  const TensorArg buffers = ctx.Scratch(DType::kUInt8, {CheckedMul(d.threads, d.buffer_size)});
  return [=, input = args.input, output = args.output](Workspace& ws) {
    const auto* in = static_cast<const uint8_t*>(ws.Data<const void>(input));
    auto* out = static_cast<uint8_t*>(ws.Data<void>(output));
    auto* padding = ws.Data<uint8_t>(lines);
    std::fill_n(padding, d.line_size, d.zero);
    ForParts(static_cast<int64_t>(d.parts.size()), d.threads, [&](int64_t i, int64_t thread) {
      const ConvPart& part = d.parts[static_cast<size_t>(i)];
      d.Run(part.g, in + part.input, padding, ws.Data<uint8_t>(buffers) + thread * d.buffer_size,
            out + part.output);
    });
  };
}

}  // namespace coracle::inline internal
#endif

#ifdef CORACLE_ONEDNN
#include <coracle/framework/base/checked.h>
#include <coracle/operators/conv/conv_parts.h>
#include <coracle/operators/quantize/depthwise_simd.h>
#include <coracle/operators/quantize/image_copy.h>
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
constexpr int64_t kMostRows = 16;

int64_t GroupOf(int64_t channels) { return channels <= 16 ? 4 : channels <= 32 ? 2 : 1; }

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
  int32_t zero;  // of the copied images

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
    return most < 1e9 && (scale == 0 || std::isnormal(static_cast<float>(scale)));
  }
  void Write(const DepthwiseBlock& block, int64_t quads, int64_t at, DepthwiseTables* to) const {
    const WindowAxis &h = args.g.h, &w = args.g.w;
    const auto* values = filter.rows.values.data<int8_t>();
    for (int64_t i = 0; i < 64; ++i) {
      const int64_t c = DepthwiseBlock::OrderOf(i, block.group), m = block.first + c;
      if (c >= block.channels) continue;
      const int64_t place = at * 64 + i;
      to->add.data<int32_t>()[place] = -zero * filter.rows.sums[static_cast<size_t>(m)];
      to->scale.data<float>()[place] = static_cast<float>(constants.RealScale(m) / unit);
      to->bias.data<float>()[place] = static_cast<float>(BiasOf(m) / unit);
      for (int64_t tap = 0; tap < h.kernel * w.kernel; ++tap) {
        const int64_t y = tap / w.kernel, x = tap % w.kernel;
        const int64_t quad = (at * w.kernel + x) * quads + y / kTapsOfQuad;
        to->weights.data<int8_t>()[quad * kBytesOfQuad + i * 4 + y % kTapsOfQuad] =
            values[m * h.kernel * w.kernel + tap];
      }
    }
  }
};

std::shared_ptr<const DepthwiseTables> MakeTables(const TableWriter& writer, int64_t quads) {
  const int64_t channels = writer.args.g.in_channels;
  for (int64_t m = 0; m < channels; ++m) {
    if (!writer.Fits(m)) return nullptr;
  }
  auto made = std::make_shared<DepthwiseTables>();
  const int64_t count = (channels + 63) / 64;
  const int64_t of_block = writer.args.g.w.kernel * quads * kBytesOfQuad;
  made->weights = Tensor::Zeros(DType::kInt8, {count * of_block});
  made->add = Tensor::Zeros(DType::kInt32, {count * 64});
  made->scale = Tensor::Zeros(DType::kFloat32, {count * 64});
  made->bias = Tensor::Zeros(DType::kFloat32, {count * 64});
  for (int64_t b = 0; b < count; ++b) {
    DepthwiseBlock block{b * 64, std::min<int64_t>(64, channels - b * 64)};
    block.group = GroupOf(block.channels);
    block.weights = made->weights.data<int8_t>() + b * of_block;
    block.add = made->add.data<int32_t>() + b * 64;
    block.scale = made->scale.data<float>() + b * 64;
    block.bias = made->bias.data<float>() + b * 64;
    writer.Write(block, quads, b, made.get());
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
  ImageCopy copy;
  std::vector<ConvPart> parts;
  std::shared_ptr<const DepthwiseTables> tables;
  DepthwiseFinish finish;
  DepthwiseRow row;
  int64_t threads = 1, copy_size = 0, buffer_size = 0;
  uint8_t zero = 0;

  // The outputs of a part, from the copied images.
  void Run(const ConvGeometry& part, const uint8_t* images, uint8_t* buffer, uint8_t* out) const {
    const ConvGeometry g = copy.Seen(part);
    const int64_t line = g.w.in * g.in_channels;
    DepthwiseRow r = row;
    r.buffer = buffer;
    r.pixels = g.w.out;
    const uint8_t* lines[kMostRows];
    r.lines = lines;
    for (int64_t i = 0; i < g.batch * g.h.out; ++i) {
      const int64_t y = i / g.h.out * g.h.in + i % g.h.out * g.h.stride;
      for (const DepthwiseBlock& block : tables->blocks) {
        for (int64_t k = 0; k < g.h.kernel; ++k)
          lines[k] = images + (y + k * g.h.dilation) * line + block.first;
        r.out = out + i * g.w.out * g.in_channels + block.first;
        DepthwiseVnni(block, r, finish);
      }
    }
  }
};

bool Takes(const QuantizedConvArgs& args, const ConvFilter& filter) {
  const ConvGeometry& g = args.g;
  return HasDepthwiseVnni() && IsByte(args.output.dtype) && !args.residual && !filter.with_ones &&
         g.groups == g.in_channels && g.groups == g.out_channels && g.h.kernel <= kMostRows &&
         g.w.kernel * g.w.dilation <= 64 && g.w.stride <= 8;
}

DepthwiseRow RowOf(const ConvGeometry& g) {
  DepthwiseRow row;
  row.kernel_rows = g.h.kernel;
  row.kernel_columns = g.w.kernel;
  row.stride = g.w.stride;
  row.dilation = g.w.dilation;
  row.image_channels = g.in_channels;
  return row;
}

}  // namespace

Kernel QuantizedDepthwise(const PrepareContext& ctx, const QuantizedConvArgs& args,
                          const ConvFilter& filter) {
  const auto constants = Takes(args, filter) ? ReadConvConstants(ctx) : std::nullopt;
  const auto finish = constants ? FinishOf(ctx, args, *constants) : std::nullopt;
  const Tensor* bias = args.bias ? ctx.Constant("Bias") : nullptr;
  if (!finish || (args.bias && !bias)) return {};
  constexpr int64_t kBytesInCache = 256 * 1024;
  const ConvGeometry& g = args.g;
  Depthwise d;
  d.copy = {true, args.input.dtype == DType::kInt8};
  d.row = RowOf(g);
  d.finish = *finish;
  d.zero = static_cast<uint8_t>(constants->input_zero + (d.copy.flip ? 128 : 0));
  const auto scale = static_cast<double>(constants->out_scale[0]);
  const double unit = finish->curve == Curve::kHardSwish ? 1 : scale;
  d.tables = MakeTables({args, filter, *constants, bias, unit, scale, d.zero}, d.row.quads());
  if (!d.tables) return {};
  d.parts = SplitOutputs(g, std::max(BytePartsWanted(g), g.InputNumel() / kBytesInCache));
  for (const ConvPart& part : d.parts) d.copy_size = std::max(d.copy_size, d.copy.Size(part.g));
  d.copy_size += DepthwiseRow::BytesAfter(g.in_channels, g.w.stride);
  d.buffer_size = d.row.BufferSize();
  d.threads = std::min<int64_t>(NumThreads(), static_cast<int64_t>(d.parts.size()));
  const TensorArg copies = ctx.Scratch(DType::kUInt8, {CheckedMul(d.threads, d.copy_size)});
  const TensorArg buffers = ctx.Scratch(DType::kUInt8, {CheckedMul(d.threads, d.buffer_size)});
  return [=, input = args.input, output = args.output](Workspace& ws) {
    const auto* in = static_cast<const uint8_t*>(ws.Data<const void>(input));
    auto* out = static_cast<uint8_t*>(ws.Data<void>(output));
    ForParts(static_cast<int64_t>(d.parts.size()), d.threads, [&](int64_t i, int64_t thread) {
      const ConvPart& part = d.parts[static_cast<size_t>(i)];
      uint8_t* images = ws.Data<uint8_t>(copies) + thread * d.copy_size;
      d.copy.Run(part.g, in + part.input, d.zero, images);
      d.Run(part.g, images, ws.Data<uint8_t>(buffers) + thread * d.buffer_size, out + part.output);
    });
  };
}

}  // namespace coracle::inline internal
#endif

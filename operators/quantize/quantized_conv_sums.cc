#ifdef CORACLE_ONEDNN
#include <coracle/framework/base/checked.h>
#include <coracle/framework/op/kernel/forwarding_args.h>
#include <coracle/operators/conv/conv_onednn.h>
#include <coracle/operators/quantize/affine.h>
#include <coracle/operators/quantize/conv_sums_simd.h>
#include <coracle/operators/quantize/image_copy.h>
#include <coracle/operators/quantize/quantized.h>
#include <coracle/operators/quantize/quantized_conv_onednn.h>
#include <coracle/operators/quantize/quantized_fast.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace coracle::inline internal {
namespace {

// --- after the sums ---

// The scales and zero points of one run.
struct RunNumbers {
  int32_t input_zero, residual_zero, out_zero;
  float residual_scale, out_scale;

  RunNumbers(const QuantizedConvArgs& a, Workspace& ws)
      : input_zero(ZeroOf(a.input_zero, ws)),
        residual_zero(ZeroOf(a.residual_zero, ws)),
        out_zero(ZeroOf(a.out_zero, ws)),
        residual_scale(ScaleOf(a.residual_scale, ws)),
        out_scale(ScaleOf(a.out_scale, ws)) {}

  static int32_t ZeroOf(const TensorArg& arg, Workspace& ws) {
    return arg ? IntegerAt(arg.dtype, ws.Data<const void>(arg), 0) : 0;
  }
  static float ScaleOf(const TensorArg& arg, Workspace& ws) {
    return arg ? *ws.Data<const float>(arg) : 1.0f;
  }
};

// InputScale FilterScale[m].
double ScaleOfChannel(const QuantizedConvArgs& a, const Workspace& ws, int64_t m) {
  return static_cast<double>(*ws.Data<const float>(a.input_scale)) *
         static_cast<double>(
             ws.Data<const float>(a.filter_scale)[a.filter_scale.numel == 1 ? 0 : m]);
}

// Whether float32 holds the factors and the bias of all channels, which only the run may know.
bool IsTameInARun(const QuantizedConvArgs& a, const Workspace& ws, const RunNumbers& numbers) {
  if (a.raw_sums()) return true;
  const auto out = static_cast<double>(numbers.out_scale);
  const auto residual = static_cast<double>(numbers.residual_scale);
  bool tame = IsTame(out) && out > 0 && IsTame(residual) && IsTame(residual / out);
  for (int64_t m = 0; tame && m < a.g.out_channels; ++m) {
    const double scale = ScaleOfChannel(a, ws, m);
    tame = IsTame(scale) && IsTame(scale / out);
    if (a.bias && a.bias.dtype == DType::kInt32)
      tame = tame && IsTame(scale * ws.Data<const int32_t>(a.bias)[m]);
  }
  return tame;
}

// Converts sums to outputs, some pixels at a time.
struct Finisher {
  QuantizedConvArgs a;
  ChannelTerms terms;
  RunNumbers numbers;
  const Workspace* exact = nullptr;  // given if float32 does not serve
  const void* residual = nullptr;
  void* out = nullptr;

  // `sums` is overwritten; `at` is the first output.
  void Run(int32_t* sums, int64_t pixels, int64_t at) const {
    constexpr int64_t kAtATime = 4096;
    const int64_t m = terms.channels, step = m + (terms.ones_times ? 1 : 0);
    const int64_t some = std::max<int64_t>(1, kAtATime / m);
    for (int64_t p = 0; p < pixels; p += some) {
      const int64_t count = std::min(some, pixels - p);
      if (a.raw_sums())
        CorrectSums(terms, sums + p * step, count, static_cast<int32_t*>(out) + at + p * m);
      else if (exact)
        Exact(sums + p * step, count, at + p * m);
      else
        Reals(sums + p * step, count, at + p * m);
    }
  }

 private:
  // In double, like the reference loop.
  void Exact(int32_t* sums, int64_t pixels, int64_t at) const {
    const int64_t m = terms.channels;
    CorrectSums(terms, sums, pixels, sums);
    for (int64_t i = 0; i < pixels * m; ++i) {
      const double scale = ScaleOfChannel(a, *exact, i % m);
      double real = scale * sums[i];
      if (a.bias && a.bias.dtype == DType::kInt32)
        real = scale * (int64_t{sums[i]} + exact->Data<const int32_t>(a.bias)[i % m]);
      else if (a.bias)
        real += static_cast<double>(exact->Data<const float>(a.bias)[i % m]);
      if (residual) real += ResidualAt(at + i);
      a.activation.Apply(&real, 1);
      Store(real, at + i);
    }
  }
  double ResidualAt(int64_t at) const {
    if (a.residual.dtype == DType::kFloat32)
      return static_cast<double>(static_cast<const float*>(residual)[at]);
    return static_cast<double>(numbers.residual_scale) *
           (IntegerAt(a.residual.dtype, residual, at) - numbers.residual_zero);
  }
  void Store(double real, int64_t at) const {
    const double units = real / static_cast<double>(numbers.out_scale);
    if (a.output.dtype == DType::kFloat32)
      static_cast<float*>(out)[at] = static_cast<float>(real);
    else if (a.output.dtype == DType::kInt8)
      static_cast<int8_t*>(out)[at] = QuantizeTo<int8_t>(units, numbers.out_zero);
    else
      static_cast<uint8_t*>(out)[at] = QuantizeTo<uint8_t>(units, numbers.out_zero);
  }
  void Reals(int32_t* sums, int64_t pixels, int64_t at) const {
    const int64_t n = pixels * terms.channels;
    auto* real = reinterpret_cast<float*>(sums);
    if (!residual && a.output.dtype == DType::kFloat32) real = static_cast<float*>(out) + at;
    SumsToReals(terms, sums, pixels, real);
    if (residual) AddResidual(real, n, at);
    if (a.activation) a.activation.ApplyFast(real, n);
    if (IsByte(a.output.dtype))
      Quantize(real, n, at);
    else if (residual)
      std::memcpy(static_cast<float*>(out) + at, real, static_cast<size_t>(n) * sizeof(float));
  }
  void AddResidual(float* real, int64_t n, int64_t at) const {
    const void* from = Element(residual, a.residual.dtype, at);
    if (IsByte(a.residual.dtype))
      return AddIntegers(from, a.residual.dtype, numbers.residual_scale, numbers.residual_zero, n,
                         real);
    const auto* floats = static_cast<const float*>(from);
    for (int64_t i = 0; i < n; ++i) real[i] += floats[i];
  }
  void Quantize(const float* real, int64_t n, int64_t at) const {
    const float* scale = &numbers.out_scale;
    const int32_t* zero = &numbers.out_zero;
    if (a.output.dtype == DType::kInt8)
      QuantizeSimd(real, n, scale, zero, false, {-128, 127}, static_cast<int8_t*>(out) + at);
    else
      QuantizeSimd(real, n, scale, zero, false, {0, 255}, static_cast<uint8_t*>(out) + at);
  }
};

Finisher FinisherOf(const QuantizedConvArgs& a, const ChannelTerms& terms,
                    const RunNumbers& numbers, Workspace& ws) {
  Finisher finish{a, terms, numbers};
  if (!IsTameInARun(a, ws, numbers)) finish.exact = &ws;
  if (a.residual) finish.residual = ws.Data<const void>(a.residual);
  finish.out = ws.Data<void>(a.output);
  return finish;
}

// The terms of a run in scratch memory.
struct TermsMemory {
  TensorArg add, scale, bias;

  TermsMemory(const PrepareContext& ctx, const QuantizedConvArgs& a)
      : add(ctx.Scratch(DType::kInt32, {a.g.out_channels})) {
    if (a.raw_sums()) return;
    scale = ctx.Scratch(DType::kFloat32, {a.g.out_channels});
    if (a.bias) bias = ctx.Scratch(DType::kFloat32, {a.g.out_channels});
  }

  // `zero`: of the images as oneDNN sees them. Integers wrap, since the whole sum fits.
  ChannelTerms Fill(Workspace& ws, const QuantizedConvArgs& a, const SignedRows& rows,
                    int32_t zero) const {
    const int64_t channels = a.g.out_channels;
    auto* adds = ws.Data<int32_t>(add);
    for (int64_t m = 0; m < channels; ++m) {
      const auto at = static_cast<size_t>(m);
      int64_t sum = -zero * (rows.sums[at] - rows.rest[at] * rows.row);
      if (a.raw_sums() && a.bias) sum += ws.Data<const int32_t>(a.bias)[m];
      adds[m] = static_cast<int32_t>(sum);
    }
    ChannelTerms terms{channels, adds, nullptr, nullptr, nullptr};
    if (!a.raw_sums()) FillScales(ws, a, &terms);
    return terms;
  }

 private:
  void FillScales(Workspace& ws, const QuantizedConvArgs& a, ChannelTerms* terms) const {
    auto* scales = ws.Data<float>(scale);
    terms->scale = scales;
    terms->bias = a.bias ? ws.Data<const float>(bias) : nullptr;
    for (int64_t m = 0; m < terms->channels; ++m) {
      const double real = ScaleOfChannel(a, ws, m);
      scales[m] = static_cast<float>(real);
      if (!a.bias) continue;
      ws.Data<float>(bias)[m] = a.bias.dtype == DType::kInt32
                                    ? static_cast<float>(real * ws.Data<const int32_t>(a.bias)[m])
                                    : ws.Data<const float>(a.bias)[m];
    }
  }
};

// --- the kernel ---

// One call for each part. A thread computes several parts one after the other in one memory.
struct SumCalls {
  std::vector<ConvPart> parts;
  PartCalls calls;
  int64_t threads = 1;
  int64_t sums_size = 0, copy_size = 0;  // of the largest part
  TensorArg sums, copies;

  void Reserve(const PrepareContext& ctx) {
    calls.ReserveScratch(ctx);
    threads = std::min<int64_t>(NumThreads(), static_cast<int64_t>(parts.size()));
    sums = ctx.Scratch(DType::kInt32, {CheckedMul(threads, sums_size)});
    if (copy_size > 0) copies = ctx.Scratch(DType::kUInt8, {CheckedMul(threads, copy_size)});
  }
};

// Whether the implementation rounds its sums to float32, also if it stores integers.
bool RoundsSums(const std::string& implementation) {
  return implementation.find("brg") == std::string::npos;
}

SumCalls MakeSumCalls(const QuantizedConvArgs& args, const ConvFilter& filter,
                      const ImageCopy& copy, const std::vector<ConvPart>& parts) {
  SumCalls made;
  made.parts = parts;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  for (const ConvPart& part : parts) {
    ConvGeometry g = copy.Seen(part.g);
    if (filter.with_ones) ++g.out_channels;
    const auto pd = ByteConvolution(g, DType::kUInt8, DType::kInt32, false, attr);
    onednn::Call call{dnnl::convolution_forward(pd)};
    call.Arg(DNNL_ARG_SRC, pd.src_desc()).Arg(DNNL_ARG_WEIGHTS, pd.weights_desc());
    call.Arg(DNNL_ARG_DST, pd.dst_desc());
    made.calls.Add(part, pd, pd.weights_desc(), call);
    made.sums_size = std::max(made.sums_size, g.OutputNumel());
    made.copy_size = std::max(made.copy_size, copy.Size(part.g));
  }
  constexpr int64_t kExact = 1 << 24;
  if (args.raw_sums() && RoundsSums(made.calls.implementation) &&
      filter.rows.largest_sum >= kExact / 255)
    throw dnnl::error(dnnl_unimplemented, "sums would be rounded");
  return made;
}

Kernel MakeKernel(const PrepareContext& ctx, const QuantizedConvArgs& args,
                  const ConvFilter& filter, const ImageCopy& copy,
                  const std::vector<ConvPart>& parts) {
  SumCalls made = MakeSumCalls(args, filter, copy, parts);
  ConvGeometry of_filter = args.g;
  if (filter.with_ones) ++of_filter.out_channels;
  const auto packed = PackFilter(ctx, filter, of_filter, made.calls.filter);
  if (!packed) return {};
  made.Reserve(ctx);
  const TermsMemory memory(ctx, args);
  const auto rows = std::make_shared<const SignedRows>(filter.rows);
  const bool with_ones = filter.with_ones;
  return [=](Workspace& ws) {
    const RunNumbers numbers(args, ws);
    const int32_t zero = numbers.input_zero + (copy.flip ? 128 : 0);
    ChannelTerms terms = memory.Fill(ws, args, *rows, zero);
    if (with_ones) terms.ones_times = rows->rest.data();
    const Finisher finish = FinisherOf(args, terms, numbers, ws);
    ForParts(static_cast<int64_t>(made.parts.size()), made.threads, [&](int64_t p, int64_t thread) {
      const auto i = static_cast<size_t>(p);
      const ConvPart& part = made.parts[i];
      const auto* in = static_cast<const uint8_t*>(ws.Data<const void>(args.input)) + part.input;
      if (copy.needed) {
        uint8_t* to = ws.Data<uint8_t>(made.copies) + thread * made.copy_size;
        copy.Run(part.g, in, static_cast<uint8_t>(zero), to);
        in = to;
      }
      const PartCalls::One& one = made.calls.parts[i];
      int32_t* sums = ws.Data<int32_t>(made.sums) + thread * made.sums_size;
      one.call.Run({in, packed->raw(), sums, ws.Data<void>(one.scratchpad)});
      finish.Run(sums, part.g.batch * part.g.OutPixels(), part.output);
    });
  };
}

// The number of parts: their sums have to stay in the cache.
int64_t PartsOfSums(const ConvGeometry& g) {
  constexpr int64_t kSumsInCache = 128 * 1024, kFilterInCache = 512 * 1024;
  const int64_t cut = g.FilterNumel() <= kFilterInCache ? g.OutputNumel() / kSumsInCache : 1;
  return std::max(BytePartsWanted(g), cut);
}

ImageCopy CopyOf(const PrepareContext& ctx, const QuantizedConvArgs& args) {
  const ConvGeometry& g = args.g;
  const auto zero = ConstantZeroPoints(ctx, "InputZeroPoint");
  const bool is_zero = zero && (zero->empty() || zero->front() == 0);
  const bool padded = g.h.before > 0 || g.h.after > 0 || g.w.before > 0 || g.w.after > 0;
  ImageCopy copy;
  copy.flip = args.input.dtype == DType::kInt8;
  copy.needed = copy.flip || (padded && !is_zero) || HasEmptyWindow(g);
  return copy;
}

}  // namespace

namespace {

// Shows the convolution of float32 its filter as a constant, and no other constants.
class FloatFilterArgs : public ForwardingArgs {
 public:
  FloatFilterArgs(ArgTable& args, Tensor filter)
      : ForwardingArgs(args), filter_(std::move(filter)) {}
  const Tensor* Constant(const std::string&) override { return nullptr; }
  std::shared_ptr<const Tensor> Packed(const std::string&, const PackedLayout& layout) override {
    was_packed = true;
    return std::make_shared<const Tensor>(layout.pack(filter_));
  }

  bool was_packed = false;

 private:
  Tensor filter_;
};

// The filter minus its zero points.
Tensor FloatFilterOf(const QuantizedConvArgs& args, const SignedRows& rows) {
  Tensor made(DType::kFloat32, args.filter.shape);
  const auto* values = rows.values.data<int8_t>();
  auto* out = made.data<float>();
  for (int64_t i = 0; i < made.numel(); ++i)
    out[i] = static_cast<float>(values[i] - rows.rest[static_cast<size_t>(i / rows.row)]);
  return made;
}

// A bound of the sums of (Input - zero) (Filter - zero).
int64_t LargestSum(const SignedRows& rows) {
  int64_t rest = 0;
  for (const int32_t r : rows.rest) rest = std::max<int64_t>(rest, std::abs(r));
  return 255 * (rows.largest_sum + rows.row * rest);
}

// The sums are integers in floats.
void ToIntegers(char* sums, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    float sum;
    std::memcpy(&sum, sums + i * 4, 4);
    const auto integer = static_cast<int32_t>(sum);
    std::memcpy(sums + i * 4, &integer, 4);
  }
}

void CenterImages(const TensorArg& input, const void* from, int32_t zero, float* out) {
  const float one = 1;
  ParallelFor(input.numel, 32768, [&](int64_t begin, int64_t end) {
    if (input.dtype == DType::kInt8)
      DequantizeSimd(static_cast<const int8_t*>(from) + begin, end - begin, &one, &zero, false,
                     out + begin);
    else
      DequantizeSimd(static_cast<const uint8_t*>(from) + begin, end - begin, &one, &zero, false,
                     out + begin);
  });
}

}  // namespace

Kernel QuantizedConvInFloat(const PrepareContext& ctx, const QuantizedConvArgs& args,
                            const ConvFilter& filter) {
  // Sums above 2^24 are rounded. Where products of integers are exact, results must be, too.
  const ConvGeometry& g = args.g;
  if ((args.raw_sums() || ExactIntegerProducts()) && LargestSum(filter.rows) >= 1 << 24) return {};
  const auto weights = std::make_shared<const Tensor>(FloatFilterOf(args, filter.rows));
  FloatFilterArgs shown(ctx.args(), *weights);
  ConvForwardArgs inner;
  inner.input = ctx.Scratch(DType::kFloat32, args.input.shape);
  inner.filter = ctx.Scratch(DType::kFloat32, args.filter.shape);
  inner.output = ctx.Scratch(DType::kFloat32, {args.output.numel});
  const Kernel conv = ConvForwardOneDnn(PrepareContext(ctx, shown), g, inner);
  if (!conv) return {};
  const bool copy_filter = !shown.was_packed;
  const TermsMemory memory(ctx, args);
  const auto rows = std::make_shared<const SignedRows>(filter.rows);
  return [=](Workspace& ws) {
    const RunNumbers numbers(args, ws);
    CenterImages(args.input, ws.Data<const void>(args.input), numbers.input_zero,
                 ws.Data<float>(inner.input));
    if (copy_filter) std::memcpy(ws.Data<float>(inner.filter), weights->raw(), weights->nbytes());
    conv(ws);
    const Finisher finish = FinisherOf(args, memory.Fill(ws, args, *rows, 0), numbers, ws);
    float* sums = ws.Data<float>(inner.output);
    const int64_t m = g.out_channels;
    ParallelFor(g.batch * g.OutPixels(), 1 + 16384 / m, [&](int64_t begin, int64_t end) {
      auto* integers = reinterpret_cast<int32_t*>(sums + begin * m);
      ToIntegers(reinterpret_cast<char*>(integers), (end - begin) * m);
      finish.Run(integers, end - begin, begin * m);
    });
  };
}

Kernel QuantizedConvBySums(const PrepareContext& ctx, const QuantizedConvArgs& args,
                           const ConvFilter& filter) {
  constexpr int32_t kPairFits = 64;
  if (filter.with_ones && args.g.groups > 1) return {};
  if (!ExactIntegerProducts() && filter.rows.largest > kPairFits) return {};
  const ImageCopy copy = CopyOf(ctx, args);
  try {
    return MakeOfParts(args.g, SplitOutputs(args.g, PartsOfSums(args.g)),
                       [&](const std::vector<ConvPart>& parts) {
                         return MakeKernel(ctx, args, filter, copy, parts);
                       });
  } catch (const dnnl::error&) {
    return {};
  }
}

}  // namespace coracle::inline internal
#endif

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/conv/pool_bytes.h>
#include <coracle/operators/conv/pool_rules.h>
#include <coracle/operators/quantize/quantized_fast.h>
#include <coracle/operators/quantize/quantized_matmul_simd.h>
#include <coracle/operators/quantize/quantized_slots.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace coracle::quantized_pool2d_op {

void InferPool(InferContext& ctx) {
  const Shape out = PoolShape(ctx, 2);
  RequireQuantized(ctx, "C7", "X");
  ctx.SetOutput("Out", RequireOutQuantization(ctx, "C8"), out);
}

struct PoolArgs {
  TensorArg x, out;
  Quantization x_q, out_q;
  PoolGeometry g;

  explicit PoolArgs(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        out(ctx.Output("Out")),
        x_q(ctx, "X"),
        out_q(ctx, "Out"),
        g(PoolGeometryOf(ctx, x)) {}
};

Kernel Pool(const PrepareContext& ctx) {
  return [a = PoolArgs(ctx)](Workspace& ws) {
    const ImageStrides in = a.g.InStrides();
    const void* x = ws.Data<const void>(a.x);
    const auto scale = static_cast<double>(a.x_q.Scale(ws));
    const int32_t zero = a.x_q.Zero(ws);
    const RealStore store(ws, a.out, a.out_q);
    ForPlanes(a.g, [&](int64_t first, int64_t to) {
      ForWindows(a.g, [&](const PoolWindow& window, int64_t o) {
        int64_t sum = 0;
        ForElements(in, window, [&](int64_t at) {
          sum += IntegerAt(a.x.dtype, x, first + at) - zero;
          return false;
        });
        const auto count = static_cast<double>(a.g.Divisor(window));
        store(to + o, scale * static_cast<double>(sum) / count);
      });
    });
  };
}

// --- the fast kernel ---

class FastPool {
 public:
  FastPool(const PrepareContext& ctx, const PoolArgs& args) : a_(args), tables_(args.g) {
    if (a_.g.channels_last) return;
    parts_ = std::clamp<int64_t>(a_.g.batch * a_.g.channels, 1, NumThreads());
    sums_ = ctx.Scratch(DType::kInt32, {parts_, a_.g.w.in});
    means_ = ctx.Scratch(DType::kFloat32, {parts_, a_.g.w.out});
  }

  // Whether float32 serves; only then is the result computed.
  bool Run(Workspace& ws) const {
    const Step step(ws, a_);
    if (!step.tame) return false;
    if (a_.g.channels_last)
      RunNhwc(ws, step);
    else
      RunNchw(ws, step);
    return true;
  }

 private:
  // What a run knows.
  struct Step {
    const uint8_t* x;
    uint8_t* out;
    bool flip, tame;
    int32_t zero;  // of X, after the flip
    float factor;  // XScale / OutScale
    ByteRounding rounding;
    int64_t out_size;

    Step(Workspace& ws, const PoolArgs& a)
        : x(ws.Data<const uint8_t>(a.x)),
          out(ws.Data<uint8_t>(a.out)),
          flip(a.x.dtype == DType::kInt8),
          zero(a.x_q.Zero(ws) + (flip ? kFlip : 0)),
          rounding{1, a.out_q.Zero(ws), a.out.dtype},
          out_size(static_cast<int64_t>(SizeOf(a.out.dtype))) {
      const double inverse = a.out_q.scale ? 1 / static_cast<double>(a.out_q.Scale(ws)) : 1;
      const double whole = static_cast<double>(a.x_q.Scale(ws)) * inverse;
      factor = static_cast<float>(whole);
      tame = IsTame(inverse) && inverse > 0 && IsTame(whole);
    }
    // Element i of Out, and those after it.
    void Store(const float* means, int64_t n, int64_t i) const {
      if (out_size > 1)
        std::copy_n(means, n, reinterpret_cast<float*>(out) + i);
      else
        RoundToBytes(means, n, rounding, out + i);
    }
  };

  // The factor of a sum over a window, and what its zero points add to the sum.
  struct Mean {
    float factor;
    int32_t zeros;
  };
  Mean MeanOf(const Step& step, const PoolRange& y, const PoolRange& x) const {
    const int64_t count = (y.end - y.begin) * (x.end - x.begin);
    const int64_t divisor = std::max<int64_t>(1, tables_.Share(y) * tables_.Share(x));
    return {step.factor / static_cast<float>(divisor), static_cast<int32_t>(count * step.zero)};
  }

  void RunNhwc(Workspace&, const Step& step) const {
    const PoolGeometry& g = a_.g;
    const ImageStrides in = g.InStrides();
    const int64_t channels = g.channels;
    // Pixels of channels for a window of any size, so that threads share a global average.
    constexpr int64_t kChannels = 512;
    const int64_t blocks = (channels + kChannels - 1) / kChannels;
    const int64_t work = 1 + g.InPixels() * channels / (1 + g.h.out * blocks);
    ParallelFor(g.batch * g.h.out * blocks, 1 + 65536 / work, [&](int64_t begin, int64_t end) {
      int32_t sums[kChannels];
      float means[kChannels];
      for (int64_t i = begin; i < end; ++i) {
        const int64_t block = i % blocks, row = i / blocks, image = row / g.h.out;
        const int64_t first = block * kChannels, n = std::min(kChannels, channels - first);
        const PoolRange& y = tables_.y[static_cast<size_t>(row % g.h.out)];
        for (int64_t column = 0; column < g.w.out; ++column) {
          const PoolRange& x = tables_.x[static_cast<size_t>(column)];
          const uint8_t* from = step.x + image * in.n + y.begin * in.h + x.begin * in.w + first;
          SumPixelBytes({from, y.end - y.begin, x.end - x.begin, in.h, in.w}, n, step.flip, sums);
          const Mean mean = MeanOf(step, y, x);
          for (int64_t c = 0; c < n; ++c)
            means[c] = static_cast<float>(sums[c] - mean.zeros) * mean.factor;
          step.Store(means, n, (row * g.w.out + column) * channels + first);
        }
      }
    });
  }

  void RunNchw(Workspace& ws, const Step& step) const {
    const int64_t planes = a_.g.batch * a_.g.channels;
    ParallelFor(parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        int32_t* sums = ws.Data<int32_t>(sums_) + part * a_.g.w.in;
        float* means = ws.Data<float>(means_) + part * a_.g.w.out;
        for (int64_t p = planes * part / parts_; p < planes * (part + 1) / parts_; ++p)
          RunPlane(step, p, sums, means);
      }
    });
  }

  void RunPlane(const Step& step, int64_t plane, int32_t* sums, float* means) const {
    const PoolGeometry& g = a_.g;
    const uint8_t* x = step.x + plane * g.InPixels();
    const int64_t width = g.w.in;
    for (int64_t h = 0; h < g.h.out; ++h) {
      const PoolRange& y = tables_.y[static_cast<size_t>(h)];
      std::fill_n(sums, width, 0);
      for (int64_t r = y.begin; r < y.end; ++r) AddBytes(x + r * width, width, step.flip, sums);
      for (int64_t w = 0; w < g.w.out; ++w) {
        const PoolRange& range = tables_.x[static_cast<size_t>(w)];
        int32_t sum = 0;
        for (int64_t c = range.begin; c < range.end; ++c) sum += sums[c];
        const Mean mean = MeanOf(step, y, range);
        means[w] = static_cast<float>(sum - mean.zeros) * mean.factor;
      }
      step.Store(means, g.w.out, (plane * g.h.out + h) * g.w.out);
    }
  }

  PoolArgs a_;
  PoolTables tables_;
  TensorArg sums_, means_;  // a row for each part, channels first
  int64_t parts_ = 1;
};

Kernel PoolFast(const PrepareContext& ctx) {
  const PoolArgs args(ctx);
  constexpr int64_t kMostPixels = int64_t{1} << 22;  // whose sum fits into int32
  if (args.x.numel == 0 || args.out.numel == 0 || args.g.InPixels() > kMostPixels) return {};
  const auto pool = std::make_shared<const FastPool>(ctx, args);
  return [pool, exact = Pool(ctx)](Workspace& ws) {
    if (!pool->Run(ws)) exact(ws);
  };
}

void DeclareWindows(OpDef& def) {
  using Ints = std::vector<int32_t>;
  def.Attr<Ints>("ksize", "size of the window (of Out when adaptive)")
      .Attr<bool>("global_pooling", false,
                  "the window is the whole image, and ksize and paddings are ignored")
      .Attr<Ints>("strides", Ints{1, 1}, "steps of the window along the axes")
      .Attr<Ints>("paddings", Ints{0, 0},
                  "one number for each axis, or two, before and after: {top, bottom, left, right}")
      .Attr<bool>("exclusive", true, "an average does not count padding")
      .Attr<bool>("adaptive", false,
                  "window i covers [floor(i in / out), ceil((i + 1) in / out)), out = ksize")
      .Attr<bool>("ceil_mode", false, "round the output size up")
      .Attr<std::string>("data_format", "NCHW", "NCHW (AnyLayout too) or NHWC")
      .OneOf({"NCHW", "NHWC", "AnyLayout"})
      .Attr<std::string>("padding_algorithm", "EXPLICIT", "EXPLICIT, SAME or VALID, as for conv2d")
      .OneOf({"EXPLICIT", "SAME", "VALID"})
      .Attr<std::string>("pooling_type", "avg", "avg; pool2d computes maxima of integers")
      .OneOf({"avg"})
      .Attr<bool>("is_test", false, "accepted, no effect");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("quantized_pool2d")
          .Doc("Averages over windows of each channel of quantised images, as in pool2d: with "
               "R = XScale times the average of X - XZeroPoint, Out is R as float32, or "
               "round(R / OutScale) + OutZeroPoint, rounded to the nearest integer (ties to "
               "even) and limited to the range of Out's dtype; a nan gives the least integer. "
               "Padding counts as the real number 0.")
          .ConstraintsOf("pool2d", {"C1", "C3", "C4", "C5", "C6"})
          .Constraint("C7", std::string("X ") + kQuantizedText)
          .Constraint("C8", kOutText)
          .Apply(DeclareQuantizedInput, "X",
                 "int8 or uint8 images [N, C, H, W], or [N, H, W, C] for NHWC")
          .Output("Out", "pooled images in X's layout, of the dtype that out_dtype names")
          .Apply(DeclareWindows)
          .Apply(DeclareOutQuantization)
          .KernelTypeFrom("X")
          .ImageLayout("data_format", {"X", "Out"})
          .EachImage()
          .Rows(EachBatchRow, kEachBatchRow)
          .Tables({"XScale", "XZeroPoint", "OutScale", "OutZeroPoint"})
          .NotDifferentiable("integers have no gradient")
          .Infer(InferPool)
          .Reference<int8_t, uint8_t>([]<class>(const PrepareContext& ctx) { return Pool(ctx); })
          .Fast(PoolFast));
}

}  // namespace coracle::quantized_pool2d_op

// sequence_conv: convolution over the rows of each sequence.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::sequence_conv_op {

// The context of row t: rows t + start to t + start + length - 1. Rows of PaddingData replace the
// `up` rows before a sequence, then the `down` rows after it.
struct Window {
  int64_t length, start, up, down;
};

template <class Context>
Window WindowOf(const Context& ctx) {
  const int64_t length = ctx.template Attr<int32_t>("contextLength");
  const int64_t start = ctx.template Attr<int32_t>("contextStart");
  return {length, start, std::max<int64_t>(0, -start), std::max<int64_t>(0, start + length - 1)};
}

VarMeta ConvOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const VarMeta& filter = ctx.Input("Filter");
  ctx.Require("C1", x.shape.rank() == 2, x);
  const Window w = WindowOf(ctx);
  ctx.Require("C2", w.length >= 1 && ctx.Attr<int32_t>("contextStride") == 1, "contextLength",
              w.length, "contextStride", ctx.Attr<int32_t>("contextStride"));
  const int64_t column = MulDims(w.length, x.shape[1]);
  ctx.Require("C3",
              filter.dtype == x.dtype && filter.shape.rank() == 2 &&
                  InferContext::Matches(filter.shape[0], column),
              "Filter", filter, "X", x);
  const bool there = ctx.HasInput("PaddingData"), padded = ctx.Attr<bool>("paddingTrainable");
  const VarMeta padding = there ? ctx.Input("PaddingData") : VarMeta{};
  const bool fits = padding.dtype == x.dtype && w.up + w.down > 0 &&
                    padding.shape.CompatibleWith(Shape{w.up + w.down, x.shape[1]});
  if (padded) ctx.Require("C4", there && fits, "PaddingData", padding, "rows", w.up + w.down);
  if (there) ctx.Require("C4", padding.dtype == x.dtype, "PaddingData", padding);
  x.shape[1] = filter.shape[1];
  return x;
}

// Calls visit(t, j, row, padding row): one of the last two is -1, or both for a zero.
template <class Visit>
void ForEachInContext(const Sequences& s, const Window& w, bool padded, const Visit& visit) {
  for (int64_t i = 0; i < s.count(); ++i) {
    const int64_t n = s.length(i);
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t j = 0; j < w.length; ++j) {
        const int64_t q = t + w.start + j;
        if (q >= 0 && q < n)
          visit(s.begin(i) + t, j, s.begin(i) + q, int64_t{-1});
        else if (padded)
          visit(s.begin(i) + t, j, int64_t{-1}, q < 0 ? w.up + q : w.up + q - n);
      }
    }
  }
}

template <class T>
KernelOf<T> Conv(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), filter = ctx.Input("Filter"), out = ctx.Output("Out");
  const bool padded = ctx.Attr<bool>("paddingTrainable");
  const TensorArg padding = padded ? ctx.Input("PaddingData") : TensorArg();
  const SequencesArg sequences(ctx, "X", "C5");
  const Window window = WindowOf(ctx);
  const int64_t depth = x.shape[1], filters = filter.shape[1];
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *weights = ws.Data<const T>(filter);
    const T* pad = padded ? ws.Data<const T>(padding) : nullptr;
    T* o = ws.Data<T>(out);
    std::fill_n(o, out.numel, T(0));
    if (depth == 0) return;
    ForEachInContext(sequences(ws), window, padded,
                     [&](int64_t t, int64_t j, int64_t row, int64_t pad_row) {
                       const T* from = row >= 0 ? in + row * depth : pad + pad_row * depth;
                       T* to = o + t * filters;
                       const T* w = weights + j * depth * filters;
                       for (int64_t d = 0; d < depth; ++d, w += filters) {
                         for (int64_t m = 0; m < filters; ++m) to[m] += from[d] * w[m];
                       }
                     });
  };
}

// The contexts of rows in blocks, as rows of a matrix: Out = contexts * Filter.
class Contexts {
 public:
  Contexts(const PrepareContext& ctx, const TensorArg& x)
      : rows_(x.shape[0]),
        depth_(x.shape[1]),
        window_(WindowOf(ctx)),
        padded_(ctx.Attr<bool>("paddingTrainable")) {
    // A block fits into a cache, or is so long that the products dominate the time.
    block_ = std::min(rows_, std::max<int64_t>(16, (1 << 18) / (1 + width())));
    // A single row is its own context, so nothing is copied.
    if (window_.length > 1 || window_.start != 0)
      memory_ = ctx.Scratch(DType::kFloat32, {block_, width()});
  }

  int64_t block() const { return block_; }
  int64_t width() const { return window_.length * depth_; }
  explicit operator bool() const { return static_cast<bool>(memory_); }  // whether they are copies
  float* Memory(Workspace& ws) const { return ws.Data<float>(memory_); }

  // Calls visit(first row, rows) for each block.
  template <class Visit>
  void ForEachBlock(const Visit& visit) const {
    for (int64_t first = 0; first < rows_; first += block_) {
      CheckTimeLimit("convolving sequences");
      visit(first, std::min(block_, rows_ - first));
    }
  }

  // The contexts of `count` rows from `first` on.
  const float* Copy(Workspace& ws, const Sequences& s, int64_t first, int64_t count,
                    const float* in, const float* pad) const {
    if (!memory_) return in + first * depth_;
    float* to = Memory(ws);
    ParallelFor(count, 1 + 16384 / (1 + width()), [&](int64_t begin, int64_t end) {
      ForEachPart(s, first + begin, first + end, [&](int64_t t, const Part& part) {
        float* row = to + (t - first) * width();
        for (int64_t j = 0; j < window_.length; ++j) {
          const int64_t outside = PaddingRow(part, j);
          if (j == part.begin && j < part.end) {
            std::copy_n(in + part.row * depth_, (part.end - part.begin) * depth_, row + j * depth_);
            j = part.end - 1;
          } else if (outside < 0) {
            std::fill_n(row + j * depth_, depth_, 0.0f);
          } else {
            std::copy_n(pad + outside * depth_, depth_, row + j * depth_);
          }
        }
      });
    });
    return to;
  }

  // Adds gradients of contexts, in Memory, to the gradients of their rows.
  void AddBack(Workspace& ws, const Sequences& s, int64_t first, int64_t count, float* to_x,
               float* to_pad) const {
    const float* from = Memory(ws);
    ForEachPart(s, first, first + count, [&](int64_t t, const Part& part) {
      const float* row = from + (t - first) * width();
      const auto add = [&](int64_t j, int64_t n, float* to) {
        for (int64_t k = 0; k < n * depth_; ++k) to[k] += row[j * depth_ + k];
      };
      if (to_x && part.begin < part.end)
        add(part.begin, part.end - part.begin, to_x + part.row * depth_);
      for (int64_t j = 0; to_pad && j < window_.length; ++j) {
        if (j < part.begin || j >= part.end) add(j, 1, to_pad + PaddingRow(part, j) * depth_);
      }
    });
  }

 private:
  // The positions [begin, end) of a context that are rows of the sequence, from `row` on. Earlier
  // positions count from `before`, relative to the beginning of the sequence; later positions count
  // from `behind`, relative to its end.
  struct Part {
    int64_t begin, end, row, before, behind;
  };

  // Calls visit(t, part) for the rows [first, last).
  template <class Visit>
  void ForEachPart(const Sequences& s, int64_t first, int64_t last, const Visit& visit) const {
    int64_t low = 0, high = s.count();  // the sequence of `first` is in [low, high)
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (s.begin(middle) <= first ? low : high) = middle;
    }
    for (int64_t t = first; t < last; ++t) {
      while (s.end(low) <= t) ++low;
      const int64_t q = t - s.begin(low) + window_.start, n = s.length(low);
      const int64_t begin = std::clamp<int64_t>(-q, 0, window_.length);
      const int64_t end = std::clamp<int64_t>(n - q, begin, window_.length);
      visit(t, Part{begin, end, s.begin(low) + q + begin, q, q - n});
    }
  }
  // The row of PaddingData for position j outside of the sequence; -1: zeros.
  int64_t PaddingRow(const Part& part, int64_t j) const {
    if (!padded_) return -1;
    return part.before + j < 0 ? window_.up + part.before + j : window_.up + part.behind + j;
  }

  int64_t rows_, depth_, block_ = 0;
  Window window_;
  bool padded_;
  TensorArg memory_;
};

Kernel FastConv(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), filter = ctx.Input("Filter"), out = ctx.Output("Out");
  const int64_t filters = filter.shape[1];
  if (x.dtype != DType::kFloat32 || filter.numel == 0) return {};
  const bool padded = ctx.Attr<bool>("paddingTrainable");
  const TensorArg padding = padded ? ctx.Input("PaddingData") : TensorArg();
  const SequencesArg sequences(ctx, "X", "C5");
  const Contexts contexts(ctx, x);
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const auto *in = ws.Data<const float>(x), *weights = ws.Data<const float>(filter);
    const float* pad = padded ? ws.Data<const float>(padding) : nullptr;
    float* o = ws.Data<float>(out);
    contexts.ForEachBlock([&](int64_t first, int64_t count) {
      RunGemm<float>({.m = count, .n = filters, .k = contexts.width()}, KernelMode::kAuto,
                     contexts.Copy(ws, s, first, count, in, pad), weights, o + first * filters);
    });
  };
}

void InferConvGrad(InferContext& ctx) {
  RequireOutGrad(ctx, "C6", ConvOut(ctx));
  for (const char* slot : {"X", "Filter", "PaddingData"}) {
    if (ctx.HasInput(slot)) ctx.SetOutput(GradName(slot), ctx.Input(slot));
  }
}

template <class T>
KernelOf<T> ConvGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), filter = ctx.Input("Filter"), dout = ctx.Input("Out@GRAD");
  const bool padded = ctx.Attr<bool>("paddingTrainable");
  const TensorArg padding = padded ? ctx.Input("PaddingData") : TensorArg();
  const TensorArg dx = ctx.Output("X@GRAD"), dfilter = ctx.Output("Filter@GRAD");
  const TensorArg dpadding = ctx.Output("PaddingData@GRAD");
  const SequencesArg sequences(ctx, "X", "C5");
  const Window window = WindowOf(ctx);
  const int64_t depth = x.shape[1], filters = filter.shape[1];
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *weights = ws.Data<const T>(filter);
    const T *pad = padded ? ws.Data<const T>(padding) : nullptr, *given = ws.Data<const T>(dout);
    const auto zeros = [&](const TensorArg& arg) {
      T* data = arg ? ws.Data<T>(arg) : nullptr;
      if (data) std::fill_n(data, arg.numel, T(0));
      return data;
    };
    T *to_x = zeros(dx), *to_filter = zeros(dfilter), *to_pad = zeros(dpadding);
    if (depth == 0) return;
    ForEachInContext(sequences(ws), window, padded,
                     [&](int64_t t, int64_t j, int64_t row, int64_t pad_row) {
                       const T* g = given + t * filters;
                       const T* from = row >= 0 ? in + row * depth : pad + pad_row * depth;
                       T* to = row >= 0 ? to_x : to_pad;
                       if (to) to += (row >= 0 ? row : pad_row) * depth;
                       for (int64_t d = 0; d < depth; ++d) {
                         const int64_t at = (j * depth + d) * filters;
                         T sum = 0;
                         for (int64_t m = 0; m < filters; ++m) {
                           sum += g[m] * weights[at + m];
                           if (to_filter) to_filter[at + m] += from[d] * g[m];
                         }
                         if (to) to[d] += sum;
                       }
                     });
  };
}

Kernel FastConvGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), filter = ctx.Input("Filter"), dout = ctx.Input("Out@GRAD");
  const int64_t filters = filter.shape[1];
  if (x.dtype != DType::kFloat32 || filter.numel == 0) return {};
  const bool padded = ctx.Attr<bool>("paddingTrainable");
  const TensorArg padding = padded ? ctx.Input("PaddingData") : TensorArg();
  const TensorArg dx = ctx.Output("X@GRAD"), dfilter = ctx.Output("Filter@GRAD");
  const TensorArg dpadding = ctx.Output("PaddingData@GRAD");
  const SequencesArg sequences(ctx, "X", "C5");
  const Contexts contexts(ctx, x);
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const auto *in = ws.Data<const float>(x), *weights = ws.Data<const float>(filter);
    const auto *pad = padded ? ws.Data<const float>(padding) : nullptr,
               *given = ws.Data<const float>(dout);
    const auto zeros = [&](const TensorArg& arg) {
      float* data = arg ? ws.Data<float>(arg) : nullptr;
      if (data) std::fill_n(data, arg.numel, 0.0f);
      return data;
    };
    float *to_x = zeros(dx), *to_filter = zeros(dfilter), *to_pad = zeros(dpadding);
    if (!padded) to_pad = nullptr;
    contexts.ForEachBlock([&](int64_t first, int64_t count) {
      const float* g = given + first * filters;
      if (to_filter)
        RunGemm<float>(
            {.m = contexts.width(), .n = filters, .k = count, .transpose_a = true, .beta = 1.0f},
            KernelMode::kAuto, contexts.Copy(ws, s, first, count, in, pad), g, to_filter);
      if (!to_x && !to_pad) return;
      RunGemm<float>({.m = count, .n = contexts.width(), .k = filters, .transpose_b = true},
                     KernelMode::kAuto, g, weights,
                     contexts ? contexts.Memory(ws) : to_x + first * contexts.width());
      if (contexts) contexts.AddBack(ws, s, first, count, to_x, to_pad);
    });
  };
}

void DeclareConv(OpDef& def) {
  def.Input("X", "floating-point tensor [rows, D] with LoD")
      .Input("Filter", "tensor [contextLength * D, M] of X's dtype")
      .OptionalInput("PaddingData", "tensor [up + down, D] of X's dtype, with paddingTrainable");
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sequence_conv")
              .Doc("Out[t] = the rows t + contextStart to t + contextStart + contextLength - 1 of "
                   "the sequence of row t, joined to one, times Filter. Rows outside of the "
                   "sequence are zero, or with paddingTrainable rows of PaddingData: first up = "
                   "max(0, -contextStart) rows for those before the sequence, then down = max(0, "
                   "contextStart + contextLength - 1) rows for those after it.")
              .Constraint("C1", "X must be a matrix")
              .Constraint("C2", "contextLength must be positive and contextStride 1")
              .Constraint("C3", "Filter must be [contextLength * columns of X, M], of X's dtype")
              .Constraint("C4", "paddingTrainable needs PaddingData of up + down > 0 rows like X's")
              .Constraint("C5", "X must have LoD of one level")
              .Apply(DeclareConv)
              .Output("Out", "tensor [rows, M]")
              .Attr<int32_t>("contextLength", "rows of a context")
              .Attr<int32_t>("contextStart", 0, "its first row, from t on")
              .Attr<int32_t>("contextStride", 1, "1")
              .Attr<bool>("paddingTrainable", false, "take PaddingData")
              .Rows(EachBatchRow, kEachBatchRow)
              .Tables({"Filter"})
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ConvOut(ctx)); })
              .GradientOp({"X", "Filter", "PaddingData"})
              .Reference(Conv<float>, Conv<double>)
              .Fast(FastConv));
  ops.Add(OpDef("sequence_conv_grad")
              .Doc("Gradients of sequence_conv.")
              .ConstraintsOf("sequence_conv", {"C1", "C2", "C3", "C4", "C5"})
              .Constraint("C6", "Out@GRAD must have Out's shape and dtype")
              .Apply(DeclareConv)
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("Filter@GRAD", "gradient of Filter")
              .OptionalOutput("PaddingData@GRAD", "gradient of PaddingData")
              .AttrsOf("sequence_conv")
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer(InferConvGrad)
              .Reference(ConvGrad<float>, ConvGrad<double>)
              .Fast(FastConvGrad));
}

}  // namespace coracle::sequence_conv_op

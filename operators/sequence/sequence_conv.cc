// sequence_conv: convolution over the rows of each sequence.

#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/same_type.h>
#include <coracle/operators/sequence/sequences.h>

#include <algorithm>

namespace coracle {
namespace {

// The context of row t: rows t + start to t + start + length - 1. Rows of PaddingData stand for the
// `up` rows before a sequence, then for the `down` rows behind it.
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

// Calls visit(t, j, row, padding row): one of the last two is -1, both where there is a zero.
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

void DeclareConv(OpDef& def) {
  def.Input("X", "floating-point tensor [rows, D] with LoD")
      .Input("Filter", "tensor [contextLength * D, M] of X's dtype")
      .OptionalInput("PaddingData", "tensor [up + down, D] of X's dtype, with paddingTrainable");
}

}  // namespace

void RegisterSequenceConv(OpRegistry& ops) {
  ops.Add(
      OpDef("sequence_conv")
          .Doc("Out[t] = the rows t + contextStart to t + contextStart + contextLength - 1 of the "
               "sequence of row t, joined to one, times Filter. Rows outside of the sequence are "
               "zero, or with paddingTrainable rows of PaddingData: first up = max(0, "
               "-contextStart) rows for those before the sequence, then down = max(0, "
               "contextStart + contextLength - 1) rows for those behind it.")
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
          .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ConvOut(ctx)); })
          .GradientOp({"X", "Filter", "PaddingData"})
          .Reference(Conv<float>, Conv<double>));
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
              .Reference(ConvGrad<float>, ConvGrad<double>));
}

}  // namespace coracle

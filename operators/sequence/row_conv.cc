// row_conv: weighted sums of each row and the rows after it (lookahead convolution).

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::row_conv_op {

void RequireRowConv(const InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &filter = ctx.Input("Filter");
  ctx.Require("C1", x.shape.rank() == 2 || x.shape.rank() == 3, x);
  ctx.Require("C2",
              filter.dtype == x.dtype && filter.shape.rank() == 2 &&
                  InferContext::Matches(filter.shape[1], x.shape[x.shape.rank() - 1]),
              "Filter", filter, "X", x);
}

// The sequences of X: from its LoD, or the items of a [batch, time, D].
class RowConvRows {
 public:
  explicit RowConvRows(const PrepareContext& ctx)
      : sequences_(ctx, "X", "C3"),
        x_(ctx.Input("X").shape),
        reach_(ctx.Input("Filter").shape[0]) {}
  // Calls visit(t, w, row t + w of the sequence) for each row t and row w of Filter, if row t +
  // w exists.
  template <class Visit>
  void ForEach(Workspace& ws, const Visit& visit) const {
    if (x_[x_.rank() - 1] == 0) return;
    const auto sequence = [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t w = 0; w < std::min(reach_, end - t); ++w) visit(t, w, t + w);
      }
    };
    if (x_.rank() == 3) {
      for (int64_t b = 0; b < x_[0]; ++b) sequence(b * x_[1], (b + 1) * x_[1]);
      return;
    }
    const Sequences s = sequences_(ws);
    for (int64_t i = 0; i < s.count(); ++i) sequence(s.begin(i), s.end(i));
  }

 private:
  SequencesArg sequences_;
  Shape x_;
  int64_t reach_;
};

template <class T>
KernelOf<T> RowConv(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), filter = ctx.Input("Filter"), out = ctx.Output("Out");
  const RowConvRows rows(ctx);
  const int64_t depth = filter.shape[1];
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *weights = ws.Data<const T>(filter);
    T* o = ws.Data<T>(out);
    std::fill_n(o, out.numel, T(0));
    rows.ForEach(ws, [&](int64_t t, int64_t w, int64_t row) {
      for (int64_t d = 0; d < depth; ++d)
        o[t * depth + d] += weights[w * depth + d] * in[row * depth + d];
    });
  };
}

template <class T>
KernelOf<T> RowConvGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), filter = ctx.Input("Filter"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dfilter = ctx.Output("Filter@GRAD");
  const RowConvRows rows(ctx);
  const int64_t depth = filter.shape[1];
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *weights = ws.Data<const T>(filter);
    const T* g = ws.Data<const T>(dout);
    T* to_x = dx ? ws.Data<T>(dx) : nullptr;
    T* to_filter = dfilter ? ws.Data<T>(dfilter) : nullptr;
    if (to_x) std::fill_n(to_x, dx.numel, T(0));
    if (to_filter) std::fill_n(to_filter, dfilter.numel, T(0));
    rows.ForEach(ws, [&](int64_t t, int64_t w, int64_t row) {
      for (int64_t d = 0; d < depth; ++d) {
        if (to_x) to_x[row * depth + d] += weights[w * depth + d] * g[t * depth + d];
        if (to_filter) to_filter[w * depth + d] += in[row * depth + d] * g[t * depth + d];
      }
    });
  };
}

void DeclareRowConv(OpDef& def) {
  def.Input("X", "floating-point tensor [rows, D] with LoD, or [batch, time, D]")
      .Input("Filter", "tensor [future rows, D] of X's dtype");
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("row_conv")
              .Doc("Out[t] = the sum over w of Filter[w] * X[t + w], over the rows t + w in the "
                   "sequence of row t.")
              .Constraint("C1", "X must have rank 2 or 3")
              .Constraint("C2", "Filter must be a matrix of X's dtype with as many columns as X")
              .Constraint("C3", "X of rank 2 must have LoD of one level")
              .Apply(DeclareRowConv)
              .Output("Out", "tensor of X's type")
              .Rows(EachBatchRow, kEachBatchRow)
              .Tables({"Filter"})
              .Infer([](InferContext& ctx) {
                RequireRowConv(ctx);
                ctx.SetOutput("Out", ctx.Input("X"));
              })
              .GradientOp({"X", "Filter"})
              .Reference(RowConv<float>, RowConv<double>));
  ops.Add(OpDef("row_conv_grad")
              .Doc("Gradients of row_conv.")
              .ConstraintsOf("row_conv", {"C1", "C2", "C3"})
              .Constraint("C4", "Out@GRAD must have X's shape and dtype")
              .Apply(DeclareRowConv)
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("Filter@GRAD", "gradient of Filter")
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer([](InferContext& ctx) {
                RequireRowConv(ctx);
                RequireSameType(ctx, "C4", "Out@GRAD", "X");
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
                ctx.SetOutput("Filter@GRAD", ctx.Input("Filter"));
              })
              .Reference(RowConvGrad<float>, RowConvGrad<double>));
}

}  // namespace coracle::row_conv_op

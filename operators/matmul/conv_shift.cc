#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/bilinear_gradient.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::conv_shift_op {

void CheckConvShift(InferContext& ctx) {
  const Shape &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  ctx.Require("C1", x.rank() == 2 && y.rank() == 2, x, y);
  ctx.Require("C2", InferContext::Matches(x[0], y[0]), x, y);
  ctx.Require("C3", y[1] < 0 || (y[1] % 2 == 1 && (x[1] < 0 || y[1] <= x[1])), x, y);
  RequireSameDType(ctx, "C4", "Y", "X");
}

struct Sizes {
  int64_t rows, m, k;
};
// Calls f(i, index in the row of X, j) for all terms of Out of one row.
template <class F>
void ForEachTerm(const Sizes& s, const F& f) {
  const int64_t half = (s.k - 1) / 2;
  const int64_t often = 1 + (1 << 16) / (1 + s.k);
  for (int64_t i = 0; i < s.m; ++i) {
    if (i % often == often - 1) CheckTimeLimit("correlating rows");
    for (int64_t j = 0; j < s.k; ++j) f(i, (i + j - half + s.m) % s.m, j);
  }
}
// Calls f(row) for all rows, in parallel.
template <class F>
void ForEachRow(const Sizes& s, const F& f) {
  ParallelFor(s.rows, 1 + 8192 / (1 + s.m * s.k), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}
Sizes SizesOf(const PrepareContext& ctx) {
  const Shape& x = ctx.Input("X").shape;
  return {x[0], x[1], ctx.Input("Y").shape[1]};
}

template <class T>
KernelOf<T> ConvShift(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const Sizes s = SizesOf(ctx);
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    T* o = ws.Data<T>(out);
    ForEachRow(s, [&](int64_t row) {
      T* to = o + row * s.m;
      std::fill_n(to, s.m, T(0));
      ForEachTerm(s, [&](int64_t i, int64_t at, int64_t j) {
        to[i] += a[row * s.m + at] * b[row * s.k + j];
      });
    });
  };
}

template <class T>
KernelOf<T> ConvShiftGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dy = ctx.Output("Y@GRAD");
  const Sizes s = SizesOf(ctx);
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y), *d = ws.Data<const T>(dout);
    T *to_x = dx ? ws.Data<T>(dx) : nullptr, *to_y = dy ? ws.Data<T>(dy) : nullptr;
    ForEachRow(s, [&](int64_t row) {
      if (dx) std::fill_n(to_x + row * s.m, s.m, T(0));
      if (dy) std::fill_n(to_y + row * s.k, s.k, T(0));
      ForEachTerm(s, [&](int64_t i, int64_t at, int64_t j) {
        const T g = d[row * s.m + i];
        if (dx) to_x[row * s.m + at] += g * b[row * s.k + j];
        if (dy) to_y[row * s.k + j] += g * a[row * s.m + at];
      });
    });
  };
}

void DeclareConvShift(OpDef& def) { def.Input("X", "[N, M]").Input("Y", "[N, K]"); }

void Register(OpRegistry& ops) {
  ops.Add(OpDef("conv_shift")
              .Doc("Out[n, i] = the sum over j of X[n, (i + j - (K - 1) / 2) mod M] Y[n, j]: the "
                   "circular correlation of rows.")
              .Constraint("C1", "X and Y must be matrices")
              .Constraint("C2", "X and Y must have the same number of rows")
              .Constraint("C3", "the width of Y must be odd and not exceed that of X")
              .Constraint("C4", "X and Y must have one dtype")
              .Apply(DeclareConvShift)
              .Output("Out", "[N, M]")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer([](InferContext& ctx) {
                CheckConvShift(ctx);
                ctx.SetOutput("Out", ctx.Input("X"));
              })
              .GradientOp({"X", "Y"})
              .Reference(ConvShift<float>, ConvShift<double>));
  ops.Add(OpDef("conv_shift_grad")
              .Doc("Gradient of conv_shift: Out@GRAD[n, i] times Y[n, j] is added to X@GRAD[n, (i "
                   "+ j - (K - 1) / 2) mod M], and times that element of X to Y@GRAD[n, j].")
              .ConstraintsOf("conv_shift", {"C1", "C2", "C3", "C4"})
              .Apply(DeclareConvShift)
              .Constraint("C5", "Out@GRAD must have X's shape and dtype")
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("Y@GRAD", "gradient of Y")
              .Infer([](InferContext& ctx) {
                CheckConvShift(ctx);
                RequireOutGrad(ctx, "C5", ctx.Input("X"));
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
                ctx.SetOutput("Y@GRAD", ctx.Input("Y"));
              })
              .Gradient([](GradientContext& g) { SetBilinearGradGradient(g, "conv_shift", {}); })
              .Reference(ConvShiftGrad<float>, ConvShiftGrad<double>));
}

}  // namespace coracle::conv_shift_op

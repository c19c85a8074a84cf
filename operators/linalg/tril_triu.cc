#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>

#include <algorithm>

namespace coracle::tril_triu_op {

void InferTrilTriu(InferContext& ctx) {
  ctx.Require("C1", ctx.InputShape("X").rank() >= 2, ctx.InputShape("X"));
  ctx.SetOutput("Out", ctx.Input("X"));
}

// In each row, the columns [first, last) are kept.
template <class T>
KernelOf<T> TrilTriu(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int64_t columns = x.shape[x.shape.rank() - 1], rows = x.shape[x.shape.rank() - 2];
  const int64_t diagonal = ctx.Attr<int32_t>("diagonal");
  const bool lower = ctx.Attr<bool>("lower");
  if (x.numel == 0) return [](Workspace&) {};
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ParallelFor(x.numel / columns, 1 + 32768 / columns, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t cut = i % rows + diagonal;
        const int64_t first = lower ? 0 : std::clamp<int64_t>(cut, 0, columns);
        const int64_t last = lower ? std::clamp<int64_t>(cut + 1, 0, columns) : columns;
        const T* from = in + i * columns;
        T* to = o + i * columns;
        std::fill(to, to + first, T(0));
        if (from != to) std::copy(from + first, from + last, to + first);
        std::fill(to + last, to + columns, T(0));
      }
    });
  };
}

// The op is linear and keeps the same elements of a gradient.
void TrilTriuGradient(GradientContext& g) {
  g.Set("X",
        g.Make("tril_triu", {{"X", {g.OutputGrad("Out")}}}, g.ForwardAttrs({"diagonal", "lower"})));
}

RowEffect TriangleRows(const RowQuery& query) {
  return query.axis >= query.rank - 2 ? RowRule::kMixes : RowRule::kEach;
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("tril_triu")
          .Doc("Out = X in a triangle of each matrix of the last two dims, else 0: where column "
               "- row <= diagonal under lower, else where column - row >= diagonal.")
          .Constraint("C1", "X must have rank 2 or more")
          .Input("X", "tensor of numbers or bool")
          .Output("Out", "tensor of X's shape and dtype")
          .Attr<int32_t>("diagonal", 0, "the last diagonal of the triangle; 0: the main one")
          .Attr<bool>("lower", "whether the lower triangle is kept; otherwise the upper one")
          .Inplace("X", "Out")
          .Rows(TriangleRows, "each by itself, unless they are rows or columns of the matrices")
          .Infer(InferTrilTriu)
          .Gradient(TrilTriuGradient)
          .Reference(TrilTriu<float>, TrilTriu<double>, TrilTriu<int32_t>, TrilTriu<int64_t>,
                     TrilTriu<bool>));
}

}  // namespace coracle::tril_triu_op

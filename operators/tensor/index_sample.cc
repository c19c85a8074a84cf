#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/gather_rows.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::index_sample_op {

VarMeta IndexSampleOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const Shape& index = ctx.InputShape("Index");
  RequireIndexType(ctx, "C1", "Index");
  const bool fits = x.shape.rank() == 2 && index.rank() == 2;
  ctx.Require("C2", fits && InferContext::Matches(x.shape[0], index[0]), x.shape, index);
  x.shape = {std::max(x.shape[0], index[0]), index[1]};
  return x;
}

void InferIndexSample(InferContext& ctx) { ctx.SetOutput("Out", IndexSampleOut(ctx)); }

void InferIndexSampleGrad(InferContext& ctx) {
  RequireOutGrad(ctx, "C3", IndexSampleOut(ctx));
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

// Calls f(b, column_of) for every row b of X and Index, on several threads; column_of(k) is the
// column of X given by element k of the row of Index.
template <class F>
void ForEachRow(const std::string& name, const IndexReader& at, const Shape& x, const Shape& index,
                const F& f) {
  const int64_t count = index[1];
  ParallelFor(index[0], 1 + 16384 / std::max<int64_t>(count, 1), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      f(b, [&](int64_t k) {
        const int64_t column = at[b * count + k];
        if (column < 0 || column >= x[1])
          ThrowIndexRange(name, "Index", b * count + k, column, x[1]);
        return column;
      });
    }
  });
}

Kernel IndexSample(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), index = ctx.Input("Index"), out = ctx.Output("Out");
  const std::string name = ctx.op().type();
  const auto size = static_cast<int64_t>(SizeOf(x.dtype));
  const int64_t columns = x.shape[1], count = index.shape[1];
  return [=](Workspace& ws) {
    const char* from = ws.Data<const char>(x);
    char* to = ws.Data<char>(out);
    ForEachRow(
        name, IndexReader(ws, index), x.shape, index.shape, [&](int64_t b, const auto& column_of) {
          GatherRows(from + b * columns * size, to + b * count * size, 0, count, size, column_of);
        });
  };
}

template <class T>
KernelOf<T> IndexSampleGrad(const PrepareContext& ctx) {
  const TensorArg index = ctx.Input("Index"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const std::string name = ctx.op().type();
  const int64_t bytes = dx.nbytes(), columns = dx.shape[1], count = index.shape[1];
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    FillZeroBytes(to, bytes);
    ForEachRow(name, IndexReader(ws, index), dx.shape, index.shape,
               [&](int64_t b, const auto& column_of) {
                 T* row = to + b * columns;
                 for (int64_t k = 0; k < count; ++k) {
                   const int64_t c = column_of(k);
                   row[c] = T(row[c] + from[b * count + k]);
                 }
               });
  };
}

void IndexSampleGradGradient(GradientContext& g) {
  g.Set("Out@GRAD",
        g.Make("index_sample", {{"X", {g.OutputGrad("X@GRAD")}}, {"Index", {g.Input("Index")}}}));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("index_sample")
              .Doc("Out[b, k] = X[b, Index[b, k]]. An index outside of the columns is an error.")
              .Constraint("C1", "Index must be int32 or int64")
              .Constraint("C2", "X and Index must be matrices with the same number of rows")
              .Input("X", "matrix of any dtype")
              .Input("Index", "int32 or int64 matrix of columns")
              .Output("Out", "tensor of Index's shape and X's dtype")
              .NoGradientTo({"Index"})
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferIndexSample)
              .GradientOp({"X", "Index"})
              .Strings()
              .Reference(IndexSample));
  ops.Add(OpDef("index_sample_grad")
              .Doc("Gradient of index_sample: X@GRAD[b, c] = sum of Out@GRAD[b, k] over all k with "
                   "Index[b, k] = c.")
              .ConstraintsOf("index_sample", {"C1", "C2"})
              .Constraint("C3", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "only its shape is used")
              .Input("Index", "int32 or int64 matrix of columns")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .NoGradientTo({"X", "Index"})
              .KernelTypeFrom("Out@GRAD")
              .Infer(InferIndexSampleGrad)
              .Gradient(IndexSampleGradGradient)
              .Reference(IndexSampleGrad<float>, IndexSampleGrad<double>, IndexSampleGrad<float16>,
                         IndexSampleGrad<bfloat16>, IndexSampleGrad<complex64>,
                         IndexSampleGrad<complex128>));
}

}  // namespace coracle::index_sample_op

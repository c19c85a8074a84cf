#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cstring>

namespace coracle {
namespace {

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

// Calls f(element of X, element of Index) for every element of Index.
template <class F>
void ForEachSample(const std::string& name, const IndexReader& at, const Shape& x,
                   const Shape& index, const F& f) {
  for (int64_t i = 0; i < index[0] * index[1]; ++i) {
    if (at[i] < 0 || at[i] >= x[1]) ThrowIndexRange(name, "Index", i, at[i], x[1]);
    f(i / index[1] * x[1] + at[i], i);
  }
}

Kernel IndexSample(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), index = ctx.Input("Index"), out = ctx.Output("Out");
  const std::string name = ctx.op().type();
  const size_t size = SizeOf(x.dtype);
  return [=](Workspace& ws) {
    const char* from = ws.Data<const char>(x);
    char* to = ws.Data<char>(out);
    ForEachSample(name, IndexReader(ws, index), x.shape, index.shape, [&](int64_t k, int64_t i) {
      std::memcpy(to + static_cast<size_t>(i) * size, from + static_cast<size_t>(k) * size, size);
    });
  };
}

template <class T>
KernelOf<T> IndexSampleGrad(const PrepareContext& ctx) {
  const TensorArg index = ctx.Input("Index"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const std::string name = ctx.op().type();
  const int64_t bytes = dx.nbytes();
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    FillZeroBytes(to, bytes);
    ForEachSample(name, IndexReader(ws, index), dx.shape, index.shape,
                  [&](int64_t k, int64_t i) { to[k] = T(to[k] + from[i]); });
  };
}

void IndexSampleGradGradient(GradientContext& g) {
  g.Set("Out@GRAD",
        g.Make("index_sample", {{"X", {g.OutputGrad("X@GRAD")}}, {"Index", {g.Input("Index")}}}));
}

}  // namespace

void RegisterIndexSample(OpRegistry& ops) {
  ops.Add(OpDef("index_sample")
              .Doc("Out[b, k] = X[b, Index[b, k]]. An index outside of the columns is an error.")
              .Constraint("C1", "Index must be int32 or int64")
              .Constraint("C2", "X and Index must be matrices with as many rows")
              .Input("X", "matrix of any dtype")
              .Input("Index", "int32 or int64 matrix of columns")
              .Output("Out", "tensor of Index's shape and X's dtype")
              .NoGradientTo({"Index"})
              .Infer(InferIndexSample)
              .GradientOp({"X", "Index"})
              .Reference(IndexSample));
  ops.Add(OpDef("index_sample_grad")
              .Doc("Gradient of index_sample: X@GRAD[b, c] = sum of Out@GRAD[b, k] over all k with "
                   "Index[b, k] = c.")
              .ConstraintsOf("index_sample", {"C1", "C2"})
              .Constraint("C3", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "for its shape only")
              .Input("Index", "int32 or int64 matrix of columns")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .NoGradientTo({"X", "Index"})
              .KernelTypeFrom("Out@GRAD")
              .Infer(InferIndexSampleGrad)
              .Gradient(IndexSampleGradGradient)
              .Reference(IndexSampleGrad<float>, IndexSampleGrad<double>, IndexSampleGrad<float16>,
                         IndexSampleGrad<bfloat16>));
}

}  // namespace coracle

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/scatter_add.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/same_type.h>

#include <cstring>

namespace coracle::c_embedding_op {

// W holds the rows [start_index, start_index + rows) of a table distributed over processes.
void RequireTable(InferContext& ctx) {
  const Shape& w = ctx.InputShape("W");
  ctx.Require("C1", w.rank() == 2, w);
  RequireIndexType(ctx, "C2", "Ids");
}

Shape RowsShape(InferContext& ctx) {
  std::vector<int64_t> dims = ctx.InputShape("Ids").ToVector();
  dims.push_back(ctx.InputShape("W")[1]);
  return ToShape(ctx, "C3", dims);
}

void InferEmbedding(InferContext& ctx) {
  RequireTable(ctx);
  ctx.SetOutput("Out", ctx.InputDType("W"), RowsShape(ctx));
}

void InferEmbeddingGrad(InferContext& ctx) {
  RequireTable(ctx);
  const VarMeta& grad = ctx.Input("Out@GRAD");
  const bool same = grad.dtype == ctx.InputDType("W") && grad.shape.CompatibleWith(RowsShape(ctx));
  if (!same) ctx.Fail("C4", grad);
  ctx.SetOutput("W@GRAD", ctx.Input("W"));
}

// This process's row for an id; -1 if the row belongs to another process.
struct RowOf {
  int64_t start, rows;
  explicit RowOf(const PrepareContext& ctx)
      : start(ctx.Attr<int64_t>("start_index")), rows(ctx.Input("W").shape[0]) {}
  // start is not negative, so nothing overflows.
  int64_t operator()(int64_t id) const {
    return id < start || id - start >= rows ? -1 : id - start;
  }
};

Kernel Embedding(const PrepareContext& ctx) {
  const TensorArg w = ctx.Input("W"), ids = ctx.Input("Ids"), out = ctx.Output("Out");
  const RowOf row_of(ctx);
  const auto bytes = static_cast<size_t>(ByteSize(w.dtype, {w.shape[1]}));
  return [=](Workspace& ws) {
    const IndexReader id(ws, ids);
    const char* from = ws.Data<const char>(w);
    char* to = ws.Data<char>(out);
    if (bytes == 0) return;
    ParallelFor(ids.numel, 1 + 65536 / static_cast<int64_t>(bytes),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t row = row_of(id[i]);
                    char* target = to + static_cast<size_t>(i) * bytes;
                    if (row < 0)
                      std::memset(target, 0, bytes);
                    else
                      std::memcpy(target, from + static_cast<size_t>(row) * bytes, bytes);
                  }
                });
  };
}

template <class T>
KernelOf<T> EmbeddingGrad(const PrepareContext& ctx) {
  const TensorArg ids = ctx.Input("Ids"), dout = ctx.Input("Out@GRAD"), dw = ctx.Output("W@GRAD");
  const RowOf row_of(ctx);
  return [=](Workspace& ws) {
    if (dw.numel == 0) return;
    const IndexReader id(ws, ids);
    ScatterAddRows(ws.Data<const T>(dout), ids.numel, ws.Data<T>(dw), dw.shape[0], dw.shape[1],
                   [&](int64_t i) { return row_of(id[i]); });
  };
}

// The look-up is linear in W.
void EmbeddingGradGradient(GradientContext& g) {
  g.Set("Out@GRAD",
        g.Make("c_embedding", {{"W", {g.OutputGrad("W@GRAD")}}, {"Ids", {g.Input("Ids")}}},
               g.ForwardAttrs({"start_index"})));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("c_embedding")
              .ForRanks()
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = row id - start_index of W for every id; zeros if that row is outside W "
                   "and belongs to another process.")
              .Constraint("C1", "W must be a matrix")
              .Constraint("C2", "Ids must be int32 or int64")
              .Constraint("C3", "the rank of Out must be at most 9")
              .Input("W", "[v, d] of any dtype: the rows from start_index on")
              .Input("Ids", "int32 or int64 tensor of ids")
              .Output("Out", "the rows")
              .Attr<int64_t>("start_index", 0, "the id of W's first row")
              .Range(0, std::nullopt)
              .NoGradientTo({"Ids"})
              .LodFrom("Ids")
              .Rows(RowRule::kEach)
              .Tables({"W"})
              .Infer(InferEmbedding)
              .GradientOp({"W", "Ids"})
              .Reference(Embedding));
  ops.Add(OpDef("c_embedding_grad")
              .ForRanks()
              .Doc("Gradient of c_embedding: each row of W@GRAD = the sum of the rows of Out@GRAD "
                   "with its id.")
              .ConstraintsOf("c_embedding", {"C1", "C2", "C3"})
              .Constraint("C4", "Out@GRAD must have Out's shape and W's dtype")
              .Input("W", "only its shape is used")
              .Input("Ids", "int32 or int64 tensor of ids")
              .Input("Out@GRAD", "gradient of Out")
              .Output("W@GRAD", "gradient of W")
              .AttrsOf("c_embedding")
              .NoGradientTo({"W", "Ids"})
              .KernelTypeFrom("Out@GRAD")
              .Infer(InferEmbeddingGrad)
              .Gradient(EmbeddingGradGradient)
              .Reference(EmbeddingGrad<float>, EmbeddingGrad<double>));
}

}  // namespace coracle::c_embedding_op

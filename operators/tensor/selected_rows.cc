#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/selected_rows.h>

namespace coracle::selected_rows_op {

void InferMerge(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C1", x.type == VarType::kSelectedRows, x);
  ctx.SetOutput("Out", x);
}

template <class T>
Kernel Merge(const PrepareContext& ctx) {
  const RowsInput x(ctx, "X");
  const RowsOutput out(ctx, "Out");
  const RowGrouper grouper(ctx);
  return [=](Workspace& ws) { MergeRows<T>(ws, x(ws), grouper, out); };
}

void InferGetTensor(InferContext& ctx) {
  VarMeta meta = ctx.Input("X");
  meta.type = VarType::kLoDTensor;
  ctx.SetOutput("Out", meta);
}

template <class T>
Kernel GetTensor(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int64_t bytes = out.nbytes();
  if (!IsSparse(x))
    return [=](Workspace& ws) { CopyBytes(ws.Data<const void>(x), ws.Data<void>(out), bytes); };
  return [=, rows = RowsInput(ctx, "X", 0, out.shape)](Workspace& ws) {
    FillZeroBytes(ws.Data<void>(out), bytes);
    AddRows(rows(ws), ws.Data<T>(out));
  };
}

// X and Out represent the same tensor.
void PassOn(GradientContext& g) { g.Set("X", g.Grad("Out")); }

void Register(OpRegistry& ops) {
  ops.Add(OpDef("merge_selected_rows")
              .Doc("Out = X with its duplicate rows added up and its rows in ascending order.")
              .Constraint("C1", "X must be selected rows")
              .Input("X", "selected rows")
              .Output("Out", "selected rows that represent the same tensor")
              .Takes(VarType::kSelectedRows, {"X"})
              .Rows(RowRule::kEach)
              .Infer(InferMerge)
              .Gradient(PassOn)
              .Reference<float, double, int32_t, int64_t, float16, bfloat16>(
                  []<class T>(const PrepareContext& c) { return Merge<T>(c); }));
  ops.Add(OpDef("get_tensor_from_selected_rows")
              .Doc("Out = the dense tensor that X represents: a row that X does not hold is zero, "
                   "and duplicates add up. (Paddle's kernel returns the stored rows without their "
                   "numbers; the shape of Out would then be known only in a run.)")
              .Input("X", "selected rows; a dense tensor is copied")
              .Output("Out", "dense tensor of X's shape and dtype")
              .Takes(VarType::kSelectedRows, {"X"})
              .Rows(RowRule::kEach)
              .Infer(InferGetTensor)
              .Gradient(PassOn)
              .Reference<float, double, int32_t, int64_t, float16, bfloat16>(
                  []<class T>(const PrepareContext& c) { return GetTensor<T>(c); }));
}

}  // namespace coracle::selected_rows_op

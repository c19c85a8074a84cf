// sequence_scatter: adds a sequence of updates to each row.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::sequence_scatter_op {

// `rows`: X, or a tensor with its type.
void RequireScatter(const InferContext& ctx, const VarMeta& rows) {
  ctx.Require("C1", rows.shape.rank() >= 1, rows);
  RequireIndexType(ctx, "C3", "Ids");
  const VarMeta& updates = ctx.Input("Updates");
  for (const Shape& shape : {ctx.InputShape("Ids"), updates.shape}) {
    const bool column = shape.rank() == 2 && InferContext::Matches(shape[1], 1);
    ctx.Require("C3", shape.rank() == 1 || column, shape);
  }
  ctx.Require("C3", InferContext::Matches(ctx.InputShape("Ids")[0], updates.shape[0]), "Ids",
              ctx.Input("Ids"), "Updates", updates);
  ctx.Require("C4", updates.dtype == rows.dtype, "Updates", updates, "X", rows);
}

// Calls visit(k, element) for each id with its element of X.
class Targets {
 public:
  Targets(const PrepareContext& ctx, const TensorArg& rows)
      : ids_(ctx.Input("Ids")),
        rows_(rows.shape[0]),
        width_(RowWidth(rows.shape)),
        type_(ctx.op().type()),
        sequences_(ctx, "Ids", "C2"),
        one_each_(ctx, "C5") {}
  template <class Visit>
  void ForEach(Workspace& ws, const Visit& visit) const {
    const Sequences s = sequences_(ws);
    one_each_.Require(s.count() == rows_, "sequences", s.count(), "rows", rows_);
    const IndexReader ids(ws, ids_);
    for (int64_t i = 0; i < s.count(); ++i) {
      for (int64_t k = s.begin(i); k < s.end(i); ++k) {
        if (ids[k] < 0 || ids[k] >= width_) ThrowIndexRange(type_, "Ids", k, ids[k], width_);
        visit(k, i * width_ + ids[k]);
      }
    }
  }

 private:
  TensorArg ids_;
  int64_t rows_, width_;
  std::string type_;
  SequencesArg sequences_;
  RunConstraint one_each_;
};

template <class T>
KernelOf<T> Scatter(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), updates = ctx.Input("Updates"), out = ctx.Output("Out");
  const Targets targets(ctx, x);
  const int64_t bytes = x.nbytes();
  return [=](Workspace& ws) {
    CopyBytes(ws.Data<const void>(x), ws.Data<void>(out), bytes);
    const T* from = ws.Data<const T>(updates);
    T* to = ws.Data<T>(out);
    targets.ForEach(ws, [&](int64_t k, int64_t at) { to[at] += from[k]; });
  };
}

template <class T>
KernelOf<T> ScatterGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const TensorArg dupdates = ctx.Output("Updates@GRAD");
  const Targets targets(ctx, dout);
  const int64_t bytes = dout.nbytes();
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(dout);
    if (dupdates) {
      T* to = ws.Data<T>(dupdates);
      targets.ForEach(ws, [&](int64_t k, int64_t at) { to[k] = from[at]; });
    }
    if (dx) CopyBytes(from, ws.Data<void>(dx), bytes);
  };
}

void DeclareScatter(OpDef& def) {
  def.Constraint("C1", "X must have rows")
      .Constraint("C2", "Ids must have LoD of one level")
      .Constraint("C3", "Ids (int32 or int64) and Updates must be columns of one length")
      .Constraint("C4", "Updates must have X's dtype")
      .Constraint("C5", "Ids must have one sequence for each row of X")
      .Input("Ids", "int32 or int64 tensor [K, 1] with LoD, indices into a flat row of X")
      .Input("Updates", "tensor [K, 1] of X's dtype")
      .NoGradientTo({"Ids"});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sequence_scatter")
              .Doc("Out = X with Updates[k] added to element Ids[k] of row i, for every k in "
                   "sequence i of Ids.")
              .Input("X", "tensor of numbers")
              .Apply(DeclareScatter)
              .Output("Out", "tensor of X's type")
              .Inplace("X", "Out")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer([](InferContext& ctx) {
                RequireScatter(ctx, ctx.Input("X"));
                ctx.SetOutput("Out", ctx.Input("X"));
              })
              .GradientOp({"Ids", "Updates"})
              .Reference(Scatter<float>, Scatter<double>, Scatter<int32_t>, Scatter<int64_t>));
  ops.Add(OpDef("sequence_scatter_grad")
              .Doc("Gradients of sequence_scatter: X@GRAD = Out@GRAD, Updates@GRAD = its elements "
                   "at Ids.")
              .Apply(DeclareScatter)
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("Updates@GRAD", "gradient of Updates")
              .KernelTypeFrom("Out@GRAD")
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer([](InferContext& ctx) {
                RequireScatter(ctx, ctx.Input("Out@GRAD"));
                ctx.SetOutput("X@GRAD", ctx.Input("Out@GRAD"));
                ctx.SetOutput("Updates@GRAD", ctx.Input("Updates"));
              })
              .Reference(ScatterGrad<float>, ScatterGrad<double>));
}

}  // namespace coracle::sequence_scatter_op

// fused_embedding_seq_pool: sums of the rows of a table over each sequence of ids.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>
#include <string>

namespace coracle::fused_embedding_seq_pool_op {

constexpr int64_t kNoPadding = -1;

// The type of Out: [sequences, K D] for Ids [rows, K] (or [rows, K, 1]).
VarMeta CheckPool(InferContext& ctx) {
  VarMeta out = ctx.Input("W");
  const VarMeta& ids = ctx.Input("Ids");
  ctx.Require("C1", out.shape.rank() == 2, "W", out);
  ctx.Require("C2", IsIndexType(ids.dtype) && ids.shape.rank() >= 1, "Ids", ids);
  const auto sizes = ctx.LevelSizes("Ids");
  if (sizes) ctx.Require("C3", sizes->size() == 1, "levels", sizes->size());
  out.shape = {sizes ? sizes->back() : -1,
               MulDims(ProductOfDims(ids.shape, 1, ids.shape.rank()), out.shape[1])};
  out.type = VarType::kLoDTensor;
  out.lod_level = 0;
  return out;
}

void InferPoolGrad(InferContext& ctx) {
  const VarMeta out = CheckPool(ctx);
  VarMeta w = ctx.Input("W");
  const VarMeta& dout = ctx.Input("Out@GRAD");
  ctx.Require("C4", dout.dtype == w.dtype && dout.shape.CompatibleWith(out.shape), dout, out);
  if (ctx.Attr<bool>("is_sparse")) w.type = VarType::kSelectedRows;
  ctx.SetOutput("W@GRAD", w);
}

// The ids, each checked.
class TableIds {
 public:
  explicit TableIds(const PrepareContext& ctx)
      : ids_(ctx.Input("Ids")),
        sequences_(ctx, "Ids", "C3"),
        rows_(ctx.Input("W").shape[0]),
        per_row_(RowWidth(ids_.shape)),
        padding_(ctx.Attr<int64_t>("padding_idx")),
        name_(ctx.op().type()) {}

  int64_t per_row() const { return per_row_; }
  // Calls visit(sequence, k, id) for the k-th id of each row that is not padding.
  template <class Visit>
  void ForEach(Workspace& ws, const Visit& visit) const {
    const Sequences s = sequences_(ws);
    const IndexReader ids(ws, ids_);
    for (int64_t i = 0; i < s.count(); ++i) {
      for (int64_t at = s.begin(i) * per_row_; at < s.end(i) * per_row_; ++at) {
        const int64_t id = ids[at];
        if (padding_ != kNoPadding && id == padding_) continue;
        if (id < 0 || id >= rows_) ThrowIndexRange(name_, "Ids", at, id, rows_);
        visit(i, at % per_row_, id);
      }
    }
  }

 private:
  TensorArg ids_;
  SequencesArg sequences_;
  int64_t rows_, per_row_, padding_;
  std::string name_;
};

template <class T>
void AddRow(const T* from, int64_t n, T* to) {
  for (int64_t k = 0; k < n; ++k) to[k] += from[k];
}

template <class T>
KernelOf<T> Pool(const PrepareContext& ctx) {
  const TensorArg w = ctx.Input("W"), out = ctx.Output("Out");
  const TableIds ids(ctx);
  const int64_t width = w.shape[1], columns = out.shape[1];
  return [=](Workspace& ws) {
    const T* table = ws.Data<const T>(w);
    T* to = ws.Data<T>(out);
    std::fill_n(to, out.numel, T(0));
    ids.ForEach(ws, [&](int64_t i, int64_t k, int64_t id) {
      AddRow(table + id * width, width, to + i * columns + k * width);
    });
  };
}

template <class T>
Kernel SparseGrad(const PrepareContext& ctx) {
  const TensorArg w = ctx.Input("W"), dout = ctx.Input("Out@GRAD");
  const RowsOutput dw(ctx, "W@GRAD");
  const TableIds ids(ctx);
  const int64_t width = w.shape[1], columns = dout.shape[1];
  return [=](Workspace& ws) {
    int64_t count = 0;
    ids.ForEach(ws, [&](int64_t, int64_t, int64_t) { ++count; });
    SelectedRows& rows = dw.Make(ws, count, w.shape[0], Tensor::View(w.dtype, w.shape, nullptr));
    const T* from = ws.Data<const T>(dout);
    T* to = static_cast<T*>(rows.value.raw());
    int64_t at = 0;
    ids.ForEach(ws, [&](int64_t i, int64_t k, int64_t id) {
      rows.rows[static_cast<size_t>(at)] = id;
      std::copy_n(from + i * columns + k * width, width, to + at * width);
      ++at;
    });
  };
}

template <class T>
KernelOf<T> PoolGrad(const PrepareContext& ctx) {
  if (ctx.Attr<bool>("is_sparse")) return SparseGrad<T>(ctx);
  const TensorArg dout = ctx.Input("Out@GRAD"), dw = ctx.Output("W@GRAD");
  const TableIds ids(ctx);
  const int64_t width = dw.shape[1], columns = dout.shape[1];
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dw);
    std::fill_n(to, dw.numel, T(0));
    ids.ForEach(ws, [&](int64_t i, int64_t k, int64_t id) {
      AddRow(from + i * columns + k * width, width, to + id * width);
    });
  };
}

void DeclareInputs(OpDef& def) {
  def.Input("W", "floating-point matrix [V, D], a row for each id")
      .Input("Ids", "int32 or int64 tensor [rows, K] or [rows, K, 1] with LoD");
}

void DeclareAttrs(OpDef& def) {
  def.Attr<std::string>("combiner", "sum", "how rows are combined")
      .OneOf({"sum"})
      .Attr<bool>(
          "is_sparse", false,
          "the gradient of W is selected rows: one row for each id, in the order of the ids")
      .Attr<int64_t>("padding_idx", kNoPadding, "id to leave out; -1: none");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("fused_embedding_seq_pool")
          .Doc("Out = for each sequence, the sums s_k side by side; s_k is the sum of the rows of "
               "W with the k-th ids of the sequence's rows. An id outside of [0, V) is an error.")
          .Constraint("C1", "W must be a matrix")
          .Constraint("C2", "Ids must be int32 or int64 with rows")
          .Constraint("C3", "Ids must have LoD of one level")
          .Apply(DeclareInputs)
          .Output("Out", "tensor [sequences, K D]")
          .Apply(DeclareAttrs)
          .NoGradientTo({"Ids"})
          .KernelTypeFrom("W")
          .NoLod()
          .Rows(RowRule::kEach)
          .Tables({"W"})
          .Infer([](InferContext& ctx) { ctx.SetOutput("Out", CheckPool(ctx)); })
          .GradientOp({"W", "Ids"})
          .Reference(Pool<float>, Pool<double>));
  ops.Add(OpDef("fused_embedding_seq_pool_grad")
              .Doc("Gradient of fused_embedding_seq_pool: with is_sparse selected rows that hold, "
                   "for each id except padding_idx, the gradient of its sequence.")
              .ConstraintsOf("fused_embedding_seq_pool", {"C1", "C2", "C3"})
              .Constraint("C4", "Out@GRAD must have Out's shape and dtype")
              .Apply(DeclareInputs)
              .Input("Out@GRAD", "gradient of Out")
              .Output("W@GRAD", "gradient of W")
              .Apply(DeclareAttrs)
              .NoGradientTo({"W", "Ids"})
              .KernelTypeFrom("Out@GRAD")
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer(InferPoolGrad)
              .Reference(PoolGrad<float>, PoolGrad<double>));
}

}  // namespace coracle::fused_embedding_seq_pool_op

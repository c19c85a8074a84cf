// shrink_rnn_memory, reorder_lod_tensor_by_rank: states and inputs of a dynamic recurrent net, in
// the order of a rank table.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/control/lod_parts.h>
#include <coracle/operators/control/rank_table.h>
#include <coracle/operators/kernels/scalar_input.h>
#include <coracle/operators/rules/index.h>

#include <cstring>

namespace coracle::shrink_rnn_memory_op {

// --- reorder_lod_tensor_by_rank ---

void InferReorder(InferContext& ctx) {
  RequireTable(ctx, "C1");
  RequireRows(ctx, "C2", "X");
  ctx.SetOutput("Out", ctx.Input("X"));
}

// Sequence k of Out is sequence items[k].index of X; with `back`, the other way round.
Kernel ReorderRows(const PrepareContext& ctx, bool back) {
  const TensorArg x = ctx.Input("X"), table = ctx.Input("RankTable"), out = ctx.Output("Out");
  const std::string name = ctx.op().Input("X")[0];
  const RunConstraint fits(ctx, "C3");
  const size_t bytes = RowBytes(x.dtype, x.shape);
  return [=](Workspace& ws) {
    const RankTable& t = TableAt(ws, table);
    const LoD& lod = ws.LodOf(x);
    Tensor rows = Tensor::View(x.dtype, x.shape, nullptr);
    rows.lod() = lod;
    CheckLod(name, rows);
    const auto num = static_cast<int64_t>(t.items.size());
    fits.Require(CountAt(lod, 0, x.shape[0]) == num, "X", x.shape, "sequences of X",
                 CountAt(lod, 0, x.shape[0]), "of RankTable", num);
    const std::vector<int64_t> places = Places(t);
    LoD levels = EmptyLevels(lod.size());
    const RowCopy copy(ws.Data<const void>(x), ws.Data<void>(out), bytes);
    int64_t to = 0;
    for (size_t k = 0; k < t.items.size(); ++k) {
      const int64_t i = back ? places[k] : t.items[k].index;
      const RowRange range = AppendSequences(lod, 0, i, i + 1, &levels);
      copy(range.begin, to, range.rows());
      to += range.rows();
    }
    ws.OutputLod(out) = std::move(levels);
  };
}

void ReorderGradient(GradientContext& g) {
  g.Append("reorder_lod_tensor_by_rank_grad",
           {{"X", {g.OutputGrad("Out")}}, {"RankTable", {g.Input("RankTable")}}},
           {{"Out", {g.InputGrad("X")}}});
}

void DeclareReorder(OpDef& def) {
  def.Constraint("C1", "RankTable must be a rank table")
      .Constraint("C2", "X must have rows")
      .Constraint("C3", "X must have the number of sequences (rows, without LoD) of RankTable")
      .Input("X", "tensor of any dtype")
      .Input("RankTable", "rank table")
      .Output("Out", "tensor of X's type")
      .Takes(VarType::kLoDRankTable, {"RankTable"})
      .NoGradientTo({"RankTable"})
      .MakesLod()
      .Rows(RowRule::kMixes)
      .Infer(InferReorder);
}

// --- shrink_rnn_memory ---

void InferShrink(InferContext& ctx) {
  RequireTable(ctx, "C1");
  RequireRows(ctx, "C2", "X");
  const VarMeta& index = ctx.Input("I");
  const bool one = !index.shape.IsKnown() || index.shape.numel() == 1;
  ctx.Require("C3", IsIndexType(index.dtype) && one, index);
  VarMeta meta = ctx.Input("X");
  meta.shape = WithRows(meta.shape, -1);
  ctx.SetOutput("Out", meta);
}

Kernel Shrink(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), table = ctx.Input("RankTable"), out = ctx.Output("Out");
  const std::string name = ctx.op().Input("X")[0];
  const IndexArg index(ctx, "I");
  return [=](Workspace& ws) {
    const int64_t live = LongerThan(TableAt(ws, table), static_cast<int64_t>(index(ws)));
    const auto& tensor = std::get<Tensor>(ws.ValueOf(x));
    CheckLod(name, tensor);
    const int64_t given = CountAt(tensor.lod(), 0, tensor.shape()[0]);
    if (live > given) {
      ThrowInvalid(fmt::format("shrink_rnn_memory: X has {} {}, but {} sequences are longer than I",
                               given, tensor.lod().empty() ? "rows" : "sequences", live));
    }
    LoD levels = EmptyLevels(tensor.lod().size());
    const int64_t rows = AppendSequences(tensor.lod(), 0, 0, live, &levels).end;
    Tensor& result = ResizeOutput(ws, out, tensor.dtype(), WithRows(tensor.shape(), rows));
    if (!result.empty()) std::memcpy(result.raw(), tensor.raw(), result.nbytes());
    result.lod() = std::move(levels);
  };
}

void InferShrinkGrad(InferContext& ctx) {
  ctx.Require("C1", ctx.InputShape("X").rank() == ctx.InputShape("Out@GRAD").rank(),
              ctx.InputShape("X"), ctx.InputShape("Out@GRAD"));
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

Kernel ShrinkGrad(const PrepareContext& ctx) {
  const TensorArg grad = ctx.Input("Out@GRAD"), out = ctx.Output("X@GRAD");
  if (grad.dtype != out.dtype || grad.numel > out.numel) ctx.Unsupported("Out@GRAD does not fit X");
  const size_t width = SizeOf(out.dtype);
  return [=](Workspace& ws) {
    auto* bytes = ws.Data<char>(out);
    const size_t given = static_cast<size_t>(grad.numel) * width;
    if (given > 0) std::memcpy(bytes, ws.Data<const char>(grad), given);
    if (out.numel > grad.numel)
      std::memset(bytes + given, 0, static_cast<size_t>(out.numel) * width - given);
  };
}

void ShrinkGradient(GradientContext& g) {
  g.Append("shrink_rnn_memory_grad", {{"X", {g.Input("X")}}, {"Out@GRAD", {g.OutputGrad("Out")}}},
           {{"X@GRAD", {g.InputGrad("X")}}});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("reorder_lod_tensor_by_rank")
              .Doc("Out = the sequences of level 0 of X (rows, without LoD) in the order of "
                   "RankTable.")
              .Apply(DeclareReorder)
              .Gradient(ReorderGradient)
              .Reference([](const PrepareContext& ctx) { return ReorderRows(ctx, false); }));
  ops.Add(OpDef("reorder_lod_tensor_by_rank_grad")
              .Doc("Gradient of reorder_lod_tensor_by_rank: Out = the sequences of X in their "
                   "original order.")
              .Apply(DeclareReorder)
              .NoGradient("first order only")
              .Reference([](const PrepareContext& ctx) { return ReorderRows(ctx, true); }));
  ops.Add(OpDef("shrink_rnn_memory")
              .Doc("Out = the first n rows of X (with LoD, the first n sequences of level 0); n is "
                   "the number of sequences of RankTable longer than I.")
              .Constraint("C1", "RankTable must be a rank table")
              .Constraint("C2", "X must have rows")
              .Constraint("C3", "I must hold one int32 or int64")
              .Input("X", "tensor")
              .Input("RankTable", "rank table")
              .Input("I", "int32 or int64 tensor of one element: the step")
              .Output("Out", "tensor")
              .Takes(VarType::kLoDRankTable, {"RankTable"})
              .NoGradientTo({"RankTable", "I"})
              .RunTimeShape()
              .Rows(RowRule::kMixes)
              .Infer(InferShrink)
              .Gradient(ShrinkGradient)
              .Reference(Shrink));
  ops.Add(OpDef("shrink_rnn_memory_grad")
              .Doc("X@GRAD = Out@GRAD, followed by zeros for the rows that Out lacks.")
              .Constraint("C1", "Out@GRAD must have the rank of X")
              .Input("X", "tensor")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "tensor of X's type")
              .NoGradientTo({"X"})
              .NoGradient("first order only")
              .Infer(InferShrinkGrad)
              .Reference(ShrinkGrad));
}

}  // namespace coracle::shrink_rnn_memory_op

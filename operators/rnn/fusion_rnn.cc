// fusion_lstm, fused_embedding_fc_lstm and fusion_gru: a product or a look-up, and lstm or gru.

#include <coracle/framework/op/expansion.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rnn/rnn_rules.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>

#include <limits>
#include <string>
#include <vector>

namespace coracle::fusion_rnn_op {

// --- shape rules ---

RecurrentSlots SlotsOf(const InferContext& ctx) {
  return {ctx.spec().FindInput("Ids") ? "Ids" : "X", "WeightH", "Bias"};
}

// Intermediate outputs of the fused types, which no op reads; only XX is written. Checks C5.
void SetInnerOutputs(InferContext& ctx, const RecurrentShapes& s, int64_t gates) {
  const auto levels = ctx.LevelSizes(SlotsOf(ctx).input);
  if (levels) ctx.Require("C5", levels->size() == 1, "levels", levels->size());
  const int64_t columns = MulDims(gates, s.hidden);
  const auto set = [&](const char* slot, const Shape& shape) {
    if (ctx.HasOutput(slot)) ctx.SetOutput(slot, s.dtype, shape);
  };
  set("XX", {s.rows, columns});
  for (const char* slot : {"BatchedInput", "BatchedHidden", "BatchedCell", "BatchedOut",
                           "ReorderedH0", "ReorderedC0", "CheckedCell"})
    set(slot, {0, s.hidden});
}

void RequireGates(const InferContext& ctx, const RecurrentShapes& s, const char* slot, int64_t rows,
                  int64_t gates) {
  RequireParameter(ctx, slot, {rows, MulDims(gates, s.hidden)});
  RequireDType(ctx, slot, s.dtype);
}

void CheckX(const InferContext& ctx, const RecurrentShapes& s, int64_t gates) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 2, "X", x);
  RequireDType(ctx, "X", s.dtype);
  RequireGates(ctx, s, "WeightX", x.shape[1], gates);
}

void InferFusionLstm(InferContext& ctx) {
  const RecurrentShapes s = CheckLstm(ctx, SlotsOf(ctx));
  VarMeta out;
  if (ctx.spec().FindInput("Ids")) {
    const VarMeta& ids = ctx.Input("Ids");
    const Shape& shape = ids.shape;
    ctx.Require("C1",
                IsIndexType(ids.dtype) && shape.rank() >= 1 && shape.rank() <= 2 &&
                    (shape.rank() == 1 || InferContext::Matches(shape[1], 1)),
                "Ids", ids);
    RequireGates(ctx, s, "Embeddings", -1, 4);
    out = ids;
  } else {
    CheckX(ctx, s, 4);
    out = ctx.Input("X");
  }
  out.dtype = s.dtype;
  out.shape = {s.rows, s.hidden};
  ctx.SetOutput("Hidden", out);
  ctx.SetOutput("Cell", out);
  SetInnerOutputs(ctx, s, 4);
}

void InferFusionGru(InferContext& ctx) {
  const RecurrentShapes s = CheckGru(ctx, SlotsOf(ctx));
  CheckX(ctx, s, 3);
  VarMeta out = ctx.Input("X");
  out.shape = {s.rows, s.hidden};
  ctx.SetOutput("Hidden", out);
  SetInnerOutputs(ctx, s, 3);
}

// --- expansions ---

// The gates of all rows: X WeightX, or rows of Embeddings.
Variable Gates(ExpandContext& ctx) {
  if (!ctx.HasInput("Ids"))
    return ctx.Into("XX", "mul", {{"X", {ctx.In("X").name()}}, {"Y", {ctx.In("WeightX").name()}}});
  const bool column = ctx.InShape("Ids").rank() == 2;
  return ctx.Into("XX", column ? "lookup_table" : "lookup_table_v2",
                  {{"W", {ctx.In("Embeddings").name()}}, {"Ids", {ctx.In("Ids").name()}}});
}

// Bias has 7/4 as many columns, which slice counts in int32.
constexpr int64_t kMaxWeightColumns = std::numeric_limits<int32_t>::max() / 7 * 4;

// The bias of lstm for gates that already include b: zeros, then the peepholes.
Variable PeepholesOf(ExpandContext& ctx) {
  const Variable bias = ctx.In("Bias");
  if (!ctx.Attr<bool>("use_peepholes")) return ctx.Make("fill_zeros_like", {{"X", {bias.name()}}});
  const int64_t b = ctx.InShape("WeightH")[1];
  if (b < 0) ThrowInvalid("the number of columns of WeightH must be known");
  if (b > kMaxWeightColumns) ThrowInvalid("WeightH has too many columns to slice Bias");
  const auto part = [&](int64_t from, int64_t to) {
    return ctx.Make("slice", {{"Input", {bias.name()}}},
                    {{"axes", std::vector<int32_t>{1}},
                     {"starts", std::vector<int32_t>{static_cast<int32_t>(from)}},
                     {"ends", std::vector<int32_t>{static_cast<int32_t>(to)}}});
  };
  const Variable zeros = ctx.Make("fill_zeros_like", {{"X", {part(0, b).name()}}});
  const Variable peepholes = part(b, b / 4 * 7);
  return ctx.Make("concat", {{"X", {zeros.name(), peepholes.name()}}}, {{"axis", int32_t{1}}});
}

void ExpandLstm(ExpandContext& ctx) {
  const Variable gates = Gates(ctx);
  const Variable bias = ctx.HasInput("Ids") ? PeepholesOf(ctx) : ctx.In("Bias");
  SlotList inputs = ctx.Inputs({"H0", "C0"});
  inputs.push_back({"Input", {gates.name()}});
  inputs.push_back({"Weight", {ctx.In("WeightH").name()}});
  inputs.push_back({"Bias", {bias.name()}});
  ctx.Append("lstm", std::move(inputs),
             {{"Hidden", {ctx.Out("Hidden")}},
              {"Cell", {ctx.Out("Cell")}},
              {"BatchGate", {ctx.Out("BatchGate")}},
              {"BatchCellPreAct", {ctx.Out("BatchCellPreAct")}}},
             ctx.AttrsOf("lstm"));
}

void ExpandGru(ExpandContext& ctx) {
  SlotList inputs = ctx.Inputs({"H0", "Bias"});
  inputs.push_back({"Input", {Gates(ctx).name()}});
  inputs.push_back({"Weight", {ctx.In("WeightH").name()}});
  ctx.Append("gru", std::move(inputs),
             {{"Hidden", {ctx.Out("Hidden")}},
              {"BatchGate", {ctx.Out("BatchGate")}},
              {"BatchResetHiddenPrev", {ctx.Out("BatchResetHiddenPrev")}},
              {"BatchHidden", {ctx.Out("BatchHidden")}}},
             ctx.AttrsOf("gru"));
}

// --- registration ---

void DeclareInner(OpDef& def, std::initializer_list<const char*> slots) {
  def.IntermediateOutput("XX", "the gates without bias of all rows");
  for (const char* slot : slots) def.IntermediateOutput(slot, "not written");
}

void AddLstm(OpRegistry& ops, bool embedding) {
  OpDef def(embedding ? "fused_embedding_fc_lstm" : "fusion_lstm");
  if (embedding) {
    def.Doc(
           "lstm of the rows Embeddings[Ids], which already include b: only the peepholes of Bias, "
           "its last 3 D elements, are used.")
        .Apply(DeclareRecurrentConstraints, "Ids must be int32 or int64 [rows, 1]",
               "WeightH must be [D, 4 D], Embeddings [V, 4 D] and Bias [1, 4 D], or [1, 7 D] with "
               "use_peepholes")
        .Input("Ids", "int32 or int64 tensor [rows, 1] with LoD")
        .Input("Embeddings",
               "tensor [V, 4 D]: gates in the order candidate, input, forget, output");
  } else {
    def.Doc("lstm of X WeightX.")
        .Apply(DeclareRecurrentConstraints, "X must be a matrix",
               "WeightX must be [M, 4 D], WeightH [D, 4 D] and Bias [1, 4 D], or [1, 7 D] with "
               "use_peepholes")
        .Input("X", "floating-point tensor [rows, M] with LoD")
        .Input("WeightX", "tensor [M, 4 D]: gates in the order candidate, input, forget, output");
  }
  def.Input("WeightH", "tensor [D, 4 D]")
      .Input("Bias", "tensor [1, 4 D], or [1, 7 D] with peepholes")
      .Apply(DeclareLstmStates)
      .Output("Hidden", "h of every step [rows, D]")
      .Output("Cell", "c of every step [rows, D]");
  if (embedding)
    DeclareInner(def,
                 {"BatchedInput", "BatchedHidden", "BatchedCell", "ReorderedH0", "ReorderedC0"});
  else
    DeclareInner(def, {"BatchedInput", "BatchedHidden", "BatchedCell", "ReorderedH0", "ReorderedC0",
                       "CheckedCell"});
  def.Apply(DeclareLstmAttrs)
      .Attr<bool>("use_seq", true, "changes nothing")
      .Rows(EachBatchRow, kEachBatchRow)
      .Tables({"WeightH", "Bias"})
      .KernelTypeFrom("WeightH")
      .Infer(InferFusionLstm)
      .Expands(embedding ? NameList{"lookup_table", "lookup_table_v2", "slice", "fill_zeros_like",
                                    "concat", "lstm"}
                         : NameList{"mul", "lstm"},
               ExpandLstm);
  ops.Add(std::move(def));
}

void AddGru(OpRegistry& ops) {
  OpDef def("fusion_gru");
  def.Doc("gru of X WeightX.")
      .Apply(DeclareRecurrentConstraints, "X must be a matrix",
             "WeightX must be [M, 3 D], WeightH [D, 3 D] and Bias [1, 3 D]")
      .Input("X", "floating-point tensor [rows, M] with LoD")
      .OptionalInput("H0", "h before the first step, a row for each sequence; absent: zeros")
      .Input("WeightX", "tensor [M, 3 D]: update gate, reset gate, candidate")
      .Input("WeightH", "the weight of gru [D, 3 D]")
      .OptionalInput("Bias", "b, tensor [1, 3 D]")
      .Output("Hidden", "h of every step [rows, D]");
  DeclareInner(def, {"BatchedInput", "BatchedOut", "ReorderedH0"});
  def.Apply(DeclareGruAttrs)
      .Attr<bool>("use_seq", true, "changes nothing")
      .Rows(EachBatchRow, kEachBatchRow)
      .Tables({"WeightH", "Bias"})
      .KernelTypeFrom("WeightH")
      .Infer(InferFusionGru)
      .Expands({"mul", "gru"}, ExpandGru);
  ops.Add(std::move(def));
}

void Register(OpRegistry& ops) {
  AddLstm(ops, false);
  AddLstm(ops, true);
  AddGru(ops);
}

}  // namespace coracle::fusion_rnn_op

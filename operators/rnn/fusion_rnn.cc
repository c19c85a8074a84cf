// fusion_lstm, fused_embedding_fc_lstm and fusion_gru: lstm and gru that compute their gates
// themselves, as used in inference programs.

#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/rnn/rnn_rules.h>
#include <coracle/operators/rnn/sequence_gru.h>
#include <coracle/operators/rnn/sequence_lstm.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>
#include <string>

namespace coracle::fusion_rnn_op {

constexpr const char* kNoGradient = "it is made for inference; train with lstm or gru";

// --- shape rules ---

RecurrentSlots SlotsOf(const InferContext& ctx) {
  return {ctx.spec().FindInput("Ids") ? "Ids" : "X", "WeightH", "Bias"};
}

// Intermediate outputs of the fused types, which no op reads.
void SetInnerOutputs(InferContext& ctx, const RecurrentShapes& s, int64_t gates) {
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

// --- kernels ---

// The gates of all rows, XX: X WeightX, or rows of Embeddings.
template <class T>
class Gates {
 public:
  Gates(const PrepareContext& ctx, int64_t columns, KernelMode mode)
      : x_(ctx.Input("X")),
        weight_(ctx.Input("WeightX")),
        ids_(ctx.Input("Ids")),
        table_(ctx.Input("Embeddings")),
        out_(ctx.Output("XX")),
        columns_(columns),
        name_(ctx.op().type()) {
    const int64_t rows = (ids_ ? ids_ : x_).shape[0];
    if (!out_) out_ = ctx.Scratch(DTypeOf<T>(), {rows, columns});
    if (!ids_) product_ = MakeGemm<T>({.m = rows, .n = columns, .k = x_.shape[1]}, mode);
  }

  const T* operator()(Workspace& ws) const {
    T* out = ws.Data<T>(out_);
    if (!ids_) {
      product_(ws.Data<const T>(x_), ws.Data<const T>(weight_), out);
      return out;
    }
    const IndexReader id(ws, ids_);
    const T* table = ws.Data<const T>(table_);
    for (int64_t i = 0; i < ids_.numel; ++i) {
      if (id[i] < 0 || id[i] >= table_.shape[0])
        ThrowIndexRange(name_, "Ids", i, id[i], table_.shape[0]);
      std::copy_n(table + id[i] * columns_, columns_, out + i * columns_);
    }
    return out;
  }

 private:
  TensorArg x_, weight_, ids_, table_, out_;
  int64_t columns_;
  std::string name_;
  Gemm<T> product_;
};

template <class T>
Kernel RunFusionLstm(const PrepareContext& ctx, KernelMode mode) {
  LstmArgs args;
  args.weight = ctx.Input("WeightH");
  args.bias = ctx.Input("Bias");
  args.h0 = ctx.Input("H0");
  args.c0 = ctx.Input("C0");
  args.out = ctx.Output("Hidden");
  args.cell = ctx.Output("Cell");
  const char* rows_of = ctx.HasInput("Ids") ? "Ids" : "X";
  LstmSpec spec = LstmSpecOf(ctx, ctx.Input(rows_of).shape[0], args.weight);
  spec.adds_bias = !ctx.HasInput("Ids");
  const Gates<T> gates(ctx, 4 * spec.hidden, mode);
  const LstmForward<T> lstm(ctx, spec, args, mode);
  const SequencesArg sequences(ctx, rows_of, "C5");
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    lstm(ws, s, gates(ws));
  };
}

template <class T>
Kernel RunFusionGru(const PrepareContext& ctx, KernelMode mode) {
  GruArgs args;
  args.weight = ctx.Input("WeightH");
  args.bias = ctx.Input("Bias");
  args.h0 = ctx.Input("H0");
  args.out = ctx.Output("Hidden");
  GruSpec spec;
  spec.rows = ctx.Input("X").shape[0];
  spec.hidden = args.weight.shape[0];
  spec.reverse = ctx.Attr<bool>("is_reverse");
  spec.origin_mode = ctx.Attr<bool>("origin_mode");
  spec.gate = GateActivationOf(ctx.Attr<std::string>("gate_activation"));
  spec.candidate = GateActivationOf(ctx.Attr<std::string>("activation"));
  const Gates<T> gates(ctx, 3 * spec.hidden, mode);
  const GruForward<T> gru(ctx, spec, args, mode);
  const SequencesArg sequences(ctx, "X", "C5");
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    gru(ws, s, gates(ws));
  };
}

// --- registration ---

void DeclareInner(OpDef& def, std::initializer_list<const char*> slots) {
  def.IntermediateOutput("XX", "the gates without bias of all rows");
  for (const char* slot : slots) def.IntermediateOutput(slot, "empty");
}

template <class Run>
void AddKernels(OpDef& def, Run run) {
  def.KernelTypeFrom("WeightH")
      .NoGradient(kNoGradient)
      .Reference<float, double>([run]<class T>(const PrepareContext& c) {
        return run.template operator()<T>(c, KernelMode::kReference);
      })
      .Fast([run](const PrepareContext& c) -> Kernel {
        if (c.Input("WeightH").dtype != DType::kFloat32) return {};
        return run.template operator()<float>(c, KernelMode::kAuto);
      });
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
  def.Apply(DeclareLstmAttrs).Attr<bool>("use_seq", true, "changes nothing").Infer(InferFusionLstm);
  AddKernels(def,
             []<class T>(const PrepareContext& c, KernelMode m) { return RunFusionLstm<T>(c, m); });
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
  def.Apply(DeclareGruAttrs).Attr<bool>("use_seq", true, "changes nothing").Infer(InferFusionGru);
  AddKernels(def,
             []<class T>(const PrepareContext& c, KernelMode m) { return RunFusionGru<T>(c, m); });
  ops.Add(std::move(def));
}

void Register(OpRegistry& ops) {
  AddLstm(ops, false);
  AddLstm(ops, true);
  AddGru(ops);
}

}  // namespace coracle::fusion_rnn_op

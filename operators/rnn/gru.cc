// gru over sequences, and gru_unit, one step of it; the recurrence is in sequence_gru.h.

#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rnn/rnn_rules.h>
#include <coracle/operators/rnn/sequence_gru.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace coracle::gru_op {

// --- shape rules ---

struct GruShapes {
  DType dtype;
  Shape state, gates;
};

GruShapes CheckInput(const InferContext& ctx) {
  const RecurrentShapes s = CheckGru(ctx, {});
  const VarMeta& input = ctx.Input("Input");
  const int64_t gates = MulDims(3, s.hidden);
  ctx.Require("C1", input.shape.rank() == 2 && InferContext::Matches(input.shape[1], gates),
              "Input", input, "D", s.hidden);
  RequireDType(ctx, "Input", s.dtype);
  const GruShapes shapes = {s.dtype, {s.rows, s.hidden}, {s.rows, gates}};
  if (ctx.spec().FindInput("HiddenPrev")) {
    ctx.Require("C3", ctx.InputShape("HiddenPrev").CompatibleWith(shapes.state),
                ctx.InputShape("HiddenPrev"), shapes.state);
    RequireDType(ctx, "HiddenPrev", s.dtype);
  }
  return shapes;
}

void InferForward(InferContext& ctx) {
  const GruShapes s = CheckInput(ctx);
  VarMeta out = ctx.Input("Input");
  out.shape = s.gates;
  for (const char* slot : {"BatchGate", "Gate"}) {
    if (ctx.spec().FindOutput(slot)) ctx.SetOutput(slot, out);
  }
  out.shape = s.state;
  for (const char* slot : {"BatchResetHiddenPrev", "BatchHidden", "ResetHiddenPrev", "Hidden"}) {
    if (ctx.spec().FindOutput(slot)) ctx.SetOutput(slot, out);
  }
}

void InferBackward(InferContext& ctx) {
  const GruShapes s = CheckInput(ctx);
  const auto require = [&](const char* slot, const Shape& want) {
    if (!ctx.HasInput(slot)) return;
    const VarMeta& got = ctx.Input(slot);
    ctx.Require("C6", got.dtype == s.dtype && got.shape.CompatibleWith(want), slot, got, "wanted",
                want);
  };
  for (const char* slot : {"BatchGate", "Gate"}) require(slot, s.gates);
  for (const char* slot :
       {"BatchResetHiddenPrev", "BatchHidden", "ResetHiddenPrev", "Hidden", "Hidden@GRAD"})
    require(slot, s.state);
  for (const char* slot : {"Input", "H0", "HiddenPrev", "Weight", "Bias"}) {
    if (ctx.HasInput(slot)) ctx.SetOutput(GradName(slot), ctx.Input(slot));
  }
}

// --- gru ---

GruSpec SpecOf(const PrepareContext& ctx) {
  GruSpec spec;
  spec.rows = ctx.Input("Input").shape[0];
  spec.hidden = ctx.Input("Weight").shape[0];
  spec.reverse = ctx.Attr<bool>("is_reverse");
  spec.origin_mode = ctx.Attr<bool>("origin_mode");
  spec.gate = GateActivationOf(ctx.Attr<std::string>("gate_activation"));
  spec.candidate = GateActivationOf(ctx.Attr<std::string>("activation"));
  return spec;
}

// BatchGate and Gate hold u, r and n of a row next to each other; the recurrence has all n after
// all u and r.
template <class T, class Move>
void ForGateRows(T* gate, const GruSpec& spec, const Move& move) {
  const int64_t n = spec.hidden;
  for (int64_t row = 0; row < spec.rows; ++row) {
    move(gate + row * 3 * n, row * 2 * n, 2 * n);
    move(gate + row * 3 * n + 2 * n, spec.rows * 2 * n + row * n, n);
  }
}
template <class T>
void WriteGateRows(const T* from, const GruSpec& spec, T* gate) {
  ForGateRows(gate, spec,
              [&](T* row, int64_t at, int64_t count) { std::copy_n(from + at, count, row); });
}
template <class T>
void ReadGateRows(const T* gate, const GruSpec& spec, T* to) {
  ForGateRows(gate, spec,
              [&](const T* row, int64_t at, int64_t count) { std::copy_n(row, count, to + at); });
}

template <class T>
Kernel RunGru(const PrepareContext& ctx, KernelMode mode) {
  const GruSpec spec = SpecOf(ctx);
  const TensorArg input = ctx.Input("Input"), gate = ctx.Output("BatchGate");
  const TensorArg gates = ctx.Scratch(input.dtype, {spec.rows, 3 * spec.hidden});
  const GruForward<T> gru(
      ctx, spec,
      {ctx.Input("Weight"), ctx.Input("Bias"), ctx.Input("H0"), ctx.Output("Hidden"), gates,
       ctx.Output("BatchResetHiddenPrev"), ctx.Output("BatchHidden")},
      mode);
  const SequencesArg sequences(ctx, "Input", "C5");
  return [=](Workspace& ws) {
    gru(ws, sequences(ws), ws.Data<const T>(input));
    if (gate) WriteGateRows(ws.Data<const T>(gates), spec, ws.Data<T>(gate));
  };
}

template <class T>
Kernel RunGruGrad(const PrepareContext& ctx, KernelMode mode) {
  const GruSpec spec = SpecOf(ctx);
  const TensorArg gate = ctx.Input("BatchGate");
  const TensorArg gates = ctx.Scratch(gate.dtype, {spec.rows, 3 * spec.hidden});
  const GruArgs args{ctx.Input("Weight"),
                     ctx.Input("Bias"),
                     ctx.Input("H0"),
                     ctx.Input("Hidden"),
                     gates,
                     ctx.Input("BatchResetHiddenPrev")};
  const GruGradArgs grads{ctx.Input("Hidden@GRAD"), ctx.Output("Input@GRAD"),
                          ctx.Output("Weight@GRAD"), ctx.Output("Bias@GRAD"),
                          ctx.Output("H0@GRAD")};
  const GruBackward<T> backward(ctx, spec, args, grads, mode);
  const SequencesArg sequences(ctx, "Input", "C5");
  return [=](Workspace& ws) {
    ReadGateRows(ws.Data<const T>(gate), spec, ws.Data<T>(gates));
    backward(ws, sequences(ws));
  };
}

void GradientWith(GradientContext& g, std::vector<std::string> left,
                  const std::vector<std::string>& inputs) {
  for (const std::string& slot : left) {
    if (!g.HasOutput(slot))
      ThrowInvalid(g.op().type() + ": needs its output " + slot +
                       " to be differentiated, and the op has none",
                   Locate(g.op()));
  }
  left.insert(left.end(), inputs.begin(), inputs.end());
  g.AppendGradientOp(left);
}

// --- gru_unit: sequences of one row each ---

GruSpec UnitSpecOf(const PrepareContext& ctx) {
  GruSpec spec;
  spec.rows = ctx.Input("Input").shape[0];
  spec.hidden = ctx.Input("Weight").shape[0];
  spec.origin_mode = ctx.Attr<bool>("origin_mode");
  spec.gate = static_cast<GateActivation>(ctx.Attr<int32_t>("gate_activation"));
  spec.candidate = static_cast<GateActivation>(ctx.Attr<int32_t>("activation"));
  return spec;
}

std::vector<uint64_t> SingleRows(int64_t rows) {
  std::vector<uint64_t> offsets(static_cast<size_t>(rows) + 1);
  std::iota(offsets.begin(), offsets.end(), uint64_t{0});
  return offsets;
}

template <class T>
Kernel RunUnit(const PrepareContext& ctx, KernelMode mode) {
  const GruSpec spec = UnitSpecOf(ctx);
  if (spec.hidden == 0) return [](Workspace&) {};  // the number of empty rows may be huge
  const TensorArg input = ctx.Input("Input"), gate = ctx.Output("Gate");
  const TensorArg gates = ctx.Scratch(input.dtype, {spec.rows, 3 * spec.hidden});
  const GruForward<T> gru(ctx, spec,
                          {ctx.Input("Weight"), ctx.Input("Bias"), ctx.Input("HiddenPrev"),
                           ctx.Output("Hidden"), gates, ctx.Output("ResetHiddenPrev")},
                          mode);
  const std::vector<uint64_t> offsets = SingleRows(spec.rows);
  return [=](Workspace& ws) {
    gru(ws, Sequences(offsets), ws.Data<const T>(input));
    if (gate) WriteGateRows(ws.Data<const T>(gates), spec, ws.Data<T>(gate));
  };
}

template <class T>
Kernel RunUnitGrad(const PrepareContext& ctx, KernelMode mode) {
  const GruSpec spec = UnitSpecOf(ctx);
  if (spec.hidden == 0) return [](Workspace&) {};  // the number of empty rows may be huge
  const TensorArg gate = ctx.Input("Gate");
  const TensorArg gates = ctx.Scratch(gate.dtype, {spec.rows, 3 * spec.hidden});
  // The state before each row is HiddenPrev, so Hidden is not read.
  const GruArgs args{ctx.Input("Weight"),
                     ctx.Input("Bias"),
                     ctx.Input("HiddenPrev"),
                     ctx.Input("HiddenPrev"),
                     gates,
                     ctx.Input("ResetHiddenPrev")};
  const GruGradArgs grads{ctx.Input("Hidden@GRAD"), ctx.Output("Input@GRAD"),
                          ctx.Output("Weight@GRAD"), ctx.Output("Bias@GRAD"),
                          ctx.Output("HiddenPrev@GRAD")};
  const GruBackward<T> backward(ctx, spec, args, grads, mode);
  const std::vector<uint64_t> offsets = SingleRows(spec.rows);
  return [=](Workspace& ws) {
    ReadGateRows(ws.Data<const T>(gate), spec, ws.Data<T>(gates));
    backward(ws, Sequences(offsets));
  };
}

// --- registration ---

void DeclareParameters(OpDef& def) {
  def.Input(
         "Weight",
         "tensor [D, 3 D] with the elements of U_g [D, 2 D] followed by the elements of U_c [D, D]")
      .OptionalInput("Bias", "b, tensor [1, 3 D]");
}

void DeclareGruInputs(OpDef& def) {
  def.Input("Input",
            "floating-point tensor [rows, 3 D] with LoD: the parts of update gate, reset gate and "
            "candidate that do not depend on h")
      .OptionalInput("H0", "h before the first step, a row for each sequence; absent: zeros")
      .Apply(DeclareParameters);
}

void DeclareUnitInputs(OpDef& def) {
  def.Input("Input",
            "[B, C] with C = 3 D: the parts of update gate, reset gate and candidate that do not "
            "depend on h")
      .Input("HiddenPrev", "h, tensor [B, D]")
      .Apply(DeclareParameters);
}

void DeclareUnitAttrs(OpDef& def) {
  def.Attr<int32_t>("activation", 2,
                    "activation of the candidate: 0 identity, 1 sigmoid, 2 tanh, 3 relu")
      .Range(0, 3)
      .Attr<int32_t>("gate_activation", 1,
                     "activation of update and reset gate, with the same numbers")
      .Range(0, 3)
      .Attr<bool>("origin_mode", false, "u weights the old state instead of the new one");
}

constexpr const char* kFormula =
    "u, r = g(x_ur + h U_g), n = act(x_n + (r h) U_c), h' = (1 - u) h + u n, or with origin_mode "
    "h' = u h + (1 - u) n, where x = Input + b and g and act are the activations.";
constexpr const char* kNoSecond =
    "second derivatives of recurrent ops are not provided: write the cell as ops in a loop";

template <class Run>
void AddKernels(OpDef& def, Run run) {
  def.Reference<float, double>([run]<class T>(const PrepareContext& c) {
       return run.template operator()<T>(c, KernelMode::kReference);
     })
      .Fast([run](const PrepareContext& c) -> Kernel {
        if (c.Input("Input").dtype != DType::kFloat32) return {};
        return run.template operator()<float>(c, KernelMode::kAuto);
      });
}

void AddGru(OpRegistry& ops) {
  OpDef forward("gru");
  forward
      .Doc(std::string("Gated recurrent unit over sequences: ") + kFormula +
           " A sequence without rows takes no step.")
      .Apply(DeclareRecurrentConstraints, "Input must be [rows, 3 D]",
             "Weight must be [D, 3 D] and Bias [1, 3 D]")
      .Apply(DeclareGruInputs)
      .IntermediateOutput("BatchGate", "the activated u, r and n [rows, 3 D], in the order of time")
      .IntermediateOutput("BatchResetHiddenPrev", "r h, in the order of time")
      .IntermediateOutput("BatchHidden", "h of every step [rows, D], in the order of time")
      .Output("Hidden", "h of every step [rows, D]")
      .Apply(DeclareGruAttrs)
      .Rows(EachBatchRow, kEachBatchRow)
      .Tables({"Weight", "Bias"})
      .MultiplyAdds({"Input", "Weight"}, RecurrentMultiplyAdds)
      .Infer(InferForward)
      .Gradient([](GradientContext& g) {
        GradientWith(g, {"BatchGate", "BatchResetHiddenPrev"},
                     {"Hidden", "Input", "H0", "Weight", "Bias"});
      });
  AddKernels(forward,
             []<class T>(const PrepareContext& c, KernelMode m) { return RunGru<T>(c, m); });
  ops.Add(std::move(forward));
  OpDef backward("gru_grad");
  backward.Doc("Gradient of gru by backpropagation through time.")
      .Apply(DeclareRecurrentConstraints, "", "")
      .Apply(DeclareGruInputs)
      .Input("BatchGate", "the value in the forward op")
      .Input("BatchResetHiddenPrev", "the value in the forward op")
      .OptionalInput("BatchHidden", "not read")
      .Input("Hidden", "the value in the forward op")
      .OptionalInput("Hidden@GRAD", "gradient of Hidden; absent: zeros")
      .OptionalOutput("Input@GRAD", "gradient of Input")
      .OptionalOutput("H0@GRAD", "gradient of H0")
      .OptionalOutput("Weight@GRAD", "gradient of Weight")
      .OptionalOutput("Bias@GRAD", "gradient of Bias")
      .AttrsOf("gru")
      .NoGradient(kNoSecond)
      .Infer(InferBackward);
  AddKernels(backward,
             []<class T>(const PrepareContext& c, KernelMode m) { return RunGruGrad<T>(c, m); });
  ops.Add(std::move(backward));
}

void AddGruUnit(OpRegistry& ops) {
  OpDef forward("gru_unit");
  forward.Doc(std::string("One step of a gated recurrent unit: ") + kFormula)
      .Constraint("C1", "Input must be [B, 3 D]")
      .Constraint("C2", "Weight must be [D, 3 D] and Bias [1, 3 D]")
      .Constraint("C3", "HiddenPrev must be [B, D]")
      .Constraint("C4", "all inputs must have one dtype")
      .Apply(DeclareUnitInputs)
      .IntermediateOutput("Gate", "the activated u, r and n [B, 3 D]")
      .IntermediateOutput("ResetHiddenPrev", "r h [B, D]")
      .Output("Hidden", "h' [B, D]")
      .Apply(DeclareUnitAttrs)
      .Rows(EachBatchRow, kEachBatchRow)
      .Tables({"Weight", "Bias"})
      .Infer(InferForward)
      .Gradient([](GradientContext& g) {
        GradientWith(g, {"Gate", "ResetHiddenPrev"}, {"Input", "HiddenPrev", "Weight", "Bias"});
      });
  AddKernels(forward,
             []<class T>(const PrepareContext& c, KernelMode m) { return RunUnit<T>(c, m); });
  ops.Add(std::move(forward));
  OpDef backward("gru_unit_grad");
  backward.Doc("Gradient of gru_unit.")
      .ConstraintsOf("gru_unit", {"C1", "C2", "C3", "C4"})
      .Constraint("C6",
                  "outputs of the forward op and their gradients must have the outputs' shapes and "
                  "dtype")
      .Apply(DeclareUnitInputs)
      .Input("Gate", "the value in the forward op")
      .Input("ResetHiddenPrev", "the value in the forward op")
      .OptionalInput("Hidden", "not read")
      .Input("Hidden@GRAD", "gradient of Hidden")
      .OptionalOutput("Input@GRAD", "gradient of Input")
      .OptionalOutput("HiddenPrev@GRAD", "gradient of HiddenPrev")
      .OptionalOutput("Weight@GRAD", "gradient of Weight")
      .OptionalOutput("Bias@GRAD", "gradient of Bias")
      .AttrsOf("gru_unit")
      .NoGradient(kNoSecond)
      .Infer(InferBackward);
  AddKernels(backward,
             []<class T>(const PrepareContext& c, KernelMode m) { return RunUnitGrad<T>(c, m); });
  ops.Add(std::move(backward));
}

void Register(OpRegistry& ops) {
  AddGru(ops);
  AddGruUnit(ops);
}

}  // namespace coracle::gru_op

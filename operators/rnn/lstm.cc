// lstm and lstmp (with a projection); the recurrence is in sequence_lstm.h.

#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rnn/rnn_rules.h>
#include <coracle/operators/rnn/sequence_lstm.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <string>

namespace coracle::lstm_op {

bool Projects(const std::string& type) { return type.starts_with("lstmp"); }
const char* OutSlot(const std::string& type) { return Projects(type) ? "Projection" : "Hidden"; }

// --- shape rules ---

struct LstmShapes {
  DType dtype;
  Shape out, cell, gates;
};

LstmShapes CheckInput(const InferContext& ctx) {
  const RecurrentShapes s = CheckLstm(ctx, {});
  const VarMeta& input = ctx.Input("Input");
  ctx.Require(
      "C1", input.shape.rank() == 2 && InferContext::Matches(input.shape[1], MulDims(4, s.hidden)),
      "Input", input, "D", s.hidden);
  RequireDType(ctx, "Input", s.dtype);
  return {s.dtype, {s.rows, s.width}, {s.rows, s.hidden}, {s.rows, MulDims(4, s.hidden)}};
}

void InferLstm(InferContext& ctx) {
  const LstmShapes s = CheckInput(ctx);
  VarMeta out = ctx.Input("Input");
  const auto set = [&](const char* slot, const Shape& shape) {
    out.shape = shape;
    ctx.SetOutput(slot, out);
  };
  set(OutSlot(ctx.op().type()), s.out);
  set("Cell", s.cell);
  set("BatchGate", s.gates);
  set("BatchCellPreAct", s.cell);
  if (Projects(ctx.op().type())) set("BatchHidden", s.cell);
}

void InferLstmGrad(InferContext& ctx) {
  const LstmShapes s = CheckInput(ctx);
  const auto require = [&](const std::string& slot, const Shape& want) {
    if (!ctx.HasInput(slot)) return;
    const VarMeta& got = ctx.Input(slot);
    ctx.Require("C6", got.dtype == s.dtype && got.shape.CompatibleWith(want),
                std::string_view(slot), got, "wanted", want);
  };
  const std::string out = OutSlot(ctx.op().type());
  require(out, s.out);
  require(GradName(out), s.out);
  require("BatchGate", s.gates);
  for (const char* slot : {"Cell", "Cell@GRAD", "BatchCellPreAct", "BatchHidden"})
    require(slot, s.cell);
  for (const char* slot : {"Input", "H0", "C0", "Weight", "ProjWeight", "Bias"}) {
    if (ctx.HasInput(slot)) ctx.SetOutput(GradName(slot), ctx.Input(slot));
  }
}

// --- kernels ---

LstmArgs ParametersOf(const PrepareContext& ctx) {
  LstmArgs args;
  args.weight = ctx.Input("Weight");
  args.bias = ctx.Input("Bias");
  args.projection = ctx.Input("ProjWeight");
  args.h0 = ctx.Input("H0");
  args.c0 = ctx.Input("C0");
  return args;
}

template <class T>
Kernel RunLstm(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg input = ctx.Input("Input");
  LstmArgs args = ParametersOf(ctx);
  args.out = ctx.Output(OutSlot(ctx.op().type()));
  args.cell = ctx.Output("Cell");
  args.gates = ctx.Output("BatchGate");
  args.cells = ctx.Output("BatchCellPreAct");
  args.hiddens = ctx.Output("BatchHidden");
  const LstmSpec spec = LstmSpecOf(ctx, input.shape[0], args.weight);
  const LstmForward<T> lstm(ctx, spec, args, mode);
  const SequencesArg sequences(ctx, "Input", "C5");
  return [=](Workspace& ws) { lstm(ws, sequences(ws), ws.Data<const T>(input)); };
}

template <class T>
Kernel RunLstmGrad(const PrepareContext& ctx, KernelMode mode) {
  LstmArgs args = ParametersOf(ctx);
  const char* out = OutSlot(ctx.op().type());
  args.out = ctx.Input(out);
  args.gates = ctx.Input("BatchGate");
  args.cells = ctx.Input("BatchCellPreAct");
  args.hiddens = ctx.Input("BatchHidden");
  LstmGradArgs grads;
  grads.dout = ctx.Input(GradName(out));
  grads.dcell = ctx.Input("Cell@GRAD");
  grads.dinput = ctx.Output("Input@GRAD");
  grads.dweight = ctx.Output("Weight@GRAD");
  grads.dprojection = ctx.Output("ProjWeight@GRAD");
  grads.dbias = ctx.Output("Bias@GRAD");
  grads.dh0 = ctx.Output("H0@GRAD");
  grads.dc0 = ctx.Output("C0@GRAD");
  const LstmSpec spec = LstmSpecOf(ctx, ctx.Input("Input").shape[0], args.weight);
  const LstmBackward<T> backward(ctx, spec, args, grads, mode);
  const SequencesArg sequences(ctx, "Input", "C5");
  return [=](Workspace& ws) { backward(ws, sequences(ws)); };
}

// --- gradient rule ---

void LstmGradient(GradientContext& g) {
  std::vector<std::string> left = {"BatchGate", "BatchCellPreAct"};
  if (Projects(g.op().type())) left.push_back("BatchHidden");
  for (const std::string& slot : left) {
    if (!g.HasOutput(slot))
      ThrowInvalid(g.op().type() + ": needs its output " + slot +
                       " to be differentiated, and the op has none",
                   Locate(g.op()));
  }
  left.insert(left.end(), {OutSlot(g.op().type()), "Cell", "Input", "H0", "C0", "Weight", "Bias"});
  if (Projects(g.op().type())) left.push_back("ProjWeight");
  g.AppendGradientOp(left);
}

// --- registration ---

void DeclareInputs(OpDef& def) {
  const bool projects = Projects(def.type());
  def.Input("Input",
            "floating-point tensor [rows, 4 D] with LoD: the parts of the gates that do not depend "
            "on h, in the order candidate, input, forget, output")
      .Apply(DeclareLstmStates)
      .Input("Weight", projects ? "U, tensor [P, 4 D]" : "U, tensor [D, 4 D]");
  if (projects) def.Input("ProjWeight", "tensor [D, P]");
  def.Input("Bias", "tensor [1, 4 D], or [1, 7 D] with peepholes: b followed by p_i, p_f and p_o");
}

void DeclareAttrs(OpDef& def) {
  def.Apply(DeclareLstmAttrs);
  if (!Projects(def.type())) return;
  def.Apply(DeclareActivation, "proj_activation", "tanh", "activation of the projection")
      .Attr<float>("cell_clip", 0.f,
                   "the cell is clipped to [-cell_clip, cell_clip]; 0: not clipped")
      .Range(0, std::nullopt)
      .Attr<float>("proj_clip", 0.f,
                   "the projection is clipped to [-proj_clip, proj_clip]; 0: not clipped")
      .Range(0, std::nullopt);
}

OpDef ForwardDef(const std::string& type) {
  const bool projects = Projects(type);
  OpDef def(type);
  def.Doc(std::string("Long short-term memory over sequences. With z = Input + h U + b and g, act, "
                      "cell the activations: i = g(z_i + p_i c), f = g(z_f + p_f c), c' = f c + i "
                      "act(z_c), o = g(z_o + p_o c'), h' = o cell(c')") +
          (projects ? "; the projection proj(h' ProjWeight) is passed to the next step instead of "
                      "h', and H0 holds projected rows. No gradient flows through a clipped value."
                    : ".") +
          " A sequence without rows takes no step.")
      .Apply(DeclareRecurrentConstraints, "Input must be [rows, 4 D]",
             projects ? "Weight must be [P, 4 D], ProjWeight [D, P] and Bias [1, 4 D], or [1, 7 D] "
                        "with use_peepholes"
                      : "Weight must be [D, 4 D] and Bias [1, 4 D], or [1, 7 D] with "
                        "use_peepholes")
      .Apply(DeclareInputs)
      .Output(OutSlot(type),
              projects ? "the projection of every step [rows, P]" : "h of every step [rows, D]")
      .Output("Cell", "c of every step [rows, D]")
      .IntermediateOutput("BatchGate", "the activated gates, in the order of time")
      .IntermediateOutput("BatchCellPreAct", "c, in the order of time");
  if (projects) def.IntermediateOutput("BatchHidden", "h, in the order of time");
  def.Apply(DeclareAttrs)
      .Rows(EachBatchRow, kEachBatchRow)
      .Tables({"Weight", "Bias"})
      .Infer(InferLstm)
      .Gradient(LstmGradient)
      .Reference<float, double>(
          []<class T>(const PrepareContext& c) { return RunLstm<T>(c, KernelMode::kReference); })
      .Fast([](const PrepareContext& c) -> Kernel {
        if (c.Input("Input").dtype != DType::kFloat32) return {};
        return RunLstm<float>(c, KernelMode::kAuto);
      });
  if (!projects) def.MultiplyAdds({"Input", "Weight"}, RecurrentMultiplyAdds);
  return def;
}

OpDef GradDef(const std::string& type) {
  const bool projects = Projects(type);
  const std::string out = OutSlot(type);
  OpDef def(type + "_grad");
  def.Doc("Gradient of " + type + ", by backpropagation through time.")
      .Apply(DeclareRecurrentConstraints, "", "")
      .Apply(DeclareInputs)
      .Input(out, "the value in the forward op")
      .OptionalInput("Cell", "not read")
      .Input("BatchGate", "the value in the forward op")
      .Input("BatchCellPreAct", "the value in the forward op");
  if (projects) def.Input("BatchHidden", "the value in the forward op");
  def.OptionalInput(GradName(out), "gradient of " + out + "; absent: zeros")
      .OptionalInput("Cell@GRAD", "gradient of Cell; absent: zeros")
      .OptionalOutput("Input@GRAD", "gradient of Input")
      .OptionalOutput("H0@GRAD", "gradient of H0")
      .OptionalOutput("C0@GRAD", "gradient of C0")
      .OptionalOutput("Weight@GRAD", "gradient of Weight");
  if (projects) def.OptionalOutput("ProjWeight@GRAD", "gradient of ProjWeight");
  def.OptionalOutput("Bias@GRAD", "gradient of Bias")
      .AttrsOf(type)
      .NoGradient(
          "second derivatives of recurrent ops are not in use: write the cell as ops in a "
          "loop")
      .Infer(InferLstmGrad)
      .Reference<float, double>([]<class T>(const PrepareContext& c) {
        return RunLstmGrad<T>(c, KernelMode::kReference);
      })
      .Fast([](const PrepareContext& c) -> Kernel {
        if (c.Input("Input").dtype != DType::kFloat32) return {};
        return RunLstmGrad<float>(c, KernelMode::kAuto);
      });
  return def;
}

void Register(OpRegistry& ops) {
  for (const char* type : {"lstm", "lstmp"}) {
    ops.Add(ForwardDef(type));
    ops.Add(GradDef(type));
  }
}

}  // namespace coracle::lstm_op

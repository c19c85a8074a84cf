#include <coracle/framework/op/op_shapes.h>
#include <coracle/operators/rnn/gate_activation.h>
#include <coracle/operators/rnn/rnn_rules.h>
#include <coracle/operators/rules/dims.h>

namespace coracle::inline internal {
namespace {

// Checks H0 or C0: a row for each sequence of the input.
void RequireState(const InferContext& ctx, const RecurrentSlots& slots, const char* slot,
                  const RecurrentShapes& shapes, int64_t columns) {
  if (!ctx.HasInput(slot)) return;
  const auto sizes = ctx.LevelSizes(slots.input);
  const Shape want = {sizes && sizes->size() == 1 ? sizes->back() : -1, columns};
  ctx.Require("C3", ctx.InputShape(slot).CompatibleWith(want), slot, ctx.InputShape(slot), "wanted",
              want);
  RequireDType(ctx, slot, shapes.dtype);
}

RecurrentShapes CheckWeight(const InferContext& ctx, const RecurrentSlots& slots, int64_t gates) {
  const VarMeta &input = ctx.Input(slots.input), &weight = ctx.Input(slots.weight);
  RecurrentShapes shapes;
  shapes.dtype = weight.dtype;
  shapes.rows = input.shape.rank() > 0 ? input.shape[0] : -1;
  ctx.Require("C2",
              weight.shape.rank() == 2 && (weight.shape[1] < 0 || weight.shape[1] % gates == 0),
              slots.weight, weight);
  shapes.hidden = weight.shape[1] < 0 ? -1 : weight.shape[1] / gates;
  shapes.width = weight.shape[0];
  return shapes;
}

}  // namespace

void RequireDType(const InferContext& ctx, const char* slot, DType want) {
  ctx.Require("C4", ctx.InputDType(slot) == want, slot, ctx.Input(slot), "wanted", want);
}

double RecurrentMultiplyAdds(const OpShapes& op) {
  const Shape *x = op.In("Input"), *weight = op.In("Weight");
  return x && weight && x->rank() > 0 ? Elements(*x, 0, 1) * Elements(*weight) : 0;
}

void RequireParameter(const InferContext& ctx, const char* slot, const Shape& want) {
  ctx.Require("C2", ctx.InputShape(slot).CompatibleWith(want), slot, ctx.InputShape(slot), "wanted",
              want);
}

RecurrentShapes CheckLstm(const InferContext& ctx, const RecurrentSlots& slots) {
  const RecurrentShapes shapes = CheckWeight(ctx, slots, 4);
  if (ctx.spec().FindInput("ProjWeight")) {
    RequireParameter(ctx, "ProjWeight", {shapes.hidden, shapes.width});
    RequireDType(ctx, "ProjWeight", shapes.dtype);
  } else {
    RequireParameter(ctx, slots.weight, {shapes.hidden, MulDims(4, shapes.hidden)});
  }
  const bool peepholes = ctx.Attr<bool>("use_peepholes");
  RequireParameter(ctx, slots.bias, {1, MulDims(peepholes ? 7 : 4, shapes.hidden)});
  RequireDType(ctx, slots.bias, shapes.dtype);
  ctx.Require("C3", ctx.HasInput("H0") == ctx.HasInput("C0"), "H0", ctx.HasInput("H0"), "C0",
              ctx.HasInput("C0"));
  RequireState(ctx, slots, "H0", shapes, shapes.width);
  RequireState(ctx, slots, "C0", shapes, shapes.hidden);
  return shapes;
}

RecurrentShapes CheckGru(const InferContext& ctx, const RecurrentSlots& slots) {
  const RecurrentShapes shapes = CheckWeight(ctx, slots, 3);
  RequireParameter(ctx, slots.weight, {shapes.hidden, MulDims(3, shapes.hidden)});
  if (ctx.HasInput(slots.bias)) {
    RequireParameter(ctx, slots.bias, {1, MulDims(3, shapes.hidden)});
    RequireDType(ctx, slots.bias, shapes.dtype);
  }
  RequireState(ctx, slots, "H0", shapes, shapes.hidden);
  return shapes;
}

void DeclareLstmStates(OpDef& def) {
  def.OptionalInput("H0", "h before the first step, a row for each sequence; absent: zeros")
      .OptionalInput("C0", "c before the first step, a row for each sequence; with H0");
}

void DeclareActivation(OpDef& def, const char* attr, const char* otherwise, const char* doc) {
  def.Attr<std::string>(attr, otherwise, doc).OneOf(GateActivationNames());
}

void DeclareLstmAttrs(OpDef& def) {
  def.Attr<bool>("use_peepholes", true,
                 "gates also depend on the cell, through the last 3 D elements of Bias")
      .Attr<bool>("is_reverse", false, "each sequence is run from its last row to its first")
      .Apply(DeclareActivation, "gate_activation", "sigmoid",
             "activation of input, forget and output gate")
      .Apply(DeclareActivation, "cell_activation", "tanh",
             "activation of the cell, before the output gate")
      .Apply(DeclareActivation, "candidate_activation", "tanh", "activation of the candidate");
}

void DeclareGruAttrs(OpDef& def) {
  def.Attr<bool>("is_reverse", false, "each sequence is run from its last row to its first")
      .Attr<bool>("origin_mode", false, "u is the share of the old state instead of the new one")
      .Apply(DeclareActivation, "activation", "tanh", "activation of the candidate")
      .Apply(DeclareActivation, "gate_activation", "sigmoid",
             "activation of update and reset gate");
}

void DeclareRecurrentConstraints(OpDef& def, const std::string& input,
                                 const std::string& parameters) {
  const std::string& type = def.type();
  if (type.ends_with("_grad")) {
    def.ConstraintsOf(type.substr(0, type.size() - 5), {"C1", "C2", "C3", "C4", "C5"})
        .Constraint("C6",
                    "outputs of the forward op and their gradients must have the outputs' shapes "
                    "and dtype");
    return;
  }
  def.Constraint("C1", input)
      .Constraint("C2", parameters)
      .Constraint(
          "C3",
          "initial states must have a row for each sequence, and H0 and C0 must be given together")
      .Constraint("C4", "all floating-point inputs must have one dtype")
      .Constraint("C5", "the input must have LoD of one level");
}

}  // namespace coracle::inline internal

// Ops that run a block, and related ops.
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>

#include <algorithm>

namespace coracle::onnx {
namespace {

using Names = std::vector<std::string>;

// The value of a variable that no op has written: no program reads it then.
Value Nothing(OpContext& op, const VarMeta& meta) {
  Shape shape = meta.shape;
  for (int i = 0; i < shape.rank(); ++i) shape[i] = std::max<int64_t>(shape[i], 0);
  const Value dims = op.IntList(shape.ToVector());
  return op.Node("ConstantOfShape", {dims}, {{"value", Tensor::Zeros(meta.dtype, {1})}});
}

Value ValueOrNothing(OpContext& op, const std::string& name, const VarMeta& meta) {
  ProgramExporter& exporter = op.exporter();
  return exporter.HasValue(name) ? exporter.ValueOf(op.op(), name) : Nothing(op, meta);
}

// The variables around a block that it writes; all must be tensors. A value written to a parameter
// must be the parameter itself, else Bind refuses it.
Names WrittenBy(OpContext& op) {
  Names written;
  for (const std::string& name : op.exporter().WrittenBy(op.op())) {
    const VarMeta& meta = op.exporter().SettledMeta(*op.op().block(), name);
    const VarDesc* var = op.op().block()->FindVarRecursive(name);
    if (meta.type == VarType::kStepScopes || (var && var->persistable())) continue;
    op.Require(
        meta.type == VarType::kLoDTensor,
        name + " is not a tensor, and other variables that a block writes have no counterpart");
    written.push_back(name);
  }
  return written;
}

BlockDesc& BodyOf(OpContext& op) { return op.exporter().Block(op.op().SubBlocks().at(0)); }

// Every variable that the block writes is carried from round to round and returned at the end.
void ExportWhile(OpContext& op) {
  ProgramExporter& exporter = op.exporter();
  Graph& graph = exporter.graph();
  const BlockDesc& around = *op.op().block();
  const Names carried = WrittenBy(op);
  const std::string condition = op.op().Input("Condition").at(0);
  Values inputs = {"", op.AsScalar(op.In("Condition"))};
  for (const std::string& name : carried) {
    const VarMeta& meta = exporter.SettledMeta(around, name);
    if (exporter.HasValue(name)) {
      const VarMeta& before = exporter.MetaOf(op.op(), name);
      op.Require(before.dtype == meta.dtype && before.shape.rank() == meta.shape.rank(),
                 name + " changes its dtype or rank from round to round");
    }
    inputs.push_back(ValueOrNothing(op, name, meta));
  }
  exporter.Enter();
  graph.Input("round", DType::kInt64, {});
  graph.Input(condition, DType::kBool, {});
  for (const std::string& name : carried) {
    const VarMeta& meta = exporter.SettledMeta(around, name);
    exporter.BindAs(op.op(), name, graph.Input(name, meta.dtype, meta.shape), meta);
  }
  exporter.ExportBlock(BodyOf(op));
  graph.BodyOutput(op.AsScalar(exporter.ValueOf(op.op(), condition)), DType::kBool, {});
  for (const std::string& name : carried) {
    const VarMeta& meta = exporter.SettledMeta(around, name);
    graph.BodyOutput(exporter.ValueOf(op.op(), name), meta.dtype, meta.shape);
  }
  const GraphPtr body = exporter.Leave();
  const Values after = op.Nodes("Loop", inputs, carried.size(), {{"body", body}});
  for (size_t i = 0; i < carried.size(); ++i)
    exporter.BindAs(op.op(), carried[i], after[i], exporter.SettledMeta(around, carried[i]));
}

// A branch that is not taken returns its variables unchanged.
void ExportConditionalBlock(OpContext& op) {
  ProgramExporter& exporter = op.exporter();
  Graph& graph = exporter.graph();
  const BlockDesc& around = *op.op().block();
  const Names written = WrittenBy(op);
  Value condition;
  for (size_t i = 0; i < op.NumInputs("Cond"); ++i) {
    const Value holds = op.Attr<bool>("is_scalar_condition")
                            ? op.AsScalar(op.In("Cond", i))
                            : op.Node("Greater", {op.Node("Size", {op.In("Cond", i)}), op.Int(0)});
    condition = condition.empty() ? holds : op.Node("And", {condition, holds});
  }
  const auto branch = [&](bool taken) {
    exporter.Enter();
    if (taken) exporter.ExportBlock(BodyOf(op));
    for (const std::string& name : written) {
      const VarMeta& meta = exporter.SettledMeta(around, name);
      graph.BodyOutput(ValueOrNothing(op, name, meta), meta.dtype, meta.shape);
    }
    return exporter.Leave();
  };
  const GraphPtr then = branch(true), otherwise = branch(false);
  if (written.empty()) return;
  const Values after = op.Nodes("If", {condition}, written.size(),
                                {{"then_branch", then}, {"else_branch", otherwise}});
  for (size_t i = 0; i < written.size(); ++i)
    exporter.BindAs(op.op(), written[i], after[i], exporter.SettledMeta(around, written[i]));
}

void ExportSelectInput(OpContext& op) {
  op.Require(op.NumInputs("X") == 2, "only a choice between two has a counterpart");
  Graph& graph = op.exporter().graph();
  const VarMeta& out = op.OutMeta("Out");
  const auto branch = [&](size_t i) {
    op.exporter().Enter();
    graph.BodyOutput(op.In("X", i), out.dtype, out.shape);
    return op.exporter().Leave();
  };
  const Value second = op.Cast(op.AsScalar(op.In("Mask")), op.InType("Mask"), DType::kBool);
  op.Out("Out", op.Node("If", {second}, {{"then_branch", branch(1)}, {"else_branch", branch(0)}}));
}

// A step reads slices of inputs and the states of the previous step.
void ExportRecurrent(OpContext& op) {
  ProgramExporter& exporter = op.exporter();
  Graph& graph = exporter.graph();
  BlockDesc& block = BodyOf(op);
  const auto states = op.Attr<Names>("states"), before = op.Attr<Names>("ex_states");
  const Names& slices = op.op().Input("inputs");
  const Names& outputs = op.op().Output("outputs");
  Values inputs = op.Ins("initial_states");
  for (const Value& value : op.Ins("inputs")) inputs.push_back(value);
  exporter.Enter();
  for (const Names* names : {&before, &slices}) {
    for (const std::string& name : *names) {
      const VarMeta& meta = exporter.SettledMeta(block, name);
      exporter.BindIn(block, name, graph.Input(name, meta.dtype, meta.shape), meta);
    }
  }
  exporter.ExportBlock(block);
  for (const Names* names : {&states, &outputs}) {
    for (const std::string& name : *names) {
      const VarMeta& meta = exporter.SettledMeta(block, name);
      graph.BodyOutput(exporter.ValueOf(op.op(), name), meta.dtype, meta.shape);
    }
  }
  const GraphPtr body = exporter.Leave();
  const int64_t reverse = op.Attr<bool>("reverse");
  const Values after = op.Nodes("Scan", inputs, states.size() + outputs.size(),
                                {{"body", body},
                                 {"num_scan_inputs", slices.size()},
                                 {"scan_input_directions", Ints(slices.size(), reverse)},
                                 {"scan_output_directions", Ints(outputs.size(), reverse)}});
  for (size_t i = 0; i < outputs.size(); ++i) op.Out("outputs", after[states.size() + i], i);
}

constexpr ExportRow kRows[] = {
    {"conditional_block", ExportConditionalBlock, "If"},
    {"recurrent", ExportRecurrent, "Scan"},
    {"select_input", ExportSelectInput, "If"},
    {"while", ExportWhile, "Loop"},
};

}  // namespace

ExportRows ControlRows() { return kRows; }

}  // namespace coracle::onnx

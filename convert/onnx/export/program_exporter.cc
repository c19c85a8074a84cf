#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>
#include <coracle/edit/edit.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/pass.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace coracle::onnx {
namespace {

ProgramDesc Inlined(const ProgramDesc& program) {
  ProgramDesc copy = program;
  InlineCalls(copy);
  return copy;
}

}  // namespace

ProgramExporter::ProgramExporter(const ProgramDesc& program, const Scope& parameters,
                                 const ExporterSettings& settings)
    : program_(program),
      parameters_(parameters),
      settings_(settings),
      graph_(settings.opset),
      values_(1) {
  VerifyOrThrow(program, DefaultOps());
  program_ = Inlined(program);
  CheckOps();
  settled_ = program_;
  DeclareShapes(settled_, {}, DefaultOps());
  names_.emplace(settled_, DefaultOps());
}

std::string ProgramExporter::PlaceOf(const OpDesc& op) const {
  std::string var;
  op.AnyOutput([&](const std::string& name) {
    var = name;
    return true;
  });
  return fmt::format("block {} op {} ({}{})", op.block()->idx(), op.block()->IndexOf(op),
                     PrintableLine(op.type()), var.empty() ? "" : " of " + Quote(var));
}

void ProgramExporter::Refuse(const OpDesc& op, const std::string& why) const {
  throw Error(ErrorCode::kUnimplemented, fmt::format("ONNX export: {}: {}", PlaceOf(op), why),
              Locate(op));
}

void ProgramExporter::CheckOps() const {
  std::vector<const BlockDesc*> blocks = program_.BlocksRunBy(program_.Root());
  blocks.insert(blocks.begin(), &program_.Root());
  const OpDesc* first = nullptr;
  std::map<std::string, size_t> missing;
  for (const BlockDesc* block : blocks) {
    block->ForEachOp([&](const OpDesc& op) {
      if (DefaultOps().Get(op.type()).kind != OpKind::kCompute) return;
      if (!IsForward(op)) Refuse(op, fmt::format("it is a training op. {}", kInferenceOnly));
      if (FindRow(op.type())) return;
      if (!first) first = &op;
      ++missing[op.type()];
    });
  }
  if (!first) return;
  std::vector<std::string> types;
  for (const auto& [type, count] : missing) types.push_back(fmt::format("{} ({})", type, count));
  Refuse(*first, "no ONNX counterpart is known" +
                     (types.size() > 1 ? ", nor for others: " + Join(types, ", ") : ""));
}

Graph& ProgramExporter::Run() {
  AddInputs();
  ExportBlock(program_.Root());
  AddOutputs();
  graph_.Finish();
  return graph_;
}

void ProgramExporter::AddInputs() {
  const BlockDesc& root = program_.Root();
  const auto inputs = InputNames(program_, DefaultOps());
  for (const std::string& name : inputs) graph_.Reserve(name);
  for (size_t i = 0; i < root.NumVars(); ++i) {
    if (root.var(i).persistable()) graph_.Reserve(root.var(i).name());
  }
  for (const std::string& name : inputs) {
    const VarDesc* var = root.FindVar(name);
    if (!var || var->type() != VarType::kLoDTensor)
      ThrowInvalid("ONNX export: the input " + Quote(name) + " is not a dense tensor");
    if (one_sequence() && var->meta().lod_level > 1) {
      throw Error(
          ErrorCode::kUnimplemented,
          fmt::format("ONNX export: the input {} has {} levels of LoD, and one sequence has "
                      "one",
                      Quote(name), var->meta().lod_level));
    }
    values_[0][name] = graph_.Input(name, var->dtype(), var->shape());
  }
}

void ProgramExporter::AddOutputs() {
  const BlockDesc& root = program_.Root();
  const auto outputs = OutputNames(program_, DefaultOps());
  if (outputs.empty()) ThrowInvalid("ONNX export: the program has no output");
  const bool fetches = HasOpOfKind(root, OpKind::kFetch, DefaultOps());
  for (const std::string& name : outputs) {
    const VarDesc* var = root.FindVar(name);
    const Value* value = Find(name);
    // A variable that only other devices or gradients would read is not an output.
    if (!value && !fetches) continue;
    if (!var || !value)
      ThrowInvalid("ONNX export: the output " + Quote(name) + " has no value at the end");
    graph_.Output(*value, name, var->dtype(), var->shape());
  }
}

const Value* ProgramExporter::Find(const std::string& name) const {
  for (auto scope = values_.rbegin(); scope != values_.rend(); ++scope) {
    const auto found = scope->find(name);
    if (found != scope->end()) return &found->second;
  }
  return nullptr;
}

Value ProgramExporter::ValueOf(const OpDesc& op, const std::string& name) {
  if (const Value* value = Find(name)) return *value;
  const VarDesc* var = op.block()->FindVarRecursive(name);
  if (var && var->persistable()) return AddParameter(op, *var);
  Refuse(op, fmt::format("{} has no value that ONNX knows: no op wrote it, or it is an output that "
                         "is not exported",
                         Quote(name)));
}

const Tensor* ProgramExporter::ParameterOf(const OpDesc& op, const std::string& name) const {
  const VarDesc* var = op.block()->FindVarRecursive(name);
  const VarValue* held = var && var->persistable() ? parameters_.Find(name) : nullptr;
  const Tensor* tensor = held ? std::get_if<Tensor>(held) : nullptr;
  const bool fits =
      tensor && tensor->dtype() == var->dtype() && tensor->shape().CompatibleWith(var->shape());
  return fits ? tensor : nullptr;
}

Value ProgramExporter::AddParameter(const OpDesc& op, const VarDesc& var) {
  const VarValue* held = parameters_.Find(var.name());
  const Tensor* tensor = held ? std::get_if<Tensor>(held) : nullptr;
  if (!tensor) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("ONNX export: the parameter {} has no value: the model needs its "
                            "parameters",
                            Quote(var.name())),
                Locate(op));
  }
  if (tensor->dtype() != var.dtype() || !tensor->shape().CompatibleWith(var.shape())) {
    Refuse(op, fmt::format("the parameter {} is declared as {}, but its value is {}",
                           Quote(var.name()), var.meta().ToString(), tensor->ToString()));
  }
  return values_[0][var.name()] = graph_.AddParameter(var.name(), *tensor);
}

void ProgramExporter::Bind(const OpDesc& op, const std::string& name, const Value& value) {
  const VarDesc* var = op.block()->FindVarRecursive(name);
  if (var && var->persistable()) {
    const Value* before = Find(name);
    if (before && *before == value) return;
    Refuse(op, fmt::format("it changes the persistable variable {}, and an ONNX model keeps "
                           "nothing from run to run",
                           Quote(name)));
  }
  values_.back()[name] = value;
  graph_.CallIt(value, name);
  if (var && !graph_.TypeOf(value)) graph_.SetType(value, var->dtype());
  if (var) graph_.SetShape(value, var->shape());
}

void ProgramExporter::Rebind(const Value& before, const Value& value) {
  for (auto& scope : values_) {
    for (auto& [name, bound] : scope) {
      if (bound != before) continue;
      bound = value;
      graph_.CallIt(value, name);
    }
  }
}

const VarMeta& ProgramExporter::MetaOf(const OpDesc& op, const std::string& name) const {
  const VarDesc* var = op.block()->FindVarRecursive(name);
  if (!var) throw InternalError("a verified program has no variable " + Quote(name));
  return var->meta();
}

const VarMeta& ProgramExporter::SettledMeta(const BlockDesc& block, const std::string& name) const {
  const VarDesc* var = settled_.Block(block.idx()).FindVarRecursive(name);
  if (!var) throw InternalError("a verified program has no variable " + Quote(name));
  return var->meta();
}

std::vector<std::string> ProgramExporter::WrittenBy(const OpDesc& op) const {
  const BlockDesc& block = settled_.Block(op.block()->idx());
  std::set<std::string> written;
  names_->ForEachWrite(block.op(op.block()->IndexOf(op)),
                       [&](std::string_view name) { written.emplace(name); });
  return {written.begin(), written.end()};
}

void ProgramExporter::BindAs(const OpDesc& op, const std::string& name, const Value& value,
                             const VarMeta& meta) {
  Bind(op, name, value);
  program_.Block(op.block()->idx()).FindVarRecursive(name)->SetMeta(meta);
}

void ProgramExporter::BindIn(BlockDesc& block, const std::string& name, const Value& value,
                             const VarMeta& meta) {
  values_.back()[name] = value;
  graph_.CallIt(value, name);
  block.FindVarRecursive(name)->SetMeta(meta);
}

void ProgramExporter::Enter() {
  graph_.Enter();
  values_.emplace_back();
}

GraphPtr ProgramExporter::Leave() {
  values_.pop_back();
  return graph_.Leave();
}

void ProgramExporter::ExportBlock(BlockDesc& block) {
  for (size_t i = 0; i < block.NumOps(); ++i) ExportOp(block, block.op(i));
}

// Only tensors of real numbers have counterparts; ops that run a block check their
// operands themselves.
void ProgramExporter::CheckOperands(const OpDesc& op) const {
  const auto check = [&](const std::string& name) {
    const VarMeta& meta = MetaOf(op, name);
    if (meta.type != VarType::kLoDTensor)
      Refuse(op,
             fmt::format("{} is a {}, which has no counterpart", Quote(name), ToString(meta.type)));
    if (IsComplex(meta.dtype))
      Refuse(op, fmt::format("{} holds complex numbers, which have no counterpart", Quote(name)));
  };
  op.ForEachInput(check);
  op.ForEachOutput(check);
}

void ProgramExporter::ExportOp(BlockDesc& block, OpDesc& op) {
  const OpSpec& spec = DefaultOps().Get(op.type());
  if (spec.kind != OpKind::kCompute) return;
  OpContext context(*this, spec, op);
  std::vector<std::pair<VarDesc*, VarMeta>> declared;
  op.ForEachOutput([&](const std::string& name) {
    VarDesc* var = block.FindVarRecursive(name);
    if (var && var->persistable()) declared.emplace_back(var, var->meta());
  });
  InferOp(block, op, DefaultOps());
  for (const auto& [var, meta] : declared) var->SetMeta(meta);
  if (!op.HasSubBlock()) CheckOperands(op);
  FindRow(op.type())->run(context);
  if (!op.HasSubBlock()) context.RequireAllInputsAsked();
}

}  // namespace coracle::onnx

#include <coracle/edit/edit.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/inspect.h>
#include <coracle/quantize/float_model.h>
#include <coracle/quantize/op_kinds.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

void RequireInference(const ProgramDesc& program) {
  program.ForEachOp([](const OpDesc& op) {
    if ((op.role() & (kBackward | kOptimize)) != 0) {
      ThrowInvalid(fmt::format(
          "the program trains (it has the op {}): quantise the inference model that training saved",
          Quote(op.type())));
    }
    if (IsQuantizing(op)) {
      ThrowInvalid(
          fmt::format("the program is quantised already: it has the op {}, which writes {}",
                      Quote(op.type()), Quote(op.FirstOutput())));
    }
  });
}

}  // namespace

Scope SharedCopy(const Scope& scope) {
  Scope copy;
  for (const std::string& name : scope.LocalNames()) copy.Var(name) = *scope.Find(name);
  return copy;
}

std::string AddConstant(ProgramDesc& program, Scope& parameters, const std::string& prefix,
                        Tensor value) {
  std::string name = program.FreeName(prefix);
  VarDesc& var = program.Root().Var(name);
  var.SetMeta({VarType::kLoDTensor, value.dtype(), value.shape(), 0});
  var.SetPersistable(true);
  var.SetIsParameter(false);
  var.SetStopGradient(true);
  parameters.Set(name, std::move(value));
  return name;
}

FloatModel FloatModel::Copy() const {
  FloatModel copy;
  copy.program = program;
  copy.parameters = SharedCopy(parameters);
  copy.feeds = feeds;
  copy.fetches = fetches;
  return copy;
}

const Tensor* FloatModel::Weight(const std::string& name) const {
  const VarDesc* var = program.Root().FindVar(name);
  if (!var || !var->persistable() || !program.Root().Uses(name).writers.empty()) return nullptr;
  const VarValue* value = parameters.Find(name);
  const Tensor* tensor = value ? std::get_if<Tensor>(value) : nullptr;
  return tensor && tensor->dtype() == DType::kFloat32 && tensor->numel() > 0 ? tensor : nullptr;
}

FloatModel PrepareFloatModel(const ProgramDesc& program, const Scope& parameters,
                             const OpRegistry& ops) {
  RequireInference(program);
  FloatModel model;
  model.feeds = InputNames(program, ops);
  model.fetches = OutputNames(program, ops);
  if (model.fetches.empty()) ThrowInvalid("the program fetches nothing: no output can be compared");
  OptimizeOptions options;
  options.passes = {"dead_code",       "remove_identities", "fold_constants", "find_activations",
                    "fold_batch_norm", "fold_scales",       "fuse_conv_bias"};
  const bool has_ends = HasOpOfKind(program.Root(), OpKind::kFetch, ops);
  OptimizedProgram prepared =
      OptimizeProgram(program, parameters, has_ends ? std::vector<std::string>{} : model.feeds,
                      has_ends ? std::vector<std::string>{} : model.fetches, options, {}, ops);
  model.program = std::move(prepared.program);
  model.parameters = std::move(prepared.parameters);
  return model;
}

}  // namespace coracle::inline internal

#include <coracle/framework/op/check/flow_types.h>
#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/kernel/interpreter.h>

namespace coracle::inline internal {

const VarMeta* FlowTypes::Find(const std::string& name) const {
  if (const auto found = types_.find(name); found != types_.end()) return &found->second;
  if (const Tensor* value = Constant(name))
    return &types_.emplace(name, MetaOfValue(*value)).first->second;
  return Declared(name);
}

void FlowTypes::Set(const std::string& name, const VarMeta& meta) { types_[name] = meta; }

void FlowTypes::InferOrThrow(const OpSpec& spec, const OpDesc& op) {
  InferContext infer(spec, op, *this);
  RunInfer(infer);
}

bool FlowTypes::Infer(const OpSpec& spec, const OpDesc& op) {
  try {
    InferOrThrow(spec, op);
    return true;
  } catch (const Error&) {
    return false;
  }
}

const VarMeta* FlowTypes::Declared(const std::string& name) const {
  const VarDesc* var = block_.FindVarRecursive(name);
  return var ? &var->meta() : nullptr;
}

}  // namespace coracle::inline internal

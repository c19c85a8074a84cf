#pragma once
// Infers the types of a block's variables with the rules of its ops, because the types declared in
// a file may be wrong. Internal to passes/.

#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/run_rules.h>

#include <string>
#include <unordered_map>

namespace coracle {

// The inferred types; for other variables, the declared ones.
class FlowTypes : public MetaTable {
 public:
  explicit FlowTypes(const BlockDesc& block) : block_(block) {}

  const VarMeta* Find(const std::string& name) const override {
    auto it = flow_.find(name);
    if (it != flow_.end()) return &it->second;
    const VarDesc* var = block_.FindVarRecursive(name);
    return var ? &var->meta() : nullptr;
  }
  void Set(const std::string& name, const VarMeta& meta) override { flow_[name] = meta; }

  // Stores the types of the op's outputs. Returns whether its rule accepts the inputs.
  bool Infer(const OpSpec& spec, const OpDesc& op) {
    try {
      InferContext infer(spec, op, *this);
      RunInfer(infer);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

 private:
  const BlockDesc& block_;
  std::unordered_map<std::string, VarMeta> flow_;
};

}  // namespace coracle

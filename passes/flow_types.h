#pragma once
// The types of a block's variables as its ops' rules infer them: a file may declare others.
// Internal to passes/.

#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/run_rules.h>

#include <string>
#include <unordered_map>

namespace coracle {

// As inferred so far, or as declared.
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

  // Notes what the op writes. Returns whether its rule accepts what it reads.
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

#pragma once
// Infers the types of a block's variables with the rules of its ops, because the types declared in
// a file may be wrong or missing.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <unordered_map>

namespace coracle::inline internal {

// The types of variables at one point of a block: as inferred so far; else of the value, for a
// Constant; else as declared. The block must outlive the object.
class FlowTypes : public MetaTable {
 public:
  explicit FlowTypes(const BlockDesc& block) : block_(block) {}

  const VarMeta* Find(const std::string& name) const override;
  void Set(const std::string& name, const VarMeta& meta) override;
  bool IsDeclaredOnly(const std::string& name) const { return types_.count(name) == 0; }
  // Runs the shape rule of the op, which sets the types of its outputs. Throws like RunInfer.
  void InferOrThrow(const OpSpec& spec, const OpDesc& op);
  // The same, but returns false if the rule refuses the inputs.
  bool Infer(const OpSpec& spec, const OpDesc& op);

 protected:
  const BlockDesc& block() const { return block_; }
  // The type of a variable that has no inferred type; nullptr if there is no such variable.
  virtual const VarMeta* Declared(const std::string& name) const;

 private:
  const BlockDesc& block_;
  mutable std::unordered_map<std::string, VarMeta> types_;
};

}  // namespace coracle::inline internal

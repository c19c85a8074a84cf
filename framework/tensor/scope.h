#pragma once
// Scope: named values that outlive a run (parameters, optimizer state). Not synchronised: one
// writer at a time, and concurrent readers only while nobody adds or erases.

#include <coracle/framework/tensor/tensor.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle {

class Scope {
 public:
  explicit Scope(const Scope* parent = nullptr);
  Scope(Scope&& other) noexcept;
  Scope& operator=(Scope&& other) noexcept;

  // The value of `name` in this scope, made (empty) when absent. The address holds until the name
  // is erased.
  VarValue& Var(const std::string& name);
  // Looked up here, then in the parents; nullptr when absent.
  const VarValue* Find(const std::string& name) const;
  VarValue* FindLocal(const std::string& name);

  void Set(const std::string& name, Tensor tensor) { Var(name) = std::move(tensor); }
  // Throws kNotFound for an absent name (with the nearest one), kInvalidArgument when it holds no
  // tensor.
  const Tensor& Get(const std::string& name) const;
  Tensor& GetMutable(const std::string& name);

  bool Has(const std::string& name) const { return Find(name) != nullptr; }
  bool Erase(const std::string& name);
  std::vector<std::string> LocalNames() const;  // sorted by bytes
  // While this number stays the same, addresses that Var and Find returned hold, and what Find did
  // not find is still absent. Unique in the process.
  uint64_t Generation() const;
  // Own tensors copied deeply; the same parent.
  Scope Clone() const;

 private:
  const Scope* parent_;
  uint64_t generation_;
  std::unordered_map<std::string, std::unique_ptr<VarValue>> values_;
};

// Deep copy of any value.
VarValue CloneValue(const VarValue& value);

}  // namespace coracle

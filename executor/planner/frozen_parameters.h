#pragma once
// FrozenParameters: persistable variables that are constants of a compiled program, shared by all
// of its plans. Internal to executor/.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

namespace coracle::inline internal {

// Not synchronised, since plans are made one at a time.
class FrozenParameters {
 public:
  void Add(const std::string& name, Tensor value);

  // nullptr if the variable is not frozen.
  const VarMeta* Find(const std::string& name) const;
  // The elements of all parameters. REQUIRES: Packed has not been called.
  std::unordered_map<std::string, Tensor> PlainElements() const;
  // The elements as the program declares them. REQUIRES: Find(name).
  const Tensor& Elements(const std::string& name);
  // The elements in the given layout. A kernel that does not need the plain elements calls this and
  // not Elements: if the layout can be undone, it replaces the plain elements, so that no parameter
  // is in memory twice.
  std::shared_ptr<const Tensor> Packed(const std::string& name, const PackedLayout& layout);

 private:
  struct Parameter {
    VarMeta meta;
    Tensor plain;                     // empty while `restore` can recompute it
    std::function<Tensor()> restore;  // empty while only `plain` has the elements
    std::map<std::string, std::shared_ptr<const Tensor>> packed;  // by id of the layout
  };
  std::unordered_map<std::string, Parameter> parameters_;
};

}  // namespace coracle::inline internal

#pragma once
// OpRegistry: op types by name.

#include <coracle/framework/op/op_def.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace coracle {

class OpRegistry {
 public:
  // Throws kAlreadyExists for a type that is registered, InternalError for a declaration that
  // contradicts itself (no doc, a slot twice, neither gradient nor reason).
  void Add(OpDef def);
  void Add(OpSpec spec);  // of another registry

  const OpSpec* Find(std::string_view type) const;  // nullptr when unknown
  const OpSpec& Get(std::string_view type) const;   // throws kNotFound with the nearest name
  std::vector<std::string> Types() const;           // sorted

 private:
  std::unordered_map<std::string_view, std::unique_ptr<OpSpec>>
      specs_;  // keys point into the values
};

}  // namespace coracle

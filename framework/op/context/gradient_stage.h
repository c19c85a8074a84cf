#pragma once
// GradientStage: the block in which a gradient rule writes formulas. Its variables have types at
// once; only when the rule is done is it known which of them are needed and under which names.

#include <coracle/framework/op/writer.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle::inline internal {

class GradientStage {
 public:
  // `name` is the default name of new variables. The formulas see the variables of `parent`.
  GradientStage(BlockDesc& parent, const OpRegistry& ops, std::string name);

  // A block outside the program whose parent is the real block.
  BlockDesc& block() { return block_; }
  const Writer& writer() const { return writer_; }
  bool Made(const std::string& name) const { return made_.count(name) > 0; }
  // Returns the name under which ops of this rule refer to a new variable with the final
  // name `name`.
  std::string Placeholder(const std::string& name);
  // Sets the final name of a variable that the writer made.
  void SetName(const std::string& made, const std::string& name);
  // Makes the variable the gradient of that name.
  void Yield(const std::string& made, const std::string& gradient) {
    yields_.emplace_back(made, gradient);
  }
  // Returns the ops that yields and variables of the program need, with final names: `new_name`
  // declares a variable and returns its name.
  std::vector<std::unique_ptr<OpDesc>> ReleaseOps(
      const std::function<std::string(const std::string& wanted)>& new_name);

 private:
  struct NewVar {
    std::string wanted, name;
    bool is_gradient = false, is_read = false;
  };
  NewVar* Find(const std::string& name);
  void DropUnneeded(std::vector<std::unique_ptr<OpDesc>>& ops);
  void NameGradients(std::vector<std::unique_ptr<OpDesc>>& ops);

  BlockDesc block_;
  std::unordered_map<std::string, NewVar> made_;             // by placeholder
  std::vector<std::pair<std::string, std::string>> yields_;  // placeholder, gradient's name
  size_t next_ = 0;
  Writer writer_;
};

}  // namespace coracle::inline internal

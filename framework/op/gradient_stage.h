#pragma once
// GradientStage: where a gradient rule writes formulas. Their variables have types at once; which
// of them are needed, and what they are called, is known when the rule is done.

#include <coracle/framework/op/writer.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle::internal {

class GradientStage {
 public:
  // `name` is what new variables are called unless said. They see those of `parent`.
  GradientStage(BlockDesc& parent, const OpRegistry& ops, std::string name);

  // A block of no program, whose parent is the real one.
  BlockDesc& block() { return block_; }
  const Writer& writer() const { return writer_; }
  bool Made(const std::string& name) const { return made_.count(name) > 0; }
  // For a new variable that is to be called so: what ops of this rule call it.
  std::string Placeholder(const std::string& name);
  // What a variable that the writer made is to be called.
  void SetName(const std::string& made, const std::string& name);
  // It is the gradient of that name.
  void Yield(const std::string& made, const std::string& gradient) {
    yields_.emplace_back(made, gradient);
  }
  // The ops that yields and other variables of the program need, with final names: `new_name`
  // declares a variable and returns what it is called.
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

}  // namespace coracle::internal

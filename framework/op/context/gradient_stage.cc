#include <coracle/framework/base/text.h>
#include <coracle/framework/op/context/gradient_stage.h>
#include <fmt/format.h>

namespace coracle::inline internal {

GradientStage::GradientStage(BlockDesc& parent, const OpRegistry& ops, std::string name)
    : block_(&parent.program(), -1, parent.idx()),
      writer_(block_, ops, {.name = [this, name = std::move(name)](const std::string&) {
                return Placeholder(name);
              }}) {}

// Returns a name that no variable visible to formulas has.
std::string GradientStage::Placeholder(const std::string& name) {
  std::string placeholder = name;
  while (block_.FindVarRecursive(placeholder)) placeholder = fmt::format("{}@{}", name, next_++);
  made_[placeholder].wanted = name;
  return placeholder;
}

GradientStage::NewVar* GradientStage::Find(const std::string& name) {
  const auto found = made_.find(name);
  return found == made_.end() ? nullptr : &found->second;
}

void GradientStage::SetName(const std::string& made, const std::string& name) {
  NewVar* var = Find(made);
  if (!var) throw InternalError(fmt::format("{} was not made by this gradient rule", Quote(made)));
  var->wanted = name;
}

// Drops ops whose outputs are all new variables that are neither gradients nor read later.
void GradientStage::DropUnneeded(std::vector<std::unique_ptr<OpDesc>>& ops) {
  for (size_t k = ops.size(); k-- > 0;) {
    bool any_output = false;
    const bool needed = ops[k]->AnyOutput([&](const std::string& name) {
      any_output = true;
      const NewVar* made = Find(name);
      return !made || made->is_gradient || made->is_read;
    });
    if (any_output && !needed) {
      ops[k].reset();
      continue;
    }
    ops[k]->ForEachInput([&](const std::string& name) {
      if (NewVar* made = Find(name)) made->is_read = true;
    });
  }
  std::erase(ops, nullptr);
}

// If other ops of the rule read the variable too, the gradient must be a copy: an error clip
// changes it in place as soon as it is complete.
void GradientStage::NameGradients(std::vector<std::unique_ptr<OpDesc>>& ops) {
  for (const auto& [placeholder, gradient] : yields_) {
    NewVar& made = *Find(placeholder);
    if (made.is_read) {
      ops.push_back(std::make_unique<OpDesc>("assign", SlotList{{"X", {placeholder}}},
                                             SlotList{{"Out", {gradient}}}));
    } else {
      made.name = gradient;
    }
  }
}

std::vector<std::unique_ptr<OpDesc>> GradientStage::ReleaseOps(
    const std::function<std::string(const std::string& wanted)>& new_name) {
  for (const auto& yield : yields_) {
    NewVar& made = *Find(yield.first);
    made.is_read = made.is_gradient;  // it is the gradient of two inputs
    made.is_gradient = true;
  }
  std::vector<std::unique_ptr<OpDesc>> ops = block_.ReleaseOps();
  DropUnneeded(ops);
  NameGradients(ops);
  const auto final_name = [&](const std::string& name) {
    NewVar* made = Find(name);
    if (made && made->name.empty()) made->name = new_name(made->wanted);
    return made ? made->name : name;
  };
  for (const auto& op : ops) {
    op->RenameInputs(final_name);
    op->RenameOutputs(final_name);
  }
  return ops;
}

}  // namespace coracle::inline internal

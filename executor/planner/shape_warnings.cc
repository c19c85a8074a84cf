#include <coracle/executor/planner/shape_warnings.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

namespace coracle::inline internal {

void ShapeWarningLog::Log(const std::vector<ShapeWarning>& warnings) {
  for (const ShapeWarning& warning : warnings) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!enabled_ || !logged_.insert(warning.key).second) continue;
    }
    LogMessage(MessageLevel::kWarning, warning.text);  // a sink may run a program
  }
}

std::vector<ShapeWarning> ShapeWarnings::New(const std::vector<std::string>& names,
                                             std::span<const Tensor> feeds, const Scope& scope) {
  std::vector<ShapeWarning> warnings;
  for (size_t i = 0; i < feeds.size(); ++i) Check("feed", names[i], feeds[i], &warnings);
  for (size_t i = 0; i < program_.Root().NumVars(); ++i) {
    const VarDesc& var = program_.Root().var(i);
    if (!var.persistable() || var.type() != VarType::kLoDTensor) continue;
    const VarValue* value = scope.Find(var.name());
    const auto* tensor = value ? std::get_if<Tensor>(value) : nullptr;
    if (tensor && !tensor->empty()) Check("variable", var.name(), *tensor, &warnings);
  }
  return warnings;
}

void ShapeWarnings::Check(const char* what, const std::string& name, const Tensor& tensor,
                          std::vector<ShapeWarning>* warnings) {
  const VarDesc* var = program_.Root().FindVar(name);
  if (!var || var->shape().rank() == 0 || tensor.shape().CompatibleWith(var->shape())) return;
  if (!warned_.insert(name).second) return;
  const std::string declared = var->shape().ToString();
  warnings->push_back(
      {name + " " + declared,
       fmt::format(
           "{} {} has the shape {}, but the program declares {}; it runs with the actual shape",
           what, Quote(name), tensor.shape().ToString(), declared)});
}

}  // namespace coracle::inline internal

#include <coracle/executor/shape_warnings.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

namespace coracle {

std::vector<std::string> ShapeWarnings::New(const std::vector<std::string>& names,
                                            std::span<const Tensor> feeds, const Scope& scope) {
  std::vector<std::string> warnings;
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
                          std::vector<std::string>* warnings) {
  const VarDesc* var = program_.Root().FindVar(name);
  if (!var || var->shape().rank() == 0 || tensor.shape().CompatibleWith(var->shape())) return;
  if (!warned_.insert(name).second) return;
  warnings->push_back(
      fmt::format("{} {} has the shape {}, the program declares {}; it is run with what is there",
                  what, Quote(name), tensor.shape().ToString(), var->shape().ToString()));
}

}  // namespace coracle

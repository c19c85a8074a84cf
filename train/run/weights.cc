#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/train/run/saved_model.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

// Reads the variables of a file by their names.
Scope ReadAll(const WeightsConfig& weights) {
  const std::string& file = weights.file;
  Scope scope;
  if (weights.read || IsTensorArchive(file)) {
    for (auto& [name, tensor] : weights.read ? weights.read() : ReadTensorArchive(file))
      scope.Set(name, std::move(tensor));
    return scope;
  }
  const std::string snapshot = FindSnapshot(file);
  if (!snapshot.empty()) {
    SavedSnapshot saved = ReadSnapshot(snapshot);
    for (const std::string& name : PersistableNames(saved.main.CloneForTest()))
      scope.Var(name) = saved.variables.Var(name);
    return scope;
  }
  std::string model = file;
  // The file has no names; they are in the program next to it.
  if (file.ends_with(".pdiparams")) {
    model = file.substr(0, file.size() - std::string(".pdiparams").size()) + ".pdmodel";
    if (FileExists(file) && !FileExists(model)) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{} holds no names: its program {} must be next to it",
                              Quote(file, 300), Quote(model, 300)));
    }
  }
  LoadInferenceModel(model, scope);
  return scope;
}

std::string List(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  constexpr size_t kShown = 8;
  std::vector<std::string> first;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    first.push_back(PrintableLine(names[i]));
  const size_t rest = names.size() - first.size();
  return fmt::format("; {}: {}{}", what, Join(first, ", "),
                     rest > 0 ? fmt::format(" and {} more", rest) : "");
}

}  // namespace

std::string WeightsReport::ToString() const {
  return fmt::format("weights {}: {} of {} variables loaded{}{}{}", PrintableLine(file),
                     loaded.size(), loaded.size() + mismatched.size() + not_in_file.size(),
                     List("of another type", mismatched), List("not in the file", not_in_file),
                     List("not in the model", not_in_model));
}

WeightsReport LoadWeights(const WeightsConfig& weights, const ProgramDesc& program,
                          const std::vector<std::string>& names, Scope& scope) {
  const Scope found = ReadAll(weights);
  WeightsReport report;
  report.file = weights.file;
  for (const std::string& name : names) {
    const VarValue* value = found.Find(name);
    const auto* tensor = value ? std::get_if<Tensor>(value) : nullptr;
    if (!tensor) {
      report.not_in_file.push_back(name);
      continue;
    }
    const VarDesc& var = *program.Root().FindVar(name);
    if (tensor->dtype() == var.dtype() && tensor->shape() == var.shape()) {
      scope.GetMutable(name).CopyFrom(*tensor);
      report.loaded.push_back(name);
    } else if (weights.skip_mismatched) {
      report.mismatched.push_back(name);
    } else {
      ThrowInvalid(fmt::format("weights {}: {} {}; skip_mismatched leaves it as it is",
                               weights.file, Quote(name),
                               DescribeMismatch(var.meta(), MetaOfValue(*tensor))));
    }
  }
  for (const std::string& name : found.LocalNames())
    if (std::find(names.begin(), names.end(), name) == names.end())
      report.not_in_model.push_back(name);
  if (report.loaded.empty()) ThrowInvalid(report.ToString() + "; nothing fits");
  return report;
}

}  // namespace coracle

#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/run_input.h>
#include <coracle/tools/tensor_csv.h>
#include <coracle/tools/tensor_file.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::tools {
namespace {

// Whether elements of an integer tensor lie outside of an integer dtype of the other signedness.
bool ChangesSign(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == DType::kUInt64) return dtype != DType::kUInt64;  // some exceed int64
  if (tensor.dtype() != DType::kInt64 || dtype != DType::kUInt64) return false;
  const auto values = tensor.span<int64_t>();
  return std::any_of(values.begin(), values.end(), [](int64_t value) { return value < 0; });
}

// Casts a tensor of a csv file, which does not store dtypes, to the variable's dtype. Throws if
// that cannot hold its values.
Tensor AsDeclared(const std::string& file, const BlockDesc& root, const std::string& name,
                  const Tensor& tensor) {
  const VarDesc* var = root.FindVar(name);
  if (!var || !IsValid(var->dtype()) || tensor.dtype() == var->dtype() ||
      var->dtype() == DType::kString)
    return tensor;
  const bool whole =
      IsFloating(var->dtype()) || (IsInteger(tensor.dtype()) && !ChangesSign(tensor, var->dtype()));
  Tensor cast = tensor.Cast(var->dtype());
  const bool same = IsFloating(var->dtype()) ? !OverflowsIn(tensor, cast)
                                             : BitEqual(cast.Cast(tensor.dtype()), tensor);
  if (whole && same) return cast;
  ThrowInvalid(
      fmt::format("{}: the column {} holds a number that is not a valid {}, the dtype of "
                  "the variable",
                  file, Quote(name), ToString(var->dtype())));
}

// NumPy's uint64 for an int64 variable, if that can hold it.
Tensor AsSigned(const BlockDesc& root, const std::string& name, const Tensor& tensor) {
  const VarDesc* var = root.FindVar(name);
  if (!var || tensor.dtype() != DType::kUInt64 || var->dtype() != DType::kInt64) return tensor;
  const auto values = tensor.span<uint64_t>();
  const bool fits = std::all_of(values.begin(), values.end(),
                                [](uint64_t value) { return value <= uint64_t{INT64_MAX}; });
  return fits ? tensor.Cast(DType::kInt64) : tensor;
}

}  // namespace

std::set<std::string> TextNames(const ProgramDesc& program) {
  std::set<std::string> names;
  const BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumVars(); ++i) {
    if (root.var(i).dtype() == DType::kString) names.insert(root.var(i).name());
  }
  return names;
}

NamedTensors ReadFeeds(const std::string& file, const ProgramDesc& program) {
  if (file.empty()) return {};
  NamedTensors feeds = ReadTensorFile(file, TextNames(program));
  if (IsCsvName(file)) {
    for (auto& [name, tensor] : feeds) tensor = AsDeclared(file, program.Root(), name, tensor);
  }
  for (auto& [name, tensor] : feeds) tensor = AsSigned(program.Root(), name, tensor);
  if (feeds.size() != 1 || !feeds[0].first.empty()) return feeds;
  const std::vector<std::string> inputs = InputNames(program, DefaultOps());
  if (inputs.size() != 1) {
    throw UsageError(fmt::format("an npy file feeds a program with one input; this has {}: use npz",
                                 inputs.size()));
  }
  feeds[0].first = inputs[0];
  feeds[0].second = AsSigned(program.Root(), inputs[0], feeds[0].second);
  return feeds;
}

std::vector<std::string> FeedNames(const ProgramDesc& program, const NamedTensors& feeds) {
  std::vector<std::string> names;
  if (HasOpOfKind(program.Root(), OpKind::kFeed, DefaultOps())) return names;
  for (const auto& entry : feeds) names.push_back(entry.first);
  return names;
}

std::vector<Tensor> InOrder(const std::string& file, const NamedTensors& feeds,
                            const std::vector<std::string>& names) {
  std::vector<Tensor> tensors;
  std::vector<std::string> keys;
  for (const auto& entry : feeds) keys.push_back(entry.first);
  for (const std::string& name : names) {
    const auto it = std::find(keys.begin(), keys.end(), name);
    if (it == keys.end()) {
      throw Error(ErrorCode::kNotFound,
                  file.empty()
                      ? fmt::format("the program reads {}; give it with --feed=FILE", Quote(name))
                      : fmt::format("--feed has no {}, which the program reads; it has {}",
                                    Quote(name), Join(keys, ", ")));
    }
    tensors.push_back(feeds[static_cast<size_t>(it - keys.begin())].second);
  }
  return tensors;
}

void LoadParametersFor(const std::string& params, const ProgramDesc& program,
                       const std::string& file, Scope& scope) {
  const std::string path = params.empty() ? ParametersNextTo(ProgramFile(file)) : params;
  if (!path.empty()) ReadParameters(program, path, scope);
}

}  // namespace coracle::tools

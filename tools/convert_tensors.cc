#include "convert_tensors.h"

#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "command.h"
#include "model_files.h"
#include "program_input.h"
#include "tensor_file.h"

namespace coracle::tools {
namespace {

bool IsCombined(const std::string& path) { return path.ends_with(".pdiparams"); }

NamedTensors ReadCombined(const std::string& path) {
  const std::string program = ProgramBeside(path);
  if (!program.empty()) return ParametersOf(ReadAnyProgram(program), path);
  throw Error(
      ErrorCode::kNotFound,
      fmt::format("{} holds no names, and its program {} is not next to it; "
                  "`convert PROGRAM OUT --params={}` names the program",
                  Quote(path, 300),
                  Quote(std::filesystem::path(path).replace_extension(".pdmodel").string(), 300),
                  PrintableLine(path)));
}

NamedTensors ReadOfModel(const std::string& path, const std::string& params) {
  const ModelFiles model = ReadModel(path, params);
  if (!model.has_values) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("{} has no parameters next to it; --params=PATH gives them", Quote(path, 300)));
  }
  NamedTensors tensors;
  for (const std::string& name : PersistableNames(model.program))
    tensors.emplace_back(name, model.values.Get(name));
  return tensors;
}

NamedTensors ReadTensors(const std::string& in, const std::string& params) {
  if (IsCombined(in) && params.empty()) return ReadCombined(in);
  if (!IsTensorFileName(in)) return ReadOfModel(in, params);
  if (params.empty()) return ReadTensorFile(in);
  throw UsageError("--params needs a program, but " + Quote(in, 300) + " holds tensors");
}

void WriteCombined(const NamedTensors& tensors, const std::string& out) {
  Scope scope;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    scope.Set(name, tensor);
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  SaveCombined(scope, names, out);
}

}  // namespace

bool IsTensorFileName(const std::string& path) {
  if (IsCombined(path)) return true;
  return std::any_of(TensorEndings().begin(), TensorEndings().end(),
                     [&](const std::string& ending) { return path.ends_with(ending); });
}

void ConvertTensors(const std::string& in, const std::string& out, const std::string& params) {
  const std::string program = IsCombined(out) ? ProgramBeside(out) : "";
  if (!program.empty() && IsTensorArchive(in)) {
    const ProgramDesc order = ReadAnyProgram(program);
    return WriteCombined(ParametersOf(order, in), out);
  }
  const NamedTensors tensors = ReadTensors(in, params);
  IsCombined(out) ? WriteCombined(tensors, out) : WriteTensorFile(tensors, out);
}

}  // namespace coracle::tools

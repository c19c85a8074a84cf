#include <coracle/convert/models.h>
#include <coracle/edit/join_parameters.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/tools/command.h>
#include <coracle/tools/convert_tensors.h>
#include <coracle/tools/model_files.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/tensor_file.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace coracle::tools {
namespace {

namespace fs = std::filesystem;

bool IsCombined(const std::string& path) { return path.ends_with(".pdiparams"); }

NamedTensors ReadCombined(const std::string& path) {
  const std::string program = ProgramNextTo(path);
  if (!program.empty()) return ParametersOf(ReadAnyProgram(program), path);
  throw Error(ErrorCode::kNotFound,
              fmt::format("{} holds no names, and its program {} is not next to it; "
                          "`convert PROGRAM OUT --params={}` names the program",
                          Quote(path, 300),
                          Quote(fs::path(path).replace_extension(".pdmodel").string(), 300),
                          PrintableLine(path)));
}

NamedTensors ReadOfModel(const std::string& path, const std::string& params) {
  const ModelFiles model = ReadModel(path, params);
  RequireValues(model, path);
  NamedTensors tensors;
  for (const std::string& name : PersistableNames(model.program))
    tensors.emplace_back(name, model.values.Get(name));
  return tensors;
}

NamedTensors ReadTensors(const std::string& in, const std::string& params) {
  if (IsCombined(in) && params.empty()) return ReadCombined(in);
  if (!IsTensorFileName(in) || IsPirFile(in)) return ReadOfModel(in, params);
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
  const std::string program = IsCombined(out) ? ProgramNextTo(out) : "";
  if (!program.empty() && IsTensorArchive(in)) {
    const ProgramDesc order = ReadAnyProgram(program);
    return WriteCombined(ParametersOf(order, in), out);
  }
  const NamedTensors tensors = ReadTensors(in, params);
  IsCombined(out) ? WriteCombined(tensors, out) : WriteTensorFile(tensors, out);
}

bool IsParameterDirectory(const std::string& path) {
  if (!IsDirectory(path)) return false;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().filename() == "__model__" || entry.path().extension() == ".pdmodel" ||
        IsPirFile(entry.path().string()))
      return false;
  }
  return true;
}

namespace {

// The persistable variables of the model. Throws if there are none, or if they have no values.
std::vector<std::string> NamesOfValues(const ModelFiles& model, const std::string& path,
                                       const char* verb) {
  std::vector<std::string> names = PersistableNames(model.program);
  if (names.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("the program has no persistable variables to {}", verb));
  }
  RequireValues(model, path);
  return names;
}

size_t JoinOfModel(const std::string& in, const std::string& params, const std::string& out) {
  const bool among_files =
      params.empty() && IsDirectory(in) && ParametersNextTo(ProgramFile(in)).empty();
  const ModelFiles model = ReadModel(in, among_files ? in : params);
  const std::vector<std::string> names = NamesOfValues(model, in, "join");
  SaveParameters(model.values, names, out);
  return names.size();
}

}  // namespace

void JoinParameterFiles(const std::string& in, const std::string& params, const std::string& out) {
  const size_t joined =
      IsParameterDirectory(in) ? JoinParameters(in, out).size() : JoinOfModel(in, params, out);
  if (out != "-")
    Print(fmt::format("{}: {}\n", Shown(out), Counted(joined, "persistable variable")));
}

void SplitParameters(const std::string& in, const std::string& params, const std::string& out) {
  std::error_code ignored;
  if (FileExists(out) && !fs::is_empty(out, ignored)) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("{} is there and not empty; name a new directory", Quote(out, 300)));
  }
  const ModelFiles model = ReadModel(in, params);
  const std::vector<std::string> names = NamesOfValues(model, in, "split");
  SaveSeparate(model.values, names, out);
  Print(fmt::format("{}: {}\n", Shown(out), Counted(names.size(), "file")));
}

}  // namespace coracle::tools

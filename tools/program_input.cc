#include <coracle/convert/models.h>
#include <coracle/edit/edit.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/pickle.h>
#include <coracle/layers/layer.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command.h>
#include <coracle/tools/convert_tensors.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace coracle::tools {
namespace fs = std::filesystem;

bool IsOnnx(const std::string& path) { return path.ends_with(".onnx"); }

OnnxImportOptions ImportOptions() {
  OnnxImportOptions options;
  for (const auto& [name, shape] : GivenShapes()) options.input_shapes.emplace(name, shape);
  return options;
}

bool IsJob(const std::string& file) {
  return (file.ends_with(".pbtxt") || file.ends_with(".txt")) &&
         LooksLikeJob(ReadFile(file, kMaxProgramBytes));
}

std::string ProgramFile(const std::string& path) {
  std::error_code ignored;
  if (path == "-" || !IsDirectory(path)) return path;
  for (const char* name : {"__model__", "inference.pdmodel", "model.pdmodel"}) {
    const fs::path file = fs::path(path) / name;
    if (fs::exists(file, ignored)) return file.string();
  }
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().extension() == ".pdmodel") found.push_back(entry.path().string());
  }
  if (found.size() == 1) return found.front();
  const std::string json = (fs::path(path) / "inference.json").string();
  if (found.empty() && IsPirFile(json)) return json;
  throw Error(ErrorCode::kNotFound,
              fmt::format("the directory {} holds {}", Quote(path, 300),
                          found.empty() ? "neither __model__ nor a .pdmodel file"
                                        : "several .pdmodel files; name one of them"));
}

namespace {

// Throws if the file holds tensors, because the caller needs a program.
void RequireNoTensors(const std::string& path) {
  if (!IsTensorFileName(path) || !FileExists(path)) return;
  const std::string program = ProgramNextTo(path);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} holds tensors, but a program is needed here{}", Quote(path, 300),
                          program.empty() ? "" : ": " + Shown(program)));
}

// A ModelProto begins with the number ir_version, a ProgramDesc with a block.
bool LooksLikeOnnx(const std::string& bytes) { return bytes.starts_with('\x08'); }

ProgramDesc ParseBinary(const std::string& bytes, const std::string& source) {
  RefusePickle(bytes, source);
  if (LooksLikeOnnx(bytes)) {
    ThrowInvalid(fmt::format("{} begins as an ONNX model does, and not as a program: name it .onnx",
                             Quote(source, 300)));
  }
  return ParseProgram(bytes, source);
}

bool IsNamedBinary(const std::string& path) {
  return path.ends_with(".pdmodel") || path.ends_with(".pb") || path.ends_with("__model__");
}

ProgramDesc ParseText(const std::string& text, const std::string& source) {
  const std::string directory = fs::path(source).parent_path().string();
  try {
    return std::move(
        ParseModelText(text, source, directory.empty() ? "." : directory, DefaultOps()).main);
  } catch (const Error& error) {
    if (!IsNamedBinary(source)) throw;
    throw error.WithPrefix(Quote(source, 300) + " is a text, not a binary program");
  }
}

// Any program but an ONNX model in a file.
ProgramDesc ReadOtherProgram(const std::string& path) {
  if (IsPirFile(path)) return ReadPir(path);
  RequireNoTensors(path);
  const std::string bytes = ReadFileOrStdin(path, kMaxProgramBytes);
  const std::string source = path == "-" ? "standard input" : path;
  Scope ignored;
  if (path == "-" && LooksLikeOnnx(bytes))
    return ParseOnnx(bytes, source, ignored, ImportOptions()).program;
  if (LooksLikePir(bytes)) return ParsePir(bytes, source);
  const bool named_text = path.ends_with(".pbtxt") || path.ends_with(".txt");
  if (!named_text && !LooksLikeText(bytes)) return ParseBinary(bytes, source);
  return ParseText(bytes, source);
}

}  // namespace

ProgramDesc ReadAnyProgram(const std::string& given) {
  const std::string path = ProgramFile(given);
  Scope ignored;
  if (IsOnnx(path)) return ImportOnnx(path, ignored, ImportOptions()).program;
  ProgramDesc program = ReadOtherProgram(path);
  if (const FlagShapes shapes = GivenShapes(); !shapes.empty())
    DeclareShapes(program, shapes, DefaultOps());
  return program;
}

std::string ParametersNextTo(const std::string& program_file) {
  const fs::path file = program_file;
  std::error_code ignored;
  if (file.filename() == "__model__")
    return file.has_parent_path() ? file.parent_path().string() + "/" : "./";
  if (IsOnnx(program_file)) return program_file;
  if (file.extension() != ".pdmodel" && !IsPirFile(program_file)) return "";
  const fs::path params = fs::path(file).replace_extension(".pdiparams");
  return fs::exists(params, ignored) ? params.string() : "";
}

std::string ParametersNextTo(const std::string& program_file, const ProgramDesc& program) {
  const std::string path = ParametersNextTo(program_file);
  const std::vector<std::string> names = PersistableNames(program);
  if (path.empty() || names.empty()) return "";
  if (!path.ends_with("/") || FileExists(path + "__params__")) return path;
  const bool any = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name.find('/') == name.npos && FileExists(path + name);
  });
  return any ? path : "";
}

void ReadParameters(const ProgramDesc& program, const std::string& path, Scope& scope) {
  const std::string ending = fs::path(path).extension();
  for (const char* other : {".json", ".csv", ".npy", ".pb", ".pbtxt", ".pdmodel", ".txt"}) {
    if (ending != other || IsDirectory(path)) continue;
    ThrowInvalid(
        fmt::format("{} does not end as a parameter file does: --params takes a directory, "
                    ".pdiparams, .params, .npz, .safetensors or .onnx",
                    Quote(path, 300)));
  }
  const std::string snapshot = IsDirectory(path) ? FindSnapshot(path) : "";
  if (snapshot.empty() && !IsOnnx(path)) return LoadParameters(program, path, scope);
  Scope values;
  if (snapshot.empty())
    ImportOnnx(path, values, ImportOptions());
  else
    values = std::move(ReadSnapshot(snapshot).variables);
  for (const std::string& name : PersistableNames(program)) {
    VarValue* value = values.FindLocal(name);
    if (!value) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{} has no {} {}, which the program reads", Quote(path, 300),
                              snapshot.empty() ? "initializer" : "variable", Quote(name)));
    }
    scope.Var(name) = std::move(*value);
  }
}

std::string ProgramNextTo(const std::string& params) {
  const fs::path file = params;
  const fs::path candidates[] = {fs::path(params).replace_extension(".pdmodel"),
                                 file.parent_path() / "__model__"};
  const bool is_params = file.filename() == "__params__";
  const fs::path& found = candidates[is_params ? 1 : 0];
  if ((is_params || file.has_extension()) && FileExists(found)) return found.string();
  const std::string json = fs::path(params).replace_extension(".json").string();
  return params.ends_with(".pdiparams") && IsPirFile(json) ? json : "";
}

NamedTensors ParametersOf(const ProgramDesc& program, const std::string& params) {
  Scope scope;
  ReadParameters(program, params, scope);
  NamedTensors tensors;
  for (const std::string& name : PersistableNames(program))
    tensors.emplace_back(name, scope.Get(name));
  return tensors;
}

void RequireEnding(const std::string& what, const std::string& path,
                   const std::vector<std::string>& endings) {
  const std::string ending = fs::path(path).extension();
  if (path.empty() || path == "-") return;
  if (std::find(endings.begin(), endings.end(), ending) != endings.end()) return;
  std::vector<std::string> known;
  std::copy_if(endings.begin(), endings.end(), std::back_inserter(known),
               [](const std::string& e) { return !e.empty(); });
  const std::string none = known.size() < endings.size() ? ", or have no ending" : "";
  throw UsageError(fmt::format("{} must end in {}{}, got {}", what, Join(known, " or "), none,
                               Quote(path, 300)));
}

void RequireParametersName(const std::string& what, const std::string& path) {
  RequireEnding(what, path, {".pdiparams", ".params", ".safetensors", ".npz", ""});
}

bool IsParametersName(const std::string& path) {
  for (const char* ending : {".pdiparams", ".params", ".safetensors", ".npz"})
    if (path.ends_with(ending)) return true;
  return false;
}

void RequireDirectoryName(const std::string& what, const std::string& path) {
  const std::string ending = fs::path(path).extension();
  for (const char* file : {".pb", ".pdmodel", ".pdiparams", ".pbtxt", ".npz", ".npy",
                           ".safetensors", ".csv", ".json", ".svg", ".html", ".onnx"}) {
    if (ending == file)
      throw UsageError(
          fmt::format("{} names a directory, and {} ends as a file does", what, Quote(path, 300)));
  }
}

void RequireProgramName(const std::string& what, const std::string& path) {
  if (IsProgramFileName(path)) return;
  throw UsageError(
      fmt::format("{} must end in .pb or .pdmodel (binary) or in .pbtxt or .txt (text), got {}",
                  what, Quote(path, 300)));
}

}  // namespace coracle::tools

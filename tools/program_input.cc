#include "program_input.h"

#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/program_io.h>
#include <coracle/layers/model_text.h>

#include <filesystem>

namespace coracle::tools {
namespace fs = std::filesystem;

std::string ProgramFile(const std::string& path) {
  std::error_code ignored;
  if (path == "-" || !fs::is_directory(path, ignored)) return path;
  for (const char* name : {"__model__", "inference.pdmodel", "model.pdmodel"}) {
    const fs::path file = fs::path(path) / name;
    if (fs::exists(file, ignored)) return file.string();
  }
  throw Error(ErrorCode::kNotFound,
              "no __model__ or inference.pdmodel in the directory " + Quote(path, 300));
}

ProgramDesc ReadAnyProgram(const std::string& given) {
  const std::string path = ProgramFile(given);
  const std::string bytes = ReadFile(path, kMaxProgramBytes);
  const std::string source = path == "-" ? "standard input" : path;
  const bool named_text = path.ends_with(".pbtxt") || path.ends_with(".txt");
  if (!named_text && !LooksLikeText(bytes)) return ParseProgram(bytes, source);
  const std::string directory = path == "-" ? "." : fs::path(path).parent_path().string();
  return std::move(
      ParseModelText(bytes, source, directory.empty() ? "." : directory, DefaultOps()).main);
}

}  // namespace coracle::tools

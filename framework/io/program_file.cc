#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace coracle {
namespace {

constexpr size_t kLooked = 4096;

bool HasTextName(std::string_view path) {
  return path.ends_with(".pbtxt") || path.ends_with(".txt");
}

}  // namespace

// A binary program has small numbers (a block's index and parent) among its first bytes, which text
// never has.
bool LooksLikeText(std::string_view bytes) {
  bytes = bytes.substr(0, kLooked);
  return !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [](char c) {
    auto byte = static_cast<unsigned char>(c);
    return (byte >= 32 && byte != 127) || (byte >= '\t' && byte <= '\r');
  });
}

ProgramDesc ReadProgram(const std::string& path) {
  std::string bytes = ReadFileOrStdin(path, kMaxProgramBytes);
  std::string source = path == "-" ? "standard input" : path;
  return HasTextName(path) || LooksLikeText(bytes) ? ParseProgramText(bytes, source)
                                                   : ParseProgram(bytes, source);
}

bool IsProgramFileName(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension();
  return HasTextName(path) || ending.empty() || ending == ".pb" || ending == ".pdmodel";
}

void WriteProgram(const ProgramDesc& program, const std::string& path) {
  if (!IsProgramFileName(path)) {
    ThrowInvalid(
        fmt::format("a program is not written as {}: the name must end in .pb or .pdmodel "
                    "(binary), .pbtxt or .txt (text)",
                    Quote(path, 300)));
  }
  WriteFileAtomic(path, HasTextName(path) ? ProgramToText(program) : SerializeProgram(program));
}

}  // namespace coracle

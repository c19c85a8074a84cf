#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/command.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/tensor_csv.h>
#include <coracle/tools/tensor_file.h>
#include <coracle/tools/tensor_json.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 28;  // a parsed json takes twenty times as much

void RequireNoSequences(const std::string& name, const Tensor& tensor, const char* kind) {
  if (tensor.lod().empty()) return;
  ThrowInvalid(fmt::format("{} has sequences (LoD), which no {} file holds; npz and json do",
                           Quote(name), kind));
}

}  // namespace

const std::vector<std::string>& TensorEndings() {
  static const std::vector<std::string> endings = {".npz", ".npy", ".safetensors", ".csv", ".json"};
  return endings;
}

bool IsCsvName(const std::string& path) { return path.ends_with(".csv"); }

NamedTensors ReadTensorFile(const std::string& path, const std::set<std::string>& texts) {
  const std::string source = path == "-" ? "standard input" : path;
  if (IsCsvName(path)) return ParseTensorCsv(ReadFile(path, kMaxTextBytes), source, texts);
  if (path.ends_with(".json")) return ParseTensorJson(ReadFile(path, kMaxTextBytes), source);
  if (path.ends_with(".safetensors")) return ReadSafetensors(path);
  const std::string bytes = ReadFileOrStdin(path);
  if (bytes.starts_with("\x93NUMPY")) return {{"", ParseNpy(bytes, source)}};
  if (bytes.starts_with("PK")) return ParseNpz(bytes, source);
  if (LooksLikeSafetensors(bytes)) return ParseSafetensors(bytes, source);
  throw Error(
      ErrorCode::kDataLoss,
      source + ": no npz, npy or safetensors file (csv and json are known by their endings)");
}

void RequireTensorEnding(const std::string& what, const std::string& path) {
  RequireEnding(what, path, TensorEndings());
}

void RequireTensorCount(const std::string& what, const std::string& path, size_t tensors) {
  if (!path.ends_with(".npy") || tensors == 1) return;
  throw UsageError(fmt::format("{}: an npy file holds one array, and there are {}; npz holds any",
                               what, tensors));
}

void WriteTensorFile(const NamedTensors& tensors, const std::string& path) {
  if (path.ends_with(".npy")) {
    RequireTensorCount(Quote(path, 300), path, tensors.size());
    RequireNoSequences(tensors[0].first, tensors[0].second, "npy");
    return WriteNpy(tensors[0].second, path);
  }
  if (IsCsvName(path)) {
    for (const auto& [name, tensor] : tensors) RequireNoSequences(name, tensor, "csv");
    return WriteFileAtomic(path, TensorCsv(tensors));
  }
  if (path.ends_with(".json")) return WriteFileAtomic(path, TensorJson(tensors));
  WriteTensorArchive(tensors, path);
}

}  // namespace coracle::tools

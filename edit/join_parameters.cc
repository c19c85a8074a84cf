#include <coracle/edit/join_parameters.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_pieces.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace coracle::inline internal {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 64;  // of nested directories

// Whether it is a temporary file of a killed process (framework/base/file.cc).
bool IsTemporary(const fs::path& file) {
  return file.filename().string().starts_with(".coracle-") && file.extension() == ".tmp";
}

std::vector<std::string> FilesBelow(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error), end;
  for (; !error && it != end; it.increment(error)) {
    if (it.depth() > kMaxDepth)
      ThrowInvalid(fmt::format("{}: directories are nested too deep", Quote(directory, 300)));
    if (!it->is_directory(error) && !IsTemporary(it->path()))
      names.push_back(it->path().lexically_relative(directory).generic_string());
  }
  if (error) {
    throw Error(ErrorCode::kIo, fmt::format("cannot read the directory {}: {}",
                                            Quote(directory, 300), error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Tensor ReadWhole(const std::string& path) {
  const std::string bytes = ReadFile(path);
  size_t offset = 0;
  Tensor tensor = ParseTensor(bytes, &offset, path);
  if (offset == bytes.size()) return tensor;
  throw Error(
      ErrorCode::kDataLoss,
      fmt::format("{}: {} bytes are left over after the value; is it a combined file, or not a "
                  "parameter file?",
                  path, bytes.size() - offset));
}

}  // namespace

std::vector<std::string> JoinParameters(const std::string& directory, const std::string& path) {
  const std::vector<std::string> names = FilesBelow(directory);
  if (names.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("the directory {} holds no parameter files", Quote(directory, 300)));
  }
  if (IsTensorArchive(path)) {
    NamedTensors tensors;
    for (const std::string& name : names)
      tensors.emplace_back(name, ReadWhole(directory + "/" + name));
    WriteTensorArchive(tensors, path);
    return names;
  }
  WriteFileInPieces(path, [&](const WritePieceFn& write) {
    for (const std::string& name : names) {
      std::string piece;
      AppendTensor(ReadWhole(directory + "/" + name), &piece);
      write(piece);
    }
  });
  return names;
}

}  // namespace coracle::inline internal

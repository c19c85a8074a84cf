// Parameter files: one file with all tensor streams, or one file per tensor.

#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_pieces.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/framework/io/internal/combined.h>
#include <coracle/framework/io/internal/tensor_stream.h>
#include <coracle/framework/io/model_bytes.h>
#include <coracle/framework/io/pickle.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/framework/tensor/slab.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>

namespace coracle {
namespace {

namespace fs = std::filesystem;

// Size of one write.
constexpr size_t kPieceBytes = size_t{1} << 20;

bool IsSaved(VarType type) { return type == VarType::kLoDTensor || type == VarType::kSelectedRows; }

const VarDesc& Declared(const ProgramDesc& program, const std::string& name) {
  for (int b = 0; b < program.NumBlocks(); ++b) {
    if (const VarDesc* var = program.Block(b).FindVar(name)) return *var;
  }
  throw Error(ErrorCode::kNotFound, fmt::format("the program has no var {} to load", Quote(name)));
}

bool MatchesDeclaration(const Tensor& tensor, const VarDesc& var) {
  return tensor.dtype() == var.dtype() && var.shape().CompatibleWith(tensor.shape());
}

std::string Mismatch(const VarDesc& var, const Tensor& tensor) {
  return DescribeMismatch(var.meta(),
                          {var.type(), tensor.dtype(), tensor.shape(), var.lod_level()});
}

const VarValue& Initialised(const Scope& scope, const std::string& name) {
  const VarValue* value = scope.Find(name);
  if (!value || std::holds_alternative<std::monostate>(*value)) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("the var {} has no value to save; run the startup program or load "
                            "parameters first",
                            Quote(name)));
  }
  return *value;
}

// A combined file can hold only dense tensors.
const Tensor& DenseTensor(const Scope& scope, const std::string& name) {
  if (const auto* tensor = std::get_if<Tensor>(&Initialised(scope, name))) return *tensor;
  ThrowInvalid(
      fmt::format("the var {} is not a dense tensor, and a combined file holds only dense tensors; "
                  "save separate files",
                  Quote(name)));
}

std::string Serialize(const VarValue& value, const std::string& name) {
  std::string bytes;
  if (const auto* tensor = std::get_if<Tensor>(&value))
    AppendTensor(*tensor, &bytes);
  else if (const auto* rows = std::get_if<SelectedRows>(&value))
    AppendSelectedRows(*rows, &bytes);
  else
    ThrowInvalid(fmt::format("the var {} holds a tensor array, which files cannot", Quote(name)));
  return bytes;
}

// Rejects names that lead out of the directory, since names come from programs.
std::string FileOf(const std::string& directory, const std::string& name) {
  fs::path path(name);
  bool safe = !name.empty() && path.is_relative() && path.has_filename() &&
              name.find('\0') == std::string::npos;
  for (const fs::path& part : path) safe = safe && part != ".." && part != ".";
  if (!safe) ThrowInvalid(fmt::format("the var name {} cannot be a file name", Quote(name)));
  return directory + "/" + name;
}

VarValue ReadOne(const VarDesc& var, const std::string& path) {
  uint64_t left = 0;
  VarValue value;
  if (var.type() == VarType::kSelectedRows) {
    const std::string bytes = ReadFile(path);
    size_t offset = 0;
    value = ParseSelectedRows(bytes, &offset, path);
    left = bytes.size() - offset;
  } else {
    FileReader file(path);
    Tensor tensor = ReadTensor(file, path);
    left = file.left();
    if (!MatchesDeclaration(tensor, var)) {
      ThrowInvalid(
          fmt::format("{}: the var {} {}", path, Quote(var.name()), Mismatch(var, tensor)));
    }
    value = std::move(tensor);
  }
  if (left != 0) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: {} bytes are left over after the value", path, left));
  }
  return value;
}

using NamedValues = std::vector<std::pair<const std::string*, VarValue>>;

void Store(NamedValues&& values, Scope& scope) {
  for (auto& [name, value] : values) scope.Var(*name) = std::move(value);
}

void LoadNamed(const ProgramDesc& program, const std::vector<std::string>& names,
               const std::string& path, Scope& scope) {
  std::unordered_map<std::string, Tensor> found;
  std::vector<std::string> there;
  for (auto& [name, tensor] : ReadTensorArchive(path)) {
    there.push_back(name);
    found.emplace(name, std::move(tensor));
  }
  NamedValues values;
  for (const std::string& name : names) {
    const VarDesc& var = Declared(program, name);
    const auto tensor = found.find(name);
    if (tensor == found.end()) {
      throw Error(ErrorCode::kNotFound, fmt::format("{}: it has no var {}{}", path, Quote(name),
                                                    DidYouMean(name, there)));
    }
    if (!MatchesDeclaration(tensor->second, var))
      ThrowInvalid(fmt::format("{}: {}, {}", path, Quote(name), Mismatch(var, tensor->second)));
    values.emplace_back(&name, std::move(tensor->second));
  }
  Store(std::move(values), scope);
}

// Reads the tensors of `names` one after the other; left() is the number of bytes that are left.
template <class Left, class Read>
void ReadCombined(const ProgramDesc& program, const std::vector<std::string>& names,
                  const std::string& source, const Left& left, const Read& read, Scope& scope) {
  NamedValues values;
  for (const std::string& name : names) {
    const VarDesc& var = Declared(program, name);
    std::string place = fmt::format("tensor {} of {}", values.size() + 1, names.size());
    if (left() == 0) {
      throw Error(ErrorCode::kDataLoss,
                  fmt::format("{}: ends before {}, {}", source, place, Quote(name)));
    }
    Tensor tensor = read(fmt::format("{} ({}, {})", source, place, name));
    if (!MatchesDeclaration(tensor, var)) {
      ThrowInvalid(fmt::format("{}: {}, {}, {}", source, place, Quote(name), Mismatch(var, tensor)),
                   "the file belongs to another program, or a parameter was added, removed or "
                   "renamed: the order follows the names");
    }
    values.emplace_back(&name, std::move(tensor));
  }
  if (left() != 0) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: {} bytes are left over after the {} tensors of the program",
                            source, left(), names.size()));
  }
  Store(std::move(values), scope);
}

}  // namespace

std::vector<std::string> PersistableNames(const ProgramDesc& program) {
  std::set<std::string> names;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      if (block.var(i).persistable() && IsSaved(block.var(i).type()))
        names.insert(block.var(i).name());
    }
  }
  return {names.begin(), names.end()};
}

void internal::WriteCombined(const Scope& scope, const std::vector<std::string>& names,
                             const WritePieceFn& write) {
  std::vector<const Tensor*> tensors;
  for (const std::string& name : names) tensors.push_back(&DenseTensor(scope, name));
  std::string piece;
  for (const Tensor* tensor : tensors) {
    AppendTensor(*tensor, &piece);
    if (piece.size() < kPieceBytes && tensor != tensors.back()) continue;
    write(piece);
    piece.clear();
  }
}

void SaveCombined(const Scope& scope, const std::vector<std::string>& names,
                  const std::string& path) {
  for (const std::string& name : names) DenseTensor(scope, name);  // before a file is made
  WriteFileInPieces(path, [&](const WritePieceFn& write) { WriteCombined(scope, names, write); });
}

void LoadCombined(const ProgramDesc& program, const std::vector<std::string>& names,
                  const std::string& path, Scope& scope) {
  FileReader file(path);
  std::string start(std::min<uint64_t>(file.left(), 2), '\0');
  file.Read(start.data(), start.size());
  file.Seek(0);
  RefusePickle(start, path);
  const TensorSlab slab(file.left());
  const auto read = [&](const std::string& source) { return ReadTensor(file, source); };
  ReadCombined(
      program, names, path, [&] { return file.left(); }, read, scope);
}

void internal::ParseCombined(const ProgramDesc& program, const std::vector<std::string>& names,
                             std::string_view bytes, const std::string& source, Scope& scope) {
  RefusePickle(std::string(bytes.substr(0, 2)), source);
  const TensorSlab slab(bytes.size());
  size_t offset = 0;
  const auto read = [&](const std::string& place) { return ParseTensor(bytes, &offset, place); };
  ReadCombined(
      program, names, source, [&] { return bytes.size() - offset; }, read, scope);
}

void SaveSeparate(const Scope& scope, const std::vector<std::string>& names,
                  const std::string& directory) {
  const std::set<std::string> sorted(names.begin(), names.end());
  for (const std::string& name : names) {
    FileOf(directory, name);
    Initialised(scope, name);
    const auto inside = sorted.lower_bound(name + "/");
    if (inside == sorted.end() || !inside->starts_with(name + "/")) continue;
    ThrowInvalid(
        fmt::format("the vars {} and {} cannot have files of their own: one would be in "
                    "a directory that has the name of the other",
                    Quote(name), Quote(*inside)));
  }
  auto fill = [&](const std::string& where) {
    for (const std::string& name : names)
      WriteFileAtomic(FileOf(where, name), Serialize(Initialised(scope, name), name));
  };
  if (FileExists(directory))
    WriteFilesTogether(directory, fill);
  else
    WriteDirectoryAtomic(directory, fill);
}

void LoadSeparate(const ProgramDesc& program, const std::vector<std::string>& names,
                  const std::string& directory, Scope& scope) {
  NamedValues values;
  for (const std::string& name : names) {
    std::string path = FileOf(directory, name);
    values.emplace_back(&name, ReadOne(Declared(program, name), path));
  }
  Store(std::move(values), scope);
}

void SaveParameters(const Scope& scope, const std::vector<std::string>& names,
                    const std::string& path) {
  if (!IsTensorArchive(path)) return SaveCombined(scope, names, path);
  NamedTensors tensors;
  for (const std::string& name : names) tensors.emplace_back(name, DenseTensor(scope, name));
  WriteTensorArchive(tensors, path);
}

void LoadParameters(const ProgramDesc& program, const std::string& path, Scope& scope) {
  const TraceSpan span("load", "load parameters");
  std::vector<std::string> names = PersistableNames(program);
  if (IsTensorArchive(path) && !IsDirectory(path)) return LoadNamed(program, names, path, scope);
  if (!IsDirectory(path)) return LoadCombined(program, names, path, scope);
  std::string combined = path + "/__params__";
  if (FileExists(combined)) return LoadCombined(program, names, combined, scope);
  LoadSeparate(program, names, path, scope);
}

}  // namespace coracle

#include <coracle/framework/base/text.h>
#include <coracle/serve/model_files.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace coracle::serve {
namespace {

namespace fs = std::filesystem;

// The entries, sorted, so that two looks at a directory agree.
std::vector<fs::path> EntriesOf(const fs::path& directory, std::error_code* error) {
  std::vector<fs::path> entries;
  for (fs::directory_iterator it(directory, *error), end; !*error && it != end;
       it.increment(*error))
    entries.push_back(it->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool IsModelFile(const fs::path& path) {
  return path.extension() == ".onnx" || path.extension() == ".pdmodel";
}

// Whether the folder belongs to a model. Snapshots of a run and the like are left out.
bool HoldsModel(const fs::path& folder) {
  std::error_code error;
  const std::vector<fs::path> entries = EntriesOf(folder, &error);
  return std::any_of(entries.begin(), entries.end(), [](const fs::path& path) {
    return IsModelFile(path) || path.filename() == "__model__" || path.extension() == ".json";
  });
}

using Versions = std::map<int64_t, ModelPlace>;

std::string Conflict(const std::string& what, const std::string& first, const std::string& second) {
  return fmt::format("{}: {} and {}; rename or remove one", what, first, second);
}

Versions VersionsIn(const fs::path& folder, std::vector<std::string>* problems) {
  std::error_code error;
  Versions versions;
  for (const fs::path& path : EntriesOf(folder, &error)) {
    int64_t number = 0;
    if (!IsNumber(path.filename().string(), &number) || !IsFolder(path)) continue;
    const auto [at, is_new] = versions.emplace(number, ModelPlace{path.string()});
    if (!is_new) {
      at->second.conflict = Conflict(fmt::format("two directories are version {}", number),
                                     at->second.path, path.string());
    }
  }
  // A folder that is gone since its parent was read is simply not there.
  if (error && error != std::errc::no_such_file_or_directory)
    problems->push_back(fmt::format("{}: {}", folder.string(), error.message()));
  if (!error && versions.empty() && HoldsModel(folder)) versions[1] = {folder.string()};
  return versions;
}

void Add(const std::string& name, const fs::path& path, FoundModels* found) {
  Versions versions = IsFolder(path) ? VersionsIn(path, &found->problems)
                                     : Versions{{1, ModelPlace{path.string()}}};
  if (versions.empty()) return;
  Versions& known = found->models[name];
  const std::string first = known.empty() ? "" : known.begin()->second.path;
  known.merge(versions);
  if (first.empty()) return;
  const std::string conflict =
      Conflict(fmt::format("two models have the name {}", name), first, path.string());
  for (auto& [number, place] : known) place.conflict = conflict;
}

}  // namespace

bool IsModelName(const std::string& name) {
  return !name.empty() && name.size() <= 128 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c < 128 && (std::isalnum(c) || c == '_' || c == '-' || c == '.');
         });
}

bool IsNumber(const std::string& text, int64_t* number) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) &&
         ParseInt64(text, number);
}

FoundModels FindModels(const std::map<std::string, std::string>& files,
                       const std::vector<std::string>& directories) {
  FoundModels found;
  for (const auto& [name, path] : files) found.models[name][1] = {path};
  for (const std::string& directory : directories) {
    std::error_code error;
    for (const fs::path& path : EntriesOf(directory, &error)) {
      const bool folder = IsFolder(path);
      if (!folder && !IsModelFile(path)) continue;
      const std::string name = folder ? path.filename().string() : path.stem().string();
      if (IsModelName(name)) Add(name, path, &found);
    }
    if (error) found.problems.push_back(fmt::format("{}: {}", directory, error.message()));
  }
  return found;
}

std::string StampOf(const std::string& path) {
  std::string stamp;
  const auto add = [&](const fs::path& file) {
    struct stat info;
    if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
    stamp += fmt::format("{} {} {} {}.{} {}.{};", file.string(), info.st_ino, info.st_size,
                         info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec,
                         info.st_ctim.tv_nsec);
  };
  if (IsFolder(path)) {
    std::error_code error;
    for (const fs::path& file : EntriesOf(path, &error)) add(file);
    return stamp;
  }
  const std::string prefix = fs::path(path).replace_extension().string();
  for (const char* ending :
       {".pdmodel", ".pdiparams", ".onnx", ".onnx.data", ".onnx_data", ".json"})
    add(prefix + ending);
  if (stamp.empty()) add(path);
  return stamp;
}

std::string FileToLoad(const std::string& path) {
  if (!IsFolder(path)) return path;
  std::error_code error;
  for (const fs::path& file : EntriesOf(path, &error))
    if (file.extension() == ".onnx") return file.string();
  return path;
}

}  // namespace coracle::serve

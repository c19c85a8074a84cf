#include <coracle/framework/base/crc32c.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/outputs.h>
#include <coracle/train/run/snapshot/manifest.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace coracle::inline internal {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxManifest = uint64_t{64} << 20;
constexpr uint64_t kMaxPointer = 4096;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kMain = "main.pb";
constexpr const char* kStartup = "startup.pb";
constexpr const char* kState = "state.pdiparams";
constexpr const char* kJob = "job.pbtxt";
constexpr const char* kProgress = "progress.npz";
constexpr const char* kCarried = "carried.npz";
constexpr const char* kOfRanks = "of_ranks.npz";
// Files next to the snapshots with the name of the newest and of the best one.
constexpr const char* kLatest = "LATEST";
constexpr const char* kBest = "BEST";

std::string At(const std::string& directory, const std::string& file) {
  return (fs::path(directory) / file).string();
}

std::string NameOf(int64_t step) { return fmt::format("step_{:08}", step); }

// "step_00000120" -> 120; -1 for any other name.
int64_t StepOf(const std::string& name) {
  int64_t step = -1;
  if (!name.starts_with("step_") || name.size() < 6) return -1;
  if (name.find_first_not_of("0123456789", 5) != std::string::npos) return -1;
  return ParseInt64(name.substr(5), &step) ? step : -1;
}

// The names of the snapshots in a directory, oldest first.
std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (StepOf(entry.path().filename().string()) >= 0)
      names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return StepOf(a) < StepOf(b); });
  return names;
}

// The name of the snapshot in LATEST or BEST; "" if there is none.
std::string Named(const std::string& directory, const char* pointer) {
  if (!FileExists(At(directory, pointer))) return "";
  const std::string text = ReadFile(At(directory, pointer), kMaxPointer);
  const std::string name(Trim(text.substr(0, 100)));
  return StepOf(name) >= 0 && FileExists(At(directory, name)) ? name : "";
}

// Snapshots after `step` belong to a run that was abandoned.
void RemoveOld(const std::string& directory, int64_t step, int64_t keep) {
  if (keep == 0) return;
  std::vector<std::string> names = NamesIn(directory);
  const std::string best = Named(directory, kBest);
  std::erase_if(names, [&](const std::string& name) { return StepOf(name) > step; });
  for (size_t i = 0; i + static_cast<size_t>(keep) < names.size(); ++i)
    if (names[i] != best) RemoveDirectory(At(directory, names[i]));
}

// A snapshot must be complete by itself and must not expose other files.
void RequireNoLink(const std::string& file) {
  std::error_code error;
  if (fs::is_symlink(file, error)) ThrowDamaged(file, "a symbolic link");
}

void CheckFile(const std::string& path, const std::string& name, const FileRecord& expected) {
  const std::string file = At(path, name);
  if (!FileExists(file)) ThrowDamaged(file, "missing");
  RequireNoLink(file);
  const std::string bytes = ReadFile(file);
  if (bytes.size() != expected.bytes)
    ThrowDamaged(file, fmt::format("{} bytes, {} were written", bytes.size(), expected.bytes));
  if (Crc32c(bytes) != expected.crc)
    ThrowDamaged(file, "its checksum does not agree with its contents");
}

Manifest ReadManifest(const std::string& path) {
  const std::string file = At(path, kManifest);
  RequireNoLink(file);
  std::string text;
  try {
    text = ReadFile(file, kMaxManifest);
  } catch (const Error& e) {
    ThrowDamaged(file, e.message());
  }
  return ParseManifest(text, file);
}

template <class T>
void Compare(const char* what, const T& then, const T& now, std::vector<std::string>* found) {
  if (then != now) found->push_back(fmt::format("its {} is {}, the job's is {}", what, then, now));
}

// Compares names, dtypes and shapes, but not the lengths of gathered metrics.
bool SameStates(const NamedTensors& then, const NamedTensors& now) {
  return std::equal(then.begin(), then.end(), now.begin(), now.end(),
                    [](const auto& a, const auto& b) {
                      return a.first == b.first && a.second.dtype() == b.second.dtype() &&
                             a.second.shape() == b.second.shape();
                    });
}

}  // namespace

std::string InstructionSet() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw")) return "avx512";
  if (__builtin_cpu_supports("avx2")) return "avx2";
  return "sse";
#else
  return "baseline";
#endif
}

std::string WriteSnapshot(const std::string& directory, const TrainSnapshot& snapshot,
                          const ProgramDesc& main, const ProgramDesc& startup, const Scope& scope,
                          const std::string& job_text, int64_t keep, bool best) {
  const std::string name = NameOf(snapshot.step);
  std::string path = At(directory, name);
  try {
    WriteDirectoryAtomic(path, [&](const std::string& temporary) {
      WriteProgram(main, At(temporary, kMain));
      WriteProgram(startup, At(temporary, kStartup));
      SaveCombined(scope, PersistableNames(main), At(temporary, kState));
      WriteFileAtomic(At(temporary, kJob), job_text);
      if (!snapshot.progress.empty()) WriteNpz(snapshot.progress, At(temporary, kProgress));
      if (!snapshot.carried.empty()) WriteNpz(snapshot.carried, At(temporary, kCarried));
      if (!snapshot.of_ranks.empty()) WriteNpz(snapshot.of_ranks, At(temporary, kOfRanks));
      Manifest manifest{snapshot, {}};
      for (const auto& entry : fs::directory_iterator(temporary)) {
        const std::string bytes = ReadFile(entry.path().string());
        manifest.files[entry.path().filename().string()] = {bytes.size(), Crc32c(bytes)};
      }
      WriteFileAtomic(At(temporary, kManifest), WriteManifest(manifest, main));
    });
    WriteFileAtomic(At(directory, kLatest), name + "\n");
    if (best) WriteFileAtomic(At(directory, kBest), name + "\n");
  } catch (const Error& e) {
    const std::string last = FindSnapshot(directory);
    throw Error(
        e.code(), fmt::format("no snapshot of step {}: {}", snapshot.step, e.message()),
        last.empty() ? "there is none before it" : fmt::format("the last good one is {}", last));
  }
  RemoveOld(directory, snapshot.step, keep);
  return path;
}

std::string FindSnapshot(const std::string& path) {
  if (path.empty()) return "";
  if (FileExists(At(path, kManifest))) return path;
  const std::string latest = Named(path, kLatest);
  if (!latest.empty()) return At(path, latest);
  const std::vector<std::string> names = NamesIn(path);
  if (!names.empty()) return At(path, names.back());
  const std::string of_run = At(path, "snapshots");
  return FileExists(of_run) && !path.ends_with("snapshots") ? FindSnapshot(of_run) : "";
}

std::vector<std::string> ListSnapshots(const std::string& directory) {
  std::vector<std::string> paths = NamesIn(directory);
  for (std::string& path : paths) path = At(directory, path);
  return paths;
}

void RemoveSnapshots(const std::string& directory) {
  for (const std::string& path : ListSnapshots(directory)) RemoveAll(path);
  for (const char* file : {kLatest, kBest}) RemoveAll(At(directory, file));
}

std::string BestSnapshot(const std::string& directory) {
  const std::string name = directory.empty() ? "" : Named(directory, kBest);
  return name.empty() ? "" : At(directory, name);
}

bool SetBest(const std::string& directory, const std::string& from, int64_t step) {
  const std::string name = NameOf(step), there = from.empty() ? "" : At(from, name);
  if (there.empty() || !FileExists(At(there, kManifest))) {
    RemoveAll(At(directory, kBest));
    return false;
  }
  std::error_code error;
  if (!fs::equivalent(from, directory, error)) {
    ReadSnapshot(there);  // throws if it is damaged
    WriteDirectoryAtomic(At(directory, name), [&](const std::string& temporary) {
      fs::copy(there, temporary, error);
      if (error) {
        throw Error(ErrorCode::kIo, fmt::format("cannot copy the snapshot {}: {}",
                                                Quote(there, 300), error.message()));
      }
    });
  }
  WriteFileAtomic(At(directory, kBest), name + "\n");
  return true;
}

SavedSnapshot ReadSnapshot(const std::string& path) {
  Manifest manifest = ReadManifest(path);
  for (const char* file : {kMain, kStartup, kState, kJob})
    if (!manifest.files.contains(file)) ThrowDamaged(At(path, file), "missing in the manifest");
  for (const auto& [file, record] : manifest.files) CheckFile(path, file, record);
  SavedSnapshot saved;
  saved.path = path;
  saved.state = std::move(manifest.state);
  if (manifest.files.contains(kProgress)) saved.state.progress = ReadNpz(At(path, kProgress));
  if (manifest.files.contains(kCarried)) saved.state.carried = ReadNpz(At(path, kCarried));
  if (manifest.files.contains(kOfRanks)) saved.state.of_ranks = ReadNpz(At(path, kOfRanks));
  saved.main = ReadProgram(At(path, kMain));
  saved.startup = ReadProgram(At(path, kStartup));
  saved.job_text = ReadFile(At(path, kJob));
  LoadCombined(saved.main, PersistableNames(saved.main), At(path, kState), saved.variables);
  return saved;
}

std::vector<std::string> Mismatches(const SavedSnapshot& then, const TrainSnapshot& now,
                                    const ProgramDesc& main, const ProgramDesc& startup) {
  std::vector<std::string> found;
  std::string difference = FirstDifference(then.main, main, DefaultOps());
  if (difference.empty()) difference = FirstDifference(then.startup, startup, DefaultOps());
  if (!difference.empty())
    found.push_back("it is of another model (its -> the job's): " + difference);
  const TrainSnapshot& s = then.state;
  Compare("random_seed", s.seed, now.seed, &found);
  Compare("training data", s.data, Utf8(now.data), &found);
  Compare("number of rows", s.rows, now.rows, &found);
  if (found.empty() && s.data_fingerprint != 0 && now.data_fingerprint != 0 &&
      s.data_fingerprint != now.data_fingerprint)
    found.push_back(fmt::format("the values of its training data, {}, have changed", s.data));
  Compare("batch_size", s.batch_size, now.batch_size, &found);
  Compare("shuffle", s.shuffle, now.shuffle, &found);
  Compare("drop_last", s.drop_last, now.drop_last, &found);
  if (!SameStates(s.carried, now.carried)) found.push_back("it carries other states");
  if (s.threads != now.threads || s.instructions != now.instructions) {
    LogMessage(MessageLevel::kWarning,
               fmt::format("{} was made with {} threads on {}, this run has {} on {}: results will "
                           "be equivalent, but not the same bit for bit",
                           then.path, s.threads, s.instructions, now.threads, now.instructions));
  }
  return found;
}

}  // namespace coracle::inline internal

#include <coracle/framework/base/file.h>
#include <coracle/framework/base/logging.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/npy.h>
#include <coracle/framework/io/program_io.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/internal/program_diff.h>
#include <coracle/train/snapshot.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace coracle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr uint64_t kMaxManifest = uint64_t{64} << 20;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kLatest = "LATEST";
constexpr const char* kCarried = "carried.npz";

// Of a snapshot, but for the manifest.
std::vector<std::string> FilesOf(bool carried) {
  std::vector<std::string> files = {"main.pb", "startup.pb", "state.pdiparams", "job.pbtxt"};
  if (carried) files.push_back(kCarried);
  return files;
}

std::string At(const std::string& directory, const std::string& file) {
  return (fs::path(directory) / file).string();
}

std::string Checksum(std::string_view bytes) {
  uLong crc = crc32(0, nullptr, 0);
  crc = crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  return fmt::format("{:08x}", crc);
}

// What JSON can hold: names may come from files with any bytes.
std::string Utf8(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

// "step_00000120" -> 120; -1 for any other name.
int64_t StepOf(const std::string& name) {
  int64_t step = -1;
  if (!name.starts_with("step_") || name.size() < 6) return -1;
  if (name.find_first_not_of("0123456789", 5) != std::string::npos) return -1;
  return ParseInt64(name.substr(5), &step) ? step : -1;
}

// Names of the snapshots of a directory, oldest first.
std::vector<std::string> ListSnapshots(const std::string& directory) {
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

void RemoveOld(const std::string& directory, int64_t step, int64_t keep) {
  if (keep == 0) return;
  std::vector<std::string> names = ListSnapshots(directory);
  std::erase_if(names, [step](const std::string& name) { return StepOf(name) > step; });
  for (size_t i = 0; i + static_cast<size_t>(keep) < names.size(); ++i) {
    std::error_code error;
    fs::remove_all(At(directory, names[i]), error);
  }
}

Json Variables(const std::vector<std::string>& names, const Scope& scope) {
  Json list = Json::array();
  for (const std::string& name : names) {
    const Tensor& tensor = scope.Get(name);
    list.push_back({{"name", Utf8(name)},
                    {"dtype", ToString(tensor.dtype())},
                    {"shape", tensor.shape().ToVector()}});
  }
  return list;
}

Json ToJson(const Snapshot& s) {
  return {{"format", "coracle snapshot"},
          {"version", kVersion},
          {"job", Utf8(s.job)},
          {"step", s.step},
          {"epoch", s.epoch},
          {"data",
           {{"source", Utf8(s.data)},
            {"rows", s.rows},
            {"position", s.position},
            {"batch_size", s.batch_size},
            {"shuffle", s.shuffle},
            {"drop_last", s.drop_last}}},
          {"random", {{"seed", s.seed}, {"step", s.random_step}}},
          {"machine", {{"threads", s.threads}, {"instructions", s.instructions}}},
          {"progress", {{"sums", s.sums}, {"rows", s.sum_rows}}}};
}

[[noreturn]] void ThrowDamaged(const std::string& file, const std::string& what) {
  throw Error(ErrorCode::kDataLoss, fmt::format("damaged snapshot: {}: {}", file, what));
}

// A whole number; anything else (1e300 among them) is damage.
template <class T>
void TakeInteger(const Json& value, T* out, const std::string& file) {
  if (!value.is_number_integer()) ThrowDamaged(file, value.dump().substr(0, 40) + " is no integer");
  value.get_to(*out);
}

Snapshot FromJson(const Json& j, const std::string& file) {
  Snapshot s;
  const Json &data = j.at("data"), &random = j.at("random"), &machine = j.at("machine");
  const Json& progress = j.at("progress");
  j.at("job").get_to(s.job);
  TakeInteger(j.at("step"), &s.step, file);
  TakeInteger(j.at("epoch"), &s.epoch, file);
  data.at("source").get_to(s.data);
  TakeInteger(data.at("rows"), &s.rows, file);
  TakeInteger(data.at("position"), &s.position, file);
  TakeInteger(data.at("batch_size"), &s.batch_size, file);
  data.at("shuffle").get_to(s.shuffle);
  data.at("drop_last").get_to(s.drop_last);
  TakeInteger(random.at("seed"), &s.seed, file);
  TakeInteger(random.at("step"), &s.random_step, file);
  TakeInteger(machine.at("threads"), &s.threads, file);
  machine.at("instructions").get_to(s.instructions);
  progress.at("sums").get_to(s.sums);
  TakeInteger(progress.at("rows"), &s.sum_rows, file);
  return s;
}

// The manifest's own checksum covers everything else in it.
std::string Seal(Json manifest) {
  manifest.erase("checksum");
  manifest["checksum"] = Checksum(manifest.dump());
  return manifest.dump(2) + "\n";
}

Json ReadManifest(const std::string& path) {
  std::string file = At(path, kManifest);
  std::string text;
  try {
    text = ReadFile(file, kMaxManifest);
  } catch (const Error& e) {
    ThrowDamaged(file, e.message());
  }
  Json manifest = Json::parse(text, nullptr, false);
  if (!manifest.is_object() || manifest.value("format", Json()) != "coracle snapshot")
    ThrowDamaged(file, "not the manifest of a snapshot");
  if (Seal(manifest) != text) ThrowDamaged(file, "its checksum does not agree with its contents");
  if (manifest.value("version", Json()) != kVersion) {
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: written by another version of coracle", file));
  }
  return manifest;
}

void CheckFile(const std::string& path, const std::string& name, const Json& files) {
  std::string file = At(path, name);
  if (!FileExists(file)) ThrowDamaged(file, "missing");
  std::string bytes = ReadFile(file);
  const Json& expected = files.at(name);
  uint64_t size = 0;
  TakeInteger(expected.at("bytes"), &size, At(path, kManifest));
  if (bytes.size() != size)
    ThrowDamaged(file, fmt::format("{} bytes, {} were written", bytes.size(), size));
  if (Checksum(bytes) != expected.at("crc32").get<std::string>())
    ThrowDamaged(file, "its checksum does not agree with its contents");
}

template <class T>
void RequireSame(const std::string& path, const char* what, const T& then, const T& now) {
  if (then == now) return;
  ThrowInvalid(
      fmt::format("{} cannot be continued: its {} is {}, the job's is {}", path, what, then, now));
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

std::string WriteSnapshot(const std::string& directory, const Snapshot& snapshot,
                          const ProgramDesc& main, const ProgramDesc& startup, const Scope& scope,
                          const std::string& job_text, int64_t keep) {
  std::string name = fmt::format("step_{:08}", snapshot.step);
  std::string path = At(directory, name);
  std::vector<std::string> variables = PersistableNames(main);
  WriteDirectoryAtomic(path, [&](const std::string& temporary) {
    WriteProgram(main, At(temporary, "main.pb"));
    WriteProgram(startup, At(temporary, "startup.pb"));
    SaveCombined(scope, variables, At(temporary, "state.pdiparams"));
    WriteFileAtomic(At(temporary, "job.pbtxt"), job_text);
    Json manifest = ToJson(snapshot);
    manifest["variables"] = Variables(variables, scope);
    const bool carried = !snapshot.carried.empty();
    if (carried) WriteNpz(snapshot.carried, At(temporary, kCarried));
    for (const std::string& file : FilesOf(carried)) {
      std::string bytes = ReadFile(At(temporary, file));
      manifest["files"][file] = {{"bytes", bytes.size()}, {"crc32", Checksum(bytes)}};
    }
    WriteFileAtomic(At(temporary, kManifest), Seal(manifest));
  });
  WriteFileAtomic(At(directory, kLatest), name + "\n");
  RemoveOld(directory, snapshot.step, keep);
  return path;
}

std::string FindSnapshot(const std::string& path) {
  if (path.empty()) return "";
  if (FileExists(At(path, kManifest))) return path;
  std::vector<std::string> names = ListSnapshots(path);
  if (FileExists(At(path, kLatest))) {
    std::string latest(Trim(ReadFile(At(path, kLatest), 4096)));
    if (StepOf(latest) >= 0 && FileExists(At(path, latest))) return At(path, latest);
  }
  return names.empty() ? "" : At(path, names.back());
}

Snapshot ReadSnapshot(const std::string& path, const ProgramDesc& main, const ProgramDesc& startup,
                      Scope& scope) {
  Json manifest = ReadManifest(path);
  Snapshot snapshot;
  try {
    const bool carried = manifest.at("files").contains(kCarried);
    for (const std::string& file : FilesOf(carried)) CheckFile(path, file, manifest.at("files"));
    snapshot = FromJson(manifest, At(path, kManifest));
    if (carried) snapshot.carried = ReadNpz(At(path, kCarried));
  } catch (const Json::exception& e) {
    ThrowDamaged(At(path, kManifest), e.what());
  }
  std::string difference = FirstDifference(ReadProgram(At(path, "main.pb")), main);
  if (difference.empty())
    difference = FirstDifference(ReadProgram(At(path, "startup.pb")), startup);
  if (!difference.empty()) {
    ThrowInvalid(
        fmt::format("{} cannot be continued: it is of another model: {}", path, difference));
  }
  Scope loaded;
  LoadCombined(main, PersistableNames(main), At(path, "state.pdiparams"), loaded);
  for (const std::string& name : loaded.LocalNames()) scope.Var(name) = loaded.Var(name);
  return snapshot;
}

void CheckContinues(const std::string& path, const Snapshot& snapshot, const Snapshot& now) {
  RequireSame(path, "random_seed", snapshot.seed, now.seed);
  RequireSame(path, "training data", snapshot.data, Utf8(now.data));
  RequireSame(path, "number of rows", snapshot.rows, now.rows);
  RequireSame(path, "batch_size", snapshot.batch_size, now.batch_size);
  RequireSame(path, "shuffle", snapshot.shuffle, now.shuffle);
  RequireSame(path, "drop_last", snapshot.drop_last, now.drop_last);
  if (snapshot.step < 0 || snapshot.position < 0 || snapshot.sums.size() != now.sums.size())
    ThrowDamaged(At(path, kManifest), "its numbers do not fit the job");
  if (snapshot.threads != now.threads || snapshot.instructions != now.instructions) {
    Log(LogLevel::kWarning,
        fmt::format("{} was made with {} threads on {}, this run has {} on {}: results will be as "
                    "good, but not the same to the last bit",
                    path, snapshot.threads, snapshot.instructions, now.threads, now.instructions));
  }
}

}  // namespace coracle

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/train/log/format.h>
#include <coracle/train/log/log_records.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace coracle::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 4;         // of directories below DIR
constexpr size_t kMaxRuns = 10'000;  // in one list

struct RunsFlags {
  bool json = false;
};

Fields<RunsFlags> RunsFields() {
  return Fields<RunsFlags>("").Add("json", &RunsFlags::json, kJsonDoc);
}

struct FoundRun {
  std::string directory;
  RunSummary summary;
};

// Adds a run. Only warns of a bad log, so that the other runs are listed.
void AddRun(const std::string& directory, std::vector<FoundRun>* runs) {
  try {
    runs->push_back({directory, ReadRunSummary(directory)});
  } catch (const Error& e) {
    LogMessage(MessageLevel::kWarning, "left out: " + e.message());
  }
}

// Adds the runs in `directory` and below. Skips directories that cannot be read.
void FindRuns(const fs::path& directory, int depth, std::vector<FoundRun>* runs) {
  if (FileExists((directory / "log.jsonl").string()) && runs->size() < kMaxRuns)
    AddRun(directory.string(), runs);
  if (depth == kMaxDepth) return;
  std::error_code error;
  std::vector<fs::path> inner;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored) && !entry->is_symlink(ignored)) inner.push_back(entry->path());
  }
  std::sort(inner.begin(), inner.end());
  for (const fs::path& path : inner) FindRuns(path, depth + 1, runs);
}

// How the run ended, as far as its log tells.
const char* StateOf(const RunSummary& summary) {
  if (!summary.ended) return "unfinished";
  return summary.stopped ? "stopped" : "done";
}

Json ToJson(const FoundRun& run) {
  const RunSummary& summary = run.summary;
  Json values = Json::object();
  for (const NamedValue& value : summary.values)
    values[value.name] = std::isfinite(value.value) ? Json(value.value) : Json();
  return {{"directory", Utf8(run.directory)},   {"job", summary.job},
          {"state", StateOf(summary)},          {"step", summary.step},
          {"total_steps", summary.total_steps}, {"seconds", summary.end - summary.begin},
          {"settings", summary.settings},       {"values", values}};
}

std::string LineOf(const FoundRun& run, size_t width) {
  const RunSummary& summary = run.summary;
  const std::string step = summary.total_steps > 0
                               ? fmt::format("{}/{}", summary.step, summary.total_steps)
                               : std::to_string(summary.step);
  std::string line = fmt::format("{:<{}}  {:<10}  {:>13}  {:>8.1f}s ", Shown(run.directory), width,
                                 StateOf(summary), step, summary.end - summary.begin);
  line += FormatValues(summary.values, FormatShort);
  for (const std::string& setting : summary.settings) line += " --set=" + PrintableLine(setting);
  return line + "\n";
}

int RunRuns(const Args& args, const RunsFlags& flags) {
  RequireArgs(args, 0, 1, "at most one DIR");
  const std::string directory = args.empty() ? "output" : args[0];
  if (!IsDirectory(directory))
    throw Error(ErrorCode::kNotFound, "there is no directory " + Quote(directory, 300));
  std::vector<FoundRun> runs;
  FindRuns(directory, 0, &runs);
  if (flags.json) {
    Json list = Json::array();
    for (const FoundRun& run : runs) list.push_back(ToJson(run));
    PrintData(list.dump(2) + "\n");
    return 0;
  }
  if (runs.empty()) ThrowInvalid(Quote(directory, 300) + " holds no runs: no log.jsonl below it");
  size_t width = 0;
  for (const FoundRun& run : runs) width = std::max(width, Shown(run.directory).size());
  for (const FoundRun& run : runs) Print(LineOf(run, width));
  return 0;
}

}  // namespace

Command RunsCommand() {
  return MakeCommand(
      {"runs", "lists training runs: settings, progress and last values", "runs [DIR] [--json]",
       "  coracle runs\n  coracle runs output/digits_sweep\n"},
      RunsFields(), RunRuns);
}

}  // namespace coracle::tools

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/child_process.h>
#include <coracle/tools/command.h>
#include <coracle/tools/print.h>
#include <coracle/tools/sweep_trials.h>
#include <coracle/train/log/format.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace coracle::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecord = "sweep.json";
constexpr const char* kOnlyInFloat = "no evaluation after quantize.start_step";
constexpr uint64_t kMaxRecord = uint64_t{64} << 20;

std::string InSweep(const SweepOptions& options, const std::string& name) {
  return (fs::path(options.directory) / name).string();
}

std::vector<TrialSettings> ReadTrials(const JsonReader& json) {
  std::vector<TrialSettings> trials;
  for (const JsonReader& settings : json.At("trials").Items()) {
    trials.emplace_back();
    for (const JsonReader& setting : settings.Items()) trials.back().push_back(setting.Text());
  }
  return trials;
}

bool IsOnlyInFloat(const RunSummary& summary, const SweepOptions& options) {
  return !options.metric.starts_with("train/") && summary.OnlyInFloat(options.metric);
}

// Trials that had no value, with their numbers and errors only.
std::vector<Trial> TrialsWithErrors(const JsonReader& json) {
  std::vector<Trial> trials;
  if (!json.Has("errors")) return trials;
  for (const auto& [number, error] : json.At("errors").Members()) {
    int64_t n = 0;
    if (!ParseInt64(number, &n) || n < 1) error.Fail("is not of the number of a trial");
    trials.emplace_back();
    trials.back().number = static_cast<size_t>(n);
    trials.back().error = error.Text();
  }
  return trials;
}

// The last value of the metric, or the best one. The model of a job that quantises computes with
// rounding, so that evaluations before do not say how good it is. But until then, trials that have
// come equally far can be compared.
std::optional<double> ValueOf(const RunSummary& summary, const SweepOptions& options, bool last) {
  if (last && IsOnlyInFloat(summary, options)) return std::nullopt;
  const std::vector<NamedValue>& values = !options.best      ? summary.values
                                          : options.maximize ? summary.largest
                                                             : summary.smallest;
  for (const NamedValue& value : values)
    if (value.name == options.metric) return value.value;
  return std::nullopt;
}

void ReadState(Trial* trial) {
  const std::string log = (fs::path(trial->directory) / "log.jsonl").string();
  trial->summary = FileExists(log) ? ReadRunSummary(log) : RunSummary();
}

bool HasSnapshots(const Trial& trial) {
  std::error_code error;
  const fs::directory_iterator first(fs::path(trial.directory) / "snapshots", error);
  return !error && first != fs::directory_iterator();
}

// The last line of an output that begins with "coracle: ", which is the error.
std::string ErrorIn(const std::string& output) {
  constexpr std::string_view kBegin = "coracle: ";
  std::string error;
  for (const std::string& line : Split(ReadFile(output, kMaxRecord), '\n'))
    if (line.starts_with(kBegin)) error = line.substr(kBegin.size());
  return error;
}

std::string Reason(const Trial& trial) { return trial.error.empty() ? "no value" : trial.error; }

// OUT/sweep.json: the sweep, and why trials have no value.
void WriteRecord(const SweepOptions& options, const std::vector<Trial>& trials) {
  nlohmann::ordered_json json = {{"format", "coracle sweep"},
                                 {"version", 1},
                                 {"job", Utf8(options.job)},
                                 {"metric", Utf8(options.metric)},
                                 {"halving", options.halving},
                                 {"job_text", Utf8(options.job_text)},
                                 {"trials", nlohmann::ordered_json::array()},
                                 {"errors", nlohmann::ordered_json::object()}};
  for (const TrialSettings& trial : options.trials) {
    json["trials"].push_back(nlohmann::ordered_json::array());
    for (const std::string& setting : trial) json["trials"].back().push_back(Utf8(setting));
  }
  for (const Trial& trial : trials)
    if (!trial.error.empty()) json["errors"][std::to_string(trial.number)] = Utf8(trial.error);
  WriteFileAtomic(InSweep(options, kRecord), json.dump(1) + "\n");
}

// How far a round goes, in steps or epochs of the job.
struct Budget {
  int64_t amount = 0;
  const char* flag = "";  // "--max_iter"; "": to the job's own end
  bool last = true;       // the trial must have saved its model, too
};

// Whether the value of `a` is better. Trials without a value, or with a nan, come last.
bool IsBetter(bool maximize, const Trial& a, const Trial& b) {
  const bool a_counts = a.value && !std::isnan(*a.value);
  const bool b_counts = b.value && !std::isnan(*b.value);
  if (!a_counts || !b_counts) return a_counts && !b_counts;
  return maximize ? *a.value > *b.value : *a.value < *b.value;
}

class TrialRounds {
 public:
  TrialRounds(const SweepOptions& options, const JobConfig& job) : options_(options), job_(job) {
    for (size_t i = 0; i < options.trials.size(); ++i) {
      Trial trial{i + 1, options.trials[i], InSweep(options, fmt::format("trial_{:03}", i + 1))};
      ReadState(&trial);
      trials_.push_back(std::move(trial));
    }
    ReadErrors();
  }

  std::vector<Trial> Run() {
    std::vector<Trial*> left;
    for (Trial& trial : trials_) left.push_back(&trial);
    if (options_.halving == 0) {
      Round(left, {});
      return std::move(trials_);
    }
    const Budget whole = {job_.max_iter > 0 ? job_.max_iter : job_.epochs,
                          job_.max_iter > 0 ? "--max_iter" : "--epochs"};
    int rounds = 1;
    for (size_t n = left.size(); n > 1; n = Survivors(n)) ++rounds;
    for (int round = 0; round < rounds; ++round) {
      const double share = std::pow(options_.halving, round + 1 - rounds);
      const auto amount =
          static_cast<int64_t>(std::ceil(static_cast<double>(whole.amount) * share));
      Round(left, {std::max<int64_t>(amount, 1), whole.flag, round + 1 == rounds});
      std::stable_sort(left.begin(), left.end(), [this](const Trial* a, const Trial* b) {
        return IsBetter(options_.maximize, *a, *b);
      });
      if (round + 1 < rounds) left.resize(Survivors(left.size()));
    }
    return std::move(trials_);
  }

 private:
  size_t Survivors(size_t n) const {
    return std::max<size_t>(n / static_cast<size_t>(options_.halving), 1);
  }

  // Whether the log says that the trial came to the end of the budget. One that was interrupted in
  // a later round did.
  static bool IsComplete(const Trial& trial, const Budget& budget) {
    const RunSummary& summary = trial.summary;
    const int64_t unit = std::string_view(budget.flag) == "--epochs" ? summary.steps_per_epoch : 1;
    if (summary.step < budget.amount * unit) return false;
    return (summary.ended && !summary.stopped) || (!budget.last && summary.step > 0);
  }

  ChildCommand CommandFor(const Trial& trial, const Budget& budget) const {
    ChildCommand command;
    command.output = (fs::path(trial.directory) / "output.txt").string();
    command.words = {"train", options_.job, "--out=" + trial.directory};
    for (const std::string& setting : trial.settings) command.words.push_back("--set=" + setting);
    if (budget.amount > 0)
      command.words.push_back(fmt::format("{}={}", budget.flag, budget.amount));
    command.words.push_back(HasSnapshots(trial) ? "--resume" : "--overwrite");
    command.words.insert(command.words.end(), options_.words.begin(), options_.words.end());
    return command;
  }

  void Round(const std::vector<Trial*>& trials, const Budget& budget) {
    std::vector<Trial*> to_run;
    std::vector<ChildCommand> commands;
    for (Trial* trial : trials) {
      trial->value = ValueOf(trial->summary, options_, budget.last);
      if (IsComplete(*trial, budget)) {
        SetReason(budget, trial->error, trial);
        continue;
      }
      MakeDirectories(trial->directory);
      to_run.push_back(trial);
      commands.push_back(CommandFor(*trial, budget));
    }
    int stopped = 0;
    RunChildren(commands, options_.jobs, [&](size_t i, int code) {
      Trial& trial = *to_run[i];
      const bool failed = code == 1 || code == 2;
      ReadState(&trial);
      trial.value = ValueOf(trial.summary, options_, budget.last);
      // Its last evaluation does not say what it would have come to.
      if (failed && !IsComplete(trial, budget)) trial.value.reset();
      SetReason(budget, failed ? ErrorIn(commands[i].output) : "", &trial);
      if (code >= 128) stopped = code - 128;
      WriteRecord(options_, trials_);
      Report(trial);
      return code < 128;
    });
    if (stopped != 0)
      throw Error(ErrorCode::kCancelled,
                  fmt::format("signal {} stopped a trial; the same command goes on", stopped));
  }

  // Why the trial has no value: what its process printed, or its evaluations do not count.
  void SetReason(const Budget& budget, const std::string& error, Trial* trial) const {
    trial->error = trial->value ? "" : error;
    if (!trial->value && trial->error.empty() && budget.last &&
        IsOnlyInFloat(trial->summary, options_))
      trial->error = kOnlyInFloat;
  }

  // Errors of a sweep that was interrupted, or that ran before, perhaps with another metric.
  void ReadErrors() {
    const std::string file = InSweep(options_, kRecord);
    for (const Trial& known : TrialsWithErrors(JsonReader(ReadFile(file, kMaxRecord), file)))
      if (known.number <= trials_.size() && known.error != kOnlyInFloat)
        trials_[known.number - 1].error = known.error;
  }

  void Report(const Trial& trial) const {
    const std::string value =
        trial.value ? fmt::format("{}={}", options_.metric, FormatNumber(*trial.value))
                    : "failed: " + Reason(trial);
    Print(fmt::format("trial {}: step {}, {}   {}\n", trial.number, trial.summary.step, value,
                      Join(trial.settings, " ")));
    Flush();  // the next line may come hours later
  }

  const SweepOptions& options_;
  const JobConfig& job_;
  std::vector<Trial> trials_;
};

}  // namespace

void OpenSweep(const SweepOptions& options, bool overwrite) {
  const std::string file = InSweep(options, kRecord);
  std::vector<Trial> known;
  if (overwrite) {
    for (size_t i = 0; FileExists(InSweep(options, fmt::format("trial_{:03}", i + 1))); ++i)
      RemoveDirectory(InSweep(options, fmt::format("trial_{:03}", i + 1)));
  } else if (FileExists(file)) {
    const JsonReader json(ReadFile(file, kMaxRecord), file);
    if (json.Has("job_text") && json.At("job_text").Text() != Utf8(options.job_text))
      ThrowInvalid(fmt::format("{}: the job has changed since; give --overwrite or another --out",
                               PrintableLine(file)));
    const std::vector<TrialSettings> before = ReadTrials(json);
    const bool more = options.halving == 0 && before.size() < options.trials.size();
    if ((before.size() != options.trials.size() && !more) ||
        !std::equal(before.begin(), before.end(), options.trials.begin()))
      ThrowInvalid(fmt::format("{}: holds another sweep; give --overwrite or another --out",
                               PrintableLine(file)));
    known = TrialsWithErrors(json);
  }
  WriteRecord(options, known);
}

std::vector<Trial> RunTrials(const SweepOptions& options, const JobConfig& job) {
  return TrialRounds(options, job).Run();
}

void SortTrials(bool maximize, std::vector<Trial>* trials) {
  std::stable_sort(trials->begin(), trials->end(),
                   [maximize](const Trial& a, const Trial& b) { return IsBetter(maximize, a, b); });
}

std::string TrialTable(const std::vector<Trial>& trials, const std::string& metric) {
  const size_t width = std::max<size_t>(metric.size(), 14);
  std::string table = fmt::format("{:>5}  {:>{}}  {:>8}  {:>8}  {}\n", "trial", metric, width,
                                  "step", "seconds", "settings");
  for (const Trial& trial : trials) {
    const std::string value = trial.value ? FormatNumber(*trial.value) : "failed";
    table += fmt::format("{:>5}  {:>{}}  {:>8}  {:>8.1f}  {}\n", trial.number, value, width,
                         trial.summary.step, trial.summary.end - trial.summary.begin,
                         Join(trial.settings, " "));
  }
  for (const Trial& trial : trials)
    if (!trial.value) table += fmt::format("trial {} failed: {}\n", trial.number, Reason(trial));
  return table;
}

}  // namespace coracle::tools

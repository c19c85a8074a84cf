#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/sweep_trials.h>
#include <coracle/train/job/job.h>
#include <coracle/train/log/plot.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>

namespace coracle::tools {
namespace {

constexpr size_t kMaxCurves = 12;  // of the best trials; more could not be told apart

enum class Compared { kDefault, kBest, kLast };

struct SweepFlags {
  std::vector<std::string> set = {};
  int64_t trials = 0;
  int32_t jobs = 1;
  int32_t halving = 0;
  std::string metric = {};
  std::optional<bool> maximize = {};
  Compared compare = Compared::kDefault;
  std::string out = {};
  std::string data_dir = {};
  uint64_t seed = 1;
  bool overwrite = false;
};

Fields<SweepFlags> SweepFields() {
  return Fields<SweepFlags>("")
      .Add("set", &SweepFlags::set,
           "values of a field of the job: `FIELD=VALUES`, with VALUES like 1,2,3, 0.1..0.9 or "
           "log(1e-4..1e-1); may be given several times",
           AppendedTexts())
      .Add("trials", &SweepFlags::trials,
           "draw `N` combinations of values; 0: try all of them, which a range does not allow",
           LimitedRange(0, 10'000))
      .Add("jobs", &SweepFlags::jobs, "trials at the same time", ClosedRange(1, 1024))
      .Add("halving", &SweepFlags::halving,
           "train all trials for a part of the steps, and go on with the best of `N`, again and "
           "again; 0: train all of them to the end",
           LimitedRange(0, 100))
      .Add("metric", &SweepFlags::metric,
           "`NAME` of the loss or metric that decides (default: the job's `best` metric, or the "
           "loss of its first test set)")
      .Add("maximize", &SweepFlags::maximize,
           "a larger value of the metric is better (default: as the job's `best` would judge)")
      .Add("compare", &SweepFlags::compare,
           "the value of a trial: `best` of its evaluations, or `last`; default: best if the job "
           "keeps its best snapshot (`best`), else last",
           OneOf{"Compared",
                 {{"default", Compared::kDefault},
                  {"best", Compared::kBest},
                  {"last", Compared::kLast}}})
      .Add("out", &SweepFlags::out, "`DIR` for the trials (default: output/JOB_sweep)")
      .Add("data_dir", &SweepFlags::data_dir,
           "`DIR` that contains the data files with relative names")
      .Add("seed", &SweepFlags::seed, "of the draws of --trials")
      .Add("overwrite", &SweepFlags::overwrite, "replace the trials of another sweep in DIR");
}

// The metric as logs name it ("test/accuracy"), and whether larger values are better.
void ChooseMetric(const SweepFlags& flags, const JobConfig& job, SweepOptions* options) {
  WatchConfig watch;
  if (job.best) watch = job.best->watch;
  if (!flags.metric.empty()) watch = {flags.metric};
  if (watch.metric.empty()) watch.metric = job.loss_name;
  options->maximize = flags.maximize.value_or(GoalOf(job, watch) == WatchGoal::kMaximize);
  const std::vector<TestSetConfig> sets = job.TestSets();
  const std::string set = sets.empty() ? "train" : sets[0].name;
  const bool named = watch.metric.find('/') != std::string::npos;
  options->metric = named ? watch.metric : set + "/" + watch.metric;
  if (flags.compare == Compared::kBest && options->metric.starts_with("train/"))
    throw UsageError("--compare=best is of evaluations, and " + options->metric +
                     " is of training; give the job test data");
  options->best = flags.compare == Compared::kBest ||
                  (flags.compare == Compared::kDefault && job.best.has_value() &&
                   !options->metric.starts_with("train/"));
}

SweepOptions OptionsOf(const Args& args, const SweepFlags& flags, const JobConfig& job) {
  if (flags.set.empty()) throw UsageError("needs --set=FIELD=VALUES, at least once");
  if (flags.halving == 1) throw UsageError("--halving must be at least 2, or 0");
  if (flags.halving > 0 && job.max_iter == 0 && job.epochs == 0)
    throw UsageError("--halving divides the job's max_iter or epochs, and the job has neither");
  SweepOptions options;
  options.job = args[0];
  options.job_text = job.text;
  options.directory = flags.out.empty() ? DefaultOutputDirectory(job) + "_sweep" : flags.out;
  std::vector<SweepAxis> axes;
  for (const std::string& text : flags.set) {
    axes.push_back(ParseSweepAxis(text));
    const std::string& field = axes.back().field;
    if (flags.halving > 0 && (field == "max_iter" || field == "epochs"))
      throw UsageError("--halving sets " + field + " itself; remove --set=" + field);
    if (flags.halving > 0 && (field == "quantize" || field == "quantize.start_step"))
      throw UsageError(
          "--halving compares trials that quantise from the same step on; remove --set=" + field);
  }
  options.trials = flags.trials > 0 ? DrawTrials(axes, flags.trials, flags.seed) : GridOf(axes);
  options.words.assign(args.begin() + 1, args.end());
  if (!flags.data_dir.empty()) options.words.push_back("--data_dir=" + flags.data_dir);
  const bool threads_given = std::any_of(args.begin(), args.end(), [](const std::string& word) {
    return word.starts_with("--threads");
  });
  const unsigned share = std::thread::hardware_concurrency() / static_cast<unsigned>(flags.jobs);
  if (flags.jobs > 1 && !threads_given)
    options.words.push_back(fmt::format("--threads={}", std::max(share, 1U)));
  options.jobs = flags.jobs;
  options.halving = flags.halving;
  ChooseMetric(flags, job, &options);
  return options;
}

void WriteCurves(const SweepOptions& options, const std::vector<Trial>& trials) {
  std::vector<PlotRun> runs;
  for (const Trial& trial : trials)
    if (trial.value && runs.size() < kMaxCurves) runs.push_back(ReadPlotRun(trial.directory));
  if (runs.empty()) return;
  const std::string file = (std::filesystem::path(options.directory) / "curves.svg").string();
  WriteFileAtomic(file, PlotSvg(runs));
  Print("curves of the best trials: " + Shown(file) + "\n");
}

int RunSweep(const Args& args, const SweepFlags& flags) {
  if (args.empty()) throw UsageError("takes one JOB.pbtxt, and words for `coracle train` after --");
  RequireDirectoryName("--out", flags.out);
  const JobConfig job = ReadJob(args[0]);
  const SweepOptions options = OptionsOf(args, flags, job);
  OpenSweep(options, flags.overwrite);
  Print(fmt::format("{} trials in {}\n", options.trials.size(), Shown(options.directory)));
  std::vector<Trial> trials = RunTrials(options, job);
  SortTrials(options.maximize, &trials);
  const std::string table = TrialTable(trials, (options.best ? "best " : "") + options.metric);
  Print("\n" + table);
  WriteFileAtomic((std::filesystem::path(options.directory) / "table.txt").string(), table);
  WriteCurves(options, trials);
  if (trials.empty() || !trials[0].value)
    ThrowInvalid("no trial gave a value of " + options.metric);
  return 0;
}

}  // namespace

Command SweepCommand() {
  return MakeCommand(
      {"sweep", "trains a job with several settings and compares the runs",
       "sweep JOB.pbtxt --set=FIELD=VALUES... [--trials=N] [--jobs=N] [--halving=N] [-- FLAGS]",
       "  coracle sweep job.pbtxt --set=optimizer.adam.learning_rate=0.001,0.01\n"
       "  coracle sweep job.pbtxt --set='batch_size=16..128' --trials=12 --halving=2\n"
       "  coracle sweep job.pbtxt --set='optimizer.adam.learning_rate=log(1e-4..1e-1)' "
       "--trials=20 -- --max_seconds=60\n"},
      SweepFields(), RunSweep);
}

}  // namespace coracle::tools

#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/job/channel_order.h>
#include <coracle/train/job/names.h>
#include <coracle/train/run/label_unit.h>
#include <coracle/train/run/outputs.h>
#include <coracle/train/run/prepare.h>
#include <coracle/train/run/ranks/rank_programs.h>
#include <coracle/train/run/ranks/same_data.h>
#include <coracle/train/run/ranks/same_job.h>
#include <coracle/train/run/validate.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

namespace coracle::inline internal {
namespace {

// Whether the snapshot to resume belongs to the run whose output is in the job's directories. A
// missing snapshot is reported elsewhere.
bool ResumesInPlace(const JobConfig& config, const TrainOptions& options) {
  if (!options.resume) return false;
  const std::string path = FindSnapshot(options.resume_from);
  std::error_code none;
  return path.empty() ||
         std::filesystem::equivalent(DirectoryOfSnapshot(path), config.SnapshotDirectory(), none);
}

// Makes the programs for one rank of several.
void Distribute(const JobConfig& config, PreparedJob& job) {
  if (!job.ranks.several()) return;
  Programs& programs = job.programs;
  job.ranks.RequireSame(
      "program", SerializeProgram(programs.train.program) + SerializeProgram(programs.startup),
      "all ranks must read the same model");
  programs.of_rank = MakeRankPrograms(config, programs, job.ranks.size(), job.ops, &job.warnings);
  job.variables = RankVariables(job.ranks, *programs.of_rank);
}

// Checks the metrics that plateaus watch.
void CheckPlateaus(const AppendedTraining& training, const TestSets& tests) {
  for (const auto& [metric, place] : training.Watched()) {
    if (tests.empty())
      ThrowInvalid(fmt::format("{}: plateau needs test data, whose evaluations it watches", place));
    const std::vector<std::string> names = tests.value_names()[0];
    if (metric.empty() || Contains(names, metric)) continue;
    ThrowInvalid(fmt::format("{}: plateau: evaluations have no {}; they have {}{}", place,
                             Quote(metric), Join(names, ", "), DidYouMean(metric, names)));
  }
}

// Requires that a job that quantises reaches the steps that round.
void CheckQuantize(const JobConfig& config, PreparedJob& job) {
  if (!config.quantize || job.plan.total_steps > config.quantize->start_step) return;
  const std::string what = fmt::format(
      "{}: start_step {} is not before the end of the job, at step {}",
      config.Place("quantize.start_step"), config.quantize->start_step, job.plan.total_steps);
  if (config.quantize->options.learned_step)
    ThrowInvalid(what + ": no step of rounding would be learned");
  job.warnings.push_back("warning: " + what + ": no step trains with rounding");
}

// The ranks agree on moving averages of ranges. The steps that begin with ranges would differ.
void RequireOneRank(const JobConfig& config, const Ranks& ranks) {
  if (!config.quantize || !config.quantize->options.learned_step || !ranks.several()) return;
  ThrowInvalid(fmt::format(
      "{}: learned steps are trained on one rank: their first values come from the ranges that a "
      "rank observes; leave learned_step out, or train on one rank",
      config.Place("quantize.learned_step")));
}

void PrepareStepAndTests(const JobConfig& config, const TrainOptions& options,
                         const std::function<bool()>& stop, PreparedJob& job) {
  CompileOptions compile = options.compile;
  compile.seed = config.random_seed;
  job.step = std::make_unique<TrainStep>(config, job.programs.RunTrain(), job.data,
                                         Executor(compile, job.ops), job.ranks);
  compile.profile = false;
  // With several ranks, no rank may leave in the middle of a program.
  if (!job.ranks.several()) compile.stop = stop;
  job.tests = std::make_unique<TestSets>(config, *job.data, job.programs.RunTests(),
                                         Executor(compile, job.ops), job.ranks);
  job.watch = Watch(config, job.tests->names(), job.tests->value_names());
  CheckPlateaus(job.programs.training, *job.tests);
}

TrainPlan MakePlan(const JobConfig& config, const PreparedJob& job) {
  TrainPlan plan;
  plan.job = config.name;
  plan.data = job.data->Describe();
  plan.steps_per_epoch = job.step->steps_per_epoch();
  plan.total_steps = job.step->TotalSteps();
  plan.loss_name = config.loss_name;
  for (const MetricConfig& metric : NumberMetrics(job.programs.train.metrics))
    plan.metric_names.push_back(metric.name);
  const ProgramDesc& main = job.programs.train.program;
  for (const std::string& name : main.Parameters())
    plan.parameters += main.Root().FindVar(name)->shape().numel();
  return plan;
}

// The training data must be open. Makes the programs of ranks afterwards.
void SetLabelUnits(const JobConfig& config, PreparedJob& job) {
  Net& train = job.programs.train;
  SetUnits(config, *job.data, train.program, &train.metrics);
  for (Net& test : job.programs.tests) SetUnits(config, *job.data, test.program, &test.metrics);
  const std::string units = DescribeUnits(config, *job.data, job.programs.train.metrics);
  if (!units.empty()) job.warnings.push_back(units);
  const std::string order = AssumedChannelOrder(config, *job.data);
  if (!order.empty()) job.warnings.push_back(order);
}

// Returns a line for each likely mistake.
std::vector<std::string> Validate(const JobConfig& config, const Programs& programs,
                                  const TrainPlan& plan) {
  std::vector<std::string> lines =
      ValidateJob(config, programs, plan.total_steps, plan.steps_per_epoch);
  const std::string directory = config.SnapshotDirectory();
  const std::optional<uint64_t> free = directory.empty() ? std::nullopt : FreeBytes(directory);
  if (!free) return lines;
  const std::string line =
      CheckDiskSpace(config, SnapshotBytes(programs.train.program), *free, plan.total_steps);
  if (!line.empty()) lines.push_back(line);
  return lines;
}

}  // namespace

PreparedJob Prepare(const JobConfig& config, const TrainOptions& options,
                    const TrainCallbacks& callbacks) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  const Ranks ranks(options.communicator);
  PreparedJob job{ranks, ops, Executor(options.compile, ops),
                  std::make_unique<Reporter>(config, callbacks, ranks)};
  CheckJob(config);
  RequireOneRank(config, ranks);
  if (ranks.several()) RequireSameJob(ranks, config, options);
  if (ranks.first()) {
    job.locks = OpenOutputDirectories(config);
    job.resumes_in_place = ResumesInPlace(config, options);
    if (!job.resumes_in_place && !options.overwrite) RefuseOtherOutput(config);
  }
  job.data = OpenTrainData(config);
  CheckStreams(config, *job.data, config.batch_size);
  job.programs = BuildPrograms(config, options);
  RequireSameData(ranks, job.data, "data");
  SetLabelUnits(config, job);
  Distribute(config, job);
  PrepareStepAndTests(config, options, callbacks.stop, job);
  job.plan = MakePlan(config, job);
  CheckQuantize(config, job);
  for (std::string& line : Validate(config, job.programs, job.plan))
    job.warnings.push_back(std::move(line));
  return job;
}

std::string DirectoryOfSnapshot(const std::string& snapshot) {
  const std::string directory =
      std::filesystem::path(snapshot).lexically_normal().parent_path().string();
  return directory.empty() ? "." : directory;
}

}  // namespace coracle::inline internal

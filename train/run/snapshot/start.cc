#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/outputs.h>
#include <coracle/train/run/ranks/same_job.h>
#include <coracle/train/run/saved_model.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <coracle/train/run/snapshot/start.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace coracle::inline internal {
namespace {

using Lines = std::vector<std::string>;  // for the user

void RunStartup(const JobConfig& config, const TrainOptions& options, const PreparedJob& job,
                Scope& scope) {
  const ProgramDesc& startup = job.programs.RunStartup();
  if (startup.Root().NumOps() == 0) return;
  CompileOptions compile = options.compile;
  compile.seed = config.random_seed;
  compile.profile = false;
  PreparedProgram program = Executor(compile, job.ops).Prepare(startup);
  program.SetCommunicator(job.ranks.communicator());
  program.Run(scope);
}

// Returns a line for each file of weights.
Lines LoadAllWeights(const JobConfig& config, const ProgramDesc& model, Scope& scope) {
  Lines lines;
  const std::vector<std::string> names = PersistableNames(model);
  for (size_t i = 0; i < config.weights.size(); ++i) {
    WeightsConfig weights = config.weights[i];
    if (!weights.read) weights.file = config.FilePath(weights.file);
    try {
      lines.push_back(LoadWeights(weights, model, names, scope).ToString());
    } catch (const Error& e) {
      throw e.WithPrefix(config.Place(fmt::format("weights[{}]", i)));
    }
  }
  return lines;
}

// If this snapshot is damaged, the error names another one.
SavedSnapshot ReadOrNameOlder(const std::string& path) {
  try {
    return ReadSnapshot(path);
  } catch (const Error& e) {
    const std::string directory = std::filesystem::path(path).parent_path().string();
    std::vector<std::string> others = ListSnapshots(directory.empty() ? "." : directory);
    std::erase_if(others, [&path](const std::string& other) { return other >= path; });
    if (e.code() != ErrorCode::kDataLoss || others.empty()) throw;
    throw e.WithDetail("an older one: --resume=" + others.back());
  }
}

[[noreturn]] void Refuse(const std::string& path, const std::vector<std::string>& mismatches) {
  std::string details;
  for (size_t i = 1; i < mismatches.size(); ++i) details += mismatches[i] + "\n";
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} cannot be continued: {}", path, mismatches[0]),
              details + "--override continues all the same");
}

// Loads the variables that both have with the same type. Returns the names of the others.
std::vector<std::string> LoadCommon(const ProgramDesc& main, SavedSnapshot& saved, Scope& scope) {
  std::vector<std::string> left;
  for (const std::string& name : PersistableNames(main)) {
    const VarDesc* there = saved.main.Root().FindVar(name);
    VarValue* value = saved.variables.FindLocal(name);
    if (there && value && there->meta() == main.Root().FindVar(name)->meta())
      scope.Var(name) = std::move(*value);
    else
      left.push_back(name);
  }
  return left;
}

Lines StartFresh(const JobConfig& config, const TrainOptions& options, const std::string& looked_in,
                 const PreparedJob& job, TrainState& state) {
  if (options.resume && !options.resume_from.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("no snapshot in {}: nothing to resume", Quote(looked_in, 300)));
  }
  if (options.resume)
    state.plan.note = fmt::format("no snapshot in {}: starting afresh", Quote(looked_in, 300));
  RunStartup(config, options, job, state.result.scope);
  return LoadAllWeights(config, job.programs.deploy.program, state.result.scope);
}

// Loads what fits of a snapshot that does not match the job. Returns a line for each difference.
Lines LoadMatching(const JobConfig& config, const TrainOptions& options, const Lines& mismatches,
                   SavedSnapshot& saved, PreparedJob& job, Scope& scope) {
  Lines lines;
  for (const std::string& mismatch : mismatches)
    lines.push_back(fmt::format("override: {}: {}", saved.path, mismatch));
  RunStartup(config, options, job, scope);
  const std::vector<std::string> left = LoadCommon(job.programs.train.program, saved, scope);
  if (!left.empty()) {
    lines.push_back("override: not in the snapshot, and new: " + Join(left, ", "));
    if (!saved.state.best.metric.empty())
      lines.push_back("override: the best evaluation so far is of another model, and is dropped");
    saved.state.best = {};
  }
  const std::string restarted = job.step->LoadWhatFits(saved.state);
  if (!restarted.empty()) lines.push_back("override: " + restarted);
  return lines;
}

// Loads the rank's own statistics in place of the means.
void LoadStatistics(const NamedTensors& of_ranks, int rank, Scope& scope) {
  const std::string end = fmt::format("@{}", rank);
  for (const auto& [name, value] : of_ranks) {
    if (!name.ends_with(end)) continue;
    const std::string of = name.substr(0, name.size() - end.size());
    if (!scope.Has(of)) continue;
    const Tensor& mean = scope.Get(of);
    if (mean.dtype() == value.dtype() && mean.shape() == value.shape())
      scope.Set(of, value.Clone());
  }
}

Lines Resume(const JobConfig& config, const TrainOptions& options, const std::string& path,
             PreparedJob& job, TrainState& state) {
  SavedSnapshot saved = ReadOrNameOlder(path);
  Lines lines;
  TrainSnapshot now;
  job.step->Save(&now);
  if (saved.state.ranks != now.ranks) {
    lines.push_back(
        fmt::format("the snapshot was made by {} rank{}, this run has {}: it continues from "
                    "exactly the same parameters, but later results differ in the last bits",
                    saved.state.ranks, saved.state.ranks == 1 ? "" : "s", now.ranks));
  }
  Scope& scope = state.result.scope;
  const Lines mismatches = Mismatches(saved, now, job.programs.train.program, job.programs.startup);
  if (mismatches.empty()) {
    for (const std::string& name : saved.variables.LocalNames())
      scope.Var(name) = std::move(saved.variables.Var(name));
    job.step->Load(saved.state);
    if (saved.state.ranks == now.ranks && job.ranks.several())
      LoadStatistics(saved.state.of_ranks, job.ranks.rank(), scope);
  } else {
    if (!options.override_mismatch) Refuse(path, mismatches);
    for (std::string& line : LoadMatching(config, options, mismatches, saved, job, scope))
      lines.push_back(std::move(line));
  }
  job.variables.DivideStates(scope);
  state.watch.Load(saved.state.best);
  state.non_finite.Load(saved.state.non_finite);
  state.result.evaluations = saved.state.evaluations;
  state.result.steps = state.plan.first_step = state.compared = saved.state.step;
  state.result.snapshot_path = state.plan.resumed_from = path;
  return lines;
}

// The results of a job that was finished before it was resumed.
void TakeLastResults(const PreparedJob& job, TrainState& state) {
  const int64_t steps = state.result.steps, total = state.plan.total_steps;
  if (state.plan.resumed_from.empty() || steps < total) return;
  state.plan.note = fmt::format(
      "the snapshot is of step {} and the job ends at {}: it is only evaluated and saved", steps,
      total);
  state.result.loss = job.step->window().MeanLoss();
  SetMetrics(job.step->window().MeanMetrics(), state);
}

// Copies the snapshot of the best evaluation from where the run was resumed. If it was not found,
// forgets the best evaluation on all ranks and returns a line for the user.
std::string KeepBestSnapshot(const JobConfig& config, const Ranks& ranks, TrainState& state) {
  std::string line;
  const std::string directory = config.SnapshotDirectory(), from = state.plan.resumed_from;
  const BestRecord best = state.watch.best();
  if (ranks.first() && config.best && !directory.empty() && !from.empty()) {
    const bool known = !best.metric.empty();
    if (!SetBest(directory, known ? DirectoryOfSnapshot(from) : "", best.step) && known) {
      line =
          fmt::format("warning: the best so far, {}={} at step {}, is dropped: it has no snapshot",
                      best.metric, FormatNumber(best.value), best.step);
    }
  }
  if (!ranks.FromFirst(line).empty()) state.watch.Forget();
  return line;
}

}  // namespace

TrainState StartOrResume(const JobConfig& config, const TrainOptions& options, PreparedJob& job) {
  TrainState state{job.plan, job.watch, NonFiniteLosses(config), TrainResult()};
  const Ranks& ranks = job.ranks;
  const std::string from =
      options.resume_from.empty() ? config.SnapshotDirectory() : options.resume_from;
  const std::string path =
      options.resume ? ranks.FromFirst(ranks.first() ? FindSnapshot(from) : "") : "";
  Lines lines = path.empty() ? StartFresh(config, options, from, job, state)
                             : Resume(config, options, path, job, state);
  TakeLastResults(job, state);
  Scope& scope = state.result.scope;
  job.step->probe().Begin(scope);
  job.tests->Try(scope);
  ranks.Any(false);  // after this, rank 0 may remove the files that all have read
  if (ranks.first() && options.overwrite && !job.resumes_in_place) RemoveOtherOutput(config);
  lines.insert(lines.end(), job.warnings.begin(), job.warnings.end());
  if (const std::string line = KeepBestSnapshot(config, ranks, state); !line.empty())
    lines.push_back(line);
  job.reporter->Start(state.plan, job.programs.train.program);
  for (const std::string& line : lines) job.reporter->Line(state.result.steps, line);
  if (ranks.first()) WritePrograms(config, job.programs, *job.data, job.ops, &state.result);
  if (options.check_parameters > 0)
    RequireSameParameters(ranks, job.programs, scope, state.result.steps);
  return state;
}

}  // namespace coracle::inline internal

#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/run/start.h>
#include <coracle/train/run/trainer.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace coracle {
namespace {

void RunStartup(const JobConfig& config, const TrainOptions& options, const Programs& programs,
                const Ranks& ranks, Scope& scope) {
  const ProgramDesc& startup = programs.RunStartup();
  if (startup.Root().NumOps() == 0) return;
  CompileOptions compile = options.compile;
  compile.seed = config.random_seed;
  compile.profile = false;
  PreparedProgram program =
      Executor(compile, options.ops ? *options.ops : DefaultOps()).Prepare(startup);
  program.SetCommunicator(ranks.communicator());
  program.Run(scope);
}

void LoadAllWeights(const JobConfig& config, const ProgramDesc& model, Scope& scope,
                    std::vector<std::string>* messages) {
  const std::vector<std::string> names = PersistableNames(model);
  for (size_t i = 0; i < config.weights.size(); ++i) {
    WeightsConfig weights = config.weights[i];
    if (!weights.read) weights.file = config.FilePath(weights.file);
    try {
      messages->push_back(LoadWeights(weights, model, names, scope).ToString());
    } catch (const Error& e) {
      throw e.WithPrefix(config.Place(fmt::format("weights[{}]", i)));
    }
  }
}

// If this snapshot is damaged, the error names another one.
SavedSnapshot ReadWhole(const std::string& path) {
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

Start BeginAfresh(const JobConfig& config, const TrainOptions& options, const Programs& programs,
                  const std::string& looked_in, const Ranks& ranks, Scope& scope) {
  Start start;
  if (options.resume && !options.resume_from.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("no snapshot in {}: nothing to resume", Quote(looked_in, 300)));
  }
  if (options.resume)
    start.note = fmt::format("no snapshot in {}: starting afresh", Quote(looked_in, 300));
  RunStartup(config, options, programs, ranks, scope);
  LoadAllWeights(config, programs.deploy.program, scope, &start.messages);
  return start;
}

// Returns a line for each difference between the snapshot and the job.
std::vector<std::string> LoadMatching(const JobConfig& config, const TrainOptions& options,
                                      const Programs& programs, SavedSnapshot& saved,
                                      const std::vector<std::string>& mismatches,
                                      ResumedState state) {
  std::vector<std::string> lines;
  for (const std::string& mismatch : mismatches)
    lines.push_back(fmt::format("override: {}: {}", saved.path, mismatch));
  RunStartup(config, options, programs, state.ranks, state.scope);
  const std::vector<std::string> left = LoadCommon(programs.train.program, saved, state.scope);
  if (!left.empty()) {
    lines.push_back("override: not in the snapshot, and new: " + Join(left, ", "));
    if (!saved.state.best.metric.empty())
      lines.push_back("override: the best evaluation so far is of another model, and is dropped");
    saved.state.best = {};
  }
  const std::string anew = state.step.LoadWhatFits(saved.state);
  if (!anew.empty()) lines.push_back("override: " + anew);
  return lines;
}

// Resets the accumulators of local SGD: a snapshot is written directly after an average.
void BeginAnew(const Programs& programs, Scope& scope) {
  for (const std::string& name : programs.of_rank->local_sgd->added) {
    const VarDesc& var = *programs.of_rank->train.program.Root().FindVar(name);
    scope.Set(name, Tensor::Zeros(var.dtype(), var.shape()));
  }
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

Start Resume(const JobConfig& config, const TrainOptions& options, const Programs& programs,
             const std::string& path, ResumedState state) {
  SavedSnapshot saved = ReadWhole(path);
  Start start{saved.state.step, path, "", {}};
  TrainSnapshot now;
  state.step.Save(&now);
  if (saved.state.ranks != now.ranks) {
    start.messages.push_back(
        fmt::format("the snapshot was made by {} rank{}, this run has {}: it continues from "
                    "exactly the same parameters, but later results differ in the last bits",
                    saved.state.ranks, saved.state.ranks == 1 ? "" : "s", now.ranks));
  }
  const std::vector<std::string> mismatches =
      Mismatches(saved, now, programs.train.program, programs.startup);
  if (mismatches.empty()) {
    for (const std::string& name : saved.variables.LocalNames())
      state.scope.Var(name) = std::move(saved.variables.Var(name));
    state.step.Load(saved.state);
  } else {
    if (!options.override_mismatch) Refuse(path, mismatches);
    for (std::string& line : LoadMatching(config, options, programs, saved, mismatches, state))
      start.messages.push_back(std::move(line));
  }
  if (saved.state.ranks == now.ranks && mismatches.empty() && programs.of_rank)
    LoadStatistics(saved.state.of_ranks, state.ranks.rank(), state.scope);
  state.evaluations = saved.state.evaluations;
  if (programs.of_rank) DivideStates(state.ranks, programs.of_rank->states, state.scope);
  if (programs.of_rank && programs.of_rank->local_sgd) BeginAnew(programs, state.scope);
  state.watch.Load(saved.state.best);
  state.non_finite.Load(saved.state.non_finite);
  return start;
}

}  // namespace

Start StartRun(const JobConfig& config, const TrainOptions& options, const Programs& programs,
               ResumedState state) {
  const std::string from =
      options.resume_from.empty() ? config.SnapshotDirectory() : options.resume_from;
  const std::string path =
      options.resume ? state.ranks.FromFirst(state.ranks.first() ? FindSnapshot(from) : "") : "";
  if (path.empty()) return BeginAfresh(config, options, programs, from, state.ranks, state.scope);
  return Resume(config, options, programs, path, state);
}

}  // namespace coracle

#include <coracle/framework/base/trace.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/evaluation/run_tests.h>
#include <coracle/train/run/outputs.h>
#include <coracle/train/run/ranks/same_data.h>
#include <coracle/train/run/ranks/same_job.h>
#include <coracle/train/run/saved_model.h>
#include <coracle/train/run/snapshot/save.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <fmt/format.h>

namespace coracle::inline internal {
namespace {

// Checks the parameters before they are saved.
void CheckParameters(PreparedJob& job, TrainState& state) {
  const int64_t steps = state.result.steps;
  job.reporter->Check(steps, [&] {
    return state.non_finite.Parameters(job.programs.train.program, state.result.scope, steps);
  });
}

TrainSnapshot DescribeState(const JobConfig& config, const NamedTensors& own, PreparedJob& job,
                            const TrainState& state) {
  TrainSnapshot snapshot;
  job.step->window().Merge(job.ranks);
  job.step->Save(&snapshot);
  snapshot.of_ranks = job.variables.Gather(own);
  snapshot.job = config.name;
  snapshot.step = state.result.steps;
  snapshot.evaluations = state.result.evaluations;
  snapshot.best = state.watch.best();
  snapshot.non_finite = state.non_finite.counts();
  return snapshot;
}

// Replaces the parameters by those of the best evaluation, and evaluates them.
void RestoreBest(const JobConfig& config, const TrainOptions& options, PreparedJob& job,
                 TrainState& state) {
  const BestRecord& best = state.watch.best();
  const int64_t steps = state.result.steps;
  if (best.metric.empty() || best.step == steps) return;
  const std::string path = job.ranks.FromFirst(BestSnapshot(config.SnapshotDirectory()));
  SavedSnapshot saved = path.empty() ? SavedSnapshot() : ReadSameSnapshot(job.ranks, path);
  if (path.empty() || saved.state.step != best.step) {
    job.reporter->Line(
        steps,
        fmt::format("warning: {}: there is no snapshot of the best evaluation, at step {}: the "
                    "parameters stay those of step {}",
                    config.Place("best.restore"), best.step, steps));
    return;
  }
  Scope& scope = state.result.scope;
  for (const std::string& name : PersistableNames(job.programs.train.program))
    scope.Var(name) = std::move(saved.variables.Var(name));
  job.variables.DivideStates(scope);
  if (options.check_parameters > 0) RequireSameParameters(job.ranks, job.programs, scope, steps);
  job.reporter->Line(steps, fmt::format("restored {}: {}={} at step {}", path, best.metric,
                                        FormatNumber(best.value), best.step));
  state.restored = true;
  RunTests(config, job, state);
}

// The loss and the metrics of the result are those of the first test set.
void TakeLastEvaluation(const PreparedJob& job, TrainResult& result) {
  if (job.tests->empty()) return;
  const EvaluationRecord* first = FindEvaluation(result.evaluations, job.tests->names()[0]);
  if (!first) return;
  const bool has_loss = job.programs.tests[0].has_loss;
  if (has_loss) result.loss = first->values[0].value;
  result.metrics.assign(first->values.begin() + (has_loss ? 1 : 0), first->values.end());
}

// Evaluates the model of integers on the first test set.
void EvaluateIntegers(const JobConfig& config, const TrainOptions& options, const PreparedJob& job,
                      TrainResult& result) {
  if (result.int8_eval_path.empty() || job.tests->empty()) return;
  CompileOptions compile = options.compile;
  compile.profile = false;
  result.int8_values =
      EvaluateSavedModel(result.int8_eval_path, config, {.compile = compile, .ops = &job.ops});
}

// Writes the models, with averaged parameters if the job has them.
void SaveModels(const JobConfig& config, const TrainOptions& options, PreparedJob& job,
                TrainState& state) {
  CheckParameters(job, state);
  job.programs.training.UseAverages(job.executor, state.result.scope);
  if (job.ranks.first()) {
    WriteModels(config, job.programs, *job.data, job.ops, &state.result);
    EvaluateIntegers(config, options, job, state.result);
  }
  job.programs.training.UseParameters(job.executor, state.result.scope);
}

}  // namespace

void SaveSnapshot(const JobConfig& config, bool best, PreparedJob& job, TrainState& state) {
  const std::string directory = config.SnapshotDirectory();
  if (directory.empty()) return;
  TrainResult& result = state.result;
  TraceSpan span("train", "snapshot");
  span.Set("step", result.steps);
  NamedTensors own = job.variables.MakeEqual(result.scope);
  CheckParameters(job, state);
  const TrainSnapshot snapshot = DescribeState(config, own, job, state);
  job.variables.JoinStates(result.scope);
  if (job.ranks.first()) {
    result.snapshot_path =
        WriteSnapshot(directory, snapshot, job.programs.train.program, job.programs.startup,
                      result.scope, config.text, config.keep_snapshots, best);
  }
  job.variables.RemoveJoinedStates(result.scope);
  RestoreStatistics(std::move(own), result.scope);
  result.snapshot_path = job.ranks.FromFirst(result.snapshot_path);
  job.reporter->Snapshot(result.steps, result.snapshot_path);
}

TrainResult Finish(const JobConfig& config, const TrainOptions& options, PreparedJob& job,
                   TrainState& state) {
  TrainResult& result = state.result;
  job.variables.MakeEqual(result.scope);
  if (options.compile.profile) {
    if (result.profile.empty() && result.steps > state.plan.first_step)
      result.profile = job.step->ProfileTable();
    result.profile += state.times->Table();
  }
  if (!result.stopped && config.best && config.best->restore)
    RestoreBest(config, options, job, state);
  result.best = state.watch.best();
  TakeLastEvaluation(job, result);
  result.non_finite_steps = state.non_finite.counts().steps;
  result.first_non_finite_step = state.non_finite.counts().first;
  if (!result.stopped) SaveModels(config, options, job, state);
  job.reporter->End(result.steps, result.stopped);
  job.variables.JoinStates(result.scope);
  job.ranks.Any(false);  // no rank leaves before rank 0 has written all files
  result.main = std::move(job.programs.train.program);
  result.startup = std::move(job.programs.startup);
  result.test = job.programs.tests.empty() ? std::move(job.programs.deploy.program)
                                           : std::move(job.programs.tests[0].program);
  return std::move(result);
}

}  // namespace coracle::inline internal

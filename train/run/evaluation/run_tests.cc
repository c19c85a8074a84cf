#include <coracle/framework/base/trace.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/evaluation/run_tests.h>
#include <coracle/train/run/predict/output_meaning.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace coracle::inline internal {
namespace {

// Whether a longer run would make this evaluation too. An evaluation at the end, off the interval,
// does not lower a rate or count for early_stop; otherwise the resumed run would differ from the
// longer one.
bool Counts(const JobConfig& config, const PreparedJob& job, const TrainState& state) {
  return state.result.steps == 0 || EvaluationDue(config, job, state);
}

void ReportNonFinite(const JobConfig& config, const EvaluationRecord& record, Reporter& reporter) {
  for (const NamedValue& value : record.values) {
    if (value.name != config.loss_name || std::isfinite(value.value)) continue;
    reporter.Line(record.step, fmt::format("the loss on {} is {} at step {}", record.set,
                                           FormatNumber(value.value), record.step));
  }
}

// Whether the evaluation computes in floating point although the job will quantise.
bool InFloat(const JobConfig& config, const TrainState& state) {
  return config.quantize && config.quantize->EvaluatesInFloat(state.result.steps);
}

// Reports and remembers an evaluation. Returns whether it is the best so far.
bool Record(const JobConfig& config, SetResult result, PreparedJob& job, TrainState& state) {
  EvaluationRecord record = {result.set, state.result.steps, std::move(result.values)};
  NameClasses(config, *job.data, &result.confusions);
  const bool best = !state.restored && !InFloat(config, state) && state.watch.watches(record.set) &&
                    state.watch.Add(record.step, record.values, Counts(config, job, state));
  job.reporter->Eval({state.plan, record.set, record.step, job.step->last_epoch(), result.rows,
                      record.values, best, state.restored, std::move(result.confusions)});
  ReportNonFinite(config, record, *job.reporter);
  AddRecord(std::move(record), &state.result.evaluations);
  return best;
}

// The value of the first test set with this printed name; "": its first value.
double FirstSetValue(const std::string& metric, const PreparedJob& job, const TrainState& state) {
  const auto& values = FindEvaluation(state.result.evaluations, job.tests->names()[0])->values;
  const auto named = [&metric](const NamedValue& v) { return metric.empty() || v.name == metric; };
  return std::find_if(values.begin(), values.end(), named)->value;
}

}  // namespace

bool EvaluationDue(const JobConfig& config, const PreparedJob& job, const TrainState& state) {
  return config.test_interval > 0 ? state.result.steps % config.test_interval == 0
                                  : job.step->EpochEnded();
}

bool AllEvaluated(const PreparedJob& job, const TrainState& state) {
  const std::vector<std::string> names = job.tests->names();
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    const EvaluationRecord* record = FindEvaluation(state.result.evaluations, name);
    return record && record->step == state.result.steps;
  });
}

bool RunTests(const JobConfig& config, PreparedJob& job, TrainState& state) {
  TraceSpan span("train", "evaluation");
  span.Set("step", state.result.steps);
  Scope& scope = state.result.scope;
  NamedTensors own = job.variables.MakeEqual(scope);
  job.programs.training.UseAverages(job.executor, scope);
  bool best = false;
  job.tests->UseFloat(InFloat(config, state));
  const auto record = [&](SetResult result) {
    best = Record(config, std::move(result), job, state) || best;
  };
  const auto stop = [&] { return job.reporter->StopRequested(); };
  if (!job.tests->Run(scope, stop, std::ref(record))) state.result.stopped = true;
  job.programs.training.UseParameters(job.executor, scope);
  RestoreStatistics(std::move(own), scope);
  return best;
}

bool EvaluateAll(const JobConfig& config, PreparedJob& job, TrainState& state) {
  const bool best = RunTests(config, job, state);
  if (state.result.stopped || !Counts(config, job, state)) return best;
  const auto value = [&](const std::string& metric) { return FirstSetValue(metric, job, state); };
  for (const std::string& line : job.programs.training.AfterEvaluation(state.result.scope, value))
    job.reporter->Line(state.result.steps, line);
  return best;
}

}  // namespace coracle::inline internal

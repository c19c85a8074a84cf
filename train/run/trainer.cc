#include <coracle/framework/base/memory_errors.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/evaluation/run_tests.h>
#include <coracle/train/run/prepare.h>
#include <coracle/train/run/ranks/same_job.h>
#include <coracle/train/run/snapshot/save.h>
#include <coracle/train/run/snapshot/start.h>
#include <coracle/train/run/trainer.h>
#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace coracle {
namespace {

using Clock = std::chrono::steady_clock;

// Evaluates before the first step or after the last one. An existing snapshot of this step does not
// have this evaluation yet.
void EvaluateMissing(const JobConfig& config, PreparedJob& job, TrainState& state) {
  if (AllEvaluated(job, state)) return;
  if (EvaluateAll(config, job, state) && config.best) SaveSnapshot(config, true, job, state);
}

void EvaluateAtStart(const JobConfig& config, PreparedJob& job, TrainState& state) {
  const bool due = state.result.steps > 0 ? EvaluationDue(config, job, state) : config.initial_test;
  if (due) EvaluateMissing(config, job, state);
}

bool AtLastStep(const TrainState& state) { return state.result.steps == state.plan.total_steps; }

bool Done(const TrainState& state) {
  return state.result.steps >= state.plan.total_steps || state.result.stopped ||
         state.watch.should_stop();
}

// Compares the parameters of the ranks every options.check_parameters steps.
void CompareRanks(const TrainOptions& options, const PreparedJob& job, TrainState& state) {
  const int64_t every = options.check_parameters, steps = state.result.steps;
  if (every <= 0 || steps / every == state.compared / every) return;
  state.compared = steps;
  RequireSameParameters(job.ranks, job.programs, state.result.scope, steps);
}

// Updates the values to display. Returns the shares of time that ranks waited.
std::vector<double> UpdateDisplay(PreparedJob& job, TrainState& state) {
  StepWindow& window = job.step->window();
  window.Merge(job.ranks);
  std::vector<double> waited = state.times->TakeWaited();
  state.result.loss = window.MeanLoss();
  SetMetrics(window.MeanMetrics(), state);
  job.step->probe().Update(state.result.scope);
  return waited;
}

void LogHistograms(const PreparedJob& job, const TrainState& state,
                   const std::vector<std::pair<std::string, Tensor>>& gradients) {
  const int64_t step = state.result.steps;
  if (!job.reporter->WantsHistograms(step)) return;
  for (const std::string& name : job.programs.train.program.Parameters())
    job.reporter->Histogram(step, "parameters/" + name, state.result.scope.Get(name));
  for (const auto& [name, gradient] : gradients)
    job.reporter->Histogram(step, "gradients/" + name, gradient);
}

void ReportStep(const JobConfig& config, const TrainStep::Result& done, PreparedJob& job,
                TrainState& state) {
  TrainStep& step = *job.step;
  const int64_t steps = state.result.steps, interval = config.log.histogram_interval;
  const bool due = steps % config.display == 0, show = due || AtLastStep(state);
  std::vector<double> waited;
  if (show) waited = UpdateDisplay(job, state);
  std::vector<std::pair<std::string, Tensor>> gradients;  // gathered from all ranks
  if (interval > 0 && steps % interval == 0) gradients = step.probe().Gradients();
  job.reporter->Step({state.plan, steps, done.epoch, done.rows, done.loss, step.window(), show,
                      step.probe().learning_rates(), step.probe().clips(), std::move(waited)});
  LogHistograms(job, state, gradients);
  if (show)
    for (const std::string& line : step.probe().Lines()) job.reporter->Line(steps, line);
  if (!due) return;
  step.window().Clear();
  step.probe().Restart(state.result.scope);
}

// Chooses the program of the next step of a job that quantises.
void EnterPhase(const JobConfig& config, PreparedJob& job, TrainState& state) {
  if (!config.quantize) return;
  const int64_t steps = state.result.steps;
  Scope& scope = state.result.scope;
  if (steps == config.quantize->start_step &&
      job.programs.rounding->first_steps.Root().NumOps() > 0)
    job.executor.Run(job.programs.rounding->first_steps, scope);
  // From here on, all ranks read the statistics of all rows.
  if (steps == config.quantize->freeze_step) job.variables.MakeEqual(scope);
  job.step->SetPhase(config.quantize->PhaseAfter(steps));
}

// Runs one update and reports it.
void RunStep(const JobConfig& config, const TrainOptions& options, PreparedJob& job,
             TrainState& state) {
  TraceSpan span("train", "step");
  const int64_t step = state.result.steps + 1;
  span.Set("step", step);
  EnterPhase(config, job, state);
  const TrainStep::Result done = job.step->Run(state.result.scope);
  state.result.steps = step;
  job.reporter->Check(step, [&] { return state.non_finite.Step(step, done.loss); });
  CompareRanks(options, job, state);
  ReportStep(config, done, job, state);
  // The table covers the last plan: take it before a smaller batch makes another plan.
  const bool whole = done.rows == config.batch_size * config.training.iter_size;
  if (options.compile.profile && whole && job.step->EpochIsEnding())
    state.result.profile = job.step->ProfileTable();
}

// Sets `stopped` if the caller asks to stop or the job's max_seconds have passed since `began`.
void CheckStop(const JobConfig& config, Clock::time_point began, PreparedJob& job,
               TrainState& state) {
  TrainResult& result = state.result;
  const bool last = AtLastStep(state);
  if (job.ranks.Any(job.reporter->StopRequested())) result.stopped = !last;
  if (config.max_seconds <= 0) return;
  const std::chrono::duration<double> passed = Clock::now() - began;
  if (!job.ranks.Any(passed.count() >= config.max_seconds)) return;
  if (last || result.stopped) return;
  result.stopped = result.time_up = true;
  job.reporter->Line(result.steps, fmt::format("max_seconds: {} seconds have passed",
                                               FormatNumber(config.max_seconds)));
}

// Evaluates after a step if it is time to. Returns whether the job keeps the best evaluation and
// this is the best so far.
bool EvaluateIfDue(const JobConfig& config, PreparedJob& job, TrainState& state) {
  const bool due = EvaluationDue(config, job, state) || AtLastStep(state);
  const bool best = !state.result.stopped && due && EvaluateAll(config, job, state);
  if (state.watch.should_stop()) job.reporter->Line(state.result.steps, state.watch.StopMessage());
  return best && config.best.has_value();
}

// Whether to save a snapshot after a step that has no better evaluation.
bool SaveDue(const JobConfig& config, const PreparedJob& job, const TrainState& state) {
  const int64_t steps = state.result.steps;
  const bool requested = job.ranks.Any(job.reporter->SaveRequested());
  const bool due = config.snapshot_interval > 0 && steps % config.snapshot_interval == 0;
  const bool end = AtLastStep(state) || state.watch.should_stop();
  return requested || due || state.result.stopped || (end && config.snapshot_after_train);
}

TrainResult Train(const JobConfig& config, const TrainOptions& options,
                  const TrainCallbacks& callbacks) {
  const Clock::time_point began = Clock::now();
  PreparedJob job = Prepare(config, options, callbacks);
  TrainState state = StartOrResume(config, options, job);
  EvaluateAtStart(config, job, state);
  state.times.emplace(job.ranks);
  while (!Done(state)) {
    RunStep(config, options, job, state);
    CheckStop(config, began, job, state);
    const bool best = EvaluateIfDue(config, job, state);
    if (SaveDue(config, job, state) || best) SaveSnapshot(config, best, job, state);
  }
  if (!state.result.stopped) EvaluateMissing(config, job, state);
  return Finish(config, options, job, state);
}

}  // namespace

TrainResult RunJob(const JobConfig& config, const TrainOptions& options,
                   const TrainCallbacks& callbacks) {
  return TranslateMemoryErrors([&] { return Train(config, options, callbacks); },
                               [&] { return "the job " + Quote(config.name); });
}

}  // namespace coracle

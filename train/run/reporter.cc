#include <coracle/train/run/reporter.h>

namespace coracle::inline internal {

Reporter::Reporter(const JobConfig& config, const TrainCallbacks& callbacks, const Ranks& ranks)
    : callbacks_(callbacks) {
  if (ranks.first()) log_.emplace(config);
}

void Reporter::Start(const TrainPlan& plan, const ProgramDesc& program) {
  if (!log_) return;
  if (callbacks_.on_start) callbacks_.on_start(plan);
  log_->Start(plan, program);
}

void Reporter::Step(const StepReport& report) {
  if (!log_) return;
  if (callbacks_.on_step) callbacks_.on_step(report);
  log_->Step(report);
}

void Reporter::Eval(const EvalReport& report) {
  if (!log_) return;
  if (callbacks_.on_eval) callbacks_.on_eval(report);
  log_->Eval(report);
}

void Reporter::Snapshot(int64_t step, const std::string& path) {
  if (!log_) return;
  if (callbacks_.on_snapshot) callbacks_.on_snapshot(path);
  log_->Snapshot(step, path);
}

void Reporter::Line(int64_t step, const std::string& line) {
  if (!log_) return;
  if (callbacks_.on_message) callbacks_.on_message(line);
  log_->Message(step, line);
}

void Reporter::End(int64_t step, bool stopped) {
  if (log_) log_->End(step, stopped);
}

bool Reporter::WantsHistograms(int64_t step) const { return log_ && log_->WantsHistograms(step); }

void Reporter::Histogram(int64_t step, const std::string& tag, const Tensor& values) {
  if (log_) log_->Histogram(step, tag, values);
}

}  // namespace coracle::inline internal

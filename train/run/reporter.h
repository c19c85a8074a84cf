#pragma once
// Reporter: what a run says to its caller, by callbacks, and to its log.

#include <coracle/communication/communicator.h>
#include <coracle/framework/base/error.h>
#include <coracle/train/log/run_log.h>
#include <coracle/train/run/trainer.h>

#include <optional>
#include <string>

namespace coracle::inline internal {

// Only rank 0 reports; on other ranks, reports do nothing. Requests to stop and to save are read on
// every rank.
class Reporter {
 public:
  // `callbacks` must outlive this object.
  Reporter(const JobConfig& config, const TrainCallbacks& callbacks, const Ranks& ranks);

  void Start(const TrainPlan& plan, const ProgramDesc& program);
  void Step(const StepReport& report);
  void Eval(const EvalReport& report);
  void Snapshot(int64_t step, const std::string& path);
  void Line(int64_t step, const std::string& line);  // a line for the user
  void End(int64_t step, bool stopped);

  bool WantsHistograms(int64_t step) const;
  // Logs the distribution of a variable's elements. `tag` names it: "gradients/fc_0.w".
  void Histogram(int64_t step, const std::string& tag, const Tensor& values);

  // Reports the line that `check` returns, unless it is "". Logs an error that it throws, since
  // nothing else will end the log.
  template <class F>
  void Check(int64_t step, const F& check) {
    try {
      if (const std::string line = check(); !line.empty()) Line(step, line);
    } catch (const Error& e) {
      if (log_) log_->Message(step, e.message());
      throw;
    }
  }

  bool StopRequested() const { return callbacks_.stop && callbacks_.stop(); }
  bool SaveRequested() const { return callbacks_.save && callbacks_.save(); }

 private:
  const TrainCallbacks& callbacks_;
  std::optional<RunLog> log_;  // only on rank 0
};

}  // namespace coracle::inline internal

#pragma once
// RunLog writes the log of a run into its output directory: log.jsonl, with one JSON object per
// line, and TensorBoard's event files.
//
//   {"type": "start", "job": ..., "step": 0, "total_steps": ..., "steps_per_epoch": ...,
//    "settings": ["epochs=3"], "float_steps": 500, "time": ...}: settings are those of --set, if
//    there are any; a job with `quantize` evaluates in floating point up to step float_steps
//   {"type": "step", "step": 100, "epoch": 0, "values": {"loss": ..., "accuracy": ...},
//    "learning_rates": {...}, "samples_per_second": ..., "time": ...}
//   {"type": "test", "set": "test", "step": 100, "values": {...}, "best": true, "time": ...}
//   {"type": "test", ..., "confusion": {"matrix": [[50, 0], [2, 48]]}, ...}: a list of counts for
//    each label, of metrics of the kind CONFUSION
//   {"type": "test", ..., "restored": true, ...}: the best parameters, restored at the end
//   {"type": "snapshot", "step": 100, "path": ..., "time": ...}
//   {"type": "message", "step": 100, "text": ..., "time": ...}
//   {"type": "end", "step": 100, "stopped": false, "time": ...}
//
// `time` is in seconds since 1970. A number that is not finite is written as null. A "start" line
// with step N means that the run was resumed at N: it invalidates the earlier lines of later steps.

#include <coracle/framework/base/append_file.h>
#include <coracle/train/job/job.h>
#include <coracle/train/log/event_writer.h>
#include <coracle/train/report/report.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

class RunLog {
 public:
  // Writes nothing without an output directory. A resumed run appends to an existing log.jsonl; any
  // other run overwrites it. Throws kIo. If a later write fails (a full disk), RunLog warns once
  // and stops logging.
  explicit RunLog(const JobConfig& config);

  void Start(const TrainPlan& plan, const ProgramDesc& program);
  void Step(const StepReport& report);  // only steps to show
  void Eval(const EvalReport& report);
  void Snapshot(int64_t step, const std::string& path);
  void Message(int64_t step, const std::string& text);
  void End(int64_t step, bool stopped);

  bool WantsHistograms(int64_t step) const;
  void Histogram(int64_t step, const std::string& tag, const Tensor& values);

 private:
  using Clock = std::chrono::steady_clock;
  template <class F>
  void Guarded(F&& write);  // an error in `write` ends logging
  void Line(const std::string& json);
  // Excludes the time of an evaluation or a snapshot: the time since the last pause or step.
  void Pause();

  LogConfig config_;
  std::string directory_;
  std::vector<std::string> settings_;
  std::optional<int64_t> float_steps_;  // start_step of a job that quantises
  std::optional<AppendFile> json_;
  std::optional<EventWriter> events_;
  Clock::time_point shown_;  // the time when samples were last counted
  Clock::time_point paused_;
  Clock::duration away_ = {};  // time of pauses since then
  int64_t samples_ = 0;
};

}  // namespace coracle::inline internal

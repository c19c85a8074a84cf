#pragma once
// RunLog: what a run writes into its output directory while it goes: log.jsonl, one JSON object per
// line, and TensorBoard's event files.
//
//   {"type": "start", "job": ..., "step": 0, "total_steps": ..., "steps_per_epoch": ..., "time":
//   ...}
//   {"type": "step", "step": 100, "epoch": 0, "values": {"loss": ..., "accuracy": ...},
//    "learning_rates": {...}, "samples_per_second": ..., "time": ...}
//   {"type": "test", "set": "test", "step": 100, "values": {...}, "best": true, "time": ...}
//   {"type": "test", ..., "restored": true, ...}: of the best parameters, brought back at the end
//   {"type": "snapshot", "step": 100, "path": ..., "time": ...}
//   {"type": "message", "step": 100, "text": ..., "time": ...}
//   {"type": "end", "step": 100, "stopped": false, "time": ...}
//
// `time` is seconds since 1970. A number that is not finite is null. A line "start" of step N makes
// those before it void that are of later steps: the run was resumed at N.

#include <coracle/framework/base/append_file.h>
#include <coracle/train/log/event_writer.h>
#include <coracle/train/run/trainer.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

class RunLog {
 public:
  // Writes nothing without an output directory. A resumed run goes on in the log.jsonl that is
  // there, any other begins it anew. Throws kIo; what cannot be written later (a full disk) is
  // warned of once, and logging ends.
  explicit RunLog(const JobConfig& config);

  void Start(const TrainPlan& plan, const ProgramDesc& program);
  void Step(const StepReport& report);  // those to show
  void Eval(const EvalReport& report);
  void Snapshot(int64_t step, const std::string& path);
  void Message(int64_t step, const std::string& text);
  void End(int64_t step, bool stopped);

  bool WantsHistograms(int64_t step) const;
  void Histogram(int64_t step, const std::string& tag, const Tensor& values);

 private:
  using Clock = std::chrono::steady_clock;
  template <class F>
  void Guarded(F&& write);  // an error ends logging
  void Line(const std::string& json);
  void Pause();  // an evaluation or a snapshot has taken the time since the last of them or a step

  LogConfig config_;
  std::string directory_;
  std::optional<AppendFile> json_;
  std::optional<EventWriter> events_;
  Clock::time_point shown_;  // when samples were last counted
  Clock::time_point paused_;
  Clock::duration away_ = {};  // since then, in pauses
  int64_t samples_ = 0;
};

}  // namespace coracle

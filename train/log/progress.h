#pragma once
// The output of a training run for people: a line for each display and, on a terminal, a bar below.

#include <coracle/train/report/report.h>

#include <chrono>
#include <ostream>
#include <string>

namespace coracle::inline internal {

class Progress {
 public:
  // `terminal`: whether `out` understands "\r" and the ANSI code that clears a line. `width` is the
  // number of its columns.
  Progress(std::ostream& out, bool terminal, int width = 80);

  void Start(const TrainPlan& plan);
  void Step(const StepReport& report);
  void Eval(const EvalReport& report);
  void Snapshot(const std::string& path);
  // Prints a separate line, above the bar.
  void Line(const std::string& text);
  void Table(const std::string& text);  // of several lines
  void EndBar();                        // clears the bar

 private:
  using Clock = std::chrono::steady_clock;
  // Draws the bar.
  void Draw(const StepReport& report, const std::string& head, const std::string& results,
            const std::string& speed);
  double Rate() const;  // samples per second
  void Warm();          // starts the clock after the first step
  void Pause();         // excludes the time since the last step, which was not training

  std::ostream& out_;
  bool terminal_;
  int width_;
  bool bar_shown_ = false;
  bool single_step_ = false;  // only one step can be timed
  Clock::time_point start_, drawn_;
  double away_ = 0;  // seconds of evaluations and snapshots since `start_`, excluded from the rate
  int64_t samples_ = 0;
  int64_t steps_ = 0;
  Clock::time_point step_end_;
  Clock::time_point paused_;  // the end of the time that has been accounted for
};

// "loss=0.1234 accuracy=0.9876".
std::string FormatResults(double loss, const std::vector<NamedValue>& metrics,
                          const std::string& loss_name = "loss");
std::string FormatDuration(double seconds);  // "0:07", "1:02:03"

}  // namespace coracle::inline internal

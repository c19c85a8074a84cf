#pragma once
// What a person sees of a training run: a line for each display, and on a terminal a bar below.

#include <coracle/train/run/trainer.h>

#include <chrono>
#include <ostream>
#include <string>

namespace coracle {

class Progress {
 public:
  // `terminal`: out understands "\r" and the ANSI code that clears a line; `width` is its columns.
  Progress(std::ostream& out, bool terminal, int width = 80);

  void Start(const TrainPlan& plan);
  void Step(const StepReport& report);
  void Eval(const EvalReport& report);
  // A line of its own, above the bar.
  void Line(const std::string& text);
  void Table(const std::string& text);  // of several lines
  void EndBar();                        // clears the bar

  // Callbacks that call this object, which must outlive them.
  TrainCallbacks Callbacks();

 private:
  using Clock = std::chrono::steady_clock;
  // The bar.
  void Draw(const StepReport& report, const std::string& head, const std::string& results,
            const std::string& speed);
  double Rate() const;  // samples per second
  void Warm();          // starts the clock after the first step
  void Pause();         // what follows the last step was no training

  std::ostream& out_;
  bool terminal_;
  int width_;
  bool bar_shown_ = false;
  bool single_step_ = false;  // there is but one step to time
  Clock::time_point start_, drawn_;
  double away_ = 0;  // seconds of evaluations and snapshots since `start_`: not in the rate
  int64_t samples_ = 0;
  int64_t steps_ = 0;
  Clock::time_point step_end_;
  Clock::time_point paused_;  // until when the time is accounted for
};

// "loss=0.1234 accuracy=0.9876".
std::string FormatResults(double loss, const std::vector<NamedValue>& metrics,
                          const std::string& loss_name = "loss");
std::string FormatDuration(double seconds);  // "0:07", "1:02:03"

}  // namespace coracle

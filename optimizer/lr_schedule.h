#pragma once
// Learning-rate schedules: the rate as a function of the step t = 0, 1, 2, ..., the number of
// updates done before. A schedule is appended to the program as ops (so that a saved program is
// complete), and its values can also be computed on the host; both use the same formula.
//
// Sources of the formulas: Caffe's solver (fixed, step, exp, inv, multistep, poly, sigmoid),
// Paddle 2.1 (noam, exponential, natural_exp, inverse_time, polynomial, piecewise, cosine, linear
// warm-up, plateau), Loshchilov and Hutter 2017 (cosine with restarts), Smith 2017 and 2018
// (cyclic, one-cycle). All are defined and finite for every t >= 0: after its end a schedule keeps
// its last value.

#include <coracle/operators/operators.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// Base of all schedules. Immutable; derive from it to define a new one.
class LrSchedule {
 public:
  virtual ~LrSchedule() = default;
  // The rate at step t.
  virtual double At(int64_t t) const = 0;
  // The same as ops, with t and the result float64 [1], written with operators/operators.h.
  virtual Variable Append(const Variable& t) const = 0;
};
using LrSchedulePtr = std::shared_ptr<const LrSchedule>;

// Name of the persistable int64 [1] variable that counts the steps of a program with a schedule. If
// several blocks have schedules, each block counts its own runs (NAME_0, ...).
inline constexpr char kStepCounter[] = "@LR_DECAY_COUNTER@";

// Appends the schedule to `block`, and the counter with its increment unless the block has it, all
// with the role LRSched. Returns the [1] variable of `dtype` (float32 or float64) that holds the
// rate. In a sub-block, which may not run at every step, this variable is persistable and keeps the
// last rate. `startup` sets the counter so that the first step is t = 0.
std::string AppendLrSchedule(const LrSchedule& schedule, BlockDesc& block, ProgramDesc& startup,
                             DType dtype = DType::kFloat32);

// The schedules. All throw kInvalidArgument for options out of range, naming them. `coracle help
// NAME` shows the formula and options of a schedule. An option whose default is a nan or 0 here
// must be given.

inline constexpr double kNotGiven = std::numeric_limits<double>::quiet_NaN();

LrSchedulePtr FixedRate(double rate);

struct StepRateOptions {
  double rate = kNotGiven;
  double gamma = 0.1;
  int64_t step_size = 0;
};
LrSchedulePtr StepRate(const StepRateOptions& options);

struct ExponentialRateOptions {
  double rate = kNotGiven, gamma = kNotGiven;
  int64_t steps = 1;
  bool staircase = false;
};
LrSchedulePtr ExponentialRate(const ExponentialRateOptions& options);
LrSchedulePtr NaturalExpRate(const ExponentialRateOptions& options);
LrSchedulePtr InverseTimeRate(const ExponentialRateOptions& options);

struct InvRateOptions {
  double rate = kNotGiven, gamma = kNotGiven, power = kNotGiven;
};
LrSchedulePtr InvRate(const InvRateOptions& options);

struct MultiStepRateOptions {
  double rate = kNotGiven;
  double gamma = 0.1;
  std::vector<int64_t> milestone = {};
};
LrSchedulePtr MultiStepRate(const MultiStepRateOptions& options);

struct PiecewiseRateOptions {
  std::vector<int64_t> boundary = {};
  std::vector<double> value = {};
};
LrSchedulePtr PiecewiseRate(const PiecewiseRateOptions& options);

struct PolynomialRateOptions {
  double rate = kNotGiven;
  int64_t steps = 0;
  double end = 1e-4;
  double power = 1;
  bool cycle = false;
};
LrSchedulePtr PolynomialRate(const PolynomialRateOptions& options);

struct SigmoidRateOptions {
  double rate = kNotGiven, gamma = kNotGiven, middle = kNotGiven;
};
LrSchedulePtr SigmoidRate(const SigmoidRateOptions& options);

struct NoamRateOptions {
  double d_model = kNotGiven;
  int64_t warmup_steps = 0;
  double rate = 1;
};
LrSchedulePtr NoamRate(const NoamRateOptions& options);

struct CosineRateOptions {
  double rate = kNotGiven;
  int64_t steps_per_epoch = 0, epochs = 0;
};
LrSchedulePtr CosineRate(const CosineRateOptions& options);

struct CosineAnnealingRateOptions {
  double rate = kNotGiven;
  int64_t steps = 0;
  double end = 0;
};
LrSchedulePtr CosineAnnealingRate(const CosineAnnealingRateOptions& options);

struct CosineRestartsRateOptions {
  double rate = kNotGiven;
  int64_t steps = 0;
  int64_t factor = 1;
  double end = 0;
};
LrSchedulePtr CosineRestartsRate(const CosineRestartsRateOptions& options);

struct CyclicOptions {
  double base = kNotGiven, peak = kNotGiven;
  int64_t step_up = 2000;
  int64_t step_down = 0;  // 0: step_up
  double shrink = 1;
  double gamma = 1;
};
LrSchedulePtr CyclicRate(const CyclicOptions& options);

struct OneCycleRateOptions {
  double peak = kNotGiven;
  int64_t steps = 0;
  double warm = 0.3;
  double start_factor = 25;
  double end_factor = 1e4;
};
LrSchedulePtr OneCycleRate(const OneCycleRateOptions& options);

// start + (end - start) * t / steps for t < steps, then `after` (with the same t).
LrSchedulePtr WarmupRate(const LrSchedulePtr& after, int64_t steps, double start, double end);
// Pairs of a first step and a schedule, which applies from that step on and counts t from there.
// The first steps must ascend, beginning with 0.
LrSchedulePtr SequenceRate(const std::vector<std::pair<int64_t, LrSchedulePtr>>& parts);

// Lowers the rate when a metric stops improving (Paddle's and PyTorch's ReduceOnPlateau). It
// depends on values known only on the host, so it is a value to set in the scope, not ops.
class PlateauRate {
 public:
  struct Options {
    bool minimize = true;
    double factor = 0.1;
    int64_t patience = 10;
    double threshold = 1e-4;
    bool relative = true;
    int64_t cooldown = 0;
    double min_rate = 0;
    double epsilon = 1e-8;  // smaller changes of the rate are ignored
  };
  // All state that changes, for snapshots.
  struct State {
    double rate = 0;
    double best = 0;
    bool any = false;  // a metric has been seen
    int64_t bad = 0, cooldown = 0;
  };
  PlateauRate(double rate, const Options& options);

  // Takes the metric of one evaluation and returns the rate from now on. A nan never counts
  // as better.
  double Update(double metric);
  double rate() const { return state_.rate; }
  const State& state() const { return state_; }
  void SetState(const State& state) { state_ = state; }

 private:
  bool IsBetter(double metric) const;
  Options options_;
  State state_;
};

}  // namespace coracle

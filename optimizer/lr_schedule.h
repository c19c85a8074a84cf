#pragma once
// Learning-rate schedules: the rate as a function of the step t = 0, 1, 2, ..., the number of
// updates done before. A schedule is appended to the program as ops (so that a saved program is
// complete), and can be asked for its values on the host; both come from one formula.
//
// Sources of the formulas: Caffe's solver (fixed, step, exp, inv, multistep, poly, sigmoid), Paddle
// 2.1 (noam, exponential, natural_exp, inverse_time, polynomial, piecewise, cosine, linear warm-up,
// plateau), Loshchilov and Hutter 2017 (cosine with restarts), Smith 2017 and 2018 (cyclic,
// one-cycle). All are defined and finite for every t >= 0: past its end a schedule holds its last
// value.

#include <coracle/framework/ir/block.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// A float64 scalar that ops of a block compute. Arithmetic on it appends ops to that block.
class ScheduleValue {
 public:
  // A variable [1] of dtype float64.
  ScheduleValue(BlockDesc& block, std::string var) : block_(&block), var_(std::move(var)) {}

  BlockDesc& block() const { return *block_; }
  const std::string& var() const { return var_; }

  friend ScheduleValue operator+(const ScheduleValue& a, const ScheduleValue& b);
  friend ScheduleValue operator-(const ScheduleValue& a, const ScheduleValue& b);
  friend ScheduleValue operator*(const ScheduleValue& a, const ScheduleValue& b);
  friend ScheduleValue operator/(const ScheduleValue& a, const ScheduleValue& b);
  friend ScheduleValue operator+(const ScheduleValue& a, double b) { return a + a.Constant(b); }
  friend ScheduleValue operator-(const ScheduleValue& a, double b) { return a - a.Constant(b); }
  friend ScheduleValue operator*(const ScheduleValue& a, double b) { return a * a.Constant(b); }
  friend ScheduleValue operator/(const ScheduleValue& a, double b) { return a / a.Constant(b); }
  friend ScheduleValue operator+(double a, const ScheduleValue& b) { return b.Constant(a) + b; }
  friend ScheduleValue operator-(double a, const ScheduleValue& b) { return b.Constant(a) - b; }
  friend ScheduleValue operator*(double a, const ScheduleValue& b) { return b.Constant(a) * b; }
  friend ScheduleValue operator/(double a, const ScheduleValue& b) { return b.Constant(a) / b; }
  friend ScheduleValue Exp(const ScheduleValue& x);
  friend ScheduleValue Log(const ScheduleValue& x);
  friend ScheduleValue Cos(const ScheduleValue& x);
  friend ScheduleValue Floor(const ScheduleValue& x);
  friend ScheduleValue Min(const ScheduleValue& a, const ScheduleValue& b);
  friend ScheduleValue Max(const ScheduleValue& a, const ScheduleValue& b);
  friend ScheduleValue Pow(const ScheduleValue& x, const ScheduleValue& y);
  // `a < b ? yes : no`
  friend ScheduleValue IfLess(const ScheduleValue& a, const ScheduleValue& b,
                              const ScheduleValue& yes, const ScheduleValue& no);

  ScheduleValue Constant(double value) const;

 private:
  BlockDesc* block_;
  std::string var_;
};

// Base of all schedules. Immutable; derive from it for one of your own.
class LrSchedule {
 public:
  virtual ~LrSchedule() = default;
  // The rate at step t.
  virtual double At(int64_t t) const = 0;
  // The same as ops: t is a float64 scalar.
  virtual ScheduleValue Append(const ScheduleValue& t) const = 0;
};
using LrSchedulePtr = std::shared_ptr<const LrSchedule>;

// Name of the persistable int64 [1] variable that counts the steps of a program with a schedule;
// where several blocks have schedules, each of them counts its own runs (NAME_0, ...).
inline constexpr char kStepCounter[] = "@LR_DECAY_COUNTER@";

// Appends the schedule to `block`, and the counter with its increment unless the block has it, all
// with the role LRSched. Returns the variable [1] of `dtype` (float32 or float64) that holds the
// rate; of a sub-block, which may not run at every step, it is persistable and holds the last one.
// `startup` sets the counter so that the first step is t = 0.
std::string AppendLrSchedule(const LrSchedule& schedule, BlockDesc& block, ProgramDesc& startup,
                             DType dtype = DType::kFloat32);

// All of these throw kInvalidArgument for arguments out of range, naming them.

LrSchedulePtr FixedRate(double rate);
// rate * gamma^floor(t / step_size)
LrSchedulePtr StepRate(double rate, double gamma, int64_t step_size);
// rate * gamma^(t / steps); with staircase the exponent is rounded down. Caffe's "exp": steps = 1.
LrSchedulePtr ExponentialRate(double rate, double gamma, int64_t steps = 1, bool staircase = false);
// rate * exp(-decay * t / steps)
LrSchedulePtr NaturalExpRate(double rate, double decay, int64_t steps = 1, bool staircase = false);
// rate / (1 + decay * t / steps)
LrSchedulePtr InverseTimeRate(double rate, double decay, int64_t steps = 1, bool staircase = false);
// rate * (1 + gamma * t)^-power
LrSchedulePtr InvRate(double rate, double gamma, double power);
// rate * gamma^(number of milestones <= t). Milestones ascend.
LrSchedulePtr MultiStepRate(double rate, double gamma, const std::vector<int64_t>& milestones);
// values[i] for boundaries[i - 1] <= t < boundaries[i]; one value more than boundaries, which
// ascend.
LrSchedulePtr PiecewiseRate(const std::vector<int64_t>& boundaries,
                            const std::vector<double>& values);
// (rate - end) * (1 - min(t, steps) / steps)^power + end; with `cycle` steps is multiplied by
// ceil(t / steps) instead of t being held. Caffe's "poly": end = 0.
LrSchedulePtr PolynomialRate(double rate, int64_t steps, double end = 1e-4, double power = 1,
                             bool cycle = false);
// rate / (1 + exp(-gamma * (t - middle))): rises for gamma > 0, falls for gamma < 0.
LrSchedulePtr SigmoidRate(double rate, double gamma, double middle);
// rate * d_model^-0.5 * min(n^-0.5, n * warmup_steps^-1.5), n = t + 1
LrSchedulePtr NoamRate(double d_model, int64_t warmup_steps, double rate = 1);
// rate * (cos(pi * floor(t / steps_per_epoch) / epochs) + 1) / 2, at most to epoch `epochs`
LrSchedulePtr CosineRate(double rate, int64_t steps_per_epoch, int64_t epochs);
// end + (rate - end) * (1 + cos(pi * t / steps)) / 2: goes up again after `steps`, with the period
// 2 * steps.
LrSchedulePtr CosineAnnealingRate(double rate, int64_t steps, double end = 0);
// From rate to end along half a cosine in `steps` steps, then again from the start, each time
// `factor` (1, 2, ...) times as long.
LrSchedulePtr CosineRestartsRate(double rate, int64_t steps, int64_t factor = 1, double end = 0);
// Between base and peak along a triangle of step_up + step_down steps. Each time the height is
// multiplied by `shrink` (triangular: 1, triangular2: 0.5), and at each step by gamma^t
// (exp_range).
struct CyclicOptions {
  double base = 0, peak = 0;
  int64_t step_up = 2000;
  int64_t step_down = 0;  // 0: step_up
  double shrink = 1;
  double gamma = 1;
};
LrSchedulePtr CyclicRate(const CyclicOptions& options);
// From peak / start_factor up to peak in the first `warm` share of the steps, then down to peak /
// (start_factor * end_factor), along half cosines.
LrSchedulePtr OneCycleRate(double peak, int64_t steps, double warm = 0.3, double start_factor = 25,
                           double end_factor = 1e4);
// start + (end - start) * t / steps for t < steps, then `after` (which sees the same t).
LrSchedulePtr WarmupRate(const LrSchedulePtr& after, int64_t steps, double start, double end);
// From each `first` step on (ascending, the first is 0) the schedule beside it, which counts from
// there.
LrSchedulePtr SequenceRate(const std::vector<std::pair<int64_t, LrSchedulePtr>>& parts);

// The rate falls when a metric stops improving (Paddle's and PyTorch's ReduceOnPlateau). It depends
// on what only the host knows, so it is a value to set in the scope, not ops.
class PlateauRate {
 public:
  struct Options {
    bool minimize = true;   // the metric is better when it is smaller
    double factor = 0.1;    // new rate / old rate, in (0, 1)
    int64_t patience = 10;  // so many calls in a row may pass without improvement
    double threshold = 1e-4;
    bool relative = true;  // better means by that share of the best, else by that much
    int64_t cooldown = 0;  // calls after a fall that do not count
    double min_rate = 0;
    double epsilon = 1e-8;  // smaller changes of the rate are left out
  };
  // All that changes, for snapshots.
  struct State {
    double rate = 0;
    double best = 0;
    bool any = false;  // a metric was seen
    int64_t bad = 0, cooldown = 0;
  };
  PlateauRate(double rate, const Options& options);

  // Takes the metric of one evaluation and returns the rate from now on. A nan is never better.
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

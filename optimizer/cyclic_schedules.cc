// Learning-rate schedules along cosines and triangles: the options of each as texts give them, and
// its formula.

#include <coracle/optimizer/internal/schedule_formula.h>
#include <coracle/optimizer/internal/schedule_kinds.h>

#include <numbers>

namespace coracle {

using namespace formula;  // NOLINT: the functions on numbers

namespace {

// Falls from 1 at x = 0 to 0 at x = 1 along half a cosine.
template <class V>
V HalfCosine(const V& x) {
  return (1.0 + Cos(x * std::numbers::pi)) * 0.5;
}

Fields<CosineRateOptions> CosineFields() {
  using O = CosineRateOptions;
  return WithRate<O>(
             "rate * (cos(pi * floor(t / steps_per_epoch) / epochs) + 1) / 2, at most to epoch "
             "`epochs`")
      .Add("steps_per_epoch", &O::steps_per_epoch, "updates of an epoch", kRequired,
           PositiveRange())
      .Add("epochs", &O::epochs, "epochs of the fall", kRequired, PositiveRange());
}

Fields<CosineAnnealingRateOptions> CosineAnnealingFields() {
  using O = CosineAnnealingRateOptions;
  return WithRate<O>(
             "end + (rate - end) * (1 + cos(pi * t / steps)) / 2: goes up again after `steps`, "
             "with the period 2 * steps")
      .Add("steps", &O::steps, "updates of the fall", kRequired, PositiveRange())
      .Add("end", &O::end, kEndDoc, NotNegativeRange());
}

Fields<CosineRestartsRateOptions> CosineRestartsFields() {
  using O = CosineRestartsRateOptions;
  return WithRate<O>(
             "From rate to end along half a cosine in `steps` steps, then again from the start, "
             "each time `factor` times as long.")
      .Add("steps", &O::steps, "updates of the first fall", kRequired, PositiveRange())
      .Add("factor", &O::factor, "how much longer each fall is", PositiveRange())
      .Add("end", &O::end, kEndDoc, NotNegativeRange());
}

Fields<CyclicOptions> CyclicFields() {
  using O = CyclicOptions;
  return Fields<O>("Between base and peak along a triangle of step_up + step_down steps.")
      .Add("base", &O::base, kRateDoc, StandIn{kLearningRate}, NotNegativeRange())
      .Add("peak", &O::peak, "the rate in the middle of the first triangle", kRequired,
           NotNegativeRange())
      .Add("step_up", &O::step_up, "updates of the rise", PositiveRange())
      .Add("step_down", &O::step_down, "updates of the fall; default: step_up", NotNegativeRange())
      .Add("shrink", &O::shrink,
           "multiplies the height each time (triangular: 1, triangular2: 0.5)", NotNegativeRange())
      .Add("gamma", &O::gamma, "gamma^t multiplies the height (exp_range)", NotNegativeRange());
}

Fields<OneCycleRateOptions> OneCycleFields() {
  using O = OneCycleRateOptions;
  return Fields<O>(
             "From peak / start_factor up to peak in the first `warm` share of the steps, then "
             "down to peak / (start_factor * end_factor), along half cosines.")
      .Add("peak", &O::peak, kRateDoc, StandIn{kLearningRate}, NotNegativeRange())
      .Add("steps", &O::steps, "updates of the whole", kRequired, PositiveRange())
      .Add("warm", &O::warm, "share of the rise",
           FieldRange{0, 1, false, false, "must lie in [0, 1]"})
      .Add("start_factor", &O::start_factor, "peak over the first rate", PositiveRange())
      .Add("end_factor", &O::end_factor, "first rate over the last", PositiveRange());
}

}  // namespace

LrSchedulePtr CosineRate(const CosineRateOptions& o) {
  CheckSchedule("cosine", CosineFields(), o);
  return Schedule([=](const auto& t) {
    const auto last = static_cast<double>(o.epochs);
    const auto epoch = Min(Floor(t / static_cast<double>(o.steps_per_epoch)), last);
    return o.rate * HalfCosine(epoch / last);
  });
}

LrSchedulePtr CosineAnnealingRate(const CosineAnnealingRateOptions& o) {
  CheckSchedule("cosine_annealing", CosineAnnealingFields(), o);
  return Schedule([=](const auto& t) {
    return o.end + (o.rate - o.end) * HalfCosine(t / static_cast<double>(o.steps));
  });
}

LrSchedulePtr CosineRestartsRate(const CosineRestartsRateOptions& o) {
  CheckSchedule("cosine_restarts", CosineRestartsFields(), o);
  const double first = static_cast<double>(o.steps), by = static_cast<double>(o.factor);
  return Schedule([=](const auto& t) {
    const auto x = t / first;
    if (o.factor == 1) return o.end + (o.rate - o.end) * HalfCosine(x - Floor(x));
    // Cycle k begins at first * (by^k - 1) / (by - 1). The added 1e-10 corrects a logarithm that is
    // an ulp too small.
    const auto k = Floor(Log(1.0 + x * (by - 1)) / std::log(by) + 1e-10);
    const auto power = Pow(by, k);
    const auto share = (x - (power - 1.0) / (by - 1)) / power;
    return o.end + (o.rate - o.end) * HalfCosine(share);
  });
}

LrSchedulePtr CyclicRate(const CyclicOptions& o) {
  CheckSchedule("cyclic", CyclicFields(), o);
  const double up = static_cast<double>(o.step_up);
  const double down = o.step_down ? static_cast<double>(o.step_down) : up;
  return Schedule([=](const auto& t) {
    const auto cycle = Floor(t / (up + down));
    const auto at = t - (up + down) * cycle;
    const auto height = Min(at / up, (up + down - at) / down);
    const auto scale = Pow(o.shrink, cycle) * Pow(o.gamma, t);
    return o.base + (o.peak - o.base) * (height * scale);
  });
}

LrSchedulePtr OneCycleRate(const OneCycleRateOptions& o) {
  CheckSchedule("one_cycle", OneCycleFields(), o);
  const double peak = o.peak, start = peak / o.start_factor, end = start / o.end_factor;
  const double last = static_cast<double>(o.steps) - 1;
  const double top =
      std::clamp(o.warm * static_cast<double>(o.steps) - 1, 0.0, std::max(last, 0.0));
  return Schedule([=](const auto& t) {
    const auto up = start + (peak - start) * (1.0 - HalfCosine(t / std::max(top, 1.0)));
    const auto share = Min((t - top) / std::max(last - top, 1.0), 1.0);
    const auto down = end + (peak - end) * HalfCosine(share);
    return IfLess(t, top, up, down);
  });
}

ScheduleEntries internal::CyclicSchedules() {
  return {MakeKind("cosine", CosineFields(), CosineRate),
          MakeKind("cosine_annealing", CosineAnnealingFields(), CosineAnnealingRate,
                   {{"steps", kScheduleEnds, "the rate rises again"}}),
          MakeKind("cosine_restarts", CosineRestartsFields(), CosineRestartsRate),
          MakeKind("cyclic", CyclicFields(), CyclicRate),
          MakeKind("one_cycle", OneCycleFields(), OneCycleRate,
                   {{"steps", kScheduleEnds, kRateStays}})};
}

}  // namespace coracle

// Falling learning-rate schedules, and noam: the options of each as texts give them, and
// its formula.

#include <coracle/optimizer/internal/schedule_formula.h>
#include <coracle/optimizer/internal/schedule_kinds.h>

namespace coracle {

using namespace formula;  // NOLINT: the functions on numbers

namespace {

template <class V>
V Stairs(const V& x, bool staircase) {
  return staircase ? Floor(x) : x;
}

Fields<StepRateOptions> StepFields() {
  using O = StepRateOptions;
  return WithRate<O>("rate * gamma^floor(t / step_size)")
      .Add("gamma", &O::gamma, "multiplies the rate at each step", NotNegativeRange())
      .Add("step_size", &O::step_size, "updates between falls", kRequired, PositiveRange());
}

Fields<ExponentialRateOptions> ExponentialFieldsOf(const char* formula) {
  using O = ExponentialRateOptions;
  return WithRate<O>(formula)
      .Add("gamma", &O::gamma, "how fast the rate falls", kRequired, NotNegativeRange())
      .Add("steps", &O::steps, "updates that count as one", PositiveRange())
      .Add("staircase", &O::staircase, "t / steps is rounded down");
}
Fields<ExponentialRateOptions> ExponentialFields() {
  return ExponentialFieldsOf("rate * gamma^(t / steps). Caffe's \"exp\": steps = 1.");
}
Fields<ExponentialRateOptions> NaturalExpFields() {
  return ExponentialFieldsOf("rate * exp(-gamma * t / steps)");
}
Fields<ExponentialRateOptions> InverseTimeFields() {
  return ExponentialFieldsOf("rate / (1 + gamma * t / steps)");
}

Fields<InvRateOptions> InvFields() {
  using O = InvRateOptions;
  return WithRate<O>("rate * (1 + gamma * t)^-power")
      .Add("gamma", &O::gamma, "how fast the rate falls", kRequired, NotNegativeRange())
      .Add("power", &O::power, "see above", kRequired, FiniteRange());
}

Fields<MultiStepRateOptions> MultiStepFields() {
  using O = MultiStepRateOptions;
  return WithRate<O>("rate * gamma^(number of milestones <= t)")
      .Add("gamma", &O::gamma, "multiplies the rate at each milestone", NotNegativeRange())
      .Add("milestone", &O::milestone, "updates after which the rate falls; they ascend");
}

Fields<PiecewiseRateOptions> PiecewiseFields() {
  using O = PiecewiseRateOptions;
  return Fields<O>("value[i] for boundary[i - 1] <= t < boundary[i]")
      .Add("boundary", &O::boundary, "updates at which the rate changes; they ascend")
      .Add("value", &O::value, "one more than boundaries", NotNegativeRange());
}

Fields<PolynomialRateOptions> PolynomialFields() {
  using O = PolynomialRateOptions;
  return WithRate<O>(
             "(rate - end) * (1 - min(t, steps) / steps)^power + end. Caffe's \"poly\": end = 0.")
      .Add("steps", &O::steps, "updates of the fall", kRequired, PositiveRange())
      .Add("end", &O::end, kEndDoc, NotNegativeRange())
      .Add("power", &O::power, "1: a straight fall", NotNegativeRange())
      .Add("cycle", &O::cycle, "steps is multiplied by ceil(t / steps) instead of t being held");
}

Fields<SigmoidRateOptions> SigmoidFields() {
  using O = SigmoidRateOptions;
  return WithRate<O>("rate / (1 + exp(-gamma * (t - middle)))")
      .Add("gamma", &O::gamma, "rises for gamma > 0, falls for gamma < 0", kRequired, FiniteRange())
      .Add("middle", &O::middle, "the update at half the rate", kRequired, FiniteRange());
}

Fields<NoamRateOptions> NoamFields() {
  using O = NoamRateOptions;
  return Fields<O>("rate * d_model^-0.5 * min(n^-0.5, n * warmup_steps^-1.5), n = t + 1")
      .Add("rate", &O::rate, "multiplies the rate computed from d_model", NotNegativeRange())
      .Add("d_model", &O::d_model, "width of the model", kRequired,
           FieldRange{0, HUGE_VAL, true, true, "must be positive and finite"})
      .Add("warmup_steps", &O::warmup_steps, "updates of the rise", kRequired, PositiveRange());
}

}  // namespace

LrSchedulePtr StepRate(const StepRateOptions& o) {
  CheckSchedule("step", StepFields(), o);
  return ExponentialRate({o.rate, o.gamma, o.step_size, true});
}

LrSchedulePtr ExponentialRate(const ExponentialRateOptions& o) {
  CheckSchedule("exponential", ExponentialFields(), o);
  return Schedule([=](const auto& t) {
    return o.rate * Pow(o.gamma, Stairs(t / static_cast<double>(o.steps), o.staircase));
  });
}

LrSchedulePtr NaturalExpRate(const ExponentialRateOptions& o) {
  CheckSchedule("natural_exp", NaturalExpFields(), o);
  return Schedule([=](const auto& t) {
    return o.rate * Exp(-o.gamma * Stairs(t / static_cast<double>(o.steps), o.staircase));
  });
}

LrSchedulePtr InverseTimeRate(const ExponentialRateOptions& o) {
  CheckSchedule("inverse_time", InverseTimeFields(), o);
  return Schedule([=](const auto& t) {
    return o.rate / (1.0 + o.gamma * Stairs(t / static_cast<double>(o.steps), o.staircase));
  });
}

LrSchedulePtr InvRate(const InvRateOptions& o) {
  CheckSchedule("inv", InvFields(), o);
  return Schedule([=](const auto& t) { return o.rate * Pow(1.0 + o.gamma * t, -o.power); });
}

LrSchedulePtr MultiStepRate(const MultiStepRateOptions& o) {
  CheckSchedule("multistep", MultiStepFields(), o);
  std::vector<double> values = {o.rate};
  RequireAscending("multistep", "milestone", o.milestone);
  for (size_t i = 0; i < o.milestone.size(); ++i) {
    values.push_back(o.rate * std::pow(o.gamma, static_cast<double>(i + 1)));
    if (!std::isfinite(values.back())) {
      ThrowInvalid(fmt::format(
          "learning-rate schedule multistep: gamma must leave the rate finite, got {} at milestone "
          "{}",
          values.back(), o.milestone[i]));
    }
  }
  return PiecewiseRate({o.milestone, values});
}

LrSchedulePtr PiecewiseRate(const PiecewiseRateOptions& o) {
  RequireAscending("piecewise", "boundary", o.boundary);
  if (o.value.size() != o.boundary.size() + 1) {
    ThrowInvalid(fmt::format(
        "learning-rate schedule piecewise: there must be one value more than boundaries, got {}",
        o.value.size()));
  }
  CheckSchedule("piecewise", PiecewiseFields(), o);
  return Schedule([boundaries = o.boundary, values = o.value](const auto& t) {
    auto rate = Number(t, values.back());
    for (size_t i = boundaries.size(); i-- > 0;)
      rate = IfLess(t, static_cast<double>(boundaries[i]), Number(t, values[i]), rate);
    return rate;
  });
}

LrSchedulePtr PolynomialRate(const PolynomialRateOptions& o) {
  CheckSchedule("polynomial", PolynomialFields(), o);
  return Schedule([=](const auto& t) {
    const auto all = Number(t, static_cast<double>(o.steps));
    // ceil(x) = -floor(-x), at least 1
    const auto length = o.cycle ? all * Max(-Floor(-(t / all)), 1.0) : all;
    const auto left = 1.0 - Min(t, length) / length;
    return (o.rate - o.end) * Pow(left, o.power) + o.end;
  });
}

LrSchedulePtr SigmoidRate(const SigmoidRateOptions& o) {
  CheckSchedule("sigmoid", SigmoidFields(), o);
  return Schedule([=](const auto& t) { return o.rate / (1.0 + Exp(-o.gamma * (t - o.middle))); });
}

LrSchedulePtr NoamRate(const NoamRateOptions& o) {
  CheckSchedule("noam", NoamFields(), o);
  const double scale = o.rate / std::sqrt(o.d_model);
  const double slope = std::pow(static_cast<double>(o.warmup_steps), -1.5);
  return Schedule([=](const auto& t) {
    const auto n = t + 1.0;
    return scale * Min(Pow(n, -0.5), slope * n);
  });
}

namespace {

// The schedule of MiniCPM (Hu et al. 2024, https://arxiv.org/abs/2404.06395). It is available only
// by name, in texts and Settings, so its options, checks and formula are all here.
struct WarmupStableDecayOptions {
  double rate = kNotGiven, end = 0;
  int64_t warmup_steps = 0, decay_steps = 0, steps = 0;
};

Fields<WarmupStableDecayOptions> WarmupStableDecayFields() {
  using O = WarmupStableDecayOptions;
  return WithRate<O>(
             "Rises to rate along a line in the first warmup_steps steps, stays, and falls to end "
             "along a line in the last decay_steps of all steps.")
      .Add("warmup_steps", &O::warmup_steps, "updates of the rise", kRequired, PositiveRange())
      .Add("decay_steps", &O::decay_steps, "updates of the fall", kRequired, PositiveRange())
      .Add("steps", &O::steps, "updates of the whole", kRequired, PositiveRange())
      .Add("end", &O::end, kEndDoc, NotNegativeRange());
}

LrSchedulePtr WarmupStableDecayRate(const WarmupStableDecayOptions& o) {
  CheckSchedule("warmup_stable_decay", WarmupStableDecayFields(), o);
  if (o.warmup_steps > o.steps - o.decay_steps) {
    ThrowInvalid(fmt::format(
        "learning-rate schedule warmup_stable_decay: warmup_steps {} and decay_steps {} must fit "
        "into steps, got {}",
        o.warmup_steps, o.decay_steps, o.steps));
  }
  return Schedule([=](const auto& t) {
    const auto risen = Min((t + 1.0) / static_cast<double>(o.warmup_steps), 1.0);
    const auto to_go = (static_cast<double>(o.steps) - t) / static_cast<double>(o.decay_steps);
    return risen * (o.end + (o.rate - o.end) * Max(Min(to_go, 1.0), 0.0));
  });
}

}  // namespace

ScheduleEntries internal::BuiltInSchedules() {
  const char* changes = "the rate changes";
  ScheduleEntries all = {
      MakeKind("exponential", ExponentialFields(), ExponentialRate),
      MakeKind("step", StepFields(), StepRate, {{"step_size", changes}}),
      MakeKind("inv", InvFields(), InvRate),
      MakeKind("multistep", MultiStepFields(), MultiStepRate, {{"milestone", changes}}),
      MakeKind("polynomial", PolynomialFields(), PolynomialRate,
               {{"steps", kScheduleEnds, kRateStays, "cycle"}}),
      MakeKind("sigmoid", SigmoidFields(), SigmoidRate),
      MakeKind("noam", NoamFields(), NoamRate, {{"warmup_steps", "the warm-up ends"}}),
      MakeKind("natural_exp", NaturalExpFields(), NaturalExpRate),
      MakeKind("inverse_time", InverseTimeFields(), InverseTimeRate),
      MakeKind("piecewise", PiecewiseFields(), PiecewiseRate, {{"boundary", changes}}),
      MakeKind("warmup_stable_decay", WarmupStableDecayFields(), WarmupStableDecayRate,
               {{"warmup_steps", "the warm-up ends"}, {"steps", kScheduleEnds, kRateStays}})};
  for (auto& entry : CyclicSchedules()) all.push_back(std::move(entry));
  return all;
}

}  // namespace coracle

#include <coracle/framework/ir/names.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/state.h>
#include <coracle/optimizer/lr_schedule.h>
#include <coracle/optimizer/update_block.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace coracle {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr int32_t kFloat64Code = static_cast<int32_t>(DType::kFloat64);

std::string AppendOp(BlockDesc& block, const char* type, SlotList inputs, AttrList attrs = {},
                     DType dtype = DType::kFloat64) {
  std::string out = MakeTemporary(block, "lr_schedule", dtype);
  attrs.push_back({kOpRoleAttr, int32_t{kLRSched}});
  block.AppendOp(type, std::move(inputs), {{"Out", {out}}}, std::move(attrs));
  return out;
}

ScheduleValue Unary(const char* type, const ScheduleValue& x) {
  return {x.block(), AppendOp(x.block(), type, {{"X", {x.var()}}})};
}
ScheduleValue Binary(const char* type, const ScheduleValue& a, const ScheduleValue& b) {
  return {a.block(), AppendOp(a.block(), type, {{"X", {a.var()}}, {"Y", {b.var()}}})};
}

// The same functions of numbers, so that one formula serves both.
double Exp(double x) { return std::exp(x); }
double Log(double x) { return std::log(x); }
double Cos(double x) { return std::cos(x); }
double Floor(double x) { return std::floor(x); }
double Min(double a, double b) { return std::min(a, b); }
double Max(double a, double b) { return std::max(a, b); }
double Pow(double x, double y) { return std::pow(x, y); }
double IfLess(double a, double b, double yes, double no) { return a < b ? yes : no; }

double Number(double, double value) { return value; }
ScheduleValue Number(const ScheduleValue& like, double value) { return like.Constant(value); }

// A schedule from a formula: a function of t, for double and for ScheduleValue.
template <class Formula>
class FormulaSchedule : public LrSchedule {
 public:
  explicit FormulaSchedule(Formula formula) : formula_(std::move(formula)) {}
  double At(int64_t t) const override { return formula_(static_cast<double>(t)); }
  ScheduleValue Append(const ScheduleValue& t) const override { return formula_(t); }

 private:
  Formula formula_;
};

template <class Formula>
LrSchedulePtr Schedule(Formula formula) {
  return std::make_shared<FormulaSchedule<Formula>>(std::move(formula));
}

void Require(bool holds, const char* schedule, const char* what, double got) {
  if (!holds)
    ThrowInvalid(fmt::format("learning-rate schedule {}: {}, got {}", schedule, what, got));
}
void RequireRate(const char* schedule, double rate) {
  Require(rate >= 0 && std::isfinite(rate), schedule, "a rate must be finite and not negative",
          rate);
}
void RequireFinite(const char* schedule, const char* what, double value) {
  Require(std::isfinite(value), schedule, what, value);
}
void RequirePositive(const char* schedule, const char* what, int64_t value) {
  Require(value > 0, schedule, what, static_cast<double>(value));
}

template <class V>
V Stairs(const V& x, bool staircase) {
  return staircase ? Floor(x) : x;
}

// From 1 at x = 0 to 0 at x = 1 along half a cosine.
template <class V>
V HalfCosine(const V& x) {
  return (1.0 + Cos(x * kPi)) * 0.5;
}

double EvaluateAt(const LrSchedule& schedule, double t) {
  return schedule.At(static_cast<int64_t>(t));
}
ScheduleValue EvaluateAt(const LrSchedule& schedule, const ScheduleValue& t) {
  return schedule.Append(t);
}

void RequireAscending(const char* schedule, const std::vector<int64_t>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    Require(steps[i] >= 0 && (i == 0 || steps[i] >= steps[i - 1]), schedule,
            "steps must ascend from 0 on", static_cast<double>(steps[i]));
  }
}

}  // namespace

ScheduleValue operator+(const ScheduleValue& a, const ScheduleValue& b) {
  return Binary("elementwise_add", a, b);
}
ScheduleValue operator-(const ScheduleValue& a, const ScheduleValue& b) {
  return Binary("elementwise_sub", a, b);
}
ScheduleValue operator*(const ScheduleValue& a, const ScheduleValue& b) {
  return Binary("elementwise_mul", a, b);
}
ScheduleValue operator/(const ScheduleValue& a, const ScheduleValue& b) {
  return Binary("elementwise_div", a, b);
}

// The value as text: an attr of type float would round it.
ScheduleValue ScheduleValue::Constant(double value) const {
  return {*block_, AppendOp(*block_, "fill_constant", {},
                            {{"shape", std::vector<int64_t>{1}},
                             {"dtype", kFloat64Code},
                             {"value", static_cast<float>(value)},
                             {"str_value", fmt::format("{}", value)},
                             {"force_cpu", false}})};
}

ScheduleValue Exp(const ScheduleValue& x) { return Unary("exp", x); }
ScheduleValue Log(const ScheduleValue& x) { return Unary("log", x); }
ScheduleValue Cos(const ScheduleValue& x) { return Unary("cos", x); }
ScheduleValue Floor(const ScheduleValue& x) { return Unary("floor", x); }
ScheduleValue Min(const ScheduleValue& a, const ScheduleValue& b) {
  return Binary("elementwise_min", a, b);
}
ScheduleValue Max(const ScheduleValue& a, const ScheduleValue& b) {
  return Binary("elementwise_max", a, b);
}
ScheduleValue Pow(const ScheduleValue& x, const ScheduleValue& y) {
  return Binary("elementwise_pow", x, y);
}
ScheduleValue IfLess(const ScheduleValue& a, const ScheduleValue& b, const ScheduleValue& yes,
                     const ScheduleValue& no) {
  BlockDesc& block = a.block();
  const std::string less =
      AppendOp(block, "less_than", {{"X", {a.var()}}, {"Y", {b.var()}}}, {}, DType::kBool);
  return {block,
          AppendOp(block, "where", {{"Condition", {less}}, {"X", {yes.var()}}, {"Y", {no.var()}}})};
}

namespace {

// The counter of the block, which an op increments once per run before anything reads it.
std::string CounterOf(BlockDesc& block, ProgramDesc& startup) {
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    if (op.type() == "increment" && op.Output("Out")[0].starts_with(kStepCounter))
      return op.Output("Out")[0];
  }
  std::string name = block.program().FreeName(kStepCounter);
  MakeState(block.program(), startup, name, DType::kInt64, {1}, -1);
  block.AppendOp("increment", {{"X", {name}}}, {{"Out", {name}}},
                 {{"step", 1.0f}, {kOpRoleAttr, int32_t{kLRSched}}});
  return name;
}

AttrList CastAttrs(DType from, DType to) {
  return {{"in_dtype", static_cast<int32_t>(from)}, {"out_dtype", static_cast<int32_t>(to)}};
}

}  // namespace

std::string AppendLrSchedule(const LrSchedule& schedule, BlockDesc& block, ProgramDesc& startup,
                             DType dtype) {
  const ScheduleValue t(block, AppendOp(block, "cast", {{"X", {CounterOf(block, startup)}}},
                                        CastAttrs(DType::kInt64, DType::kFloat64)));
  const std::string rate = schedule.Append(t).var();
  AttrList attrs = CastAttrs(DType::kFloat64, dtype);
  if (block.idx() == 0) return AppendOp(block, "cast", {{"X", {rate}}}, attrs, dtype);
  ProgramDesc& main = block.program();
  std::string kept =
      MakeState(main, startup, main.UniqueName("learning_rate"), dtype, {1}, schedule.At(0));
  attrs.push_back({kOpRoleAttr, int32_t{kLRSched}});
  block.AppendOp("cast", {{"X", {rate}}}, {{"Out", {kept}}}, std::move(attrs));
  return kept;
}

LrSchedulePtr FixedRate(double rate) {
  RequireRate("fixed", rate);
  return Schedule([=](const auto& t) { return Number(t, rate); });
}

LrSchedulePtr StepRate(double rate, double gamma, int64_t step_size) {
  RequirePositive("step", "step_size must be positive", step_size);
  return ExponentialRate(rate, gamma, step_size, true);
}

LrSchedulePtr ExponentialRate(double rate, double gamma, int64_t steps, bool staircase) {
  RequireRate("exponential", rate);
  RequireRate("exponential", gamma);
  RequirePositive("exponential", "steps must be positive", steps);
  return Schedule([=](const auto& t) {
    return rate * Pow(Number(t, gamma), Stairs(t / static_cast<double>(steps), staircase));
  });
}

LrSchedulePtr NaturalExpRate(double rate, double decay, int64_t steps, bool staircase) {
  RequireRate("natural_exp", rate);
  RequireRate("natural_exp", decay);
  RequirePositive("natural_exp", "steps must be positive", steps);
  return Schedule([=](const auto& t) {
    return rate * Exp(-decay * Stairs(t / static_cast<double>(steps), staircase));
  });
}

LrSchedulePtr InverseTimeRate(double rate, double decay, int64_t steps, bool staircase) {
  RequireRate("inverse_time", rate);
  RequireRate("inverse_time", decay);
  RequirePositive("inverse_time", "steps must be positive", steps);
  return Schedule([=](const auto& t) {
    return rate / (1.0 + decay * Stairs(t / static_cast<double>(steps), staircase));
  });
}

LrSchedulePtr InvRate(double rate, double gamma, double power) {
  RequireRate("inv", rate);
  RequireRate("inv", gamma);
  RequireFinite("inv", "power must be finite", power);
  return Schedule([=](const auto& t) { return rate * Pow(1.0 + gamma * t, Number(t, -power)); });
}

LrSchedulePtr MultiStepRate(double rate, double gamma, const std::vector<int64_t>& milestones) {
  RequireRate("multistep", rate);
  RequireRate("multistep", gamma);
  std::vector<double> values = {rate};
  for (size_t i = 0; i < milestones.size(); ++i)
    values.push_back(rate * std::pow(gamma, static_cast<double>(i + 1)));
  return PiecewiseRate(milestones, values);
}

LrSchedulePtr PiecewiseRate(const std::vector<int64_t>& boundaries,
                            const std::vector<double>& values) {
  RequireAscending("piecewise", boundaries);
  Require(values.size() == boundaries.size() + 1, "piecewise",
          "there must be one value more than boundaries", static_cast<double>(values.size()));
  for (double value : values) RequireRate("piecewise", value);
  return Schedule([=](const auto& t) {
    auto rate = Number(t, values.back());
    for (size_t i = boundaries.size(); i-- > 0;)
      rate = IfLess(t, Number(t, static_cast<double>(boundaries[i])), Number(t, values[i]), rate);
    return rate;
  });
}

LrSchedulePtr PolynomialRate(double rate, int64_t steps, double end, double power, bool cycle) {
  RequireRate("polynomial", rate);
  RequireRate("polynomial", end);
  RequirePositive("polynomial", "steps must be positive", steps);
  Require(power >= 0 && std::isfinite(power), "polynomial", "power must be finite and not negative",
          power);
  return Schedule([=](const auto& t) {
    const auto all = Number(t, static_cast<double>(steps));
    // ceil(x) = -floor(-x), at least 1
    const auto length = cycle ? all * Max(-1.0 * Floor(-1.0 * (t / all)), Number(t, 1)) : all;
    const auto left = 1.0 - Min(t, length) / length;
    return (rate - end) * Pow(left, Number(t, power)) + end;
  });
}

LrSchedulePtr SigmoidRate(double rate, double gamma, double middle) {
  RequireRate("sigmoid", rate);
  RequireFinite("sigmoid", "gamma must be finite", gamma);
  RequireFinite("sigmoid", "the middle must be finite", middle);
  return Schedule([=](const auto& t) { return rate / (1.0 + Exp(-gamma * (t - middle))); });
}

LrSchedulePtr NoamRate(double d_model, int64_t warmup_steps, double rate) {
  RequireRate("noam", rate);
  Require(d_model > 0 && std::isfinite(d_model), "noam", "d_model must be positive", d_model);
  RequirePositive("noam", "warmup_steps must be positive", warmup_steps);
  const double scale = rate / std::sqrt(d_model);
  const double slope = std::pow(static_cast<double>(warmup_steps), -1.5);
  return Schedule([=](const auto& t) {
    const auto n = t + 1.0;
    return scale * Min(Pow(n, Number(t, -0.5)), slope * n);
  });
}

LrSchedulePtr CosineRate(double rate, int64_t steps_per_epoch, int64_t epochs) {
  RequireRate("cosine", rate);
  RequirePositive("cosine", "steps_per_epoch must be positive", steps_per_epoch);
  RequirePositive("cosine", "epochs must be positive", epochs);
  return Schedule([=](const auto& t) {
    const auto last = Number(t, static_cast<double>(epochs));
    const auto epoch = Min(Floor(t / static_cast<double>(steps_per_epoch)), last);
    return rate * HalfCosine(epoch / last);
  });
}

LrSchedulePtr CosineAnnealingRate(double rate, int64_t steps, double end) {
  RequireRate("cosine_annealing", rate);
  RequireRate("cosine_annealing", end);
  RequirePositive("cosine_annealing", "steps must be positive", steps);
  return Schedule([=](const auto& t) {
    return end + (rate - end) * HalfCosine(t / static_cast<double>(steps));
  });
}

LrSchedulePtr CosineRestartsRate(double rate, int64_t steps, int64_t factor, double end) {
  RequireRate("cosine_restarts", rate);
  RequireRate("cosine_restarts", end);
  RequirePositive("cosine_restarts", "steps must be positive", steps);
  RequirePositive("cosine_restarts", "factor must be positive", factor);
  const double first = static_cast<double>(steps), by = static_cast<double>(factor);
  return Schedule([=](const auto& t) {
    const auto x = t / first;
    if (factor == 1) return end + (rate - end) * HalfCosine(x - Floor(x));
    // Cycle k begins at first * (by^k - 1) / (by - 1). Its logarithm may be an ulp too small.
    const auto k = Floor(Log(1.0 + x * (by - 1)) / std::log(by) + 1e-10);
    const auto power = Pow(Number(t, by), k);
    const auto share = (x - (power - 1.0) / (by - 1)) / power;
    return end + (rate - end) * HalfCosine(share);
  });
}

LrSchedulePtr CyclicRate(const CyclicOptions& options) {
  RequireRate("cyclic", options.base);
  RequireRate("cyclic", options.peak);
  RequireRate("cyclic", options.shrink);
  RequireRate("cyclic", options.gamma);
  RequirePositive("cyclic", "step_up must be positive", options.step_up);
  Require(options.step_down >= 0, "cyclic", "step_down must not be negative",
          static_cast<double>(options.step_down));
  const double up = static_cast<double>(options.step_up);
  const double down = options.step_down ? static_cast<double>(options.step_down) : up;
  const CyclicOptions o = options;
  return Schedule([=](const auto& t) {
    const auto cycle = Floor(t / (up + down));
    const auto at = t - (up + down) * cycle;
    const auto height = Min(at / up, (up + down - at) / down);
    const auto scale = Pow(Number(t, o.shrink), cycle) * Pow(Number(t, o.gamma), t);
    return o.base + (o.peak - o.base) * (height * scale);
  });
}

LrSchedulePtr OneCycleRate(double peak, int64_t steps, double warm, double start_factor,
                           double end_factor) {
  RequireRate("one_cycle", peak);
  RequirePositive("one_cycle", "steps must be positive", steps);
  Require(warm >= 0 && warm <= 1, "one_cycle", "the share of warm-up must lie in [0, 1]", warm);
  Require(start_factor > 0, "one_cycle", "start_factor must be positive", start_factor);
  Require(end_factor > 0, "one_cycle", "end_factor must be positive", end_factor);
  const double start = peak / start_factor, end = start / end_factor;
  const double last = static_cast<double>(steps) - 1;
  const double top = std::clamp(warm * static_cast<double>(steps) - 1, 0.0, std::max(last, 0.0));
  return Schedule([=](const auto& t) {
    const auto up = start + (peak - start) * (1.0 - HalfCosine(t / std::max(top, 1.0)));
    const auto share = Min((t - top) / std::max(last - top, 1.0), Number(t, 1));
    const auto down = end + (peak - end) * HalfCosine(share);
    return IfLess(t, Number(t, top), up, down);
  });
}

LrSchedulePtr WarmupRate(const LrSchedulePtr& after, int64_t steps, double start, double end) {
  if (!after) ThrowInvalid("learning-rate schedule warmup: there is no schedule after it");
  RequireRate("warmup", start);
  RequireRate("warmup", end);
  RequirePositive("warmup", "steps must be positive", steps);
  const double all = static_cast<double>(steps);
  return Schedule([=](const auto& t) {
    const auto rising = start + (end - start) * (t / all);
    return IfLess(t, Number(t, all), rising, EvaluateAt(*after, t));
  });
}

LrSchedulePtr SequenceRate(const std::vector<std::pair<int64_t, LrSchedulePtr>>& parts) {
  std::vector<int64_t> firsts;
  for (const auto& [first, schedule] : parts) {
    firsts.push_back(first);
    if (!schedule) ThrowInvalid("learning-rate schedule sequence: a part has no schedule");
  }
  RequireAscending("sequence", firsts);
  Require(!parts.empty() && firsts.front() == 0, "sequence", "the first part must begin at step 0",
          firsts.empty() ? -1 : static_cast<double>(firsts.front()));
  return Schedule([=](const auto& t) {
    // A part that has not begun is asked for its first value, which is not used.
    const auto since = [&](int64_t first) {
      return Max(t - static_cast<double>(first), Number(t, 0));
    };
    auto rate = EvaluateAt(*parts.front().second, t);
    for (size_t i = 1; i < parts.size(); ++i) {
      const auto& [first, schedule] = parts[i];
      rate = IfLess(t, Number(t, static_cast<double>(first)), rate,
                    EvaluateAt(*schedule, since(first)));
    }
    return rate;
  });
}

PlateauRate::PlateauRate(double rate, const Options& options) : options_(options) {
  RequireRate("plateau", rate);
  Require(options.factor > 0 && options.factor < 1, "plateau", "factor must lie in (0, 1)",
          options.factor);
  Require(options.patience >= 0, "plateau", "patience must not be negative",
          static_cast<double>(options.patience));
  Require(options.cooldown >= 0, "plateau", "cooldown must not be negative",
          static_cast<double>(options.cooldown));
  Require(options.threshold >= 0, "plateau", "threshold must not be negative", options.threshold);
  RequireRate("plateau", options.min_rate);
  Require(options.epsilon >= 0, "plateau", "epsilon must not be negative", options.epsilon);
  state_.rate = rate;
}

bool PlateauRate::IsBetter(double metric) const {
  if (!std::isfinite(metric)) return false;
  if (!state_.any) return true;
  const double margin = options_.relative ? state_.best * options_.threshold : options_.threshold;
  return options_.minimize ? metric < state_.best - margin : metric > state_.best + margin;
}

double PlateauRate::Update(double metric) {
  if (state_.cooldown > 0) {
    --state_.cooldown;
    return state_.rate;
  }
  if (IsBetter(metric)) {
    state_.best = metric;
    state_.any = true;
    state_.bad = 0;
    return state_.rate;
  }
  if (++state_.bad <= options_.patience) return state_.rate;
  state_.cooldown = options_.cooldown;
  state_.bad = 0;
  const double lower = std::max(state_.rate * options_.factor, options_.min_rate);
  if (state_.rate - lower > options_.epsilon) state_.rate = lower;
  return state_.rate;
}

}  // namespace coracle

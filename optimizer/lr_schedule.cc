#include <coracle/framework/ir/names.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/state.h>
#include <coracle/optimizer/internal/schedule_formula.h>
#include <coracle/optimizer/lr_schedule.h>
#include <coracle/optimizer/update_block.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle {

using namespace formula;  // NOLINT: of numbers, beside those of ScheduleValue

namespace {

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

double EvaluateAt(const LrSchedule& schedule, double t) {
  return schedule.At(static_cast<int64_t>(t));
}
ScheduleValue EvaluateAt(const LrSchedule& schedule, const ScheduleValue& t) {
  return schedule.Append(t);
}

void RequireRate(const char* schedule, double rate) {
  if (rate >= 0 && std::isfinite(rate)) return;
  ThrowInvalid(fmt::format(
      "learning-rate schedule {}: a rate must be finite and not negative, got {}", schedule, rate));
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

LrSchedulePtr WarmupRate(const LrSchedulePtr& after, int64_t steps, double start, double end) {
  if (!after) ThrowInvalid("learning-rate schedule warmup: there is no schedule after it");
  RequireRate("warmup", start);
  RequireRate("warmup", end);
  if (steps <= 0) {
    ThrowInvalid(
        fmt::format("learning-rate schedule warmup: steps must be positive, got {}", steps));
  }
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
  if (parts.empty() || firsts.front() != 0) {
    ThrowInvalid(
        fmt::format("learning-rate schedule sequence: the first part must begin at step 0, got {}",
                    firsts.empty() ? -1 : firsts.front()));
  }
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

}  // namespace coracle

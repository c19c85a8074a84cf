#include <coracle/framework/op/op_def.h>
#include <coracle/passes/affine_step.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace coracle::inline internal {
namespace {

bool IsFinite(const std::vector<double>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
}

std::optional<AffineStep> StepOfScale(const OpDesc& op, const OpSpec& spec) {
  if (HasOtherInput(op, "X") || op.Input("X").size() != 1) return std::nullopt;
  const auto factor = static_cast<double>(spec.AttrOf<float>(op, "scale"));
  const auto bias = static_cast<double>(spec.AttrOf<float>(op, "bias"));
  const bool after = spec.AttrOf<bool>(op, "bias_after_scale");
  return AffineStep{&op, op.Input("X")[0], "", {factor}, {after ? bias : factor * bias}};
}

// The constant's numbers: one, or one for each channel; empty if it has another shape.
std::vector<double> NumbersOf(const Tensor& constant, bool is_y, int axis,
                              const AffineRules& rules) {
  const Shape& shape = constant.shape();
  if (shape.rank() > std::max(rules.rank, 0)) return {};  // the result would have more axes
  const Tensor wide = constant.Cast(DType::kFloat64);
  const std::span<const double> values = wide.span<double>();
  if (values.size() == 1) return {values[0]};
  if (rules.channel_axis < 0 || values.empty() || (!is_y && shape.rank() != rules.rank)) return {};
  const int begin = axis < 0 || !is_y ? rules.rank - shape.rank() : axis;
  if (begin < 0 || begin + shape.rank() > rules.rank) return {};
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != 1 && begin + i != rules.channel_axis) return {};
  return {values.begin(), values.end()};
}

}  // namespace

bool AffineStep::HasFactor() const {
  return std::any_of(factors.begin(), factors.end(), [](double f) { return f != 1; });
}
bool AffineStep::HasShift() const {
  return std::any_of(shifts.begin(), shifts.end(), [](double s) { return s != 0; });
}

std::optional<AffineStep> AffineStepOf(const OpDesc& op, const std::string& x,
                                       const AffineRules& rules, const BlockDesc& block,
                                       const PassContext& context) {
  const std::string& type = op.type();
  const bool add = type == "elementwise_add", subtract = type == "elementwise_sub";
  const bool multiply = type == "elementwise_mul", divide = type == "elementwise_div";
  const OpSpec* spec = context.ops.Find(type);
  if (!spec || op.Output("Out").size() != 1) return std::nullopt;
  std::optional<AffineStep> step;
  if (type == "scale") {
    step = StepOfScale(op, *spec);
    if (step && step->x != x) return std::nullopt;
  } else if (add || subtract || multiply || divide) {
    if (op.Input("X").size() != 1 || op.Input("Y").size() != 1) return std::nullopt;
    const bool is_y = op.Input("X")[0] == x;
    const Tensor* constant = context.FrozenValue(op.Input(is_y ? "Y" : "X")[0]);
    const VarDesc* var = block.FindVarRecursive(x);
    if (!constant || !var || constant->dtype() != var->dtype() ||
        op.Input(is_y ? "X" : "Y")[0] != x || (divide && !is_y))
      return std::nullopt;
    const std::vector<double> c =
        NumbersOf(*constant, is_y, op.GetAttr<int32_t>("axis", -1), rules);
    if (c.empty()) return std::nullopt;
    step = AffineStep{&op, x, "", std::vector<double>(c.size(), 1), std::vector<double>(c.size())};
    for (size_t i = 0; i < c.size(); ++i) {
      if (add) step->shifts[i] = c[i];
      if (subtract) step->shifts[i] = is_y ? -c[i] : c[i];
      if (subtract && !is_y) step->factors[i] = -1;
      if (multiply || divide) step->factors[i] = multiply ? c[i] : 1 / c[i];
    }
  }
  if (!step || !IsFinite(step->factors) || !IsFinite(step->shifts)) return std::nullopt;
  step->y = op.Output("Out")[0];
  return step;
}

void Append(const AffineStep& second, AffineStep* first) {
  const size_t n = std::max(first->factors.size(), second.factors.size());
  const auto at = [](const std::vector<double>& list, size_t i) {
    return list[list.size() == 1 ? 0 : i];
  };
  std::vector<double> factors(n), shifts(n);
  for (size_t i = 0; i < n; ++i) {
    factors[i] = at(first->factors, i) * at(second.factors, i);
    shifts[i] = at(first->shifts, i) * at(second.factors, i) + at(second.shifts, i);
  }
  first->factors = std::move(factors);
  first->shifts = std::move(shifts);
  first->y = second.y;
}

}  // namespace coracle::inline internal

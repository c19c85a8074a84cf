#include <coracle/optimizer/internal/schedule_formula.h>
#include <coracle/optimizer/option_fields.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

// A bool that texts give as its opposite.
const MemberType kOpposite = {AttrType::kBoolean,
                              [](const void* member) -> std::optional<Attribute> {
                                return Attribute(!*static_cast<const bool*>(member));
                              },
                              [](void* member, const Attribute& value) {
                                *static_cast<bool*>(member) = !AttributeAs<bool>(value);
                              }};

}  // namespace

Fields<PlateauRate::Options> internal::FieldsOf(const PlateauRate::Options&) {
  using O = PlateauRate::Options;
  return Fields<O>("The rate falls when evaluations stop improving; one in a schedule.")
      .Add("maximize", &O::minimize, "larger is better", kOpposite)
      .Add("factor", &O::factor, "new rate / old rate",
           FieldRange{0, 1, true, true, "must lie in (0, 1)"})
      .Add("patience", &O::patience, "evaluations in a row that may pass without improvement",
           NotNegativeRange())
      .Add("threshold", &O::threshold, "an improvement is larger than this",
           FieldRange{0, HUGE_VAL, false, false, "must not be negative"})
      .Add("relative", &O::relative, "the threshold is a share of the best")
      .Add("cooldown", &O::cooldown, "evaluations after a fall that do not count",
           NotNegativeRange())
      .Add("min_rate", &O::min_rate, "the rate never falls below", NotNegativeRange());
}

PlateauRate::PlateauRate(double rate, const Options& options) : options_(options) {
  RequireRate("plateau", rate);
  state_.rate = rate;
  FieldsOf(options).Check("learning-rate schedule plateau", options);
  if (!(options.epsilon >= 0))
    ThrowInvalid("learning-rate schedule plateau: epsilon must not be negative");
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

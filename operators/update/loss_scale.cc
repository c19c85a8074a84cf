#include <coracle/framework/base/error.h>
#include <coracle/operators/update/loss_scale.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::inline internal {
namespace {

// Saturates: a file may hold the largest count.
void Count(int32_t* steps) {
  if (*steps < std::numeric_limits<int32_t>::max()) ++*steps;
}

void BackOff(const LossScaleRule& rule, LossScaleState* state) {
  state->scale = std::max(static_cast<float>(state->scale * rule.backoff_factor), rule.min_scale);
}

// Skips a growth whose result would not be finite.
void Grow(const LossScaleRule& rule, LossScaleState* state) {
  const float higher = static_cast<float>(state->scale * rule.growth_factor);
  state->scale = std::min(std::isfinite(higher) ? higher : state->scale, rule.max_scale);
  state->good_steps = 0;
  if (rule.hysteresis > 0) state->bad_steps = 0;
}

}  // namespace

LossScaleState NextLossScale(const LossScaleRule& rule, LossScaleState state, bool overflow) {
  if (!overflow) {
    state.skipped = 0;
    if (rule.hysteresis == 0) state.bad_steps = 0;
    Count(&state.good_steps);
    if (state.good_steps >= rule.growth_interval) Grow(rule, &state);
    return state;
  }
  state.good_steps = 0;
  Count(&state.skipped);
  Count(&state.bad_steps);
  const int32_t enough = rule.hysteresis > 0 ? rule.hysteresis : rule.backoff_interval;
  if (state.bad_steps < enough) return state;
  BackOff(rule, &state);
  // With hysteresis, the count stays full, so that each overflow until the next growth backs off.
  state.bad_steps = rule.hysteresis > 0 ? rule.hysteresis : 0;
  return state;
}

void RequireUsableScale(const LossScaleRule& rule, const LossScaleState& state, const char* who) {
  if (rule.max_skipped == 0 || state.skipped < rule.max_skipped || state.scale > rule.min_scale)
    return;
  throw Error(
      ErrorCode::kOutOfRange,
      fmt::format("{}: no usable loss scale is left: the last {} steps in a row were skipped "
                  "because their gradients were not finite, and the scale is down to {} "
                  "(min_scale); look for a nan in the data or the loss, lower the learning "
                  "rate, or lower min_scale",
                  who, state.skipped, state.scale));
}

}  // namespace coracle::inline internal

#pragma once
// The rule for a dynamic loss scale, shared by the op update_loss_scaling and the
// host-side GradScaler.
//
// Sources: Paddle 2.1's update_loss_scaling (counts and factors), torch.amp.GradScaler (skips a
// growth that would not be finite), Megatron's hysteresis. max_scale, min_scale and the stop
// are ours.

#include <cstdint>

namespace coracle::inline internal {

struct LossScaleRule {
  double growth_factor = 2;        // > 1
  double backoff_factor = 0.5;     // in (0, 1)
  int32_t growth_interval = 2000;  // clean steps in a row before a growth
  // Overflows in a row before a backoff.
  int32_t backoff_interval = 1;
  // If not 0, replaces backoff_interval: the scale backs off at this many overflows since the last
  // growth (consecutive or not), and at each overflow after that.
  int32_t hysteresis = 0;
  // Upper limit of growth and lower limit of backoff.
  float max_scale = 3.40282347e38f, min_scale = 1;
  // The number of consecutive steps with overflow at min_scale after which no usable scale is left;
  // 0: never.
  int32_t max_skipped = 0;
};

// The state that changes from step to step; snapshots contain all of it.
struct LossScaleState {
  float scale = 65536;
  int32_t good_steps = 0;  // clean steps since the last overflow or growth
  int32_t bad_steps = 0;   // overflows counted for the next backoff
  int32_t skipped = 0;     // overflows in a row
};

// The state after a step.
LossScaleState NextLossScale(const LossScaleRule& rule, LossScaleState state, bool overflow);

// Throws kOutOfRange if the state, after a step that overflowed, means that no usable scale is
// left; `who` begins the message.
void RequireUsableScale(const LossScaleRule& rule, const LossScaleState& state, const char* who);

}  // namespace coracle::inline internal

#pragma once
// The rule by which a dynamic loss scale moves: the op update_loss_scaling and the host-side
// GradScaler have it from here.
//
// Sources: Paddle 2.1's update_loss_scaling (counts and factors), torch.amp.GradScaler (a growth
// that would not be finite is left out), Megatron's hysteresis. max_scale, min_scale and the
// stop are ours.

#include <cstdint>

namespace coracle {

struct LossScaleRule {
  double growth_factor = 2;        // > 1
  double backoff_factor = 0.5;     // in (0, 1)
  int32_t growth_interval = 2000;  // clean steps in a row before a growth
  // Overflows in a row before a backoff.
  int32_t backoff_interval = 1;
  // When not 0, backoff_interval does not count: that many overflows since the last growth (in a
  // row or not) are let pass but for the last, and from then on each backs off.
  int32_t hysteresis = 0;
  // The scale grows to max_scale at most and backs off to min_scale at least.
  float max_scale = 3.40282347e38f, min_scale = 1;
  // So many steps in a row with overflow while the scale is at min_scale: no usable scale is
  // left. 0: never.
  int32_t max_skipped = 0;
};

// What changes from step to step; all of it is in a snapshot.
struct LossScaleState {
  float scale = 65536;
  int32_t good_steps = 0;  // clean ones since the last overflow or growth
  int32_t bad_steps = 0;   // overflows that count towards the next backoff
  int32_t skipped = 0;     // overflows in a row
};

// The state after a step.
LossScaleState NextLossScale(const LossScaleRule& rule, LossScaleState state, bool overflow);

// Throws kOutOfRange when the state, the one after a step that overflowed, says that no usable
// scale is left; `who` begins the message.
void RequireUsableScale(const LossScaleRule& rule, const LossScaleState& state, const char* who);

}  // namespace coracle

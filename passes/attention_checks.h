#pragma once
// Checks whether one op may replace the ops of an attention. Internal to passes/.

#include <coracle/passes/attention_finder.h>

namespace coracle::inline internal {

// Whether it has floats of known ranks, a softmax along the last axis, and a mask that is added to
// the last dims.
bool HasUsualTypes(const AttentionOps& a, const AttentionScene& scene);

// Whether no other op uses the values inside it, its inputs still have their values where the fused
// ops run, and there are positions for these.
bool MayBeFused(const AttentionOps& a, const AttentionScene& scene);

}  // namespace coracle::inline internal

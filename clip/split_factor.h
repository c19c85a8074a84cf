#pragma once
// The factor of clips by the norm of float64 gradients. Private to clip/ and distribute/.

#include <coracle/operators/operators.h>

namespace coracle::inline internal {

// The norm of float64 gradients may exceed every float64. If the limit allows it, both are divided
// by 2^kNormExponent; limits up to kLeastScaledLimit would lose digits.
inline constexpr int32_t kNormExponent = 64;
inline constexpr double kLeastScaledLimit = 1e-280;

struct SplitFactor {
  Variable factor, rest;
};

// limit / larger as a product, because it may be smaller than every normal float64. `factor` is the
// quotient if `larger` is at most `reach`, 2^1000 limits; `rest` is 1 unless it is larger.
inline SplitFactor SplitQuotient(const Writer& w, const Variable& limit, const Variable& larger,
                                 const Variable& reach) {
  return {w.Named("factor", limit / w.Named("min", Min(larger, reach))),
          w.Named("rest", 1.0 / w.Named("max", Max(w.Named("beyond", larger / reach), 1.0)))};
}

}  // namespace coracle::inline internal

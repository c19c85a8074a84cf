#pragma once
// The parts of a row of the activation family; see activation_formulas.h.

#include <coracle/framework/op/op_def.h>
#include <coracle/operators/kernels/simd.h>

#include <array>
#include <optional>

namespace coracle::activation {

struct AttrRow {
  const char* name;
  float value;
  const char* doc;
};

// Default members of a row.
struct Row {
  static constexpr bool kFromOut = false;
  static constexpr bool kIntegers = false;     // for int32 and int64 too
  static constexpr bool kComplex = false;      // for complex X too, with a real Out: abs
  static constexpr bool kHasGradient = true;   // false: the derivative is 0 almost everywhere
  static constexpr bool kHasCurvature = true;  // false: the second derivative is 0
  // If set, a slope of 0 means that the value was cut off: no gradient passes there, not even inf
  // or nan. A nan is never cut off.
  static constexpr bool kCutsOff = false;
  static constexpr std::optional<simd::Unary> kSimd = std::nullopt;
  static constexpr std::array<AttrRow, 0> kAttrs = {};
  static constexpr float kFirstParam = 0;     // p[0] without attrs
  static constexpr bool kFactorSlot = false;  // a tensor may replace the first attr
  static constexpr OpPrecision kPrecision = OpPrecision::kFollowsInputs;
  // A BOOL attr, false by default, that selects the formulas of F::WithFlag.
  static constexpr const char *kFlag = nullptr, *kFlagDoc = nullptr;
  // If set, version 0 of the op computed this instead, which is the same only if the first attr is
  // in [kSameFrom, kSameTo].
  static constexpr const char* kVersion0 = nullptr;
  static constexpr float kSameFrom = 0, kSameTo = 0;
};

template <class T>
using P = std::array<T, 3>;

}  // namespace coracle::activation

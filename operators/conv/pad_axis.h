#pragma once
// One padded axis of an image: which element stands where.

#include <algorithm>
#include <cstdint>

namespace coracle {

enum class PadMode { kConstant, kReflect, kEdge, kCircular };

struct PadAxis {
  int64_t in, out, before;  // sizes of the axis before and after padding
};

// Which element of the axis stands at `i` of the padded one; -1 for the pad value.
// REQUIRES: in > 0 unless the mode is kConstant.
inline int64_t PadSource(const PadAxis& axis, int64_t i, PadMode mode) {
  const int64_t at = i - axis.before;
  if (at >= 0 && at < axis.in) return at;
  if (mode == PadMode::kConstant) return -1;
  if (mode == PadMode::kCircular) return (at % axis.in + axis.in) % axis.in;
  const bool reflect = mode == PadMode::kReflect;
  const int64_t far = reflect ? (at < 0 ? -at : 2 * axis.in - 2 - at) : at;
  return std::clamp<int64_t>(far, 0, axis.in - 1);
}

}  // namespace coracle

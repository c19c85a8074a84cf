#pragma once
// What the pad ops of images share: one padded axis, which element stands where, and the gradient
// of the gradient.

#include <coracle/framework/op/gradient_context.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace coracle {

enum class PadMode { kConstant, kReflect, kEdge, kCircular };

inline constexpr int64_t kMaxPadding = int64_t{1} << 31;

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

// The rule of `type`_grad. Without the pad value, 0 by default, the op is linear: what arrives is
// padded with zeros.
inline void SetPadGradGradient(GradientContext& g, const std::string& type) {
  SlotList inputs = g.ForwardInputs({"Paddings"});
  inputs.insert(inputs.begin(), {"X", {g.OutputGrad("X@GRAD")}});
  g.Set("Out@GRAD",
        g.Make(type, std::move(inputs), g.ForwardAttrs({"paddings", "mode", "data_format"})));
}

}  // namespace coracle

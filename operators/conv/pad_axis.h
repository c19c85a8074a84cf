#pragma once
// Shared by the pad ops of images: one padded axis, the source of its elements, and the gradient of
// the gradient.

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

// The source of element `i` of the padded axis; -1 for the pad value. REQUIRES: in > 0 unless the
// mode is kConstant.
inline int64_t PadSource(const PadAxis& axis, int64_t i, PadMode mode) {
  const int64_t at = i - axis.before;
  if (at >= 0 && at < axis.in) return at;
  if (mode == PadMode::kConstant) return -1;
  if (mode == PadMode::kCircular) return (at % axis.in + axis.in) % axis.in;
  const bool reflect = mode == PadMode::kReflect;
  const int64_t far = reflect ? (at < 0 ? -at : 2 * axis.in - 2 - at) : at;
  return std::clamp<int64_t>(far, 0, axis.in - 1);
}

// The gradient rule of `type`_grad. Apart from the pad value, which is 0 by default, the op is
// linear: the gradient is padded with zeros.
inline void SetPadGradGradient(GradientContext& g, const std::string& type) {
  SlotList inputs = g.ForwardInputs({"Paddings"});
  inputs.insert(inputs.begin(), {"X", {g.OutputGrad("X@GRAD")}});
  g.Set("Out@GRAD",
        g.Make(type, std::move(inputs), g.ForwardAttrs({"paddings", "mode", "data_format"})));
}

}  // namespace coracle

#pragma once
// What fast kernels of quantised ops share: activations that only limit values, and the question
// whether float32 serves.

#include <coracle/framework/op/op_context.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace coracle::inline internal {

// The difference between a byte read as uint8 with its highest bit flipped, and as int8.
constexpr int32_t kFlip = 128;

// Whether float32 neither overflows nor loses digits with such a factor or summand of integers. Ops
// with other parameters are computed in double.
inline bool IsTame(double x, double most = 1e25) {
  const double size = std::abs(x);
  return size == 0 || (size > 1 / most && size < most);
}

// The limits of values after the activation, if it only limits them.
struct ActivationBounds {
  bool given = false;
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();

  ActivationBounds() = default;
  // For an op with the attrs of DeclareFusedActivation.
  explicit ActivationBounds(const PrepareContext& ctx) {
    const auto name = ctx.Attr<std::string>("fuse_activation");
    const float alpha = ctx.Attr<float>("fuse_alpha"), beta = ctx.Attr<float>("fuse_beta");
    if (name.empty() || name == "relu") given = true;
    if (name == "relu") low = 0;
    if (name == "relu6" && alpha >= 0) Set(0, alpha);
    if (name == "clip" && alpha <= beta) Set(alpha, beta);
  }

 private:
  void Set(float least, float most) {
    given = true;
    low = least;
    high = most;
  }
};

}  // namespace coracle::inline internal

#pragma once
// Quantisation to integers of a given number of bits, stored as floats. With Q = 2^(bits - 1) - 1,
// a number x of a tensor with scale s becomes round(Q clip(x, -s, s) / s), halves away from 0.
// Multiplying by s / Q dequantizes it.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_def.h>

#include <cmath>
#include <cstdint>

namespace coracle::inline internal {

inline double LargestInteger(int32_t bits) { return std::exp2(bits - 1) - 1; }

// The scale: the largest |x|, or nan if an x is nan.
template <class T>
double LargestOf(const T* x, int64_t n, double largest = 0) {
  for (int64_t i = 0; i < n; ++i) {
    const double a = std::abs(static_cast<double>(x[i]));
    if (a > largest || a != a) largest = a;
  }
  return largest;
}

// The scale of all rows is their largest element, unless is_test fixes it. With the slot Largest,
// the ranks have one scale.
inline RowEffect FixedScaleRows(const RowQuery& query) {
  const bool fixed = query.spec.FindAttr("is_test") && query.spec.AttrOf<bool>(query.op, "is_test");
  if (fixed || !query.op.HasInput("Largest")) return fixed ? RowRule::kEach : RowRule::kMixes;
  return query.output == "Out" ? RowRule::kEach : RowRule::kSame;
}
constexpr const char* kFixedScaleRows =
    "each by itself if is_test or Largest fixes the scale; otherwise they share it";

struct Quantizer {
  double largest;   // Q
  bool dequantize;  // convert the integers back at once

  template <class T>
  void operator()(const T* x, int64_t n, double scale, T* out) const {
    const double divisor = scale <= 1e-30 ? scale + 1e-6 : scale;
    for (int64_t i = 0; i < n; ++i) {
      const auto v = static_cast<double>(x[i]);
      const double clipped = v < -scale ? -scale : v > scale ? scale : v;
      const double integer = std::round(largest * clipped / divisor);
      out[i] = static_cast<T>(dequantize ? integer * scale / largest : integer);
    }
  }
};

// A tensor as [outer, channels, inner].
struct Channels {
  int64_t outer, count, inner;
  Channels(const Shape& shape, int axis)
      : outer(shape.Product(0, axis)),
        count(shape[axis]),
        inner(shape.Product(axis + 1, shape.rank())) {}
  // visit(channel, first element) for runs of `inner` elements.
  template <class Visit>
  void ForEachRun(const Visit& visit) const {
    for (int64_t run = 0; run < outer * count; ++run) visit(run % count, run * inner);
  }
};

inline void DeclareBits(OpDef& def) {
  def.Attr<int32_t>("bit_length", 8, "bits of an integer, its sign included").Range(2, 32);
}

}  // namespace coracle::inline internal

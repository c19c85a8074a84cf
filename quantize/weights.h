#pragma once
// Weights as integers with scales.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <span>

namespace coracle::inline internal {

struct WeightFormat {
  int bits = 8;            // 8: -127 to 127; 4: -8 to 7
  int axis = 0;            // a scale for each index of this axis,
  int64_t block_size = 0;  // or, if not 0, for each block of elements along it and each place else
};

// scale * values approximates the weight. Also 4-bit values are held in int8.
struct IntegerWeight {
  Tensor values;  // int8, of the weight's shape
  // float32. [dim of the axis]; with blocks: the weight's shape with ceil(dim / block_size) instead
  // of the axis's dim.
  Tensor scale;
  WeightFormat format;
};

// Rounds a float32 weight to the nearest multiples of its scales.
//
// 8 bits: a scale is the largest absolute value / 127. 4 bits: of the scales of 70% to 100% of the
// largest absolute value / 7 or / 8 (with the sign that lets -8 stand for it), the one with the
// smallest squared error. Where all values are 0, a scale is the smallest of the others (1 if there
// is none). `least_scales` (empty: none) has a lower bound for each index of the axis, without
// blocks. Throws kOutOfRange for a nan or an infinity.
IntegerWeight RoundWeight(const Tensor& weight, const WeightFormat& format,
                          std::span<const float> least_scales = {});

// scale * values, as float32.
Tensor FloatOf(const IntegerWeight& weight);

}  // namespace coracle::inline internal

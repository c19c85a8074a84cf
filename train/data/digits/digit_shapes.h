#pragma once
// The strokes of the ten digits: the path of the pen in a unit square, x to the right, y down.

#include <span>

namespace coracle::inline internal {

struct PenPoint {
  float x, y;
  bool corner = false;  // the pen changes direction abruptly here
};

using PenStroke = std::span<const PenPoint>;
using DigitStyle = std::span<const PenStroke>;  // one way of writing a digit

// The ways of writing `digit` (0 to 9); never empty.
std::span<const DigitStyle> DigitStyles(int digit);

}  // namespace coracle::inline internal

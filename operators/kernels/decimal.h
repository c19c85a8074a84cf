#pragma once

#include <charconv>

namespace coracle::inline internal {

// The shortest decimal number that rounds to the float: 0.9 for 0.9f, which is 0.89999998. In
// float64, a float attr means this number.
inline double DecimalOf(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double exact = 0;
  std::from_chars(text, end, exact);
  return exact;
}

}  // namespace coracle::inline internal

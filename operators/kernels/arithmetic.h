#pragma once
// Arithmetic on elements, defined for every value: integers wrap around, conversions from float to
// integer truncate and saturate, and 16-bit floats compute in float.

#include <coracle/framework/tensor/tensor.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace coracle::inline internal {

template <class T>
struct WideOf {
  using type = T;
};
template <>
struct WideOf<float16> {
  using type = float;
};
template <>
struct WideOf<bfloat16> {
  using type = float;
};
// The type in which elements of T are computed.
template <class T>
using Wide = typename WideOf<T>::type;

template <class T>
T WrapAdd(T x, T y) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
  else
    return static_cast<T>(static_cast<Wide<T>>(x) + static_cast<Wide<T>>(y));
}

template <class T>
T WrapSub(T x, T y) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(x) - static_cast<uint64_t>(y));
  else
    return static_cast<T>(static_cast<Wide<T>>(x) - static_cast<Wide<T>>(y));
}

template <class T>
T WrapMul(T x, T y) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
  else
    return static_cast<T>(static_cast<Wide<T>>(x) * static_cast<Wide<T>>(y));
}

// Converts a double to T.
template <class T>
T SaturateTo(double value) {
  if constexpr (std::is_integral_v<T>) {
    if (std::isnan(value)) return T(0);
    if (value <= static_cast<double>(std::numeric_limits<T>::min()))
      return std::numeric_limits<T>::min();
    if (value >= static_cast<double>(std::numeric_limits<T>::max()))
      return std::numeric_limits<T>::max();
    return static_cast<T>(value);
  } else {
    return static_cast<T>(static_cast<Wide<T>>(value));
  }
}

}  // namespace coracle::inline internal

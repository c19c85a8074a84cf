#pragma once
// What the quantised ops (quantized_conv2d, quantized_matmul, ...) share. An integer q of a tensor
// with scale s and zero point z means s (q - z).

#include <coracle/framework/op/op_context.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace coracle::inline internal {

inline bool IsByte(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kUInt8; }

// Element i of an integer tensor. REQUIRES: dtype is int8, uint8, int16 or int32.
int32_t IntegerAt(DType dtype, const void* data, int64_t i);

// value, rounded to the nearest integer (ties to the even one), plus the zero point, limited to the
// range of T. A nan gives the least T.
template <class T>
T QuantizeTo(double value, int32_t zero_point) {
  constexpr double kMin = std::numeric_limits<T>::min(), kMax = std::numeric_limits<T>::max();
  const double q = std::nearbyint(value) + zero_point;
  return q >= kMax  ? std::numeric_limits<T>::max()
         : q > kMin ? static_cast<T>(q)
                    : std::numeric_limits<T>::min();
}

// The elements of an input that never changes: {} if the slot is absent, nullopt if it is present
// and may change. REQUIRES: float32 scales; zero points as for IntegerAt.
std::optional<std::vector<float>> ConstantScales(const PrepareContext& ctx, const char* slot);
std::optional<std::vector<int32_t>> ConstantZeroPoints(const PrepareContext& ctx, const char* slot);

// Whether oneDNN sums products of uint8 and int8 exactly on this machine (VNNI or AMX). Elsewhere
// it adds pairs of products in 16 bits, where 255 * 127 + 255 * 127 saturates; 255 * 64 * 2 fits.
bool ExactIntegerProducts();

// Whether products of 8-bit integers take less time than those of float32, so that a program should
// use them where it can.
bool IntegerProductsPay();

// Overrides both answers during its lifetime, so that tests reach both kinds of programs.
class ScopedIntegerProducts {
 public:
  explicit ScopedIntegerProducts(bool exact);
  ~ScopedIntegerProducts();
  ScopedIntegerProducts(const ScopedIntegerProducts&) = delete;
  ScopedIntegerProducts& operator=(const ScopedIntegerProducts&) = delete;

 private:
  int before_;
};

}  // namespace coracle::inline internal

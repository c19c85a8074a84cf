#pragma once
// Bilinear interpolation at real positions of a plane that is zero outside.

#include <cmath>
#include <cstdint>

namespace coracle::inline internal {

// The value at (y, x) is the sum over the four neighbours k of weight[k] times element at[k] of the
// plane (-1 if outside, where the weights are 0). dy and dx are the derivatives of the weights; at
// a whole number, they are the derivatives towards larger numbers.
template <class T>
struct Bilinear {
  int64_t at[4] = {-1, -1, -1, -1};
  T weight[4] = {}, dy[4] = {}, dx[4] = {};

  Bilinear(T y, T x, int64_t height, int64_t width) {
    if (!(y > -1 && x > -1 && y < static_cast<T>(height) && x < static_cast<T>(width))) return;
    const T row = std::floor(y), column = std::floor(x);
    const T below = y - row, right = x - column;
    for (int k = 0; k < 4; ++k) {
      const int64_t i = static_cast<int64_t>(row) + k / 2, j = static_cast<int64_t>(column) + k % 2;
      if (i < 0 || j < 0 || i >= height || j >= width) continue;
      const T wy = k / 2 ? below : 1 - below, wx = k % 2 ? right : 1 - right;
      at[k] = i * width + j;
      weight[k] = wy * wx;
      dy[k] = k / 2 ? wx : -wx;
      dx[k] = k % 2 ? wy : -wy;
    }
  }

  T Of(const T* plane) const { return Sum(plane, weight); }
  T DyOf(const T* plane) const { return Sum(plane, dy); }
  T DxOf(const T* plane) const { return Sum(plane, dx); }
  // plane += value times the weights.
  void AddTo(T* plane, T value) const {
    for (int k = 0; k < 4; ++k) {
      if (at[k] >= 0) plane[at[k]] += weight[k] * value;
    }
  }

 private:
  T Sum(const T* plane, const T (&factors)[4]) const {
    T sum = 0;
    for (int k = 0; k < 4; ++k) {
      if (at[k] >= 0) sum += factors[k] * plane[at[k]];
    }
    return sum;
  }
};

}  // namespace coracle::inline internal

#pragma once
// Products of a constant matrix with rows gathered from memory: convolutions as matrix products
// whose rows are windows (implicit GEMM), and products with few rows.

#include <cstdint>
#include <vector>

namespace coracle::inline internal {

// out[p][m] = act(bias[m] + residual[p][m] + sum over t, c of row(t, p)[c] * filter[t, c][m]).
// row(t, p) is `channels` floats at in + offsets[t * pixels + p], or zeros if that offset
// is negative.
struct WindowProducts {
  const float* in = nullptr;
  const float* zeros = nullptr;      // `channels` zeros; may be null if no offset is negative
  const int64_t* offsets = nullptr;  // null: one tap, and row p follows row p - 1
  int64_t taps = 1, channels = 0, pixels = 0, columns = 0;
  const float* filter = nullptr;    // packed by PackWindowFilter
  const float* bias = nullptr;      // [columns], or null
  const float* residual = nullptr;  // [pixels][columns], or null; may be out
  float* out = nullptr;
  bool relu = false;
};

// The work is cut into units, each some pixels of a panel of columns: runs units [first, last).
int64_t NumWindowUnits(const WindowProducts& products);
void RunWindowUnits(const WindowProducts& products, int64_t first, int64_t last);

// Floats of a packed filter: panels [rows][panel], the last one padded with zeros.
int64_t PackedWindowSize(int64_t rows, int64_t columns);
// The index of an element in it.
int64_t PackedWindowAt(int64_t rows, int64_t row, int64_t column);

}  // namespace coracle::inline internal

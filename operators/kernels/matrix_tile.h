#pragma once
// The inner loop of the direct convolutions: a tile of a strided matrix product, in float32.

#include <cstdint>

namespace coracle::inline internal {

// For p in [0, height) and the lanes v of `vectors` vectors:
//   out[p * out_step + v] (+)= init[v] + sum over r in [0, rows), i in [0, k) of
//       a[p * a_step + i * a_k + r * a_row] * b[i * b_k + r * b_row + v]
struct MatrixTile {
  const float* a = nullptr;
  int64_t a_step = 0, a_k = 0, a_row = 0;
  const float* b = nullptr;
  int64_t b_k = 0, b_row = 0;
  int64_t rows = 1, k = 0;
  float* out = nullptr;
  int64_t out_step = 0;
  const float* init = nullptr;  // null: zeros
  bool add = false;             // adds to the values in `out`
  int height = 1;               // 1 .. MaxTileHeight()
  int vectors = 1;              // 1 or 2
  int64_t lanes = 0;            // of `out` to write, in ((vectors - 1) * lanes, vectors * lanes]
  bool exact_b = false;         // do not read past lane `lanes` of b
};

void RunMatrixTile(const MatrixTile& tile);

// The same for a few columns, as dot products along a and b: for p in [0, height), q
// in [0, columns)
//   out[p * out_step + q] = init[q] + sum over r in [0, rows), i in [0, k) of
//       a[p * a_step + r * a_row + i] * b[(r * columns + q) * b_k + i]
// Each row of b is readable, and zero from k on, up to a multiple of 16 floats.
struct DotTile {
  const float* a = nullptr;
  int64_t a_step = 0, a_row = 0;
  const float* b = nullptr;
  int64_t b_k = 0;
  int64_t rows = 1, k = 0;
  float* out = nullptr;
  int64_t out_step = 0;
  const float* init = nullptr;  // null: zeros
  int height = 1;               // 1 .. 4
  int columns = 1;              // 1 .. 4
};
constexpr int kMaxDotHeight = 4, kMaxDotColumns = 4;

void RunDotTile(const DotTile& tile);

int64_t VectorLanes();  // floats of a vector, a power of two up to 16
int MaxTileHeight();

// sums[c] += sum of x[r * columns + c] over rows.
void AddRows(const float* x, int64_t rows, int64_t columns, float* sums);

}  // namespace coracle::inline internal

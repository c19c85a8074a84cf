#pragma once
// Matrices copied into panels of a few columns, in which matrix_tile.h reads them fastest: rows
// several kilobytes apart soon drive each other out of the first cache.

#include <cstdint>

namespace coracle {

// out[i / width][d][i % width] = x[i * step + d] for i < rows, d < depth: panels of `width`
// columns; the last one is filled up with zeros.
void PackColumns(const float* x, int64_t step, int64_t rows, int64_t depth, int64_t width,
                 float* out);

// out[j / width][i][j % width] = x[i * step + j] for i < rows, j < columns: panels of `width`
// columns, side by side in memory; the last one is filled up with zeros.
void PackRows(const float* x, int64_t step, int64_t rows, int64_t columns, int64_t width,
              float* out);

}  // namespace coracle

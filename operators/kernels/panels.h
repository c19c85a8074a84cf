#pragma once
// Copies matrices into panels of a few columns, from which matrix_tile.h reads fastest: rows
// several kilobytes apart soon evict each other from the first-level cache.

#include <cstdint>

namespace coracle::inline internal {

// out[i / width][d][i % width] = x[i * step + d] for i < rows, d < depth: panels of `width`
// columns; the last one is padded with zeros.
void PackColumns(const float* x, int64_t step, int64_t rows, int64_t depth, int64_t width,
                 float* out);

// out[j / width][i][j % width] = x[i * step + j] for i < rows, j < columns: contiguous panels of
// `width` columns; the last one is padded with zeros.
void PackRows(const float* x, int64_t step, int64_t rows, int64_t columns, int64_t width,
              float* out);

}  // namespace coracle::inline internal

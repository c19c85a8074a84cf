#pragma once
// Matrix products in blocks that stay in the caches (K. Goto and R. van de Geijn, "Anatomy of
// high-performance matrix multiplication", 2008), on the calling thread.

#include <cstdint>
#include <functional>

namespace coracle::inline internal {

// C = alpha A^T B + beta C with A^T(i, p) = a[p * a_row + i], B(p, j) = b[p * b_row + j * b_step]
// and C(i, j) = c[i * c_row + j], where b_row or b_step is 1. With beta 0, C is not read.
struct BlockedProduct {
  int64_t m = 0, n = 0, k = 0;  // all positive
  const float* a = nullptr;
  int64_t a_row = 0;
  const float* b = nullptr;
  int64_t b_row = 0, b_step = 1;
  float* c = nullptr;
  int64_t c_row = 0;
  float alpha = 1, beta = 0;
};

// Calls finish(row, rows, column, columns) for blocks of C when their elements are complete and in
// the cache. The order in which the products of an element are summed depends only on k.
using FinishBlock = std::function<void(int64_t, int64_t, int64_t, int64_t)>;
void RunBlockedProduct(const BlockedProduct& product, const FinishBlock& finish);

}  // namespace coracle::inline internal

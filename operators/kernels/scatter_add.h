#pragma once
// Sums of rows by index: the gradient of gather and of embeddings.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/kernels/selected_rows.h>

#include <algorithm>
#include <cstdint>

namespace coracle::inline internal {

// Sets to[rows, width] to 0, then adds row i of from[count, width] to its row row_of(i), for i in
// order; rows outside of [0, rows) are skipped. Each thread owns a range of target rows, so the
// bits do not depend on the number of threads.
template <class T, class RowOf>
void ScatterAddRows(const T* from, int64_t count, T* to, int64_t rows, int64_t width,
                    RowOf&& row_of) {
  const int64_t work = std::max<int64_t>(1, (count / std::max<int64_t>(1, rows) + 1) * width);
  const int64_t ahead = PrefetchDistance(width * static_cast<int64_t>(sizeof(T)));
  ParallelFor(rows, 1 + 32768 / work, [&](int64_t begin, int64_t end) {
    std::fill(to + begin * width, to + end * width, T(0));
    const auto owns = [&](int64_t row) { return row >= begin && row < end; };
    for (int64_t i = 0; i < count; ++i) {
      if (width > 1 && i + ahead < count) {
        const int64_t next = row_of(i + ahead);
        if (owns(next)) PrefetchRow<true>(to + next * width, width);
      }
      const int64_t row = row_of(i);
      if (!owns(row)) continue;
      const T* in = from + i * width;
      T* out = to + row * width;
      if (width == 1)
        *out = T(*out + *in);
      else
        for (int64_t j = 0; j < width; ++j) out[j] = T(out[j] + in[j]);
    }
  });
}

}  // namespace coracle::inline internal

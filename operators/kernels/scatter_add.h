#pragma once
// Sums of rows by index: the gradient of gather and of embeddings.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/kernels/selected_rows.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace coracle::inline internal {

namespace detail {

// Adds a row to another one. Returns whether a sum of floats is not finite.
template <class T>
bool AddRow(const T* in, T* out, int64_t width) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr uint32_t kExponent = 0x7f800000u, kOne = 0x00800000u;
    uint32_t top = 0;  // the highest bit gets set by an exponent of all ones
    for (int64_t j = 0; j < width; ++j) {
      out[j] += in[j];
      top |= (std::bit_cast<uint32_t>(out[j]) & kExponent) + kOne;
    }
    return (top >> 31) != 0;
  } else {
    for (int64_t j = 0; j < width; ++j) out[j] = T(out[j] + in[j]);
    return false;
  }
}

// Sums the elements of the rows [begin, end) that are not finite again in double: a partial sum may
// have overflowed a float.
template <class RowOf>
void RepairRows(const float* from, int64_t count, float* to, int64_t begin, int64_t end,
                int64_t width, const RowOf& row_of) {
  constexpr int64_t kMostSums = 131072;
  const int64_t most = std::max<int64_t>(1, kMostSums / width);
  std::vector<int64_t> place(static_cast<size_t>(end - begin));
  std::vector<double> sums;
  for (int64_t row = begin; row < end;) {
    const int64_t first = row;
    int64_t wanted = 0;
    for (; row < end && wanted < most; ++row) {
      const float* at = to + row * width;
      const bool all = std::all_of(at, at + width, [](float x) { return std::isfinite(x); });
      place[static_cast<size_t>(row - begin)] = all ? -1 : wanted++;
    }
    sums.assign(static_cast<size_t>(wanted * width), 0.0);
    const auto sums_of = [&](int64_t r) {
      const int64_t at = place[static_cast<size_t>(r - begin)];
      return at < 0 ? nullptr : sums.data() + at * width;
    };
    for (int64_t i = 0; i < count && wanted > 0; ++i) {
      const int64_t r = row_of(i);
      double* sum = r >= first && r < row ? sums_of(r) : nullptr;
      for (int64_t j = 0; sum && j < width; ++j) sum[j] += static_cast<double>(from[i * width + j]);
    }
    for (int64_t r = first; r < row; ++r) {
      const double* sum = sums_of(r);
      for (int64_t j = 0; sum && j < width; ++j) {
        float& x = to[r * width + j];
        if (!std::isfinite(x)) x = static_cast<float>(sum[j]);
      }
    }
  }
}

}  // namespace detail

// Sets to[rows, width] to 0, then adds row i of from[count, width] to its row row_of(i), for i in
// order; rows outside of [0, rows) are skipped. Each thread owns a range of target rows, so the
// bits do not depend on the number of threads. Sums of floats that overflow on the way are right.
template <class T, class RowOf>
void ScatterAddRows(const T* from, int64_t count, T* to, int64_t rows, int64_t width,
                    RowOf&& row_of) {
  const int64_t work = std::max<int64_t>(1, (count / std::max<int64_t>(1, rows) + 1) * width);
  const int64_t ahead = PrefetchDistance(width * static_cast<int64_t>(sizeof(T)));
  ParallelFor(rows, 1 + 32768 / work, [&](int64_t begin, int64_t end) {
    std::fill(to + begin * width, to + end * width, T(0));
    bool overflows = false;
    const auto owns = [&](int64_t row) { return row >= begin && row < end; };
    for (int64_t i = 0; i < count; ++i) {
      if (width > 1 && i + ahead < count) {
        const int64_t next = row_of(i + ahead);
        if (owns(next)) PrefetchRow<true>(to + next * width, width);
      }
      const int64_t row = row_of(i);
      if (!owns(row)) continue;
      overflows |= detail::AddRow(from + i * width, to + row * width, width);
    }
    if constexpr (std::is_same_v<T, float>)
      if (overflows) detail::RepairRows(from, count, to, begin, end, width, row_of);
  });
}

}  // namespace coracle::inline internal

#pragma once
// Norms over some dims of a row-major tensor.

#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/kernels/reduce.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace coracle::inline internal {

namespace detail {

// Slices of a tensor whose first elements lie side by side, walked in the order of memory.
template <class T>
class SliceColumns {
 public:
  static constexpr int64_t kWidth = 256;

  // n <= kWidth slices from `in` on. `reduced` stays where it is.
  SliceColumns(const T* in, int64_t n, const Dims& reduced, int64_t rows)
      : in_(in), n_(n), reduced_(reduced), rows_(rows) {}

  // Adds the squares of the rows [begin, end) to a sum for each slice.
  void AddSquares(int64_t begin, int64_t end, double* sums) const {
    ForEach(begin, end, [sums](int64_t i, double d) { sums[i] += d * d; });
  }

  // store(i, norm) for each slice, given its sum of squares. Slices with an unsafe sum are divided
  // by their largest elements and summed again.
  template <class Store>
  void StoreNorms(const double* sums, const Store& store) const {
    bool unsafe[kWidth];
    int64_t count = 0;
    for (int64_t i = 0; i < n_; ++i) {
      unsafe[i] = !IsSafeSumOfSquares<T>(sums[i]) && !std::isnan(sums[i]);
      count += unsafe[i] ? 1 : 0;
      if (!unsafe[i]) store(i, ScaledNorm{1, std::sqrt(sums[i])});
    }
    if (count > 0) Rescale(unsafe, store);
  }

 private:
  template <class Store>
  void Rescale(bool* wanted, const Store& store) const {
    double units[kWidth] = {}, sums[kWidth] = {};
    ForEach(0, rows_, [&](int64_t i, double d) { units[i] = std::max(units[i], std::abs(d)); });
    int64_t count = 0;
    for (int64_t i = 0; i < n_; ++i) {
      const bool scales = units[i] > 0 && std::isfinite(units[i]);
      if (wanted[i] && !scales) store(i, ScaledNorm{1, units[i]});
      wanted[i] &= scales;
      if (!wanted[i]) units[i] = 1;
      count += wanted[i] ? 1 : 0;
    }
    if (count == 0) return;
    ForEach(0, rows_, [&](int64_t i, double d) { sums[i] += (d / units[i]) * (d / units[i]); });
    for (int64_t i = 0; i < n_; ++i)
      if (wanted[i]) store(i, ScaledNorm{units[i], std::sqrt(sums[i])});
  }

  // f(slice, element) for the rows [begin, end).
  template <class F>
  void ForEach(int64_t begin, int64_t end, const F& f) const {
    DimsWalk walk(reduced_, begin);
    for (int64_t r = begin; r < end; ++r, walk.Next()) {
      const T* row = in_ + walk.offset();
      for (int64_t i = 0; i < n_; ++i) f(i, static_cast<double>(row[i]));
    }
  }

  const T* in_;
  int64_t n_;
  const Dims& reduced_;
  int64_t rows_;
};

// The same for columns that one task would sum alone: their rows are summed in parts, whose number
// depends on the shape alone.
template <class T, class Store>
void StoreNormsByRows(const SliceColumns<T>& columns, int64_t n, int64_t rows, const Store& store) {
  constexpr int64_t kMostParts = 16, kWidth = SliceColumns<T>::kWidth;
  const int64_t parts = std::clamp<int64_t>(rows * n / 32768, 1, kMostParts);
  double sums[kMostParts * kWidth] = {};
  ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      columns.AddSquares(rows * k / parts, rows * (k + 1) / parts, sums + k * kWidth);
  });
  for (int64_t k = 1; k < parts; ++k)
    for (int64_t i = 0; i < n; ++i) sums[i] += sums[k * kWidth + i];
  columns.StoreNorms(sums, store);
}

}  // namespace detail

// For the functions below: calls store(j, norm) with the ScaledNorm of the elements of `in` that
// belong to output j, for each j, on any thread.

template <class T, class Store>
void ForEachNormBySlice(const ReduceNest& nest, double p, const T* in, const Store& store) {
  ForEachOutput(nest, [&](int64_t j, const auto& each) {
    const auto elements = [&](const auto& f) {
      each([&](int64_t at) { f(static_cast<double>(in[at])); });
    };
    store(j, p == 2 ? EuclideanNormOf<T>(elements) : ScaledNormOf(p, elements));
  });
}

// Of order 2. Where kept elements lie side by side, rows of them are summed together, in the order
// of memory.
template <class T, class Store>
void ForEachL2Norm(const ReduceNest& nest, const T* in, const Store& store) {
  constexpr int64_t kBlock = detail::SliceColumns<T>::kWidth;
  if (nest.inner_reduced || nest.kept.rank == 0) return ForEachNormBySlice(nest, 2, in, store);
  const int64_t rows = nest.reduced_numel;
  Dims outer = nest.kept;  // without the innermost dim
  const int64_t width = outer.size[--outer.rank];
  const int64_t blocks = (width + kBlock - 1) / kBlock;
  const int64_t tasks = width == 0 ? 0 : nest.out_numel / width * blocks;
  if (tasks == 1) {
    const detail::SliceColumns<T> columns(in, width, nest.reduced, rows);
    return detail::StoreNormsByRows(columns, width, rows, store);
  }
  const int64_t grain = 1 + 32768 / (1 + rows * std::min(width, kBlock));
  ParallelFor(tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / blocks, first = task % blocks * kBlock;
      const detail::SliceColumns<T> columns(in + DimsWalk(outer, row).offset() + first,
                                            std::min(kBlock, width - first), nest.reduced, rows);
      double sums[kBlock] = {};
      columns.AddSquares(0, rows, sums);
      columns.StoreNorms(
          sums, [&](int64_t i, const ScaledNorm& norm) { store(row * width + first + i, norm); });
    }
  });
}

// Of order p.
template <class T, class Store>
void ForEachNorm(const ReduceNest& nest, double p, const T* in, const Store& store) {
  if (p == 2) return ForEachL2Norm(nest, in, store);
  ForEachNormBySlice(nest, p, in, store);
}

}  // namespace coracle::inline internal

#pragma once
// Reductions over some dims of a row-major tensor.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/kernels/simd.h>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace coracle::inline internal {

// Some dims of a loop nest, outermost first, each with its step in elements of the input.
struct Dims {
  int rank = 0;
  int64_t size[Shape::kMaxRank];
  int64_t step[Shape::kMaxRank];

  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= size[i];
    return n;
  }
};

// Visits the points of Dims in row-major order.
class DimsWalk {
 public:
  DimsWalk(const Dims& dims, int64_t start) : dims_(dims) {
    if (start == 0) return;  // the sizes may be 0
    for (int i = dims.rank - 1; i >= 0; --i) {
      index_[i] = start % dims.size[i];
      start /= dims.size[i];
      offset_ += index_[i] * dims.step[i];
    }
  }
  int64_t offset() const { return offset_; }
  void Next() {
    for (int i = dims_.rank - 1; i >= 0; --i) {
      offset_ += dims_.step[i];
      if (++index_[i] < dims_.size[i]) return;
      offset_ -= dims_.step[i] * dims_.size[i];
      index_[i] = 0;
    }
  }

 private:
  const Dims& dims_;
  int64_t index_[Shape::kMaxRank] = {};
  int64_t offset_ = 0;
};

// The input's dims split into kept and reduced ones; neighbouring dims of one kind are merged.
struct ReduceNest {
  Dims kept, reduced;
  bool inner_reduced = true;  // whether the dim of step 1 is reduced
  int64_t out_numel = 1, reduced_numel = 1;
};
// reduce[i] is true if dim i of `in` is reduced. Exact shapes.
ReduceNest MakeReduceNest(const Shape& in, const bool* reduce);

// Calls visit(j, each) for each output j; each call of each(f) calls f(offset) for the input
// offsets of j. One thread works on a j.
template <class Visit>
void ForEachOutput(const ReduceNest& nest, const Visit& visit) {
  const int64_t grain = 1 + 32768 / (1 + nest.reduced_numel);
  Dims outer = nest.reduced;  // without the innermost dim
  int64_t inner = 1, step = 0;
  if (outer.rank > 0) {
    --outer.rank;
    inner = outer.size[outer.rank];
    step = outer.step[outer.rank];
  }
  const int64_t runs = nest.reduced_numel == 0 ? 0 : nest.reduced_numel / inner;
  ParallelFor(nest.out_numel, grain, [&](int64_t begin, int64_t end) {
    DimsWalk kept(nest.kept, begin);
    for (int64_t j = begin; j < end; ++j, kept.Next()) {
      visit(j, [&](const auto& f) {
        DimsWalk reduced(outer, 0);
        for (int64_t r = 0; r < runs; ++r, reduced.Next()) {
          const int64_t at = kept.offset() + reduced.offset();
          for (int64_t i = 0; i < inner; ++i) f(at + i * step);
        }
      });
    }
  });
}

// Calls store(j, acc) for each output j, with acc = step(acc, offset) over the input offsets of j:
// the reference.
template <class Acc, class Step, class Store>
void ReduceLoop(const ReduceNest& nest, Acc init, const Step& step, const Store& store) {
  ForEachOutput(nest, [&](int64_t j, const auto& each) {
    Acc acc = init;
    each([&](int64_t at) { acc = step(acc, at); });
    store(j, acc);
  });
}

// The split of the work of the fast sum. It depends only on the shape, so the result does not
// depend on the number of threads.
struct FastSumPlan {
  ReduceNest nest;
  Dims outer_kept, outer_reduced;  // without the innermost dim
  int64_t inner = 1;
  int64_t kept_count = 1, tiles = 1, tile = 1, units = 1, blocks = 1;
  int64_t scratch_floats = 0;
};
constexpr int64_t kMaxTerms = 1024;
FastSumPlan MakeFastSumPlan(const ReduceNest& nest);

namespace detail {

// Adds the rows [begin, end) of `inner` kept elements each, from column on, into acc.
template <class Terms>
void AddRows(const FastSumPlan& p, const Terms& terms, int64_t base, int64_t begin, int64_t end,
             int64_t count, float* acc) {
  static const simd::BinaryLoop add =
      simd::FindBinary(simd::Binary::kAdd, simd::Form::kVectorVector);
  float buffer[kMaxTerms];
  std::fill_n(acc, count, 0.0f);
  if (p.outer_reduced.rank == 1 && p.inner <= kMaxTerms / 4) {
    // The rows are contiguous and short. Adding whole groups of rows gives longer vector loops; the
    // rows of the sum are added at the end.
    const int64_t group = kMaxTerms / 2 / p.inner, wide = group * p.inner;
    float sums[kMaxTerms] = {};
    for (int64_t row = begin; row < end; row += group) {
      const int64_t n = std::min(wide, (end - row) * p.inner);
      add(sums, terms(base + row * p.inner, n, buffer), sums, n);
    }
    for (int64_t i = 0; i < wide; i += p.inner) add(acc, sums + i, acc, count);
    return;
  }
  DimsWalk rows(p.outer_reduced, begin);
  for (int64_t r = begin; r < end; ++r, rows.Next())
    add(acc, terms(base + rows.offset(), count, buffer), acc, count);
}

// The sum of the elements [begin, end) of the runs of `inner` reduced elements. Pieces of at most
// kMaxTerms elements are summed in float, their sums in double, so that the error does not grow
// with the number of pieces.
template <class Terms>
float SumRuns(const FastSumPlan& p, const Terms& terms, int64_t base, int64_t begin, int64_t end) {
  float buffer[kMaxTerms];
  double sum = 0;
  DimsWalk runs(p.outer_reduced, begin / p.inner);
  int64_t column = begin % p.inner;
  for (int64_t at = begin; at < end;) {
    const int64_t count = std::min({p.inner - column, end - at, kMaxTerms});
    sum += simd::Sum(terms(base + runs.offset() + column, count, buffer), count);
    at += count;
    column += count;
    if (column == p.inner) {
      column = 0;
      runs.Next();
    }
  }
  return static_cast<float>(sum);
}

}  // namespace detail

// out[j] = scale * the sum of the terms of j. terms(offset, count, buffer) returns the address of
// the terms for input elements [offset, offset + count), count <= kMaxTerms; it may store them in
// buffer. `scratch` has plan.scratch_floats elements.
template <class Terms>
void FastSum(const FastSumPlan& p, const Terms& terms, float scale, float* out, float* scratch) {
  if (p.nest.reduced_numel == 0) std::fill_n(out, p.nest.out_numel, 0.0f * scale);
  if (p.nest.reduced_numel == 0 || p.nest.out_numel == 0) return;
  float* partial = p.blocks > 1 ? scratch : out;
  const int64_t tasks = p.kept_count * p.tiles * p.blocks;
  const int64_t work =
      std::max<int64_t>(1, p.nest.reduced_numel * p.nest.out_numel / std::max<int64_t>(1, tasks));
  ParallelFor(tasks, std::max<int64_t>(1, 32768 / work), [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t block = task % p.blocks, tile = task / p.blocks % p.tiles;
      const int64_t kept = task / p.blocks / p.tiles;
      const int64_t begin = p.units * block / p.blocks, end = p.units * (block + 1) / p.blocks;
      const int64_t base = DimsWalk(p.outer_kept, kept).offset();
      float* to = partial + block * p.nest.out_numel;
      if (p.nest.inner_reduced) {
        to[kept] = detail::SumRuns(p, terms, base, begin, end);
      } else {
        const int64_t column = tile * p.tile, count = std::min(p.tile, p.inner - column);
        detail::AddRows(p, terms, base + column, begin, end, count, to + kept * p.inner + column);
      }
    }
  });
  if (p.blocks == 1 && scale == 1.0f) return;
  for (int64_t j = 0; j < p.nest.out_numel; ++j) {
    float sum = partial[j];
    for (int64_t b = 1; b < p.blocks; ++b) sum += partial[b * p.nest.out_numel + j];
    out[j] = sum * scale;
  }
}

// After a FastSum: sums again in double what overflowed a float on the way, and what has a nan or
// an infinity. term(at) is the term of input element `at` in double.
template <class Term>
void RepairSums(const FastSumPlan& p, const Term& term, float scale, float* out) {
  constexpr uint32_t kExponent = 0x7f800000u;
  const auto is_finite = [](float x) {
    return (std::bit_cast<uint32_t>(x) & kExponent) != kExponent;
  };
  bool all = true;
  for (int64_t j = 0; j < p.nest.out_numel; ++j) all &= is_finite(out[j]);
  if (all) return;
  ForEachOutput(p.nest, [&](int64_t j, const auto& each) {
    if (is_finite(out[j])) return;
    double sum = 0;
    each([&](int64_t at) { sum += term(at); });
    out[j] = static_cast<float>(sum * static_cast<double>(scale));
  });
}
// RepairSums for the terms of the FastSum, which are not to change meanwhile.
template <class Terms>
void RepairFastSum(const FastSumPlan& p, const Terms& terms, float scale, float* out) {
  const auto term = [&](int64_t at) {
    float buffer[kMaxTerms];
    return static_cast<double>(*terms(at, 1, buffer));
  };
  RepairSums(p, term, scale, out);
}

}  // namespace coracle::inline internal

#include <coracle/operators/kernels/vision_simd.h>

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/kernels/vision_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = FloatTag;
using V = FloatVec;
using IntTag = hn::RebindToSigned<D>;
using IntVec = hn::Vec<IntTag>;

void MixRows(const float* const* rows, const float* weights, int64_t count, int64_t n, float* out) {
  const D d;
  for (int64_t i = 0; i < n; i += FloatLanes()) {
    V sum = hn::Zero(d);
    for (int64_t r = 0; r < count; ++r)
      sum = hn::MulAdd(LoadFirst(rows[r] + i, n - i), hn::Set(d, weights[r]), sum);
    StoreFirst(sum, out + i, n - i);
  }
}

// Two rows, by far the most frequent case, without loads of loop-invariant values.
void MixTwoRows(const float* a, const float* b, float weight_a, float weight_b, int64_t n,
                float* out) {
  const V wa = hn::Set(D(), weight_a), wb = hn::Set(D(), weight_b);
  for (int64_t i = 0; i < n; i += FloatLanes()) {
    const V sum = hn::Mul(LoadFirst(a + i, n - i), wa);
    StoreFirst(hn::MulAdd(LoadFirst(b + i, n - i), wb, sum), out + i, n - i);
  }
}

// The elements at[0, lanes) of a row whose elements [low, high) are at `in`. Positions do not
// decrease; nearby ones come from one or two vectors.
HWY_INLINE V ReadAt(const int32_t* at, const float* in, int64_t low, int64_t high) {
  const D d;
  const IntTag di;
  const int64_t lanes = FloatLanes(), first = at[0], span = at[lanes - 1] - first;
  const IntVec index = hn::LoadU(di, at);
  if (span >= 2 * lanes)
    return hn::GatherIndex(d, in, hn::Sub(index, hn::Set(di, static_cast<int32_t>(low))));
  const IntVec off = hn::Sub(index, hn::Set(di, at[0]));
  const float* from = in + (first - low);
  if (span < lanes)
    return hn::TableLookupLanes(LoadFirst(from, high - first), hn::IndicesFromVec(d, off));
  const IntVec last = hn::Set(di, static_cast<int32_t>(lanes - 1));
  const auto lane = hn::IndicesFromVec(d, hn::And(off, last));
  const V a = hn::TableLookupLanes(hn::LoadU(d, from), lane);
  const V b = hn::TableLookupLanes(LoadFirst(from + lanes, high - first - lanes), lane);
  return hn::IfThenElse(hn::RebindMask(d, hn::Gt(off, last)), b, a);
}

// With `ragged`, values at taps of weight 0 are ignored, since 0 times inf would be nan.
template <bool ragged>
void MixColumnsOf(const RowTaps& taps, int64_t begin, int64_t end, const float* in, int64_t low,
                  int64_t high, float* out) {
  const D d;
  const int32_t* at = taps.at.data();
  const float* weight = taps.weight.data();
  const IntTag di;
  const int64_t lanes = FloatLanes(), last = (taps.taps - 1) * taps.stride + lanes - 1;
  const auto counted = [&](V value, V w) HWY_ATTR {
    return ragged ? hn::IfThenZeroElse(hn::Eq(w, hn::Zero(d)), value) : value;
  };
  for (int64_t k = begin; k < end; k += lanes) {
    // The sum over the taps, whose elements are read(k), read(k + stride), ...
    const auto mix = [&](auto&& read) HWY_ATTR {
      V sum = read(k);
      if (!taps.move) {
        const V w = hn::LoadU(d, weight + k);
        sum = hn::Mul(counted(sum, w), w);
      }
      for (int64_t t = 1, i = k + taps.stride; t < taps.taps; ++t, i += taps.stride) {
        const V w = hn::LoadU(d, weight + i);
        sum = hn::MulAdd(counted(read(i), w), w, sum);
      }
      StoreFirst(sum, out + (k - begin), end - k);
    };
    if (at[last + k] - at[k] < lanes) {
      // All taps are in one vector.
      const int64_t first = at[k];
      const V window = LoadFirst(in + (first - low), high - first);
      const IntVec base = hn::Set(di, at[k]);
      mix([&](int64_t i) HWY_ATTR {
        const auto lane = hn::IndicesFromVec(d, hn::Sub(hn::LoadU(di, at + i), base));
        return hn::TableLookupLanes(window, lane);
      });
    } else {
      mix([&](int64_t i) HWY_ATTR { return ReadAt(at + i, in, low, high); });
    }
  }
}

void MixColumns(const RowTaps& taps, int64_t begin, int64_t end, const float* in, int64_t low,
                int64_t high, float* out) {
  if (taps.ragged)
    MixColumnsOf<true>(taps, begin, end, in, low, high, out);
  else
    MixColumnsOf<false>(taps, begin, end, in, low, high, out);
}

void MixPixels(const RowTaps& taps, int64_t pixel, const float* const* rows, const float* weights,
               int64_t count, bool add, float* out) {
  const D d;
  const int64_t lanes = FloatLanes();
  for (int64_t k = 0; k < taps.out; ++k, out += pixel) {
    // Calls f(first element of a pixel, its weight) for all pixels that contribute to this one.
    const auto for_sources = [&](auto&& f) HWY_ATTR {
      for (int64_t t = 0; t < taps.taps; ++t) {
        const int64_t i = t * taps.stride + k, offset = taps.at[static_cast<size_t>(i)] * pixel;
        const float weight = taps.weight[static_cast<size_t>(i)];
        if (taps.ragged && weight == 0) continue;
        for (int64_t r = 0; r < count; ++r) f(rows[r] + offset, weight * weights[r]);
      }
    };
    int64_t c = 0;
    for (; c + 4 * lanes <= pixel; c += 4 * lanes) {
      float* to = out + c;
      V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
      if (add) {
        s0 = hn::LoadU(d, to);
        s1 = hn::LoadU(d, to + lanes);
        s2 = hn::LoadU(d, to + 2 * lanes);
        s3 = hn::LoadU(d, to + 3 * lanes);
      }
      for_sources([&](const float* from, float weight) HWY_ATTR {
        const V w = hn::Set(d, weight);
        s0 = hn::MulAdd(hn::LoadU(d, from + c), w, s0);
        s1 = hn::MulAdd(hn::LoadU(d, from + c + lanes), w, s1);
        s2 = hn::MulAdd(hn::LoadU(d, from + c + 2 * lanes), w, s2);
        s3 = hn::MulAdd(hn::LoadU(d, from + c + 3 * lanes), w, s3);
      });
      hn::StoreU(s0, d, to);
      hn::StoreU(s1, d, to + lanes);
      hn::StoreU(s2, d, to + 2 * lanes);
      hn::StoreU(s3, d, to + 3 * lanes);
    }
    for (; c < pixel; c += lanes) {
      V sum = add ? LoadFirst(out + c, pixel - c) : hn::Zero(d);
      for_sources([&](const float* from, float weight) HWY_ATTR {
        sum = hn::MulAdd(LoadFirst(from + c, pixel - c), hn::Set(d, weight), sum);
      });
      StoreFirst(sum, out + c, pixel - c);
    }
  }
}

// Calls f(k, the elements) for the four neighbours of samples [i, i + lanes).
template <class F>
HWY_INLINE void ForNeighbours(const SampleTile& tile, const float* plane, int64_t i, F&& f) {
  const IntTag di;
  for (int k = 0; k < 4; ++k) {
    const IntVec at = hn::LoadU(di, tile.at[k] + i);
    const V value = hn::GatherIndex(D(), plane, hn::Max(at, hn::Zero(di)));
    f(k, hn::IfThenZeroElse(hn::RebindMask(D(), hn::Lt(at, hn::Zero(di))), value));
  }
}

void ReadSamples(const SampleTile& tile, const float* plane, const float* factors, float* out) {
  const D d;
  for (int64_t i = 0; i < tile.size; i += FloatLanes()) {
    V sum = hn::Zero(d);
    ForNeighbours(tile, plane, i, [&](int k, V value) HWY_ATTR {
      sum = hn::MulAdd(hn::LoadU(d, tile.weight[k] + i), value, sum);
    });
    if (factors) sum = hn::Mul(sum, LoadFirst(factors + i, tile.size - i));
    StoreFirst(sum, out + i, tile.size - i);
  }
}

template <bool with_sum>
void AddDerivativesOf(const SampleTile& tile, const float* plane, const float* values, float* sum,
                      float* along_y, float* along_x) {
  const D d;
  for (int64_t i = 0; i < tile.size; i += FloatLanes()) {
    V s = hn::Zero(d), y = s, x = s;
    ForNeighbours(tile, plane, i, [&](int k, V value) HWY_ATTR {
      if (with_sum) s = hn::MulAdd(hn::LoadU(d, tile.weight[k] + i), value, s);
      y = hn::MulAdd(hn::LoadU(d, tile.dy[k] + i), value, y);
      x = hn::MulAdd(hn::LoadU(d, tile.dx[k] + i), value, x);
    });
    const V v = LoadFirst(values + i, tile.size - i);
    if (with_sum) hn::StoreU(hn::MulAdd(v, s, hn::LoadU(d, sum + i)), d, sum + i);
    hn::StoreU(hn::MulAdd(v, y, hn::LoadU(d, along_y + i)), d, along_y + i);
    hn::StoreU(hn::MulAdd(v, x, hn::LoadU(d, along_x + i)), d, along_x + i);
  }
}

void AddDerivatives(const SampleTile& tile, const float* plane, const float* values, float* sum,
                    float* along_y, float* along_x) {
  if (sum)
    AddDerivativesOf<true>(tile, plane, values, sum, along_y, along_x);
  else
    AddDerivativesOf<false>(tile, plane, values, sum, along_y, along_x);
}

void Incline(const float* x, const float* v, const float* slope, bool shared, int64_t n,
             float* out) {
  const D d;
  const V zero = hn::Zero(d), one_slope = shared ? hn::Set(d, slope[0]) : zero;
  for (int64_t i = 0; i < n; i += FloatLanes()) {
    const V value = LoadFirst(v + i, n - i);
    const V a = shared ? one_slope : LoadFirst(slope + i, n - i);
    const auto positive = hn::Gt(LoadFirst(x + i, n - i), zero);
    StoreFirst(hn::IfThenElse(positive, value, hn::Mul(a, value)), out + i, n - i);
  }
}

// x v, but 0 where x > 0.
HWY_INLINE V Inclined(V x, V v) {
  return hn::IfThenZeroElse(hn::Gt(x, hn::Zero(D())), hn::Mul(x, v));
}

double InclinedSum(const float* x, const float* v, int64_t n) {
  constexpr int64_t kFlush = 64;  // number of steps summed in float
  const D d;
  const int64_t lanes = FloatLanes();
  double total = 0;
  int64_t i = 0;
  while (i < n) {
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t step = 0; step < kFlush && i + 4 * lanes <= n; ++step, i += 4 * lanes) {
      const auto at = [&](int64_t k) HWY_ATTR {
        return Inclined(hn::LoadU(d, x + i + k * lanes), hn::LoadU(d, v + i + k * lanes));
      };
      s0 = hn::Add(s0, at(0));
      s1 = hn::Add(s1, at(1));
      s2 = hn::Add(s2, at(2));
      s3 = hn::Add(s3, at(3));
    }
    for (; i < n && i + 4 * lanes > n; i += lanes)
      s0 = hn::Add(s0, Inclined(LoadFirst(x + i, n - i), LoadFirst(v + i, n - i)));
    const V sum = hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
    total += static_cast<double>(hn::GetLane(sum));
  }
  return total;
}

void AddInclined(const float* x, const float* v, int64_t n, float* sums) {
  for (int64_t i = 0; i < n; i += FloatLanes()) {
    const V share = Inclined(LoadFirst(x + i, n - i), LoadFirst(v + i, n - i));
    StoreFirst(hn::Add(LoadFirst(sums + i, n - i), share), sums + i, n - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(MixRows);
HWY_EXPORT(MixTwoRows);
HWY_EXPORT(MixColumns);
HWY_EXPORT(MixPixels);
HWY_EXPORT(ReadSamples);
HWY_EXPORT(AddDerivatives);
HWY_EXPORT(Incline);
HWY_EXPORT(InclinedSum);
HWY_EXPORT(AddInclined);

}  // namespace

void MixRows(const float* const* rows, const float* weights, int64_t count, int64_t n, float* out) {
  if (count == 2)
    return HWY_DYNAMIC_DISPATCH(MixTwoRows)(rows[0], rows[1], weights[0], weights[1], n, out);
  HWY_DYNAMIC_DISPATCH(MixRows)(rows, weights, count, n, out);
}

void MixColumns(const RowTaps& taps, int64_t begin, int64_t end, const float* in, int64_t low,
                int64_t high, float* out) {
  HWY_DYNAMIC_DISPATCH(MixColumns)(taps, begin, end, in, low, high, out);
}

void MixPixels(const RowTaps& taps, int64_t pixel, const float* const* rows, const float* weights,
               int64_t count, bool add, float* out) {
  HWY_DYNAMIC_DISPATCH(MixPixels)(taps, pixel, rows, weights, count, add, out);
}

void SampleTile::Finish(int64_t n) {
  size = n;
  constexpr int64_t kAlign = RowTaps::kAlign;
  const int64_t end = std::min(kSize, (n + kAlign - 1) / kAlign * kAlign);
  for (int k = 0; k < 4; ++k) {
    for (int64_t i = n; i < end; ++i) {
      at[k][i] = -1;
      weight[k][i] = dy[k][i] = dx[k][i] = 0;
    }
  }
}

void ReadSamples(const SampleTile& tile, const float* plane, const float* factors, float* out) {
  HWY_DYNAMIC_DISPATCH(ReadSamples)(tile, plane, factors, out);
}

void SpreadSamples(const SampleTile& tile, const float* values, float* plane) {
  for (int64_t i = 0; i < tile.size; ++i) {
    const int32_t first = tile.at[0][i], last = tile.at[3][i];
    const float value = values[i];
    if (first >= 0 && last >= 0) {  // then all between them are inside too
      plane[first] += tile.weight[0][i] * value;
      plane[first + 1] += tile.weight[1][i] * value;
      plane[last - 1] += tile.weight[2][i] * value;
      plane[last] += tile.weight[3][i] * value;
      continue;
    }
    for (int k = 0; k < 4; ++k) {
      if (tile.at[k][i] >= 0) plane[tile.at[k][i]] += tile.weight[k][i] * value;
    }
  }
}

void AddDerivatives(const SampleTile& tile, const float* plane, const float* values, float* sum,
                    float* along_y, float* along_x) {
  HWY_DYNAMIC_DISPATCH(AddDerivatives)(tile, plane, values, sum, along_y, along_x);
}

void Incline(const float* x, const float* v, const float* slope, bool shared, int64_t n,
             float* out) {
  HWY_DYNAMIC_DISPATCH(Incline)(x, v, slope, shared, n, out);
}

double InclinedSum(const float* x, const float* v, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(InclinedSum)(x, v, n);
}

void AddInclined(const float* x, const float* v, int64_t n, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddInclined)(x, v, n, sums);
}

}  // namespace coracle::inline internal
#endif

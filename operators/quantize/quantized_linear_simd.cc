#include <coracle/operators/quantize/quantized_linear_simd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/quantize/quantized_linear_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd_unroll-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most a row of a panel. A scalable vector is at least this long.
#if HWY_HAVE_SCALABLE
using PanelTag = hn::CappedTag<float, 4>;
#else
using PanelTag = hn::CappedTag<float, kPanelColumns>;
#endif
using PanelVec = hn::Vec<PanelTag>;
using PanelInts = hn::RebindToSigned<PanelTag>;
constexpr int kPanelLanes = static_cast<int>(hn::MaxLanes(PanelTag()));
constexpr int kVectors = static_cast<int>(kPanelColumns) / kPanelLanes;

// Bytes of a group as floats, minus one zero point.
template <class Q>
class ByteNumbers {
 public:
  static constexpr int64_t kGroupBytes = kPanelColumns * 8;
  HWY_INLINE explicit ByteNumbers(float zero) : zero_(hn::Set(PanelTag(), zero)) {}
  template <int kIndex, bool kShifts>
  HWY_INLINE PanelVec At(const uint8_t* group, int v) const {
    const hn::Rebind<Q, PanelTag> d;
    const Q* from = reinterpret_cast<const Q*>(group) + kIndex * kPanelColumns + v * kPanelLanes;
    const PanelVec q = hn::ConvertTo(PanelTag(), hn::PromoteTo(PanelInts(), hn::LoadU(d, from)));
    return kShifts ? hn::Sub(q, zero_) : q;
  }

 private:
  PanelVec zero_;
};

// Numbers of 4 bits. With 16 lanes, a permutation of a vector looks them up.
class Nibbles {
 public:
  static constexpr int64_t kGroupBytes = kPanelColumns * 4;
  HWY_INLINE explicit Nibbles(float zero)
      : zero_(hn::Set(PanelTag(), zero)), table_(hn::Sub(hn::Iota(PanelTag(), 0), zero_)) {}
  template <int kIndex, bool kShifts>
  HWY_INLINE PanelVec At(const uint8_t* group, int v) const {
    const hn::RebindToUnsigned<PanelTag> d;
    const auto* words = reinterpret_cast<const uint32_t*>(group) + v * kPanelLanes;
    const auto low = hn::ShiftRight<4 * kIndex>(hn::LoadU(d, words));
    const auto q = hn::BitCast(PanelInts(), hn::And(low, hn::Set(d, 15)));
    if constexpr (kPanelLanes == 16) return hn::TableLookupLanes(table_, Places(low, q));
    const PanelVec number = hn::ConvertTo(PanelTag(), q);
    return kShifts ? hn::Sub(number, zero_) : number;
  }

 private:
  // The instruction ignores the bits above the lowest 4.
  template <class Low>
  static HWY_INLINE auto Places(Low low, hn::Vec<PanelInts> q) {
#if HWY_TARGET <= HWY_AVX3 && !HWY_IS_DEBUG_BUILD
    (void)q;
    return hn::IndicesFromVec(PanelTag(), hn::BitCast(PanelInts(), low));
#else
    (void)low;
    return hn::IndicesFromVec(PanelTag(), q);
#endif
  }

  PanelVec zero_, table_;
};

// The zero points of a block.
template <bool kZeros>
struct BlockZeros {
  PanelVec vectors[kVectors];
  HWY_INLINE BlockZeros(const LinearPanels& p, int64_t step) {
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kZeros) {
        const hn::Rebind<int16_t, PanelTag> d;
        const auto ints =
            hn::PromoteTo(PanelInts(), hn::LoadU(d, p.zeros + step + v * kPanelLanes));
        vectors[v] = hn::ConvertTo(PanelTag(), ints);
      } else {
        vectors[v] = hn::Zero(PanelTag());
      }
    }
  }
};

// Sums of products for rows of X and the columns of a panel. All loops are inlined folds, so that
// the sums stay in registers. `kShifts`: there is one zero point, and it is not 0; `kZeros`: each
// block has its own ones.
template <class Numbers, int kRows, bool kShifts, bool kZeros>
class PanelSums {
 public:
  static constexpr int kCount = kRows * kVectors;

  HWY_INLINE explicit PanelSums(const Numbers& numbers) : numbers_(numbers) {
    Unroll<kChains * kCount>([&](auto s) HWY_ATTR { sums_[s] = hn::Zero(PanelTag()); });
  }

  // Adds the products of a whole group; x + at are its elements of each row.
  HWY_INLINE void AddGroup(const uint8_t* group, const BlockZeros<kZeros>& zeros,
                           const float* const* x, int64_t at) {
    AddAll(group, zeros, x, at, std::make_integer_sequence<int, kPanelGroup>());
  }
  // The same for the first `count` numbers of a group.
  HWY_INLINE void AddPart(const uint8_t* group, const BlockZeros<kZeros>& zeros,
                          const float* const* x, int64_t at, int64_t count) {
    AddSome(group, zeros, x, at, count, std::make_integer_sequence<int, kPanelGroup>());
  }
  template <int kSum>
  HWY_INLINE PanelVec Sum() const {
    PanelVec sum = sums_[kSum];
    if constexpr (kChains > 1) sum = hn::Add(sum, sums_[kCount + kSum]);
    if constexpr (kChains > 2)
      sum = hn::Add(sum, hn::Add(sums_[2 * kCount + kSum], sums_[3 * kCount + kSum]));
    return sum;
  }

 private:
  // Enough independent sums for the latency of a multiply-add.
  static constexpr int kChains = kCount >= 4 ? 1 : 4 / kCount;

  template <int... kAt>
  HWY_INLINE void AddAll(const uint8_t* group, const BlockZeros<kZeros>& zeros,
                         const float* const* x, int64_t at, std::integer_sequence<int, kAt...>) {
    (AddNumber<kAt>(group, zeros, x, at, std::make_integer_sequence<int, kVectors>()), ...);
  }
  template <int... kAt>
  HWY_INLINE void AddSome(const uint8_t* group, const BlockZeros<kZeros>& zeros,
                          const float* const* x, int64_t at, int64_t count,
                          std::integer_sequence<int, kAt...>) {
    ((kAt < count ? AddNumber<kAt>(group, zeros, x, at, std::make_integer_sequence<int, kVectors>())
                  : void()),
     ...);
  }
  template <int kAt, int... kVector>
  HWY_INLINE void AddNumber(const uint8_t* group, const BlockZeros<kZeros>& zeros,
                            const float* const* x, int64_t at,
                            std::integer_sequence<int, kVector...>) {
    (AddVector<kAt, kVector>(group, zeros, x, at, std::make_integer_sequence<int, kRows>()), ...);
  }
  template <int kAt, int kVector, int... kRow>
  HWY_INLINE void AddVector(const uint8_t* group, const BlockZeros<kZeros>& zeros,
                            const float* const* x, int64_t at,
                            std::integer_sequence<int, kRow...>) {
    PanelVec w = numbers_.template At<kAt, kShifts>(group, kVector);
    if constexpr (kZeros) w = hn::Sub(w, zeros.vectors[kVector]);
    constexpr int kFirst = kAt % kChains * kCount + kVector;
    ((sums_[kFirst + kRow * kVectors] =
          hn::MulAdd(w, hn::Set(PanelTag(), x[kRow][at + kAt]), sums_[kFirst + kRow * kVectors])),
     ...);
  }

  Numbers numbers_;
  PanelVec sums_[kChains * kCount];
};

template <class Numbers, int kRows, bool kShifts, bool kZeros>
void Multiply(const LinearPanels& p, int64_t panel, const float* const* from, float* out) {
  using Sums = PanelSums<Numbers, kRows, kShifts, kZeros>;
  const PanelTag d;
  const Numbers numbers(p.zero);
  const uint8_t* group = p.weights + panel * p.PanelBytes();
  const float* x[kRows];
  std::copy_n(from, kRows, x);
  PanelVec total[Sums::kCount];
  Unroll<Sums::kCount>([&](auto i) HWY_ATTR { total[i] = hn::Zero(d); });
  for (int64_t b = 0; b < p.blocks; ++b) {
    const int64_t step = (panel * p.blocks + b) * kPanelColumns;
    const BlockZeros<kZeros> zeros(p, step);
    Sums sums(numbers);
    int64_t i = b * p.block;
    const int64_t end = std::min(i + p.block, p.k);
    for (; i + kPanelGroup <= end; i += kPanelGroup, group += Numbers::kGroupBytes)
      sums.AddGroup(group, zeros, x, i);
    if (i < end) {
      sums.AddPart(group, zeros, x, i, end - i);
      group += Numbers::kGroupBytes;
    }
    Unroll<Sums::kCount>([&](auto s) HWY_ATTR {
      constexpr int kSum = decltype(s)::value;
      const PanelVec scale = hn::LoadU(d, p.scales + step + kSum % kVectors * kPanelLanes);
      total[kSum] = hn::MulAdd(sums.template Sum<kSum>(), scale, total[kSum]);
    });
  }
  Unroll<Sums::kCount>(
      [&](auto i) HWY_ATTR { hn::StoreU(total[i], d, out + decltype(i)::value * kPanelLanes); });
}

template <class Numbers, int kRows>
void MultiplyBy(const LinearPanels& p, int64_t panel, const float* const* x, float* out) {
  if (p.zeros) return Multiply<Numbers, kRows, false, true>(p, panel, x, out);
  if (p.zero != 0) return Multiply<Numbers, kRows, true, false>(p, panel, x, out);
  Multiply<Numbers, kRows, false, false>(p, panel, x, out);
}

template <class Numbers>
void MultiplyRows(const LinearPanels& p, int64_t panel, const float* x, int64_t x_step,
                  int64_t rows, float* out) {
  // Registers hold the sums of so many rows.
  constexpr int kMost = kVectors == 1 ? 8 : kVectors == 2 ? 4 : 2;
  for (int64_t first = 0; first < rows; first += kMost) {
    const int64_t count = std::min<int64_t>(kMost, rows - first);
    const float* row[kMost];
    // Rows that fill up the registers are equal to the last one. Nothing reads their results.
    for (int64_t r = 0; r < kMost; ++r) row[r] = x + (first + std::min(r, count - 1)) * x_step;
    float* to = out + first * kPanelColumns;
    if (count == 1) {
      MultiplyBy<Numbers, 1>(p, panel, row, to);
    } else if (count == 2) {
      MultiplyBy<Numbers, 2>(p, panel, row, to);
    } else if constexpr (kMost >= 4) {
      if (kMost == 4 || count <= 4)
        MultiplyBy<Numbers, 4>(p, panel, row, to);
      else
        MultiplyBy<Numbers, kMost>(p, panel, row, to);
    }
  }
}

void MultiplyPanelOf(const LinearPanels& p, int64_t panel, const float* x, int64_t x_step,
                     int64_t rows, float* out) {
  if (p.bits == 4) return MultiplyRows<Nibbles>(p, panel, x, x_step, rows, out);
  if (p.is_signed) return MultiplyRows<ByteNumbers<int8_t>>(p, panel, x, x_step, rows, out);
  MultiplyRows<ByteNumbers<uint8_t>>(p, panel, x, x_step, rows, out);
}

template <class Numbers, bool kZeros>
void Dequantize(const LinearPanels& p, int64_t panel, float* to, int64_t step, int64_t columns) {
  const PanelTag d;
  const Numbers numbers(p.zero);
  const uint8_t* group = p.weights + panel * p.PanelBytes();
  const auto bytes = static_cast<size_t>(columns) * sizeof(float);
  for (int64_t b = 0; b < p.blocks; ++b) {
    const int64_t at = (panel * p.blocks + b) * kPanelColumns;
    const BlockZeros<kZeros> zeros(p, at);
    const int64_t end = std::min((b + 1) * p.block, p.k);
    for (int64_t i = b * p.block; i < end; i += kPanelGroup, group += Numbers::kGroupBytes) {
      Unroll<kPanelGroup>([&](auto index) HWY_ATTR {
        constexpr int kIndex = decltype(index)::value;
        if (i + kIndex >= end) return;
        float* row = to + (i + kIndex) * step;
        float last[kPanelColumns];
        float* out = columns == kPanelColumns ? row : last;
        for (int v = 0; v < kVectors; ++v) {
          PanelVec w = numbers.template At<kIndex, true>(group, v);
          if constexpr (kZeros) w = hn::Sub(w, zeros.vectors[v]);
          const PanelVec scale = hn::LoadU(d, p.scales + at + v * kPanelLanes);
          hn::StoreU(hn::Mul(w, scale), d, out + v * kPanelLanes);
        }
        if (out != row) std::memcpy(row, last, bytes);
      });
    }
  }
}

template <class Numbers>
void DequantizeBy(const LinearPanels& p, int64_t panel, float* to, int64_t step, int64_t columns) {
  if (p.zeros) return Dequantize<Numbers, true>(p, panel, to, step, columns);
  Dequantize<Numbers, false>(p, panel, to, step, columns);
}

void DequantizePanelOf(const LinearPanels& p, int64_t panel, float* to, int64_t step,
                       int64_t columns) {
  if (p.bits == 4) return DequantizeBy<Nibbles>(p, panel, to, step, columns);
  if (p.is_signed) return DequantizeBy<ByteNumbers<int8_t>>(p, panel, to, step, columns);
  DequantizeBy<ByteNumbers<uint8_t>>(p, panel, to, step, columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(MultiplyPanelOf);
HWY_EXPORT(DequantizePanelOf);

}  // namespace

void MultiplyPanel(const LinearPanels& panels, int64_t panel, const float* x, int64_t x_step,
                   int64_t rows, float* out, int64_t out_step, int64_t columns) {
  float sums[kPanelRows * kPanelColumns];
  HWY_DYNAMIC_DISPATCH(MultiplyPanelOf)(panels, panel, x, x_step, rows, sums);
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(sums + r * kPanelColumns, columns, out + r * out_step);
}
void DequantizePanel(const LinearPanels& panels, int64_t panel, float* to, int64_t step,
                     int64_t columns) {
  HWY_DYNAMIC_DISPATCH(DequantizePanelOf)(panels, panel, to, step, columns);
}

}  // namespace coracle::inline internal
#endif

#include <coracle/operators/quantize/quantized_elementwise.h>

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/quantize/quantized_elementwise_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using IntTag = hn::ScalableTag<int32_t>;
using RealTag = hn::Rebind<float, IntTag>;
using ByteTag = hn::Rebind<uint8_t, IntTag>;
using IntVec = hn::Vec<IntTag>;
using RealVec = hn::Vec<RealTag>;
using ByteVec = hn::Vec<ByteTag>;
constexpr int64_t kMostLanes = HWY_MAX_BYTES / sizeof(int32_t);

HWY_INLINE int64_t IntLanes() { return static_cast<int64_t>(hn::Lanes(IntTag())); }

// The numbers of an operand, without its scale.
template <bool repeats, bool flips>
class Reader {
 public:
  explicit Reader(const ByteOperand& from)
      : flip_(hn::Set(ByteTag(), from.flipped ? 0x80 : 0)),
        zero_(hn::Set(RealTag(), static_cast<float>(from.zero))) {
    if constexpr (repeats) {
      const auto one = static_cast<uint8_t>(from.data[0] ^ (from.flipped ? 0x80 : 0));
      repeated_ = hn::Set(RealTag(), static_cast<float>(one - from.zero));
    }
  }
  HWY_INLINE RealVec operator()(const uint8_t* p) const {
    if constexpr (repeats) return repeated_;
    ByteVec q = hn::LoadU(ByteTag(), p);
    if constexpr (flips) q = hn::Xor(q, flip_);
    return hn::Sub(hn::ConvertTo(RealTag(), hn::PromoteTo(IntTag(), q)), zero_);
  }

 private:
  ByteVec flip_;
  RealVec zero_, repeated_ = hn::Zero(RealTag());
};

template <bool add, bool x_repeats, bool y_repeats, bool flips>
class Formula {
 public:
  Formula(const ByteArithmetic& how, const ByteOperand& x, const ByteOperand& y)
      : read_x_(x),
        read_y_(y),
        a_(hn::Set(RealTag(), how.x_factor)),
        b_(hn::Set(RealTag(), how.y_factor)),
        low_(hn::Set(RealTag(), how.low)),
        high_(hn::Set(RealTag(), how.high)) {}
  HWY_INLINE RealVec operator()(const uint8_t* p, const uint8_t* q) const {
    const RealVec u = read_x_(p), w = read_y_(q);
    const RealVec v = add ? hn::MulAdd(u, a_, hn::Mul(w, b_)) : hn::Mul(hn::Mul(u, w), a_);
    return hn::Min(hn::Max(v, low_), high_);
  }

 private:
  Reader<x_repeats, flips> read_x_;
  Reader<y_repeats, flips> read_y_;
  RealVec a_, b_, low_, high_;
};

// Calls one(x, y, out) for the elements of a vector, the last of which are in buffers.
template <bool x_repeats, bool y_repeats, int64_t kSize, class One>
HWY_INLINE void ForRest(const ByteOperand& x, const ByteOperand& y, uint8_t* out, int64_t i,
                        int64_t n, const One& one) {
  for (; i + IntLanes() <= n; i += IntLanes())
    one(x.data + (x_repeats ? 0 : i), y.data + (y_repeats ? 0 : i), out + i * kSize);
  if (i >= n) return;
  uint8_t p[kMostLanes] = {}, q[kMostLanes] = {};
  HWY_ALIGN uint8_t made[kMostLanes * kSize];
  const auto rest = static_cast<size_t>(n - i);
  if (!x_repeats) std::memcpy(p, x.data + i, rest);
  if (!y_repeats) std::memcpy(q, y.data + i, rest);
  one(p, q, made);
  std::memcpy(out + i * kSize, made, rest * kSize);
}

template <bool add, bool x_repeats, bool y_repeats, bool flips>
void ComputeReals(const ByteArithmetic& how, const ByteOperand& x, const ByteOperand& y, void* out,
                  int64_t n) {
  const Formula<add, x_repeats, y_repeats, flips> formula(how, x, y);
  ForRest<x_repeats, y_repeats, sizeof(float)>(
      x, y, static_cast<uint8_t*>(out), 0, n,
      [&](const uint8_t* p, const uint8_t* q, uint8_t* to)
          HWY_ATTR { hn::StoreU(formula(p, q), RealTag(), reinterpret_cast<float*>(to)); });
}

template <bool add, bool x_repeats, bool y_repeats, bool flips>
void ComputeRounded(const ByteArithmetic& how, const ByteOperand& x, const ByteOperand& y,
                    void* out, int64_t n) {
  const Formula<add, x_repeats, y_repeats, flips> formula(how, x, y);
  const IntVec zero = hn::Set(IntTag(), how.zero);
  const ByteVec flip = hn::Set(ByteTag(), how.flipped ? 0x80 : 0);
  auto* to = static_cast<uint8_t*>(out);
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  // Two vectors at a time: they are narrowed to int16 block by block, and the four bytes of each
  // block put in order at the end.
  const hn::Repartition<int16_t, IntTag> d16;
  const hn::Rebind<uint8_t, decltype(d16)> d8;
  const hn::Repartition<uint32_t, decltype(d8)> d32;
  const int64_t lanes = IntLanes();
  uint32_t order[kMostLanes];
  const int64_t blocks = lanes / 4;
  for (int64_t b = 0; b < blocks; ++b) {
    order[b] = static_cast<uint32_t>(2 * b);
    order[blocks + b] = static_cast<uint32_t>(2 * b + 1);
  }
  const auto in_order = hn::SetTableIndices(d32, order);
  const auto zero16 = hn::Set(d16, static_cast<int16_t>(how.zero));
  const auto flip8 = hn::Set(d8, how.flipped ? 0x80 : 0);
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const uint8_t *p = x.data + (x_repeats ? 0 : i), *q = y.data + (y_repeats ? 0 : i);
    const IntVec first = hn::NearestInt(formula(p, q));
    const IntVec second =
        hn::NearestInt(formula(p + (x_repeats ? 0 : lanes), q + (y_repeats ? 0 : lanes)));
    const auto narrow = hn::SaturatedAdd(hn::ReorderDemote2To(d16, first, second), zero16);
    const auto bytes = hn::BitCast(d32, hn::DemoteTo(d8, narrow));
    const auto ordered = hn::BitCast(d8, hn::TableLookupLanes(bytes, in_order));
    hn::StoreU(flips ? hn::Xor(ordered, flip8) : ordered, d8, to + i);
  }
#endif
  ForRest<x_repeats, y_repeats, 1>(
      x, y, to, i, n, [&](const uint8_t* p, const uint8_t* q, uint8_t* one) HWY_ATTR {
        const IntVec rounded = hn::NearestInt(formula(p, q));
        const ByteVec bytes = hn::DemoteTo(ByteTag(), hn::Add(rounded, zero));
        hn::StoreU(hn::Xor(bytes, flip), ByteTag(), one);
      });
}

template <bool add, bool reals, bool x_repeats, bool y_repeats>
void ComputeRow(const ByteArithmetic& how, const ByteOperand& x, const ByteOperand& y, void* out,
                int64_t n) {
  if constexpr (reals) {
    ComputeReals<add, x_repeats, y_repeats, true>(how, x, y, out, n);
  } else {
    if (x.flipped || y.flipped || how.flipped)
      ComputeRounded<add, x_repeats, y_repeats, true>(how, x, y, out, n);
    else
      ComputeRounded<add, x_repeats, y_repeats, false>(how, x, y, out, n);
  }
}

template <bool add, bool reals>
void ComputeForm(const ByteArithmetic& how, const ByteOperand& x, const ByteOperand& y, void* out,
                 int64_t n) {
  if (x.repeats && y.repeats) return ComputeRow<add, reals, true, true>(how, x, y, out, n);
  if (x.repeats) return ComputeRow<add, reals, true, false>(how, x, y, out, n);
  if (y.repeats) return ComputeRow<add, reals, false, true>(how, x, y, out, n);
  ComputeRow<add, reals, false, false>(how, x, y, out, n);
}

void ComputeBytes(const ByteArithmetic& how, const ByteOperand& x, const ByteOperand& y, void* out,
                  int64_t n) {
  ByteArithmetic limited = how;
  // Beyond these, integers are at the end of their range. Highway's DemoteTo<uint8_t> is wrong
  // above 32767.
  if (!how.to_reals) {
    limited.low = std::max(how.low, -1e4f);
    limited.high = std::min(how.high, 1e4f);
  }
  const bool add = how.op == QuantizedBinary::kAdd;
  if (add && how.to_reals) return ComputeForm<true, true>(limited, x, y, out, n);
  if (add) return ComputeForm<true, false>(limited, x, y, out, n);
  if (how.to_reals) return ComputeForm<false, true>(limited, x, y, out, n);
  ComputeForm<false, false>(limited, x, y, out, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(ComputeBytes);

}  // namespace

void ComputeBytes(const ByteArithmetic& how, const ByteOperand& x, const ByteOperand& y, void* out,
                  int64_t n) {
  HWY_DYNAMIC_DISPATCH(ComputeBytes)(how, x, y, out, n);
}

}  // namespace coracle::inline internal
#endif

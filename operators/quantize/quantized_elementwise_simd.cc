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

// The real numbers of an operand, without its scale.
template <bool repeats>
class Reader {
 public:
  explicit Reader(const ByteOperand& from)
      : flip_(hn::Set(ByteTag(), from.flipped ? 0x80 : 0)), zero_(hn::Set(IntTag(), from.zero)) {
    if constexpr (repeats) {
      const auto one = static_cast<uint8_t>(from.data[0] ^ (from.flipped ? 0x80 : 0));
      repeated_ = hn::Set(RealTag(), static_cast<float>(one - from.zero));
    }
  }
  HWY_INLINE RealVec operator()(const uint8_t* p) const {
    if constexpr (repeats) return repeated_;
    const IntVec q = hn::PromoteTo(IntTag(), hn::Xor(hn::LoadU(ByteTag(), p), flip_));
    return hn::ConvertTo(RealTag(), hn::Sub(q, zero_));
  }

 private:
  ByteVec flip_;
  IntVec zero_;
  RealVec repeated_ = hn::Zero(RealTag());
};

template <bool add, bool reals, bool x_repeats, bool y_repeats>
void ComputeRow(const ByteArithmetic& how, const ByteOperand& x, const ByteOperand& y, void* out,
                int64_t n) {
  const RealTag d;
  const Reader<x_repeats> read_x(x);
  const Reader<y_repeats> read_y(y);
  const RealVec a = hn::Set(d, how.x_factor), b = hn::Set(d, how.y_factor);
  const RealVec low = hn::Set(d, how.low), high = hn::Set(d, how.high);
  const IntVec zero = hn::Set(IntTag(), how.zero);
  const ByteVec flip = hn::Set(ByteTag(), how.flipped ? 0x80 : 0);
  const auto compute = [&](const uint8_t* p, const uint8_t* q, void* to) HWY_ATTR {
    const RealVec u = read_x(p), w = read_y(q);
    RealVec v = add ? hn::MulAdd(u, a, hn::Mul(w, b)) : hn::Mul(hn::Mul(u, w), a);
    v = hn::Min(hn::Max(v, low), high);
    if constexpr (reals) {
      hn::StoreU(v, d, static_cast<float*>(to));
    } else {
      const ByteVec bytes = hn::DemoteTo(ByteTag(), hn::Add(hn::NearestInt(v), zero));
      hn::StoreU(hn::Xor(bytes, flip), ByteTag(), static_cast<uint8_t*>(to));
    }
  };
  constexpr int64_t kSize = reals ? sizeof(float) : 1;
  auto* to = static_cast<uint8_t*>(out);
  int64_t i = 0;
  for (; i + IntLanes() <= n; i += IntLanes())
    compute(x.data + (x_repeats ? 0 : i), y.data + (y_repeats ? 0 : i), to + i * kSize);
  if (i >= n) return;
  uint8_t p[kMostLanes] = {}, q[kMostLanes] = {};
  HWY_ALIGN uint8_t made[kMostLanes * kSize];
  const auto rest = static_cast<size_t>(n - i);
  if (!x_repeats) std::memcpy(p, x.data + i, rest);
  if (!y_repeats) std::memcpy(q, y.data + i, rest);
  compute(p, q, made);
  std::memcpy(to + i * kSize, made, rest * kSize);
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

#include <coracle/operators/quantize/quantized_matmul_simd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/quantize/quantized_matmul_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using ByteTag = hn::ScalableTag<uint8_t>;
using IntTag = hn::CappedTag<int32_t, kSumsPadding>;
using RealTag = hn::Rebind<float, IntTag>;
using IntVec = hn::Vec<IntTag>;
using RealVec = hn::Vec<RealTag>;

HWY_INLINE int64_t IntLanes() { return static_cast<int64_t>(hn::Lanes(IntTag())); }

void FlipBytes(const uint8_t* from, uint8_t* to, int64_t n) {
  const ByteTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto top = hn::Set(d, 0x80);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Xor(hn::LoadU(d, from + i), top), d, to + i);
  for (; i < n; ++i) to[i] = static_cast<uint8_t>(from[i] ^ 0x80);
}

void BytesToFloats(const uint8_t* from, float* to, int64_t n) {
  const hn::Rebind<uint8_t, IntTag> db;
  int64_t i = 0;
  for (; i + IntLanes() <= n; i += IntLanes())
    hn::StoreU(hn::ConvertTo(RealTag(), hn::PromoteTo(IntTag(), hn::LoadU(db, from + i))),
               RealTag(), to + i);
  for (; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

// Whole vectors of int8 from bytes, and single ones.
class SignedBytes {
 public:
  SignedBytes(const uint8_t* data, bool flip) : data_(data), flip_(flip ? 0x80 : 0) {}
  HWY_INLINE IntVec Vector(int64_t i) const {
    const hn::Rebind<uint8_t, IntTag> d;
    const hn::Rebind<int8_t, IntTag> to;
    const auto bytes = hn::Xor(hn::LoadU(d, data_ + i), hn::Set(d, flip_));
    return hn::PromoteTo(IntTag(), hn::BitCast(to, bytes));
  }
  int32_t One(int64_t i) const { return static_cast<int8_t>(data_[i] ^ flip_); }

 private:
  const uint8_t* data_;
  uint8_t flip_;
};

void SignedBytesToFloats(const uint8_t* from, float* to, int64_t n, bool flip) {
  const SignedBytes bytes(from, flip);
  int64_t i = 0;
  for (; i + IntLanes() <= n; i += IntLanes())
    hn::StoreU(hn::ConvertTo(RealTag(), bytes.Vector(i)), RealTag(), to + i);
  for (; i < n; ++i) to[i] = static_cast<float>(bytes.One(i));
}

int64_t SumBytes(const uint8_t* x, int64_t n, bool flip) {
  const ByteTag d;
  const hn::Repartition<uint64_t, ByteTag> wide;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint8_t top = flip ? 0x80 : 0;
  const auto flipped = hn::Set(d, top);
  auto sums = hn::Zero(wide);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    sums = hn::Add(sums, hn::SumsOf8(hn::Xor(hn::LoadU(d, x + i), flipped)));
  auto sum = static_cast<int64_t>(hn::GetLane(hn::SumOfLanes(wide, sums)));
  for (; i < n; ++i) sum += static_cast<uint8_t>(x[i] ^ top);
  return sum;
}

void SumColumns(const uint8_t* x, int64_t rows, int64_t n, bool flip, int32_t* sums) {
  const IntTag d;
  std::fill_n(sums, n, 0);
  for (int64_t r = 0; r < rows; ++r, x += n) {
    const SignedBytes bytes(x, flip);
    int64_t j = 0;
    for (; j + IntLanes() <= n; j += IntLanes())
      hn::StoreU(hn::Add(hn::LoadU(d, sums + j), bytes.Vector(j)), d, sums + j);
    for (; j < n; ++j) sums[j] += bytes.One(j);
  }
}

void AddIntegers(const float* x, int64_t n, int32_t* sums) {
  const IntTag d;
  int64_t i = 0;
  for (; i + IntLanes() <= n; i += IntLanes()) {
    const IntVec more = hn::ConvertTo(d, hn::LoadU(RealTag(), x + i));
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), more), d, sums + i);
  }
  for (; i < n; ++i) sums[i] += static_cast<int32_t>(x[i]);
}

// round(v) + zero. Max gives its second operand for a nan. The limits of v keep the conversion in
// the range of int32.
template <class Out>
HWY_INLINE void StoreBytes(RealVec v, IntVec zero, Out* out) {
  const hn::Rebind<Out, IntTag> d;
  hn::StoreU(hn::DemoteTo(d, hn::Add(hn::NearestInt(v), zero)), d, out);
}

// Limits of a value before rounding, within which every result is the same as beyond them.
// Highway's DemoteTo<uint8_t> is wrong above 32767.
struct Limits {
  float low, high;
  Limits(float low_wanted, float high_wanted) : low(low_wanted), high(high_wanted) {
    low = std::clamp(low, -1e4f, 1e4f);
    high = std::clamp(high, -1e4f, 1e4f);
  }
};

// Calls step(residual, out, j) for whole vectors, and for a last one in buffers.
template <class Residual, class Out, class Step>
HWY_INLINE void ForVectors(const Residual* residual, Out* out, int64_t n, const Step& step) {
  int64_t j = 0;
  for (; j + IntLanes() <= n; j += IntLanes()) step(residual ? residual + j : nullptr, out + j, j);
  if (j >= n) return;
  Residual read[kSumsPadding] = {};
  Out written[kSumsPadding] = {};
  const auto rest = static_cast<size_t>(n - j);
  if (residual) std::memcpy(read, residual + j, rest * sizeof(Residual));
  step(residual ? read : nullptr, written, j);
  std::memcpy(out + j, written, rest * sizeof(Out));
}

HWY_INLINE IntVec CorrectedSums(const SumsRow& row, int64_t j) {
  const IntTag d;
  const IntVec t = hn::Add(hn::LoadU(d, row.sums + j), hn::LoadU(d, row.offset + j));
  if (!row.corrected) return t;
  const IntVec by_x = hn::Mul(hn::LoadU(d, row.column_sums + j), hn::Set(d, row.x_zero));
  const IntVec by_y = hn::Mul(hn::LoadU(d, row.column_zeros + j), hn::Set(d, row.row_sum));
  return hn::Sub(hn::Sub(t, by_x), by_y);
}

template <class Residual>
HWY_INLINE RealVec ReadReals(const Residual* p, IntVec zero) {
  if constexpr (sizeof(Residual) == 4) {
    return hn::LoadU(RealTag(), p);
  } else {
    const hn::Rebind<Residual, IntTag> d;
    return hn::ConvertTo(RealTag(), hn::Sub(hn::PromoteTo(IntTag(), hn::LoadU(d, p)), zero));
  }
}

template <class Residual, class Out>
void FinishReals(const SumsRow& row, int64_t n) {
  const RealTag d;
  const Limits limits(row.low, row.high);
  const bool bytes = sizeof(Out) == 1;
  const RealVec scale = hn::Set(d, row.scale), low = hn::Set(d, bytes ? limits.low : row.low);
  const RealVec high = hn::Set(d, bytes ? limits.high : row.high);
  const RealVec residual_factor = hn::Set(d, row.residual_factor);
  const IntVec residual_zero = hn::Set(IntTag(), row.residual_zero);
  const RealVec least = hn::Set(d, -1e4f);
  const RealVec nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  const IntVec zero = hn::Set(IntTag(), row.zero);
  ForVectors(static_cast<const Residual*>(row.residual), static_cast<Out*>(row.out), n,
             [&](const Residual* residual, Out* out, int64_t j) HWY_ATTR {
               const RealVec t = hn::ConvertTo(d, CorrectedSums(row, j));
               const RealVec factor = hn::Mul(hn::LoadU(d, row.factor + j), scale);
               RealVec v = hn::MulAdd(t, factor, hn::LoadU(d, row.bias + j));
               if (residual) v = hn::MulAdd(ReadReals(residual, residual_zero), residual_factor, v);
               const auto is_number = hn::Eq(v, v);
               v = hn::Min(hn::Max(v, low), high);
               // Only such a residual can bring a nan, which no activation changes.
               if (sizeof(Residual) == 4 && residual)
                 v = hn::IfThenElse(is_number, v, sizeof(Out) == 1 ? least : nan);
               if constexpr (sizeof(Out) == 1)
                 StoreBytes(v, zero, out);
               else
                 hn::StoreU(v, d, out);
             });
}

void FinishIntegers(const SumsRow& row, int64_t n) {
  ForVectors(static_cast<const int32_t*>(nullptr), static_cast<int32_t*>(row.out), n,
             [&](const int32_t*, int32_t* out, int64_t j)
                 HWY_ATTR { hn::StoreU(CorrectedSums(row, j), IntTag(), out); });
}

template <class Residual>
void FinishWith(const SumsRow& row, int64_t n) {
  if (row.out_dtype == DType::kInt8) return FinishReals<Residual, int8_t>(row, n);
  if (row.out_dtype == DType::kUInt8) return FinishReals<Residual, uint8_t>(row, n);
  FinishReals<Residual, float>(row, n);
}

void FinishSums(const SumsRow& row, int64_t n) {
  if (row.out_dtype == DType::kInt32) return FinishIntegers(row, n);
  if (row.residual_dtype == DType::kInt8) return FinishWith<int8_t>(row, n);
  if (row.residual_dtype == DType::kUInt8) return FinishWith<uint8_t>(row, n);
  FinishWith<float>(row, n);
}

template <class Out>
void RoundRow(const float* x, int64_t n, const ByteRounding& rounding, Out* out) {
  const RealTag d;
  const RealVec factor = hn::Set(d, rounding.factor);
  const RealVec low = hn::Set(d, -1e4f), high = hn::Set(d, 1e4f);
  const IntVec zero = hn::Set(IntTag(), rounding.zero);
  ForVectors(x, out, n, [&](const float* from, Out* to, int64_t) HWY_ATTR {
    const RealVec v = hn::Mul(hn::LoadU(d, from), factor);
    StoreBytes(hn::Min(hn::Max(v, low), high), zero, to);
  });
}

void RoundToBytes(const float* x, int64_t n, const ByteRounding& rounding, void* out) {
  if (rounding.dtype == DType::kInt8)
    RoundRow(x, n, rounding, static_cast<int8_t*>(out));
  else
    RoundRow(x, n, rounding, static_cast<uint8_t*>(out));
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(FlipBytes);
HWY_EXPORT(BytesToFloats);
HWY_EXPORT(SignedBytesToFloats);
HWY_EXPORT(SumBytes);
HWY_EXPORT(SumColumns);
HWY_EXPORT(AddIntegers);
HWY_EXPORT(FinishSums);
HWY_EXPORT(RoundToBytes);

}  // namespace

void FlipBytes(const uint8_t* from, uint8_t* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(FlipBytes)(from, to, n);
}
void BytesToFloats(const uint8_t* from, float* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(BytesToFloats)(from, to, n);
}
void SignedBytesToFloats(const uint8_t* from, float* to, int64_t n, bool flip) {
  HWY_DYNAMIC_DISPATCH(SignedBytesToFloats)(from, to, n, flip);
}
int64_t SumBytes(const uint8_t* x, int64_t n, bool flip) {
  return HWY_DYNAMIC_DISPATCH(SumBytes)(x, n, flip);
}
void SumColumns(const uint8_t* x, int64_t rows, int64_t n, bool flip, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(SumColumns)(x, rows, n, flip, sums);
}
void AddIntegers(const float* x, int64_t n, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(AddIntegers)(x, n, sums);
}
void FinishSums(const SumsRow& row, int64_t n) { HWY_DYNAMIC_DISPATCH(FinishSums)(row, n); }
void RoundToBytes(const float* x, int64_t n, const ByteRounding& rounding, void* out) {
  HWY_DYNAMIC_DISPATCH(RoundToBytes)(x, n, rounding, out);
}

}  // namespace coracle::inline internal
#endif

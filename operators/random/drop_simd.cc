#include <coracle/operators/random/drop.h>

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/random/drop_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// out = x factor where the word is above `last`, else 0; plus y unless y is null. Reads words up to
// one vector past n.
void DropFloats(const uint32_t* words, uint32_t last, float factor, const float* x, const float* y,
                float* out, int64_t n) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> words_tag;
  const FloatVec f = hn::Set(d, factor);
  const auto most = hn::Set(words_tag, last);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const auto kept = hn::RebindMask(d, hn::Gt(hn::LoadU(words_tag, words + i), most));
    FloatVec v = hn::IfThenElseZero(kept, hn::Mul(LoadFirst(x + i, n - i), f));
    if (y) v = hn::Add(v, LoadFirst(y + i, n - i));
    StoreFirst(v, out + i, n - i);
  }
}

void KeptBytes(const uint32_t* words, uint32_t last, uint8_t* mask, int64_t n) {
  for (int64_t i = 0; i < n; ++i) mask[i] = words[i] > last;
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(DropFloats);
HWY_EXPORT(KeptBytes);

}  // namespace

void DropPart(const DropDraws& draws, int64_t begin, int64_t end, const float* x, const float* y,
              float* out, uint8_t* mask) {
  const auto drop = HWY_DYNAMIC_DISPATCH(DropFloats);
  const auto note = HWY_DYNAMIC_DISPATCH(KeptBytes);
  // A word w is kept if w >= threshold; with threshold 0, all are kept.
  const auto threshold = static_cast<uint64_t>(draws.p * 0x1p32);
  const uint32_t last = threshold > 0 ? static_cast<uint32_t>(threshold - 1) : 0;
  constexpr int64_t kWords = 1024;
  // HWY_MAX_BYTES is the vector size of the baseline here, not of the target that runs.
  constexpr int64_t kLongestVector = 256 / sizeof(uint32_t);
  uint32_t words[kWords + kLongestVector] = {};
  if (threshold == 0) std::fill(std::begin(words), std::end(words), ~0u);
  for (int64_t at = begin; at < end;) {
    const int64_t first = at / 4 * 4, stop = std::min(first + kWords, end);
    if (threshold > 0)
      draws.random.Blocks(static_cast<uint64_t>(first / 4), (stop - first + 3) / 4, words);
    const uint32_t* own = words + (at - first);
    drop(own, last, draws.factor, x + at, y ? y + at : nullptr, out + at, stop - at);
    if (mask) note(own, last, mask + at, stop - at);
    at = stop;
  }
}

}  // namespace coracle::inline internal
#endif

#include <coracle/framework/tensor/philox_blocks.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/framework/tensor/philox_blocks.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file again for every instruction set.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
int64_t WholeVectors(const uint32_t*, const uint32_t*, uint64_t, int64_t, uint32_t*) { return 0; }
#else
using D = hn::ScalableTag<uint32_t>;
using V = hn::Vec<D>;

// The low and high words of the products of two vectors.
struct Product {
  V low, high;
};
HWY_INLINE Product Multiply(V a, V b) {
  const D d;
  const hn::RepartitionToWide<D> wide;
  const auto even = hn::MulEven(a, b);
  const V odd_lanes = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a)));
  const auto odd = hn::MulEven(odd_lanes, b);
  return {hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even)),
          hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)))};
}

// Computes a block in each lane. Returns the number of blocks that fill whole vectors.
int64_t WholeVectors(const uint32_t* key, const uint32_t* salt, uint64_t first, int64_t count,
                     uint32_t* words) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  int64_t done = 0;
  for (; done + lanes <= count; done += lanes) {
    const uint64_t counter = first + static_cast<uint64_t>(done);
    const V start = hn::Set(d, static_cast<uint32_t>(counter));
    V c0 = hn::Add(start, hn::Iota(d, 0));
    // A carry into the high word in the lanes whose low word went past 2^32.
    const V carry = hn::IfThenElseZero(hn::Lt(c0, start), hn::Set(d, 1));
    V c1 = hn::Add(hn::Set(d, static_cast<uint32_t>(counter >> 32)), carry);
    V c2 = hn::Set(d, salt[0]), c3 = hn::Set(d, salt[1]);
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
      const Product p0 = Multiply(c0, m0), p1 = Multiply(c2, m1);
      c0 = hn::Xor(hn::Xor(p1.high, c1), hn::Set(d, k0));
      c2 = hn::Xor(hn::Xor(p0.high, c3), hn::Set(d, k1));
      c1 = p1.low;
      c3 = p0.low;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, words + 4 * done);
  }
  return done;
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {

HWY_EXPORT(WholeVectors);

void PhiloxBlocks(const uint32_t (&key)[2], const uint32_t (&salt)[2], uint64_t first,
                  int64_t count, uint32_t* words) {
  int64_t done = HWY_DYNAMIC_DISPATCH(WholeVectors)(key, salt, first, count, words);
  for (; done < count; ++done)
    PhiloxBlock(key, salt, first + static_cast<uint64_t>(done), words + 4 * done);
}

}  // namespace coracle::inline internal
#endif

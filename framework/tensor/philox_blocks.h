#pragma once
// Consecutive blocks of a Philox stream, with the widest SIMD of the machine, chosen at run time.

#include <cstdint>

namespace coracle::inline internal {

// words[4 * i + k] = word k of the block of counter first + i: ten rounds of Philox4x32 on
// (counter, salt) with the key.
void PhiloxBlocks(const uint32_t (&key)[2], const uint32_t (&salt)[2], uint64_t first,
                  int64_t count, uint32_t* words);

// One block.
inline void PhiloxBlock(const uint32_t (&key)[2], const uint32_t (&salt)[2], uint64_t counter,
                        uint32_t* words) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = salt[0], c3 = salt[1], k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

}  // namespace coracle::inline internal

#pragma once
// Dropout of one array. Words of a Philox stream decide which elements are kept.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/rng.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace coracle::inline internal {

// The draws for an array: elements whose word of the stream is below p * 2^32 are dropped, the
// others are multiplied by `factor`.
struct DropDraws {
  const Philox& random;
  double p;
  float factor;
};
// Applies dropout to the elements [begin, end) of the array x, on the calling thread, and adds y's
// elements unless y is null. mask (unless null) gets 1 for kept elements. out may be x or y.
void DropPart(const DropDraws& draws, int64_t begin, int64_t end, const float* x, const float* y,
              float* out, uint8_t* mask);

// out[i] = x[i] * scale, or 0 if word i of the stream is below p * 2^32; mask[i] (unless null) gets
// 1 for kept elements. out may be x.
template <class T>
void Drop(const Philox& random, double p, T scale, const T* x, T* out, uint8_t* mask, int64_t n) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr int64_t kChunk = 1024;  // elements drawn at a time, on the stack
  const auto threshold = static_cast<uint64_t>(p * 0x1p32);
  ParallelFor((n + kChunk - 1) / kChunk, 8, [&](int64_t first, int64_t last) {
    if constexpr (std::is_same_v<T, float>) {
      return DropPart({random, p, scale}, first * kChunk, std::min(last * kChunk, n), x, nullptr,
                      out, mask);
    }
    uint32_t words[kChunk];
    for (int64_t begin = first * kChunk; begin < std::min(last * kChunk, n); begin += kChunk) {
      const int64_t end = std::min(begin + kChunk, n);
      random.Blocks(static_cast<uint64_t>(begin / 4), (end - begin + 3) / 4, words);
      for (int64_t i = begin; i < end; ++i) {
        // Bits are masked, since a branch on a draw is often mispredicted.
        const bool keep = words[i - begin] >= threshold;
        const Bits bits = std::bit_cast<Bits>(static_cast<T>(x[i] * scale));
        out[i] = std::bit_cast<T>(static_cast<Bits>(bits & (Bits{0} - Bits{keep})));
        if (mask) mask[i] = keep;
      }
    }
  });
}

// dx[i] = dout[i] * scale where mask[i], else 0. A null mask keeps all. dx may be dout.
template <class T>
void DropGrad(const uint8_t* mask, T scale, const T* dout, T* dx, int64_t n) {
  ParallelFor(n, 32768, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) dx[i] = !mask || mask[i] ? dout[i] * scale : T(0);
  });
}

}  // namespace coracle::inline internal

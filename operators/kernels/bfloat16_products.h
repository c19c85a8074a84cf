#pragma once
// Whether convolutions and matrix products of bfloat16 use the machine's instructions for them.

namespace coracle::inline internal {

// True if products of bfloat16 take at most 4/5 of the time of the same products in float32: with
// AMX, or with a fast AVX512_BF16. Some processors run AVX512_BF16 at half the rate of float32;
// there, as on machines without these instructions, the float32 kernels are used with conversions.
// Measured once, in less than a millisecond.
bool BFloat16ProductsPay();

// Overrides the answer during its lifetime, so that tests reach both kinds of kernels.
class ScopedBFloat16Products {
 public:
  explicit ScopedBFloat16Products(bool pay);
  ~ScopedBFloat16Products();
  ScopedBFloat16Products(const ScopedBFloat16Products&) = delete;
  ScopedBFloat16Products& operator=(const ScopedBFloat16Products&) = delete;

 private:
  int before_;
};

}  // namespace coracle::inline internal

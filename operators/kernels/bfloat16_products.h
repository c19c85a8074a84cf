#pragma once
// Whether convolutions and matrix products of bfloat16 use the machine's instructions for them.

namespace coracle {

// True where products of bfloat16 take at most 4/5 of the time of as many in float32: with AMX, or
// with an AVX512_BF16 that is fast. Some processors have AVX512_BF16 at half the rate of float32;
// there the float32 kernels run between conversions, as on machines without the instructions.
// Measured once, in less than a millisecond.
bool BFloat16ProductsPay();

// Gives another answer while it lives, so that tests reach both kinds of kernels.
class ScopedBFloat16Products {
 public:
  explicit ScopedBFloat16Products(bool pay);
  ~ScopedBFloat16Products();
  ScopedBFloat16Products(const ScopedBFloat16Products&) = delete;
  ScopedBFloat16Products& operator=(const ScopedBFloat16Products&) = delete;

 private:
  int before_;
};

}  // namespace coracle

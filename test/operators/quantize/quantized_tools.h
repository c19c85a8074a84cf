#pragma once
// What the tests of quantised ops share: random 8-bit tensors, and the values that they stand for.

#include <coracle/operators/quantize/quantized.h>
#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace coracle::quantized_tools {

inline int32_t Number(DType dtype) { return static_cast<int32_t>(dtype); }
inline int64_t Least(DType dtype) { return dtype == DType::kInt8 ? -128 : 0; }

// A tensor with parameters of one element each.
struct Quantized {
  Tensor q;
  float scale = 1;
  int32_t zero = 0;

  double Real(int64_t i) const {
    return static_cast<double>(scale) * (IntegerAt(q.dtype(), q.raw(), i) - zero);
  }
  Tensor Scale() const { return Tensor::Of<float>({1}, {scale}); }
  Tensor Zero() const { return Filled(q.dtype(), {1}, zero); }

  static Tensor Filled(DType dtype, const Shape& shape, int64_t value) {
    Tensor t = Tensor::Zeros(dtype, shape);
    for (int64_t i = 0; i < t.numel(); ++i) Set(t, i, value);
    return t;
  }
  static void Set(Tensor& t, int64_t i, int64_t value) {
    if (t.dtype() == DType::kInt8)
      t.data<int8_t>()[i] = static_cast<int8_t>(value);
    else
      t.data<uint8_t>()[i] = static_cast<uint8_t>(value);
  }
};

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}

  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Flip() { return Int(0, 1) == 1; }
  float Real(double low, double high) {
    return static_cast<float>(std::uniform_real_distribution<double>(low, high)(random_));
  }
  DType Byte() { return Flip() ? DType::kInt8 : DType::kUInt8; }
  Tensor Bytes(DType dtype, const Shape& shape) {
    Tensor t = Tensor::Zeros(dtype, shape);
    for (int64_t i = 0; i < t.numel(); ++i) Quantized::Set(t, i, Least(dtype) + Int(0, 255));
    return t;
  }
  Tensor Reals(const Shape& shape, double low, double high) {
    Tensor t = Tensor::Zeros(DType::kFloat32, shape);
    for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = Real(low, high);
    return t;
  }
  Quantized Any(const Shape& shape) {
    const DType dtype = Byte();
    return {Bytes(dtype, shape), Real(0.001, 0.1),
            static_cast<int32_t>(Least(dtype) + Int(0, 255))};
  }

 private:
  std::mt19937 random_;
};

// Adds the slots of a quantised tensor.
inline void AddQuantized(OpTest& test, const std::string& slot, const Quantized& x,
                         bool with_zero = true) {
  test.TensorInput(slot, x.q).TensorInput(slot + "Scale", x.Scale());
  if (with_zero) test.TensorInput(slot + "ZeroPoint", x.Zero());
}

// Whether `got` is `real` (in units of the scale) plus the zero point, rounded and limited to the
// dtype's range. `slack` is the distance from a tie at which both neighbours count as right.
inline bool IsRounded(const Tensor& got, int64_t i, double real, int32_t zero, double slack) {
  const double low = static_cast<double>(Least(got.dtype()));
  const double wanted = std::clamp(real + zero, low, low + 255);
  const int32_t q = IntegerAt(got.dtype(), got.raw(), i);
  return std::abs(q - wanted) <= 0.5 + slack;
}

}  // namespace coracle::quantized_tools

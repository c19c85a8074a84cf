#pragma once
// Element types. The numbers are VarType.Type's of framework.proto, so that conversions are casts.

#include <coracle/framework/base/error.h>

#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

// 16-bit floating-point storage types. Arithmetic is done in float: convert, compute, convert back
// (round to nearest even).

// IEEE 754 binary16.
struct float16 {
  uint16_t bits = 0;
  float16() = default;
  float16(float value) : bits(FromFloat(value)) {}  // NOLINT: converts like the built-in types
  operator float() const { return ToFloat(bits); }  // NOLINT: as above

  static uint16_t FromFloat(float value) {
    uint32_t f = std::bit_cast<uint32_t>(value);
    uint32_t sign = (f >> 16) & 0x8000u;
    uint32_t magnitude = f & 0x7fffffffu;
    if (magnitude >= 0x7f800000u) {  // inf, nan (kept a nan)
      const uint32_t nan = 0x200u | ((magnitude >> 13) & 0x3ffu);
      return static_cast<uint16_t>(sign | 0x7c00u | (magnitude > 0x7f800000u ? nan : 0u));
    }
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to inf
    if (magnitude < 0x38800000u) {                            // subnormal or zero
      float scaled = std::bit_cast<float>(magnitude) + 0.5f;  // the adder rounds at 2^-24 for us
      return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(scaled) - 0x3f000000u));
    }
    uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
  static float ToFloat(uint16_t h) {
    uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t mantissa = h & 0x3ffu;
    if (exponent == 0x1fu) {
      const uint32_t quiet = mantissa ? 0x400000u : 0u;
      return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
    }
    if (exponent == 0) {
      float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  }
};

// The upper half of IEEE 754 binary32.
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;  // NOLINTBEGIN(google-explicit-constructor): like the built-in types
  bfloat16(float value) : bits(FromFloat(value)) {}
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  // NOLINTEND(google-explicit-constructor)
  static uint16_t FromFloat(float value) {
    uint32_t f = std::bit_cast<uint32_t>(value);
    if ((f & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((f >> 16) | 0x40u);
    return static_cast<uint16_t>((f + 0x7fffu + ((f >> 16) & 1u)) >> 16);
  }
};

// The real part, then the imaginary part.
using complex64 = std::complex<float>;
using complex128 = std::complex<double>;

enum class DType : int32_t {
  kBool = 0,
  kInt16 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat16 = 4,
  kFloat32 = 5,
  kFloat64 = 6,
  kUInt8 = 20,
  kInt8 = 21,
  kBFloat16 = 22,
  kComplex64 = 23,
  kComplex128 = 24,
};

const char* ToString(DType dtype);  // "float32"; "dtype(N)" numbers print as "unknown"
bool IsValid(DType dtype);          // one of the enumerators above
size_t SizeOf(DType dtype);         // bytes of one element; 0 if not valid
bool IsFloating(DType dtype);       // float16, bfloat16, float32, float64
bool IsInteger(DType dtype);        // the signed and unsigned integers, not bool
bool IsComplex(DType dtype);        // complex64, complex128
DType RealOf(DType dtype);          // float32 of complex64, float64 of complex128, else dtype
DType ComplexOf(DType dtype);       // complex128 of float64 and complex128, else complex64
bool ParseDType(std::string_view name, DType* dtype);  // "float32", "FP32", "INT64", ... any case

template <class T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<bool>() {
  return DType::kBool;
}
template <>
constexpr DType DTypeOf<int8_t>() {
  return DType::kInt8;
}
template <>
constexpr DType DTypeOf<uint8_t>() {
  return DType::kUInt8;
}
template <>
constexpr DType DTypeOf<int16_t>() {
  return DType::kInt16;
}
template <>
constexpr DType DTypeOf<int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType DTypeOf<int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType DTypeOf<float16>() {
  return DType::kFloat16;
}
template <>
constexpr DType DTypeOf<bfloat16>() {
  return DType::kBFloat16;
}
template <>
constexpr DType DTypeOf<float>() {
  return DType::kFloat32;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kFloat64;
}
template <>
constexpr DType DTypeOf<complex64>() {
  return DType::kComplex64;
}
template <>
constexpr DType DTypeOf<complex128>() {
  return DType::kComplex128;
}

// Throws kUnimplemented, for complex elements where only real ones are supported.
[[noreturn]] void ThrowComplex(DType dtype);

// Calls f.template operator()<T>() with the C++ type of `dtype` and returns its result. Throws
// kUnimplemented if `dtype` is complex.
template <class F>
decltype(auto) DispatchDType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBool:
      return f.template operator()<bool>();
    case DType::kInt8:
      return f.template operator()<int8_t>();
    case DType::kUInt8:
      return f.template operator()<uint8_t>();
    case DType::kInt16:
      return f.template operator()<int16_t>();
    case DType::kInt32:
      return f.template operator()<int32_t>();
    case DType::kInt64:
      return f.template operator()<int64_t>();
    case DType::kFloat16:
      return f.template operator()<float16>();
    case DType::kBFloat16:
      return f.template operator()<bfloat16>();
    case DType::kFloat32:
      return f.template operator()<float>();
    case DType::kFloat64:
      return f.template operator()<double>();
    case DType::kComplex64:
    case DType::kComplex128:
      ThrowComplex(dtype);
  }
  throw InternalError("dispatch on an unknown dtype");
}

// Like DispatchDType, with complex types too.
template <class F>
decltype(auto) DispatchAnyDType(DType dtype, F&& f) {
  if (dtype == DType::kComplex64) return f.template operator()<complex64>();
  if (dtype == DType::kComplex128) return f.template operator()<complex128>();
  return DispatchDType(dtype, std::forward<F>(f));
}

// The dimensions of a tensor, outermost first. In programs -1 means that a dimension is unknown.

class Shape {
 public:
  static constexpr int kMaxRank = 9;  // Paddle's limit
  // More elements than fit into any machine, yet few enough that byte counts and their small
  // multiples cannot overflow.
  static constexpr int64_t kMaxElements = int64_t{1} << 48;
  static constexpr int64_t kMaxEmpty = int64_t{1} << 31;

  Shape() = default;  // rank 0: one element
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);  // throws kInvalidArgument past kMaxRank
  explicit Shape(const std::vector<int64_t>& dims) : Shape(std::span<const int64_t>(dims)) {}

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[axis]; }
  int64_t& operator[](int axis) { return dims_[axis]; }
  const int64_t* begin() const { return dims_; }
  const int64_t* end() const { return dims_ + rank_; }
  std::vector<int64_t> ToVector() const { return {begin(), end()}; }
  void Append(int64_t dim);  // throws past kMaxRank

  bool IsKnown() const;  // no dimension is negative
  // Whether the product of the positive dimensions exceeds kMaxElements, or kMaxEmpty if a
  // dimension is 0 (loops still walk over rows without elements).
  bool HasTooManyElements() const;
  // Product of the dimensions (1 for rank 0). Throws kOutOfRange if a dimension is negative or if
  // HasTooManyElements(), even if a dimension is 0, since strides are products of the others.
  int64_t numel() const;
  // Product of dims [begin, end), unchecked: for shapes whose numel() did not throw.
  int64_t Product(int begin, int end) const;

  // Maps an axis in [-rank, rank) to [0, rank); returns false for any other axis.
  bool NormalizeAxis(int64_t axis, int* normalized) const;

  bool operator==(const Shape& other) const;
  // True if the shapes are equal in all dimensions that both know.
  bool CompatibleWith(const Shape& other) const;

  std::string ToString() const;  // "[2, 3]"

 private:
  int64_t dims_[kMaxRank] = {};
  int rank_ = 0;
};

}  // namespace coracle

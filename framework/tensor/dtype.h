#pragma once
// Element types. The numbers are VarType.Type's of framework.proto, so that conversions are casts.

#include <coracle/framework/base/error.h>
#include <coracle/framework/tensor/half.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace coracle {

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
};

const char* ToString(DType dtype);  // "float32"; "dtype(N)" numbers print as "unknown"
bool IsValid(DType dtype);          // one of the enumerators above
size_t SizeOf(DType dtype);         // bytes of one element; 0 when not valid
bool IsFloating(DType dtype);       // float16, bfloat16, float32, float64
bool IsInteger(DType dtype);        // the signed and unsigned integers, not bool
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

// Calls f.template operator()<T>() with the C++ type of `dtype` and returns its result.
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
  }
  throw InternalError("dispatch on an unknown dtype");
}

}  // namespace coracle

#include <coracle/framework/base/required.h>
#include <coracle/framework/tensor/tensor.h>

#include <algorithm>
#include <cctype>

namespace coracle {
namespace {

struct Row {
  DType dtype;
  const char* name;
  const char* wire_name;  // VarType.Type's enumerator
  size_t size;
};

constexpr Row kRows[] = {
    {DType::kBool, "bool", "BOOL", 1},
    {DType::kInt16, "int16", "INT16", 2},
    {DType::kInt32, "int32", "INT32", 4},
    {DType::kInt64, "int64", "INT64", 8},
    {DType::kFloat16, "float16", "FP16", 2},
    {DType::kFloat32, "float32", "FP32", 4},
    {DType::kFloat64, "float64", "FP64", 8},
    {DType::kUInt64, "uint64", "SIZE_T", 8},
    {DType::kUInt8, "uint8", "UINT8", 1},
    {DType::kInt8, "int8", "INT8", 1},
    {DType::kBFloat16, "bfloat16", "BF16", 2},
    {DType::kComplex64, "complex64", "COMPLEX64", 8},
    {DType::kComplex128, "complex128", "COMPLEX128", 16},
    {DType::kString, "string", "STRING", sizeof(StringRef)},
};

const Row* Find(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

}  // namespace

const char* ToString(DType dtype) {
  const Row* row = Find(dtype);
  return row ? row->name : "unknown";
}

bool IsValid(DType dtype) { return Find(dtype) != nullptr; }

size_t SizeOf(DType dtype) {
  const Row* row = Find(dtype);
  return row ? row->size : 0;
}

bool IsFloating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

bool IsInteger(DType dtype) {
  return IsValid(dtype) && !IsFloating(dtype) && !IsComplex(dtype) && dtype != DType::kBool &&
         dtype != DType::kString;
}

bool IsComplex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

DType RealOf(DType dtype) {
  if (dtype == DType::kComplex64) return DType::kFloat32;
  return dtype == DType::kComplex128 ? DType::kFloat64 : dtype;
}

DType ComplexOf(DType dtype) {
  return RealOf(dtype) == DType::kFloat64 ? DType::kComplex128 : DType::kComplex64;
}

void ThrowElements(DType dtype) {
  const char* mend = IsComplex(dtype) ? "; real ones are" : "";
  throw Error(ErrorCode::kUnimplemented,
              std::string(ToString(dtype)) + " elements are not supported here" + mend);
}

bool ParseDType(std::string_view name, DType* dtype) {
  auto same = [&](std::string_view other) {
    return std::equal(name.begin(), name.end(), other.begin(), other.end(), [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(a)) ==
             std::tolower(static_cast<unsigned char>(b));
    });
  };
  for (const Row& row : kRows) {
    if (same(row.name) || same(row.wire_name)) {
      Required(dtype, "the result of ParseDType") = row.dtype;
      return true;
    }
  }
  return false;
}

}  // namespace coracle

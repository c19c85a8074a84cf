#pragma once
// Tensors of numbers with 2 or 4 bits in bytes, as the op unpack_integers reads them.

#include <coracle/framework/op/writer.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/quantize/quantized_linear.h>

#include <cstdint>

namespace coracle::inline internal {

// The numbers of an int8 or uint8 tensor, packed along its last axis. REQUIRES: a dimension, and
// numbers of so many bits.
inline Tensor PackRows(const Tensor& numbers, int32_t bits) {
  Shape shape = numbers.shape();
  const int last = shape.rank() - 1;
  const int64_t length = shape[last], bytes = PackedBytes(length, bits), in_byte = 8 / bits;
  shape[last] = bytes;
  Tensor packed = Tensor::Zeros(numbers.dtype(), shape);
  const auto* from = static_cast<const uint8_t*>(numbers.raw());
  auto* to = static_cast<uint8_t*>(packed.raw());
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    const int64_t at = i % length;
    const auto q = static_cast<uint8_t>(from[i] & ((1 << bits) - 1));
    to[i / length * bytes + at / in_byte] |= static_cast<uint8_t>(q << at % in_byte * bits);
  }
  return packed;
}

// The inverse, for rows of `length` numbers.
inline Tensor UnpackRows(const Tensor& packed, int32_t bits, int64_t length) {
  Shape shape = packed.shape();
  const int last = shape.rank() - 1;
  const int64_t bytes = shape[last];
  shape[last] = length;
  Tensor numbers = Tensor::Zeros(packed.dtype(), shape);
  const auto* from = static_cast<const uint8_t*>(packed.raw());
  auto* to = static_cast<uint8_t*>(numbers.raw());
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    const PackedRow row{from + i / length * bytes, bits, packed.dtype() == DType::kInt8};
    to[i] = static_cast<uint8_t>(row.At(i % length));
  }
  return numbers;
}

// How a program stores numbers of 2 or 4 bits: packed along the last axis or, if its rows do not
// fill bytes, as one row, which is reshaped after it is unpacked.
inline bool FillsBytes(const Shape& shape, int32_t bits) {
  return shape.rank() == 1 || shape[shape.rank() - 1] % (8 / bits) == 0;
}
inline Tensor PackedForm(const Tensor& numbers, int32_t bits) {
  return PackRows(FillsBytes(numbers.shape(), bits) ? numbers : numbers.Reshaped({numbers.numel()}),
                  bits);
}
// Appends the ops that make the numbers of a PackedForm.
inline Variable WriteUnpacked(const Writer& writer, const Variable& packed, const Shape& shape,
                              int32_t bits) {
  const bool fills = FillsBytes(shape, bits);
  const int64_t length = fills ? shape[shape.rank() - 1] : shape.numel();
  const Variable numbers = writer.Make("unpack_integers", {{"X", {packed.name()}}},
                                       {{"bits", bits}, {"last_dim", length}});
  if (fills) return numbers;
  std::vector<int32_t> dims;
  for (const int64_t dim : shape) dims.push_back(static_cast<int32_t>(dim));
  return writer.Make("reshape2", {{"X", {numbers.name()}}}, {{"shape", dims}});
}

}  // namespace coracle::inline internal

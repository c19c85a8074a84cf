#include <coracle/test/op_test.h>

#include <random>

namespace coracle::unpack_integers_test {

Tensor Bytes(DType dtype, const Shape& shape, const std::vector<uint8_t>& values) {
  Tensor t = Tensor::Zeros(dtype, shape);
  std::copy(values.begin(), values.end(), static_cast<uint8_t*>(t.raw()));
  return t;
}

std::vector<int64_t> Unpacked(const Tensor& x, int32_t bits, int64_t length) {
  const Tensor out = OpTest("unpack_integers")
                         .TensorInput("X", x)
                         .Attr("bits", bits)
                         .Attr("last_dim", length)
                         .ExpectDType("Out", x.dtype())
                         .Output("Out");
  EXPECT_EQ(out.shape()[out.shape().rank() - 1], length);
  const Tensor wide = out.Cast(DType::kInt64);
  return {wide.span<int64_t>().begin(), wide.span<int64_t>().end()};
}

using Numbers = std::vector<int64_t>;

TEST(UnpackIntegers, LowBitsFirst) {
  const std::vector<uint8_t> bytes = {0x21, 0x8f, 0x70};
  EXPECT_EQ(Unpacked(Bytes(DType::kUInt8, {3}, bytes), 4, 6), (Numbers{1, 2, 15, 8, 0, 7}));
  EXPECT_EQ(Unpacked(Bytes(DType::kInt8, {3}, bytes), 4, 6), (Numbers{1, 2, -1, -8, 0, 7}));
  EXPECT_EQ(Unpacked(Bytes(DType::kUInt8, {1}, {0xe4}), 2, 4), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(Unpacked(Bytes(DType::kInt8, {1}, {0xe4}), 2, 4), (Numbers{0, 1, -2, -1}));
}

TEST(UnpackIntegers, RowsOfOddLength) {
  EXPECT_EQ(Unpacked(Bytes(DType::kUInt8, {2, 2}, {0x21, 0xf3, 0x54, 0x06}), 4, 3),
            (Numbers{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Unpacked(Bytes(DType::kInt8, {2, 1}, {0xff, 0x01}), 4, 1), (Numbers{-1, 1}));
  EXPECT_EQ(Unpacked(Bytes(DType::kUInt8, {1, 2}, {0xff, 0x02}), 2, 5), (Numbers{3, 3, 3, 3, 2}));
}

TEST(UnpackIntegers, Empty) {
  EXPECT_EQ(Unpacked(Bytes(DType::kUInt8, {0, 2}, {}), 4, 4), Numbers());
  EXPECT_EQ(Unpacked(Bytes(DType::kUInt8, {2, 0}, {}), 4, 0), Numbers());
}

TEST(UnpackIntegers, Constraints) {
  const auto expect = [](const Tensor& x, int32_t bits, int64_t length, const char* id) {
    OpTest("unpack_integers")
        .TensorInput("X", x)
        .Attr("bits", bits)
        .Attr("last_dim", length)
        .ExpectError(std::string("unpack_integers.") + id);
  };
  const Tensor bytes = Bytes(DType::kUInt8, {2}, {0, 0});
  expect(Tensor::Zeros(DType::kUInt8, Shape()), 4, 1, "C1");
  expect(bytes, 3, 4, "C2");
  expect(bytes, 8, 2, "C2");
  expect(bytes, 4, 2, "C3");
  expect(bytes, 4, 5, "C3");
  expect(bytes, 4, -4, "C3");
}

}  // namespace coracle::unpack_integers_test

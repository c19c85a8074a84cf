#include <coracle/convert/onnx/tensors.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace coracle::onnx::onnx_tensors_test {

using proto::onnx::TensorProto;

TensorProto Header(TensorProto::DataType type, const std::vector<int64_t>& dims) {
  TensorProto proto;
  proto.set_name("w");
  proto.set_data_type(type);
  for (const int64_t dim : dims) proto.add_dims(dim);
  return proto;
}

template <class T>
TensorProto Raw(TensorProto::DataType type, const std::vector<int64_t>& dims,
                const std::vector<T>& elements) {
  TensorProto proto = Header(type, dims);
  proto.set_raw_data(elements.data(), elements.size() * sizeof(T));
  return proto;
}

TensorProto Int32s(TensorProto::DataType type, const std::vector<int32_t>& numbers) {
  TensorProto proto = Header(type, {static_cast<int64_t>(numbers.size())});
  for (const int32_t number : numbers) proto.add_int32_data(number);
  return proto;
}

TensorProto UInt64s(TensorProto::DataType type, const std::vector<uint64_t>& numbers) {
  TensorProto proto = Header(type, {static_cast<int64_t>(numbers.size())});
  for (const uint64_t number : numbers) proto.add_uint64_data(number);
  return proto;
}

Tensor Parse(const TensorProto& proto) { return ParseTensorProto(proto, TensorSource()); }
std::string ParseError(const TensorProto& proto) {
  return ErrorOf([&] { Parse(proto); });
}

template <class T>
void ExpectElements(const TensorProto& proto, const Shape& shape, const std::vector<T>& elements) {
  const Tensor tensor = Parse(proto);
  const Tensor expected = Tensor::Of<T>(shape, elements);
  EXPECT_TRUE(BitEqual(tensor, expected)) << tensor.ToString() << " for " << expected.ToString();
}

TEST(OnnxTensors, EveryDTypeComesBack) {
  for (const DType dtype : {DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32,
                            DType::kInt64, DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                            DType::kFloat64, DType::kComplex64, DType::kComplex128}) {
    for (const Shape& shape : {Shape{2, 3}, Shape{}, Shape{0, 4}}) {
      Tensor tensor = Tensor::Zeros(dtype, shape);
      auto* bytes = static_cast<unsigned char*>(tensor.raw());
      for (size_t i = 0; i < tensor.nbytes(); ++i) bytes[i] = i % 2;
      TensorProto proto;
      FillTensorProto(tensor, "w", &proto);
      EXPECT_EQ(proto.name(), "w");
      EXPECT_TRUE(BitEqual(Parse(proto), tensor)) << tensor.ToString();
    }
  }
}

TEST(OnnxTensors, RawData) {
  ExpectElements<float>(Raw<float>(TensorProto::FLOAT, {2, 1}, {1.5f, -2}), {2, 1}, {1.5f, -2});
  ExpectElements<int32_t>(Raw<uint16_t>(TensorProto::UINT16, {2}, {7, 65535}), {2}, {7, 65535});
  ExpectElements<int64_t>(Raw<uint32_t>(TensorProto::UINT32, {2}, {7, UINT32_MAX}), {2},
                          {7, UINT32_MAX});
  ExpectElements<uint64_t>(Raw<uint64_t>(TensorProto::UINT64, {2}, {7, UINT64_MAX}), {2},
                           {7, UINT64_MAX});
  const Tensor flags = Parse(Raw<uint8_t>(TensorProto::BOOL, {3}, {0, 1, 77}));
  const unsigned char expected[] = {0, 1, 1};
  EXPECT_EQ(std::memcmp(flags.raw(), expected, 3), 0);
}

TEST(OnnxTensors, NumbersOfUpTo32Bits) {
  ExpectElements<int32_t>(Int32s(TensorProto::INT32, {INT32_MIN, 3}), {2}, {INT32_MIN, 3});
  ExpectElements<int16_t>(Int32s(TensorProto::INT16, {-32768, 32767}), {2}, {-32768, 32767});
  ExpectElements<int8_t>(Int32s(TensorProto::INT8, {-128, 127}), {2}, {-128, 127});
  ExpectElements<uint8_t>(Int32s(TensorProto::UINT8, {0, 255}), {2}, {0, 255});
  ExpectElements<int32_t>(Int32s(TensorProto::UINT16, {0, 65535}), {2}, {0, 65535});
  const Tensor flags = Parse(Int32s(TensorProto::BOOL, {0, 1, -5}));
  EXPECT_EQ(static_cast<const char*>(flags.raw())[2], 1);
  EXPECT_FALSE(flags.span<bool>()[0]);
}

// 16-bit floats are written as their bits; 0xc000 is -2, which some writers extend by sign.
TEST(OnnxTensors, HalfFloatsAreBits) {
  for (const int32_t minus_two : {0xc000, 0xc000 - 65536}) {
    const Tensor half = Parse(Int32s(TensorProto::FLOAT16, {0x3c00, minus_two}));
    EXPECT_TRUE(BitEqual(half.Cast(DType::kFloat32), Tensor::Of<float>({2}, {1, -2})));
    const Tensor brain = Parse(Int32s(TensorProto::BFLOAT16, {0x3f80, minus_two}));
    EXPECT_TRUE(BitEqual(brain.Cast(DType::kFloat32), Tensor::Of<float>({2}, {1, -2})));
  }
}

TEST(OnnxTensors, ListsOfOtherNumbers) {
  TensorProto floats = Header(TensorProto::FLOAT, {2});
  floats.add_float_data(0.25f);
  floats.add_float_data(-3);
  ExpectElements<float>(floats, {2}, {0.25f, -3});
  floats = Header(TensorProto::COMPLEX64, {});
  floats.add_float_data(0.25f);
  floats.add_float_data(-3);
  ExpectElements<complex64>(floats, {}, {{0.25f, -3}});
  TensorProto doubles = Header(TensorProto::DOUBLE, {1});
  doubles.add_double_data(1e300);
  ExpectElements<double>(doubles, {1}, {1e300});
  TensorProto longs = Header(TensorProto::INT64, {1});
  longs.add_int64_data(INT64_MIN);
  ExpectElements<int64_t>(longs, {1}, {INT64_MIN});
  ExpectElements<int64_t>(UInt64s(TensorProto::UINT32, {UINT32_MAX}), {1}, {UINT32_MAX});
  ExpectElements<uint64_t>(UInt64s(TensorProto::UINT64, {UINT64_MAX}), {1}, {UINT64_MAX});
}

TEST(OnnxTensors, ElementsBeyondTheirType) {
  EXPECT_EQ(ParseError(Int32s(TensorProto::INT8, {0, 128})),
            "tensor 'w': the element 128 is beyond the range of INT8");
  EXPECT_NE(ParseError(Int32s(TensorProto::UINT8, {-1})), "no error");
  EXPECT_NE(ParseError(Int32s(TensorProto::UINT16, {65536})), "no error");
  EXPECT_NE(ParseError(Int32s(TensorProto::FLOAT16, {65536})), "no error");
  EXPECT_NE(ParseError(UInt64s(TensorProto::UINT32, {uint64_t{1} << 32})), "no error");
}

TEST(OnnxTensors, TypesThatNoDTypeHolds) {
  EXPECT_EQ(ParseError(Header(TensorProto::STRING, {1})),
            "tensor 'w': STRING[1] takes 1 strings, but it has 0");
  TensorProto unknown = Header(TensorProto::FLOAT, {0});
  unknown.set_data_type(99);
  EXPECT_EQ(ParseError(unknown), "tensor 'w': elements of type 99 are not taken");
  EXPECT_EQ(ParseError(TensorProto()), "a tensor without a name: it has no element type");
}

TEST(OnnxTensors, CountsThatDiffer) {
  EXPECT_EQ(ParseError(Raw<float>(TensorProto::FLOAT, {2, 2}, {1, 2, 3})),
            "tensor 'w': FLOAT[2, 2] takes 16 bytes, but it has 12");
  EXPECT_EQ(ParseError(Int32s(TensorProto::FLOAT, {1})),
            "tensor 'w': FLOAT[1] takes 1 numbers, but it has 0");
  TensorProto twice = Raw<float>(TensorProto::FLOAT, {1}, {1});
  twice.add_float_data(2);
  EXPECT_EQ(ParseError(twice), "tensor 'w': it has its elements twice");
  EXPECT_EQ(ParseError(Header(TensorProto::FLOAT, {int64_t{1} << 40, int64_t{1} << 40})),
            "tensor 'w': [1099511627776, 1099511627776] is not a shape");
  EXPECT_EQ(ParseError(Header(TensorProto::FLOAT, {2, -1})), "tensor 'w': [2, -1] is not a shape");
  EXPECT_NE(ParseError(Header(TensorProto::FLOAT, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1})), "no error");
  // More elements than memory may be requested for.
  EXPECT_EQ(ParseError(Header(TensorProto::DOUBLE, {int64_t{1} << 45})),
            "tensor 'w': DOUBLE[35184372088832] takes 35184372088832 numbers, but it has 0");
}

TEST(OnnxTensors, NoElements) {
  EXPECT_EQ(Parse(Header(TensorProto::FLOAT, {0, 3})).shape(), (Shape{0, 3}));
  TensorProto empty = Header(TensorProto::INT64, {0});
  empty.set_raw_data("");
  EXPECT_EQ(Parse(empty).dtype(), DType::kInt64);
}
}  // namespace coracle::onnx::onnx_tensors_test

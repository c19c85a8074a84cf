#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

namespace coracle::safetensors_test {

std::string File(const std::string& header, const std::string& elements,
                 uint64_t size = UINT64_MAX) {
  if (size == UINT64_MAX) size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + elements;
}

std::string ParseError(const std::string& header, const std::string& elements) {
  return ErrorOf([&] { ParseSafetensors(File(header, elements), "a"); });
}

std::string Entry(const std::string& dtype, const std::string& shape, int begin, int end) {
  return fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", dtype, shape, begin,
                     end);
}

template <class T>
std::string BytesOf(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

class Safetensors : public testing::Test {
 protected:
  NamedTensors RoundTrip(const NamedTensors& tensors) {
    WriteSafetensors(tensors, path_);
    const NamedTensors read = ReadSafetensors(path_);
    const NamedTensors parsed = ParseSafetensors(ReadFile(path_), path_);
    EXPECT_EQ(read.size(), parsed.size());
    for (size_t i = 0; i < read.size(); ++i)
      EXPECT_TRUE(BitEqual(read[i].second, parsed.at(i).second));
    return read;
  }
  TemporaryDirectory directory_;
  std::string path_ = directory_.File("t.safetensors");
};

TEST_F(Safetensors, RoundTripOfEveryType) {
  for (const DType dtype :
       {DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64,
        DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kComplex64}) {
    const Tensor tensor = Tensor::Of<float>({2, 1, 3}, {0, 1, 0, 1, 1, 0}).Cast(dtype);
    const NamedTensors read = RoundTrip({{"x", tensor}});
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].first, "x");
    EXPECT_TRUE(BitEqual(read[0].second, tensor)) << ToString(dtype);
  }
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{5}}) {
    const Tensor tensor = Tensor::Zeros(DType::kFloat32, shape);
    EXPECT_TRUE(BitEqual(RoundTrip({{"x", tensor}}).at(0).second, tensor)) << shape.ToString();
  }
  EXPECT_TRUE(RoundTrip({}).empty());
}

// As the format's own library writes it: {"a": float32 [[1, 2]], "b": int8 [3]}.
TEST_F(Safetensors, BytesOfTheFormat) {
  WriteSafetensors({{"b", Tensor::Of<int8_t>({1}, {3})}, {"a", Tensor::Of<float>({1, 2}, {1, 2})}},
                   path_);
  const std::string header = R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"I8","shape":[1],"data_offsets":[8,9]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(ReadFile(path_), File(padded, BytesOf<float>({1, 2}) + "\x03"));
}

TEST_F(Safetensors, EveryTensorIsAligned) {
  const NamedTensors read = RoundTrip({{"c", Tensor::Zeros(DType::kBool, {3})},
                                       {"a", Tensor::Zeros(DType::kFloat16, {3})},
                                       {"d", Tensor::Zeros(DType::kFloat64, {3})},
                                       {"b", Tensor::Zeros(DType::kFloat32, {3})}});
  std::string names;
  for (const auto& entry : read) names += entry.first;
  EXPECT_EQ(names, "dbac");
}

TEST_F(Safetensors, NamesOfAnyText) {
  for (const std::string name : {"", "a\"b\\", "layers.0/weight", "\xc3\xa9\n"})
    EXPECT_EQ(RoundTrip({{name, Tensor::Zeros(DType::kFloat32, {1})}}).at(0).first, name);
  const auto error = [&](const NamedTensors& tensors) {
    return ErrorOf([&] { WriteSafetensors(tensors, path_); });
  };
  const Tensor one = Tensor::Zeros(DType::kFloat32, {1});
  EXPECT_EQ(error({{"x", one}, {"x", one}}), "a safetensors file holds one 'x', and there are two");
  EXPECT_NE(error({{"\xff", one}}).find("cannot be the name"), std::string::npos);
  EXPECT_NE(error({{"__metadata__", one}}).find("cannot be the name"), std::string::npos);
  EXPECT_EQ(error({{"x", Tensor::Zeros(DType::kComplex128, {1})}}),
            "'x' is complex128, which no safetensors file holds; npz does");
}

TEST_F(Safetensors, SequencesAsInNpz) {
  Tensor tensor = Tensor::Of<float>({3}, {1, 2, 3});
  tensor.lod() = {{0, 1, 3}};
  const NamedTensors read = RoundTrip({{"x", tensor}});
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].second.lod(), tensor.lod());
}

TEST_F(Safetensors, UnsignedTypesWiden) {
  const auto parse = [](const std::string& dtype, const std::string& elements, int bytes) {
    const std::string header = "{\"x\":" + Entry(dtype, "[2]", 0, bytes) + "}";
    return ParseSafetensors(File(header, elements), "a").at(0).second;
  };
  EXPECT_TRUE(BitEqual(parse("U16", BytesOf<uint16_t>({1, 65535}), 4),
                       Tensor::Of<int32_t>({2}, {1, 65535})));
  EXPECT_TRUE(BitEqual(parse("U32", BytesOf<uint32_t>({1, UINT32_MAX}), 8),
                       Tensor::Of<int64_t>({2}, {1, UINT32_MAX})));
  EXPECT_TRUE(BitEqual(parse("U64", BytesOf<uint64_t>({1, UINT64_MAX}), 16),
                       Tensor::Of<uint64_t>({2}, {1, UINT64_MAX})));
  EXPECT_EQ(ErrorOf([&] { parse("F8_E4M3", "\1\2", 2); }),
            "a: tensor 'x': elements of type 'F8_E4M3' are not taken");
}

TEST_F(Safetensors, MetadataAndOrderOfTheHeader) {
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},\"b\":" + Entry("U8", "[1]", 1, 2) +
      ",\"a\":" + Entry("U8", "[1]", 0, 1) + "}";
  const NamedTensors read = ParseSafetensors(File(header, "\1\2"), "a");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].first, "a");
  EXPECT_EQ(read[1].second.Item<uint8_t>(), 2);
}

TEST_F(Safetensors, DamagedFiles) {
  const auto x = [](const std::string& entry) { return "{\"x\":" + entry + "}"; };
  EXPECT_EQ(ErrorOf([] { ParseSafetensors("\1\2", "a"); }),
            "a: no safetensors file: it is cut off");
  EXPECT_EQ(ErrorOf([] { ParseSafetensors(File("{}", "", 3), "a"); }),
            "a: no safetensors file: its header takes 3 bytes where 2 are left");
  EXPECT_NE(
      ErrorOf([] { ParseSafetensors(File("{}", "", uint64_t{1} << 60), "a"); }).find("100 MB"),
      std::string::npos);
  EXPECT_NE(ParseError(" {}", "").find("not a JSON object"), std::string::npos);
  EXPECT_NE(ParseError("{\"x\":", "").find("no JSON"), std::string::npos);
  EXPECT_NE(ParseError(x("3"), "").find("must be an object"), std::string::npos);
  EXPECT_NE(ParseError(x(R"({"dtype":"U8","shape":[1]})"), "1").find("data_offsets"),
            std::string::npos);
  EXPECT_NE(ParseError(x(Entry("U8", "[-1]", 0, 1)), "1").find("x.shape"), std::string::npos);
  EXPECT_EQ(ParseError(x(Entry("F32", "[2]", 0, 4)), "1234"),
            "a, header: x has its elements in [0, 4), and F32[2] takes 8 bytes");
  EXPECT_NE(ParseError(x(Entry("U8", "[1099511627776,1099511627776]", 0, 1)), "1").find("elements"),
            std::string::npos);
  EXPECT_EQ(ParseError(x(Entry("U8", "[2]", 0, 2)), "123"),
            "a: no safetensors file: its tensors take 2 bytes, and 3 follow the header");
  EXPECT_EQ(ParseError(x(Entry("U8", "[4]", 0, 4)), "123"),
            "a: no safetensors file: its tensors take 4 bytes, and 3 follow the header");
  const std::string two = "{\"x\":" + Entry("U8", "[2]", 0, 2) + ",\"y\":";
  EXPECT_EQ(ParseError(two + Entry("U8", "[2]", 1, 3) + "}", "123"),
            "a: no safetensors file: the elements of 'y' begin at 1, but the elements before it "
            "end at 2");
  EXPECT_NE(ParseError(two + Entry("U8", "[2]", 3, 5) + "}", "12345").find("begin at 3"),
            std::string::npos);
  EXPECT_NE(ParseError(R"({"x":1,"x":1})", "").find("twice"), std::string::npos);
  // Every part of a good file.
  const std::string good = File(two + Entry("U8", "[1]", 2, 3) + "}", "123");
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(ParseSafetensors(good.substr(0, size), "a"), Error) << size;
  EXPECT_EQ(ParseSafetensors(good, "a").size(), 2u);
}

TEST_F(Safetensors, ParametersByName) {
  ProgramDesc program;
  for (const std::string name : {"weight", "bias"}) {
    VarDesc& var = program.Root().Var(name);
    var.SetPersistable(true);
    var.SetDType(DType::kFloat32);
    var.SetShape({2});
  }
  Scope scope;
  scope.Set("weight", Tensor::Of<float>({2}, {1, 2}));
  scope.Set("bias", Tensor::Of<float>({2}, {3, 4}));
  for (const char* file : {"p.safetensors", "p.npz", "p.pdiparams"}) {
    const std::string path = directory_.File(file);
    SaveParameters(scope, {"bias", "weight"}, path);
    Scope again;
    LoadParameters(program, path, again);
    EXPECT_TRUE(BitEqual(again.Get("weight"), scope.Get("weight"))) << file;
    EXPECT_TRUE(BitEqual(again.Get("bias"), scope.Get("bias"))) << file;
  }
  SaveParameters(scope, {"weight"}, path_);
  EXPECT_EQ(ErrorOf([&] { LoadParameters(program, path_, scope); }),
            path_ + ": it has no var 'bias'");
  WriteSafetensors({{"weight", Tensor::Zeros(DType::kFloat32, {3})}, {"bias", scope.Get("bias")}},
                   path_);
  EXPECT_NE(ErrorOf([&] { LoadParameters(program, path_, scope); }).find("'weight', "),
            std::string::npos);
  EXPECT_EQ(scope.Get("weight").numel(), 2);
}

}  // namespace coracle::safetensors_test

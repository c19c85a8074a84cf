#include <coracle/framework/base/file.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <random>

namespace coracle::npy_test {

// A file of format 1.0 around a header and elements.
std::string Npy(const std::string& header, const std::string& data) {
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 255);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header + data;
}

std::string Header(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

std::string ErrorOf(const std::string& bytes) {
  try {
    ParseNpy(bytes, "a.npy");
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

// Written by Python's zipfile: 'a.npy' = float32 [[1, 2.5], [-3, 4]] and 'dir/b.npy', big-endian
// int16 in Fortran order, [[1, 2, 3], [4, 5, 6]]; deflated.
const char* const kDeflated =
    "504b030414000000080000002100e6a17d7a550000006000000005000000612e6e70799bec17ea1b10c9c8e0"
    "c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416"
    "a402f91a463a0a469a3a0ab50a70c0c5c0d060cfc0a0e0c0c0e07000c8760000504b03041400000008000000"
    "210004b076bc510000005c000000090000006469722f622e6e70799bec17ea1b10c9c8e0c650ad9e925a9c5c"
    "a46ea5a06e9769a4aea3a09e965f54529498179f5f94920a120f292a4d050a17672416a402b91a463a0ac69a"
    "3a0ab50a08c0c5c0c8c0c2c0c4c0cac0ccc00600504b0102140314000000080000002100e6a17d7a55000000"
    "60000000050000000000000000000000800100000000612e6e7079504b010214031400000008000000210004"
    "b076bc510000005c0000000900000000000000000000008001780000006469722f622e6e7079504b05060000"
    "0000020002006a000000f00000000000";
// The first of the two, stored, with ZIP64 sizes.
const char* const kZip64 =
    "504b03042d000000000000002100e6a17d7affffffffffffffff05001400612e6e7079010010006000000000"
    "0000006000000000000000934e554d5059010046007b276465736372273a20273c6634272c2027666f727472"
    "616e5f6f72646572273a2046616c73652c20277368617065273a2028322c2032292c207d2020202020202020"
    "20200a0000803f00002040000040c000008040504b01022d032d000000000000002100e6a17d7a6000000060"
    "000000050000000000000000000000800100000000612e6e7079504b05060000000001000100330000009700"
    "00000000";

TEST(Npy, RoundTripOfEveryType) {
  for (DType dtype :
       {DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64,
        DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kComplex64, DType::kComplex128}) {
    Tensor tensor = Tensor::Of<float>({2, 1, 3}, {0, 1, 0, 1, 1, 0}).Cast(dtype);
    EXPECT_TRUE(BitEqual(ParseNpy(SerializeNpy(tensor), "t"), tensor)) << ToString(dtype);
    EXPECT_EQ(SerializeNpy(tensor).size() % 64, tensor.nbytes() % 64);
  }
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{5}}) {
    Tensor tensor = Tensor::Zeros(DType::kFloat32, shape);
    EXPECT_TRUE(BitEqual(ParseNpy(SerializeNpy(tensor), "t"), tensor)) << shape.ToString();
  }
}

TEST(Npy, BFloat16IsWrittenAsFloat32) {
  Tensor tensor = Tensor::Of<float>({2}, {1.5f, -2}).Cast(DType::kBFloat16);
  EXPECT_TRUE(BitEqual(ParseNpy(SerializeNpy(tensor), "t"), Tensor::Of<float>({2}, {1.5f, -2})));
}

TEST(Npy, HeaderIsNumpys) {
  std::string bytes = SerializeNpy(Tensor::Of<float>({3}, {1, 2, 3}));
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_NE(bytes.find("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"),
            std::string::npos);
  EXPECT_NE(SerializeNpy(Tensor::Zeros(DType::kBool, {})).find("'|b1'"), std::string::npos);
}

TEST(Npy, OrdersAndByteOrders) {
  std::string data("\x00\x01\x00\x04\x00\x02\x00\x05\x00\x03\x00\x06", 12);
  EXPECT_TRUE(BitEqual(ParseNpy(Npy(Header(">i2", "True", "(2, 3)"), data), "t"),
                       Tensor::Of<int16_t>({2, 3}, {1, 2, 3, 4, 5, 6})));
  std::string cube;
  for (char c = 0; c < 24; ++c) cube += c;
  Tensor tensor = ParseNpy(Npy(Header("|u1", "True", "(2L, 3L, 4L)"), cube), "t");
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k)
        EXPECT_EQ(tensor.data<uint8_t>()[(i * 3 + j) * 4 + k], i + 2 * (j + 3 * k));
    }
  }
}

// The real part, then the imaginary part, each a float.
TEST(Npy, ComplexNumbers) {
  const Tensor one = Tensor::Of<complex64>({1}, {complex64(1, -2)});
  const std::string bytes = SerializeNpy(one);
  EXPECT_NE(bytes.find("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }"),
            std::string::npos);
  EXPECT_EQ(bytes.substr(bytes.size() - 8), std::string("\0\0\x80\x3f\0\0\0\xc0", 8));
  const Tensor wide = Tensor::Of<complex128>({}, {complex128(1, -2)});
  EXPECT_NE(SerializeNpy(wide).find("'<c16'"), std::string::npos);
  EXPECT_EQ(SerializeNpy(wide).substr(SerializeNpy(wide).size() - 16),
            std::string("\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\xc0", 16));
  const std::string big("\x3f\x80\0\0\xc0\0\0\0", 8);
  EXPECT_TRUE(BitEqual(ParseNpy(Npy(Header(">c8", "False", "(1,)"), big), "t"), one));
  const std::string two = std::string("\0\0\x80\x3f\0\0\0\0", 8) + std::string(16, '\0') +
                          std::string("\0\0\0\0\0\0\x80\x3f", 8);
  EXPECT_TRUE(BitEqual(ParseNpy(Npy(Header("<c8", "True", "(2, 2)"), two), "t"),
                       Tensor::Of<complex64>({2, 2}, {{1, 0}, {0, 0}, {0, 0}, {0, 1}})));
  EXPECT_NE(ErrorOf(Npy(Header("<c8", "False", "(2,)"), big)), "");
  EXPECT_NE(ErrorOf(Npy(Header("<c32", "False", "()"), std::string(32, '\0'))), "");
}

TEST(Npy, OtherTypesAreWidened) {
  EXPECT_TRUE(BitEqual(ParseNpy(Npy(Header("<u2", "False", "(1,)"), "\xff\xff"), "t"),
                       Tensor::Of<int32_t>({1}, {65535})));
  EXPECT_TRUE(BitEqual(ParseNpy(Npy(Header("<u4", "False", "()"), "\xff\xff\xff\xff"), "t"),
                       Tensor::Of<int64_t>({}, {4294967295})));
  EXPECT_TRUE(BitEqual(ParseNpy(Npy(Header("<u8", "False", "()"), std::string(8, '\xff')), "t"),
                       Tensor::Of<uint64_t>({}, {UINT64_MAX})));
  // A byte that is neither 0 nor 1 is true.
  EXPECT_TRUE(BitEqual(ParseNpy(Npy(Header("|b1", "False", "(3,)"), std::string("\0\1\7", 3)), "t"),
                       Tensor::Of<bool>({3}, {false, true, true})));
}

TEST(Npy, Texts) {
  using Texts = std::vector<std::string>;
  // NumPy's array(['ab', '\u00e4\U0001f600', '']), in both byte orders, and bytes.
  const std::string little("a\0\0\0b\0\0\0\xe4\0\0\0\0\xf6\x01\0\0\0\0\0\0\0\0\0", 24);
  const std::string big("\0\0\0a\0\0\0b\0\0\0\xe4\0\x01\xf6\0\0\0\0\0\0\0\0\0", 24);
  const Texts wanted = {"ab", "\xc3\xa4\xf0\x9f\x98\x80", ""};
  EXPECT_EQ(ParseNpy(Npy(Header("<U2", "False", "(3,)"), little), "t").Strings(), wanted);
  EXPECT_EQ(ParseNpy(Npy(Header(">U2", "False", "(3,)"), big), "t").Strings(), wanted);
  EXPECT_EQ(ParseNpy(Npy(Header("|S2", "True", "(2, 2)"), std::string("a\0b\0\xff-cd", 8)), "t")
                .Strings(),
            (Texts{"a", "\xff-", "b", "cd"}));
  EXPECT_EQ(ParseNpy(Npy(Header("<U0", "False", "(0,)"), ""), "t").shape(), (Shape{0}));
  for (const Texts& texts : {wanted, Texts{"\xff", "ab"}, Texts{"", std::string("a\0b", 3)}}) {
    const Tensor tensor = Tensor::OfStrings({static_cast<int64_t>(texts.size()), 1}, texts);
    EXPECT_TRUE(BitEqual(ParseNpy(SerializeNpy(tensor), "t"), tensor));
  }
  EXPECT_NE(SerializeNpy(Tensor::OfStrings({3}, wanted)).find("'<U2'"), std::string::npos);
  EXPECT_NE(SerializeNpy(Tensor::OfStrings({1}, Texts{"\xff"})).find("'|S1'"), std::string::npos);
  EXPECT_THROW(SerializeNpy(Tensor::OfStrings({1}, Texts{std::string("a\0", 2)})), Error);
  EXPECT_NE(ErrorOf(Npy(Header("<U1", "False", "(1,)"), std::string("\0\xd8\0\0", 4)))
                .find("text 0 holds 0xd800, which is no character"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Npy(Header("<U0", "False", "(1099511627776,)"), "")), "");
  EXPECT_NE(ErrorOf(Npy(Header("<U99999999999999999999", "False", "(1,)"), "")), "");
  EXPECT_NE(ErrorOf(Npy(Header("|O", "False", "(1,)"), "x")).find("texts to 'U' with astype"),
            std::string::npos);
}

TEST(Npy, MalformedFilesAreErrors) {
  EXPECT_NE(ErrorOf(""), "");
  EXPECT_NE(ErrorOf("PK\3\4aaaaaaaaaaa"), "");
  EXPECT_NE(ErrorOf(Npy(Header("<f4", "False", "(3,)"), "12345678")).find("8 bytes"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Npy(Header("<f4", "False", "(1,)"), "12345678")), "");
  EXPECT_NE(ErrorOf(Npy(Header("|O", "False", "(1,)"), "12345678")).find("'|O'"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Npy(Header("<f4", "Maybe", "(1,)"), "1234")), "");
  EXPECT_NE(ErrorOf(Npy(Header("<f4", "False", "(-1,)"), "1234")), "");
  EXPECT_NE(ErrorOf(Npy(Header("<f4", "False", "(4611686018427387904, 4)"), "")), "");
  EXPECT_NE(ErrorOf(Npy(Header("<f4", "False", "(9999999999999999999999,)"), "")), "");
  EXPECT_NE(ErrorOf(Npy(Header("<f4", "False", "(1,1,1,1,1,1,1,1,1,1)"), "1234")), "");
  EXPECT_NE(ErrorOf(Npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "")), "");
  EXPECT_NE(ErrorOf(Npy("{'shape': (1,)}", "1234")), "");
  EXPECT_NE(ErrorOf(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12)), "");
}

TEST(Npz, ReadsPythonsArchives) {
  NamedTensors tensors = ParseNpz(FromHex(kDeflated), "a.npz");
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].first, "a");
  EXPECT_TRUE(BitEqual(tensors[0].second, Tensor::Of<float>({2, 2}, {1, 2.5f, -3, 4})));
  EXPECT_EQ(tensors[1].first, "dir/b");
  EXPECT_TRUE(BitEqual(tensors[1].second, Tensor::Of<int16_t>({2, 3}, {1, 2, 3, 4, 5, 6})));
  tensors = ParseNpz(FromHex(kZip64), "b.npz");
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_TRUE(BitEqual(tensors[0].second, Tensor::Of<float>({2, 2}, {1, 2.5f, -3, 4})));
}

TEST(Npz, RoundTrip) {
  TemporaryDirectory directory;
  std::vector<float> many(300000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i * i % 1000);
  NamedTensors tensors = {{"w", Tensor::Of<float>({300, 1000}, many)},
                          {"none", Tensor::Zeros(DType::kInt64, {0})},
                          {"a/b", Tensor::Of<bool>({1}, {true})}};
  for (bool compressed : {false, true}) {
    std::string path = directory.File(compressed ? "c.npz" : "s.npz");
    WriteNpz(tensors, path, compressed);
    NamedTensors again = ReadNpz(path);
    ASSERT_EQ(again.size(), tensors.size());
    for (size_t i = 0; i < again.size(); ++i) {
      EXPECT_EQ(again[i].first, tensors[i].first);
      EXPECT_TRUE(BitEqual(again[i].second, tensors[i].second));
    }
  }
  EXPECT_LT(ReadFile(directory.File("c.npz")).size(), many.size());
}

TEST(Npz, LodBecomesArraysOfOffsets) {
  TemporaryDirectory directory;
  Tensor x = Tensor::Of<float>({4, 1}, {1, 2, 3, 4});
  x.lod() = {{0, 2, 2}, {0, 1, 4}};
  const std::string path = directory.File("lod.npz");
  WriteNpz({{"x", x}, {"y", Tensor::Of<float>({1}, {5})}}, path);
  const NamedTensors again = ReadNpz(path);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].second.lod(), x.lod());
  EXPECT_TRUE(again[1].second.lod().empty());
  WriteNpz({{"x", Tensor::Of<float>({4, 1}, {1, 2, 3, 4})},
            {"x@LOD@0", Tensor::Of<int64_t>({2}, {0, 5})}},
           path);
  EXPECT_THROW(ReadNpz(path), Error);
}

TEST(Npz, DamageIsNoticed) {
  const std::string good = FromHex(kDeflated);
  auto error = [](const std::string& bytes) -> std::string {
    try {
      ParseNpz(bytes, "a.npz");
    } catch (const Error& e) {
      return e.message();
    }
    return "";
  };
  EXPECT_NE(error(""), "");
  EXPECT_NE(error("hello, this is no archive at all"), "");
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(error(good.substr(0, n)), "") << n;
  std::string bad = good;
  size_t crc = bad.find("PK\1\2") + 16;
  bad[crc] = static_cast<char>(bad[crc] ^ 1);
  EXPECT_NE(error(bad).find("checksum"), std::string::npos) << error(bad);
  bad = good;
  size_t size = bad.find("PK\1\2") + 24;
  bad.replace(size, 4, "\xff\xff\xff\x7f");
  EXPECT_NE(error(bad).find("claims more"), std::string::npos) << error(bad);
  std::mt19937 random(11);
  for (int i = 0; i < 5000; ++i) {
    bad = good;
    for (int k = 0; k < 3; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    error(bad);
  }
}

TEST(Npy, MutationsNeverCrash) {
  const std::string good = SerializeNpy(Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  std::mt19937 random(5);
  for (int i = 0; i < 5000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 2; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    if (i % 2) bad.resize(random() % bad.size());
    ErrorOf(bad);
  }
}

TEST(Npy, NumpysOwnFiles) {
  std::string data = TestDataDirectory();
  if (data.empty() || !FileExists(data + "/paddle/golden")) GTEST_SKIP() << "no golden files";
  Tensor tensor = ReadNpy(data + "/paddle/golden/cls_in_rot0.npy");
  EXPECT_EQ(tensor.dtype(), DType::kFloat32);
  EXPECT_EQ(tensor.nbytes() + 128, ReadFile(data + "/paddle/golden/cls_in_rot0.npy").size());
  TemporaryDirectory directory;
  WriteNpy(tensor, directory.File("again.npy"));
  EXPECT_EQ(ReadFile(directory.File("again.npy")),
            ReadFile(data + "/paddle/golden/cls_in_rot0.npy"));
}

TEST(Npz, TwoArraysOfOneName) {
  TemporaryDirectory directory;
  const Tensor x = Tensor::Of<float>({1}, {1});
  Tensor rows = Tensor::Of<float>({2}, {1, 2});
  rows.lod() = {{0, 2}};
  const std::string path = directory.File("a.npz");
  EXPECT_EQ(coracle::ErrorOf([&] {
              WriteNpz({{"x", x}, {"x", rows}}, path);
            }),
            "an npz file holds one 'x', and there are two");
  EXPECT_EQ(coracle::ErrorOf([&] {
              WriteNpz({{"x", rows}, {"x@LOD@0", x}}, path);
            }),
            "an npz file holds one 'x@LOD@0', and there are two");
  EXPECT_FALSE(FileExists(path));
}

// A thousandth of its size on disk: refused before any of it is extracted.
TEST(Npz, WhatPassesTheMemoryLimitIsNotExtracted) {
  TemporaryDirectory directory;
  const std::string path = directory.File("zeros.npz");
  WriteNpz({{"a", Tensor::Zeros(DType::kFloat32, {1 << 20})},
            {"b", Tensor::Zeros(DType::kFloat32, {1 << 20})}},
           path, true);
  const std::string bytes = ReadFile(path);
  EXPECT_LT(bytes.size(), size_t{20000});
  const auto limits = std::make_shared<ResourceLimits>(ResourceOptions{.memory = 6 << 20});
  const ScopedLimits scoped(limits);
  EXPECT_EQ(coracle::ErrorOf([&] { ParseNpz(bytes, "zeros.npz"); }),
            "out of memory: zeros.npz: what it holds takes 8.0 MiB, which with 0 B in use passes "
            "the memory limit of 6.0 MiB");
  EXPECT_EQ(limits->bytes_in_use(), 0u);
}

}  // namespace coracle::npy_test

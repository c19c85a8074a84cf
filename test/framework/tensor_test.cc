#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/framework/tensor/fingerprint.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/framework/tensor/slab.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace coracle::tensor_test {

TEST(Shape, Basics) {
  Shape shape{2, 3, 4};
  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{5, 0}).numel(), 0);
  EXPECT_EQ(shape.Product(1, 3), 12);
  EXPECT_EQ(shape.ToString(), "[2, 3, 4]");
  int axis = 0;
  EXPECT_TRUE(shape.NormalizeAxis(-1, &axis));
  EXPECT_EQ(axis, 2);
  EXPECT_FALSE(shape.NormalizeAxis(3, &axis));
  EXPECT_FALSE(shape.NormalizeAxis(-4, &axis));
  EXPECT_TRUE((Shape{-1, 3}).CompatibleWith(Shape{7, 3}));
  EXPECT_FALSE((Shape{-1, 3}).CompatibleWith(Shape{7, 4}));
  EXPECT_FALSE((Shape{-1}).CompatibleWith(Shape{7, 4}));
  EXPECT_FALSE((Shape{-1}).IsKnown());
}

TEST(Shape, LimitsAreErrors) {
  EXPECT_THROW(Shape(std::vector<int64_t>(10, 1)), Error);
  EXPECT_THROW((Shape{-1}).numel(), Error);
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40}).numel(), Error);
  // Also with a dim of 0: strides would overflow.
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40, 0}).numel(), Error);
  EXPECT_THROW((Shape{int64_t{1} << 40, 0}).numel(), Error);
  EXPECT_EQ((Shape{int64_t{1} << 31, 0}).numel(), 0);
  EXPECT_THROW(Tensor(DType::kFloat32, Shape{int64_t{1} << 61}), Error);
  EXPECT_THROW(Tensor(static_cast<DType>(99), Shape{1}), Error);
  EXPECT_THROW(Tensor(DType::kFloat32, Shape{-1}), Error);
}

TEST(Tensor, CopiesShareAndClonesDoNot) {
  Tensor a = Tensor::Of<float>({2}, {1, 2});
  Tensor shared = a, copied = a.Clone();
  a.data<float>()[0] = 7;
  EXPECT_EQ(shared.data<float>()[0], 7);
  EXPECT_EQ(copied.data<float>()[0], 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.raw()) % 64, 0u);
}

TEST(Tensor, VersionTellsOfWritesThroughAnyHandle) {
  Tensor a = Tensor::Of<float>({2}, {1, 2});
  const Tensor& seen = a;
  Tensor shared = a.Reshaped({2, 1});
  uint64_t version = 0;
  const auto changed = [&] { return std::exchange(version, seen.version()) != seen.version(); };
  EXPECT_TRUE(changed());
  EXPECT_TRUE(seen.data<float>()[0] == 1 && seen.raw() && seen.span<float>().size() == 2);
  EXPECT_TRUE(BitEqual(seen.Clone(), seen));
  EXPECT_FALSE(changed()) << "was only read";
  shared.data<float>()[0] = 3;
  EXPECT_TRUE(changed());
  shared.span<float>()[0] = 4;
  EXPECT_TRUE(changed());
  EXPECT_NE(shared.raw(), nullptr);
  EXPECT_TRUE(changed());
  a.CopyFrom(Tensor::Of<float>({2}, {5, 6}));
  EXPECT_TRUE(changed());
  shared = Tensor();
  EXPECT_FALSE(changed()) << "another handle went";
  a.Resize(DType::kFloat32, {1});
  EXPECT_TRUE(changed());
  a.MarkWritten();
  EXPECT_TRUE(changed());
}

TEST(Tensor, WhatIsMovedFromIsEmpty) {
  Tensor from = Tensor::Of<float>({2}, {1, 2}), other = from;
  from.lod() = {{0, 2}};
  Tensor to = std::move(from);
  EXPECT_EQ(to.lod(), (LoD{{0, 2}}));
  const auto expect_empty = [](const Tensor& t) {
    EXPECT_TRUE(t.empty());
    EXPECT_EQ(t.shape(), Shape{0});
    EXPECT_EQ(t.raw(), nullptr);
    EXPECT_EQ(t.version(), 0u);
    EXPECT_EQ(t.capacity(), 0u);
    EXPECT_TRUE(t.lod().empty());
  };
  expect_empty(from);  // NOLINT(bugprone-use-after-move)
  from = std::move(to);
  expect_empty(to);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(BitEqual(from, other));
  Tensor& itself = from;
  from = std::move(itself);
  EXPECT_TRUE(BitEqual(from, other));
}

TEST(TensorArray, WhatIsMovedFromIsEmpty) {
  TensorArray from = {Tensor::Of<float>({2}, {1, 2})};
  TensorArray to = std::move(from);
  EXPECT_EQ(to.uniform(), TensorArray::Uniform::kOne);
  EXPECT_EQ(from.size(), 0u);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(from.uniform(), TensorArray::Uniform::kNone);
  EXPECT_EQ(from.capacity(), 0u);
  from = std::move(to);
  EXPECT_EQ(from.size(), 1u);
  EXPECT_EQ(to.size(), 0u);  // NOLINT(bugprone-use-after-move)
}

TEST(Tensor, VersionsOfTwoMemoriesDiffer) {
  std::set<uint64_t> versions;
  for (int i = 0; i < 100; ++i) {  // at one address, perhaps
    const Tensor t(DType::kFloat32, {16});
    EXPECT_TRUE(versions.insert(t.version()).second);
  }
  EXPECT_EQ(Tensor().version(), 0u);
  float value = 1;
  EXPECT_EQ(Tensor::View(DType::kFloat32, {1}, &value).version(), 0u) << "anybody may write it";
}

TEST(Tensor, AccessIsChecked) {
  Tensor a = Tensor::Of<float>({2}, {1, 2});
  EXPECT_THROW(a.data<int>(), Error);
  EXPECT_THROW(a.Item<float>(), Error);
  EXPECT_EQ(Tensor::Of<int64_t>({}, {5}).Item<int64_t>(), 5);
  EXPECT_THROW(Tensor::Of<float>({3}, {1, 2}), Error);
  EXPECT_EQ(a.Reshaped({2, 1}).shape(), Shape({2, 1}));
  EXPECT_THROW(a.Reshaped({3}), Error);
  EXPECT_EQ(Tensor().numel(), 0);
}

TEST(Tensor, CastTruncatesAndSaturates) {
  double inf = std::numeric_limits<double>::infinity();
  Tensor a = Tensor::Of<double>({6}, {-1.7, 300, 1e30, -inf, 0, 2.5});
  auto i8 = a.Cast(DType::kInt8);
  EXPECT_TRUE(BitEqual(i8, Tensor::Of<int8_t>({6}, {-1, 127, 127, -128, 0, 2})));
  EXPECT_TRUE(
      BitEqual(a.Cast(DType::kBool), Tensor::Of<bool>({6}, {true, true, true, true, false, true})));
  EXPECT_TRUE(BitEqual(a.Cast(DType::kUInt8), Tensor::Of<uint8_t>({6}, {0, 255, 255, 0, 0, 2})));
  EXPECT_EQ(a.Cast(DType::kInt64).data<int64_t>()[2], std::numeric_limits<int64_t>::max());
}

// To real: the real part; from real: with the imaginary part 0.
TEST(Tensor, CastOfComplexNumbers) {
  const Tensor z = Tensor::Of<complex64>({3}, {{1.5f, -2}, {0, 3}, {0, 0}});
  EXPECT_EQ(z.nbytes(), 24u);
  EXPECT_EQ(z.ToString(), "complex64[3]");
  EXPECT_TRUE(BitEqual(z.Cast(DType::kFloat64), Tensor::Of<double>({3}, {1.5, 0, 0})));
  EXPECT_TRUE(BitEqual(z.Cast(DType::kInt32), Tensor::Of<int32_t>({3}, {1, 0, 0})));
  EXPECT_TRUE(BitEqual(z.Cast(DType::kBool), Tensor::Of<bool>({3}, {true, true, false})));
  EXPECT_TRUE(BitEqual(z.Cast(DType::kComplex128),
                       Tensor::Of<complex128>({3}, {{1.5, -2}, {0, 3}, {0, 0}})));
  EXPECT_TRUE(BitEqual(z.Cast(DType::kComplex128).Cast(DType::kComplex64), z));
  EXPECT_TRUE(BitEqual(Tensor::Of<int64_t>({2}, {7, 0}).Cast(DType::kComplex64),
                       Tensor::Of<complex64>({2}, {{7, 0}, {0, 0}})));
  EXPECT_TRUE(BitEqual(Tensor::Full<float>({1}, 0.5f).Cast(DType::kFloat16).Cast(DType::kComplex64),
                       Tensor::Of<complex64>({1}, {complex64(0.5f, 0)})));
  EXPECT_THROW(z.data<float>(), Error);
  EXPECT_EQ(RealOf(DType::kComplex64), DType::kFloat32);
  EXPECT_EQ(ComplexOf(DType::kFloat64), DType::kComplex128);
  EXPECT_FALSE(IsFloating(DType::kComplex64) || IsInteger(DType::kComplex64));
  DType parsed = DType::kBool;
  EXPECT_TRUE(ParseDType("complex128", &parsed) && parsed == DType::kComplex128);
}

TEST(Tensor, BitEqualityIsOfBytes) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(BitEqual(Tensor::Of<float>({1}, {nan}), Tensor::Of<float>({1}, {nan})));
  EXPECT_FALSE(BitEqual(Tensor::Of<float>({1}, {0.f}), Tensor::Of<float>({1}, {-0.f})));
  EXPECT_FALSE(BitEqual(Tensor::Of<float>({1}, {0.f}), Tensor::Of<float>({1, 1}, {0.f})));
}

TEST(DType, Names) {
  DType dtype;
  EXPECT_TRUE(ParseDType("float32", &dtype));
  EXPECT_EQ(dtype, DType::kFloat32);
  EXPECT_TRUE(ParseDType("INT64", &dtype));
  EXPECT_EQ(dtype, DType::kInt64);
  EXPECT_FALSE(ParseDType("float31", &dtype));
  EXPECT_FALSE(IsValid(static_cast<DType>(7)));
  EXPECT_EQ(SizeOf(static_cast<DType>(7)), 0u);
}

// Value of a binary16 by its definition.
double HalfByDefinition(uint16_t bits) {
  int sign = bits >> 15, exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return sign ? -magnitude : magnitude;
}

TEST(Half, EveryValueConvertsBothWays) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    auto h = static_cast<uint16_t>(bits);
    float value = float16::ToFloat(h);
    if (((h >> 10) & 31) == 31) {
      EXPECT_EQ(std::isnan(value), (h & 1023) != 0);
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), HalfByDefinition(h)) << bits;
    ASSERT_EQ(float16::FromFloat(value), h) << bits;
  }
}

// Between neighbours the nearer wins, and at the middle the even one.
TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    float middle =
        static_cast<float>((HalfByDefinition(low) + HalfByDefinition(high)) / 2);  // exact
    ASSERT_EQ(float16::FromFloat(middle), low % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(float16::FromFloat(std::nextafter(middle, 0.f)), low) << bits;
    ASSERT_EQ(float16::FromFloat(std::nextafter(middle, 1e9f)), high) << bits;
  }
  EXPECT_EQ(float16::FromFloat(65519.f), 0x7bff);
  EXPECT_EQ(float16::FromFloat(65520.f), 0x7c00);
  EXPECT_EQ(float16::FromFloat(-1e10f), 0xfc00);
}

TEST(Half, BFloat16) {
  EXPECT_EQ(bfloat16::FromFloat(1.f), 0x3f80);
  EXPECT_EQ(bfloat16::FromFloat(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie to even
  EXPECT_EQ(bfloat16::FromFloat(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(bfloat16::FromFloat(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(bfloat16::FromFloat(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7f800001u)))));
}

// The published known-answer vectors of Philox4x32-10. Seed 0 mixes to SplitMix64's first output.
std::array<uint32_t, 4> Philox10(const std::array<uint32_t, 4>& counter, uint32_t k0, uint32_t k1) {
  uint64_t key = uint64_t{k1} << 32 | k0;
  Philox philox(0, key ^ 0xe220a8397b1dcdafu, uint64_t{counter[3]} << 32 | counter[2]);
  return philox.Block(uint64_t{counter[1]} << 32 | counter[0]);
}

TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox10({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox10({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, BlocksAreBlockByBlock) {
  Philox philox(5, HashName("w"), 3);
  std::vector<uint32_t> words(4 * 21);
  uint64_t first = (uint64_t{1} << 32) - 5;  // crosses the low word
  philox.Blocks(first, 21, words.data());
  for (size_t i = 0; i < 21; ++i) {
    auto block = philox.Block(first + i);
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(words[4 * i + k], block[k]);
  }
}

TEST(Philox, DrawsHaveTheirDistributions) {
  Philox philox(1, 2, 3);
  double sum = 0, square = 0, normal_sum = 0, normal_square = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    auto index = static_cast<uint64_t>(i);
    float u = philox.UniformFloat(index);
    double d = philox.UniformDouble(index), n = philox.Normal(index);
    ASSERT_TRUE(u >= 0 && u < 1 && d >= 0 && d < 1 && std::isfinite(n));
    sum += d;
    square += d * d;
    normal_sum += n;
    normal_square += n * n;
  }
  // Five standard errors.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.2887 / std::sqrt(kDraws));
  EXPECT_NEAR(square / kDraws, 1.0 / 3, 5 * 0.2981 / std::sqrt(kDraws));
  EXPECT_NEAR(normal_sum / kDraws, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(normal_square / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
}

TEST(Philox, SeedsStreamsAndStepsDiffer) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    for (uint64_t stream = 0; stream < 3; ++stream) {
      for (uint64_t step = 0; step < 3; ++step) {
        auto block = Philox(seed, stream, step).Block(0);
        seen.insert(uint64_t{block[0]} << 32 | block[1]);
      }
    }
  }
  EXPECT_EQ(seen.size(), 27u);
  EXPECT_NE(HashName("a"), HashName("b"));
}

TEST(Scope, FindsInParents) {
  Scope outer;
  outer.Set("w", Tensor::Of<float>({1}, {1}));
  Scope inner(&outer);
  EXPECT_EQ(inner.Get("w").Item<float>(), 1);
  EXPECT_EQ(inner.FindLocal("w"), nullptr);
  inner.Set("w", Tensor::Of<float>({1}, {2}));
  EXPECT_EQ(inner.Get("w").Item<float>(), 2);
  EXPECT_EQ(outer.Get("w").Item<float>(), 1);
  try {
    inner.Get("v");
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFound);
    EXPECT_NE(e.message().find("'v'"), std::string::npos);
  }
  EXPECT_TRUE(inner.Erase("w"));
  EXPECT_EQ(inner.Get("w").Item<float>(), 1);
}

TEST(Scope, GenerationTellsOfNewNames) {
  Scope outer, inner(&outer);
  inner.Var("a");
  uint64_t generation = inner.Generation();
  inner.Var("a") = Tensor::Of<float>({1}, {1});
  EXPECT_EQ(inner.Generation(), generation);
  for (Scope* scope : {&inner, &outer}) {
    scope->Var("b");
    EXPECT_NE(inner.Generation(), generation);
    generation = inner.Generation();
  }
}

TEST(Scope, AddressesHoldAndClonesAreDeep) {
  Scope scope;
  VarValue* first = &scope.Var("a");
  for (int i = 0; i < 1000; ++i) scope.Var("v" + std::to_string(i));
  EXPECT_EQ(first, &scope.Var("a"));
  EXPECT_THROW(scope.Get("a"), Error);  // nothing in it yet
  scope.Set("a", Tensor::Of<float>({1}, {1}));
  Scope copy = scope.Clone();
  copy.GetMutable("a").data<float>()[0] = 9;
  EXPECT_EQ(scope.Get("a").Item<float>(), 1);
}

TEST(Tensor, ResizeKeepsMemoryThatNobodyShares) {
  Tensor tensor(DType::kFloat32, {100});
  tensor.lod() = {{0, 100}};
  const void* memory = tensor.raw();
  tensor.Resize(DType::kFloat64, {5, 10});
  EXPECT_EQ(tensor.raw(), memory);
  EXPECT_EQ(tensor.ToString(), "float64[5, 10]");
  EXPECT_EQ(tensor.numel(), 50);
  EXPECT_TRUE(tensor.lod().empty());
  tensor.Resize(DType::kFloat32, {100});  // what there was room for
  EXPECT_EQ(tensor.raw(), memory);
  const Tensor other = tensor;
  tensor.Resize(DType::kFloat32, {100});
  EXPECT_NE(tensor.raw(), memory);
  EXPECT_EQ(other.raw(), memory);
  memory = tensor.raw();
  tensor.Resize(DType::kFloat32, {101});
  EXPECT_EQ(tensor.numel(), 101);
  float own[4] = {};
  Tensor view = Tensor::View(DType::kFloat32, {4}, own);
  view.Resize(DType::kFloat32, {2});
  EXPECT_NE(view.raw(), own);
  EXPECT_THROW(view.Resize(DType::kFloat32, {-1}), Error);
}

// Each word counts, with any number of bytes after the last whole group of words.
TEST(Fingerprint, ShowsAnyChangeOfAByte) {
  for (const size_t size : {0, 1, 7, 8, 63, 64, 65, 130, 200}) {
    std::vector<char> bytes(size, 1);
    std::set<uint64_t> seen = {Fingerprint(bytes.data(), size)};
    EXPECT_EQ(Fingerprint(bytes.data(), size), *seen.begin());
    for (char& byte : bytes) {
      byte = 2;
      seen.insert(Fingerprint(bytes.data(), size));
      byte = 1;
    }
    EXPECT_EQ(seen.size(), size + 1);
  }
  const char zeros[16] = {};
  EXPECT_NE(Fingerprint(zeros, 8), Fingerprint(zeros, 16));
}

// They outlive the slab and each other, and are tensors like any others.
TEST(TensorSlab, TensorsSideBySide) {
  const auto limits = std::make_shared<ResourceLimits>(ResourceOptions{});
  const ScopedLimits scoped(limits);
  std::vector<Tensor> tensors;
  {
    const TensorSlab slab(int64_t{3} << 20);
    for (int64_t n : {0, 1, 17, 100000, 300000, 400000, 500000, 3}) {
      tensors.push_back(Tensor::Full<float>({n}, static_cast<float>(n)));
      const TensorSlab inner(100);  // too little for a chunk
      tensors.push_back(Tensor::Full<float>({n}, -1));
    }
  }
  tensors.push_back(Tensor::Full<float>({1000}, 7));
  std::set<uint64_t> versions;
  size_t with_elements = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % 64, 0u);
    for (float x : t.span<float>())
      ASSERT_EQ(x, i + 1 == tensors.size() ? 7 : i % 2 ? -1 : static_cast<float>(t.numel()));
    if (t.empty()) continue;
    versions.insert(t.version());
    ++with_elements;
  }
  EXPECT_EQ(versions.size(), with_elements);
  const std::weak_ptr<void> watched = tensors[2].memory();
  uint64_t bytes = limits->bytes_in_use();
  while (!tensors.empty()) {
    const uint64_t own = tensors.back().nbytes();
    tensors.pop_back();
    EXPECT_LE(limits->bytes_in_use() + own, bytes);
    bytes = limits->bytes_in_use();
  }
  EXPECT_EQ(bytes, 0u);
  EXPECT_TRUE(watched.expired());
}

TEST(TensorArray, AnElementPastTheEndIsRefused) {
  const TensorArray array(2);
  EXPECT_EQ(ErrorOf([&] { static_cast<void>(array[2]); }),
            "a tensor array of 2 elements has no element 2");
}

}  // namespace coracle::tensor_test

#include <coracle/framework/ir/op.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

namespace coracle::attribute_test {

template <class To>
std::optional<To> Convert(const Attribute& from) {
  Attribute out = std::string("untouched");
  if (!ConvertAttribute(from, AttrTypeOf<To>(), &out)) {
    EXPECT_EQ(std::get<std::string>(out), "untouched");
    return std::nullopt;
  }
  return std::get<To>(out);
}

TEST(Attribute, IndexIsTheTypesNumber) {
  EXPECT_EQ(TypeOf(int32_t{1}), AttrType::kInt);
  EXPECT_EQ(TypeOf(Attribute(BlockRef{1})), AttrType::kBlock);
  EXPECT_EQ(TypeOf(Attribute(std::vector<double>{})), AttrType::kFloat64s);
  EXPECT_EQ(TypeOf(Attribute(1.0)), AttrType::kFloat64);
  EXPECT_EQ(TypeOf(Attribute(RawAttr{})), AttrType::kRaw);
  EXPECT_STREQ(ToString(AttrType::kLongs), "LONGS");
  EXPECT_STREQ(ToString(static_cast<AttrType>(99)), "unknown");
}

TEST(Attribute, IntegersConvertInRange) {
  EXPECT_EQ(Convert<int64_t>(int32_t{-5}), -5);
  EXPECT_EQ(Convert<int32_t>(int64_t{7}), 7);
  EXPECT_EQ(Convert<int32_t>(int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(Convert<bool>(int32_t{1}), true);
  EXPECT_EQ(Convert<bool>(int32_t{2}), std::nullopt);
  EXPECT_EQ(Convert<int32_t>(true), 1);
}

TEST(Attribute, FloatsConvertWhereTheMeaningStays) {
  EXPECT_EQ(Convert<double>(0.5f), 0.5);
  EXPECT_EQ(Convert<float>(0.1), 0.1f);
  EXPECT_EQ(Convert<float>(int32_t{3}), 3.f);
  EXPECT_EQ(Convert<int32_t>(3.0f), 3);
  EXPECT_EQ(Convert<int32_t>(3.5f), std::nullopt);
  EXPECT_EQ(Convert<int64_t>(std::numeric_limits<double>::infinity()), std::nullopt);
  EXPECT_EQ(Convert<int64_t>(std::nan("")), std::nullopt);
  EXPECT_EQ(Convert<int64_t>(0x1p63), std::nullopt);
  EXPECT_EQ(Convert<int64_t>(-0x1p63), std::numeric_limits<int64_t>::min());
}

TEST(Attribute, ListsConvertElementByElement) {
  using Ints = std::vector<int32_t>;
  using Longs = std::vector<int64_t>;
  EXPECT_EQ(Convert<Longs>(Ints{1, -2}), (Longs{1, -2}));
  EXPECT_EQ(Convert<Ints>(Longs{1, int64_t{1} << 40}), std::nullopt);
  EXPECT_EQ(Convert<std::vector<bool>>(Ints{0, 1}), (std::vector<bool>{false, true}));
  EXPECT_EQ(Convert<Longs>(int32_t{4}), Longs{4});
  EXPECT_EQ(Convert<std::vector<std::string>>(Ints{}), std::vector<std::string>{});
  EXPECT_EQ(Convert<std::vector<std::string>>(Ints{1}), std::nullopt);
  EXPECT_EQ(Convert<int32_t>(Ints{1}), std::nullopt);
  EXPECT_EQ(Convert<std::string>(Ints{}), std::nullopt);
  EXPECT_EQ(Convert<std::string>(0.5f), std::nullopt);
  EXPECT_EQ(Convert<Ints>(std::string("1")), std::nullopt);
}

TEST(Attribute, Scalars) {
  EXPECT_EQ(Convert<double>(Scalar{2.5}), 2.5);
  EXPECT_EQ(Convert<int32_t>(Scalar{int64_t{3}}), 3);
  EXPECT_EQ(Convert<double>(Scalar{Complex{1, 2}}), std::nullopt);
  EXPECT_EQ(Convert<Scalar>(int32_t{3}), Scalar{int64_t{3}});
}

TEST(Attribute, ReadingNamesBothTypes) {
  try {
    AttributeAs<int32_t>(std::string("x"));
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("STRING"), std::string::npos);
    EXPECT_NE(e.message().find("INT"), std::string::npos);
  }
  EXPECT_THROW(AttributeAs<int32_t>(RawAttr{"bytes"}), Error);
}

TEST(Attribute, Text) {
  EXPECT_EQ(ToString(Attribute(0.5f)), "0.5");
  EXPECT_EQ(ToString(Attribute(std::string("SAME"))), "\"SAME\"");
  EXPECT_EQ(ToString(Attribute(std::vector<int32_t>{1, 2})), "[1, 2]");
  EXPECT_EQ(ToString(Attribute(BlockRef{1})), "block 1");
  EXPECT_EQ(ToString(Attribute(true)), "true");
}

TEST(Setting, GetsItsParameters) {
  Setting setting{"uniform", {{"low", -1.0}, {"seed", int32_t{5}}}};
  EXPECT_EQ(setting.Get<float>("low", 0), -1.f);
  EXPECT_EQ(setting.Get<int64_t>("seed", 0), 5);
  EXPECT_EQ(setting.Get<double>("high", 9), 9);
}
}  // namespace coracle::attribute_test

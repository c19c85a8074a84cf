// Field tables: Settings to options and back, defaults of the struct, ranges and errors.

#include <coracle/framework/ir/fields.h>
#include <coracle/framework/ir/op.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <limits>

namespace coracle::fields_test {

struct TestOptions {
  double rate = 0.5;
  int64_t steps = 3;
  int32_t seed = 0;
  bool flag = true;
  std::string name = "x";
  std::vector<int64_t> milestones = {1, 2};
  std::optional<double> limit = std::nullopt;
};

const Fields<TestOptions>& Table() {
  using O = TestOptions;
  static const auto table = Fields<O>("A test.")
                                .Add("rate", &O::rate, "a share", RangeFrom(0, 1))
                                .Add("steps", &O::steps, "how many", kRequired, PositiveRange())
                                .Add("seed", &O::seed, "")
                                .Add("flag", &O::flag, "")
                                .Add("name", &O::name, "")
                                .Add("milestone", &O::milestones, "", NotNegativeRange())
                                .Add("limit", &O::limit, "", StandIn{"rate"});
  return table;
}

std::string ReadError(AttrList attrs) {
  attrs.push_back({"steps", int64_t{1}});
  return ErrorOf([&] { Table().Read("me", {"kind", attrs}); });
}

TEST(Fields, DefaultsAreTheStructs) {
  EXPECT_EQ(Table().doc(), "A test.");
  EXPECT_EQ(Table().Find("rate")->default_value, Attribute(0.5));
  EXPECT_EQ(Table().Find("name")->default_value, Attribute(std::string("x")));
  EXPECT_EQ(Table().Find("milestone")->default_value, Attribute(std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Table().Find("steps")->default_value, std::nullopt);  // required
  EXPECT_EQ(Table().Find("limit")->default_value, std::nullopt);
  EXPECT_EQ(Table().Find("limit")->stand_in, "rate");
  EXPECT_EQ(Table().Find("other"), nullptr);
}

TEST(Fields, ReadAndSave) {
  const Setting setting{"kind",
                        {{"steps", int32_t{7}},  // converted to the member's type
                         {"rate", 0.25f},
                         {"flag", false},
                         {"milestone", std::vector<int64_t>{4}},
                         {"limit", 9.0}}};
  const TestOptions options = Table().Read("me", setting);
  EXPECT_EQ(options.steps, 7);
  EXPECT_EQ(options.rate, 0.25);
  EXPECT_FALSE(options.flag);
  EXPECT_EQ(options.name, "x");
  EXPECT_EQ(options.milestones, (std::vector<int64_t>{4}));
  EXPECT_EQ(options.limit, 9.0);
  const Setting saved = Table().Save("kind", options);
  EXPECT_EQ(saved.attrs.size(), 7u);
  EXPECT_EQ(Table().Save("kind", Table().Read("me", saved)), saved);
  TestOptions without;
  EXPECT_EQ(Table().Save("kind", without).Find("limit"), nullptr);
}

TEST(Fields, ErrorsNameTheField) {
  EXPECT_EQ(ReadError({{"rat", 0.5}}), "me: there is no 'rat'; did you mean rate?");
  EXPECT_EQ(ReadError({{"rate", std::string("x")}}), "me: rate must be a number");
  EXPECT_EQ(ReadError({{"flag", 1.0}}), "me: flag must be true or false");
  EXPECT_EQ(ReadError({{"name", 1.0}}), "me: name must be a text");
  EXPECT_EQ(ReadError({{"seed", int64_t{1} << 40}}).substr(0, 16), "me: seed must be");
  EXPECT_EQ(ErrorOf([] { Table().Read("me", {"kind", {}}); }), "me: steps is required");
}

TEST(Fields, NamesGivenTwice) {
  EXPECT_EQ(ReadError({{"rate", 0.5}, {"seed", 1}, {"rate", 0.5}}), "me: rate is given twice");
  const Setting twice = {"kind", {{"a", 1}, {"a", 2}}};
  EXPECT_EQ(ErrorOf([&] { FieldTable::Any().CheckSetting("me", twice); }), "me: a is given twice");
}

TEST(Fields, Ranges) {
  TestOptions options;
  EXPECT_NO_THROW(Table().Check("me", options));
  const auto error = [&] { return ErrorOf([&] { Table().Check("me", options); }); };
  options.rate = 1;
  EXPECT_EQ(error(), "me: rate must lie in [0, 1), got 1");
  options.rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error(), "me: rate must lie in [0, 1), got nan");
  options = {.steps = 0};
  EXPECT_EQ(error(), "me: steps must be positive, got 0");
  options = {.milestones = {1, -2}};
  EXPECT_EQ(error(), "me: milestone must not be negative, got -2");
}

TEST(Fields, NamesThatNoTextCouldGive) {
  using O = TestOptions;
  EXPECT_THROW(Fields<O>("").Add("a b", &O::rate, ""), Error);
  EXPECT_THROW(Fields<O>("").Add("", &O::rate, ""), Error);
  EXPECT_THROW(Fields<O>("").Add("a", &O::rate, "").Add("a", &O::seed, ""), Error);
}

TEST(Fields, OfASetting) {
  const FieldTable table = FieldTable::Of(
      "From values.", {"kind", {{"low", -1.0}, {"seed", int32_t{0}}}}, {{"seed", "0: its own"}});
  ASSERT_EQ(table.fields().size(), 2u);
  EXPECT_EQ(table.Find("low")->default_value, Attribute(-1.0));
  EXPECT_EQ(table.Find("seed")->member.type, AttrType::kInt);
  EXPECT_EQ(table.Find("seed")->doc, "0: its own");
}
}  // namespace coracle::fields_test

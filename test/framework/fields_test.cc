// Field tables: Settings to options and back, defaults of the struct, ranges and errors.

#include <coracle/framework/ir/field_places.h>
#include <coracle/framework/ir/fields.h>
#include <coracle/framework/ir/op.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <limits>
#include <variant>

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

// --- fields that hold fields ---

enum class Color { kRed = 3, kBlue = 7 };
struct Box {
  int64_t width = 2;
};
struct Ball {
  uint64_t seed = 5;
};
struct Toy {
  Color color = Color::kBlue;
  int64_t limit = 0;  // 0: none
  std::variant<std::monostate, Box, Ball> shape;
  std::optional<Box> cover;
  std::vector<Box> boxes;
  Box inner;
};

Fields<Box> BoxFields() {
  return Fields<Box>("A box.")
      .Message("BoxConfig")
      .Add("width", &Box::width, "", LimitedRange(1, 9), FieldExample{"width: 4"})
      .Rule([](Box& box, const FieldPlaces& given) {
        if (box.width == 8) given.Fail("width", "must not be 8");
      });
}

Fields<Toy> ToyFields() {
  using O = Toy;
  return Fields<O>("A toy.")
      .Add("color", &O::color, "",
           OneOf{"Color", {{"RED", Color::kRed, "warm"}, {"BLUE", Color::kBlue}}})
      .Add("limit", &O::limit, "", RangeFrom(1), kNoDefault, FieldNumber{20})
      .Choices("shape", "form")
      .Choice("box", &O::shape, BoxFields())
      .Choice("ball", &O::shape, Fields<Ball>("").Add("seed", &Ball::seed, ""))
      .Nested("cover", &O::cover, BoxFields(), "on top")
      .Nested("part", &O::boxes, BoxFields(), "")
      .Inline(&O::inner, BoxFields());
}

TEST(Fields, EnumsAreNumbersWithWords) {
  const auto table = ToyFields();
  const FieldSpec& color = *table.Find("color");
  EXPECT_EQ(color.default_value, Attribute(int32_t{7}));
  EXPECT_EQ(color.one_of->values[0].name, "RED");
  EXPECT_EQ(color.one_of->values[0].value, 3);
  Toy toy;
  color.member.set(&toy.color, Attribute(int32_t{3}));
  EXPECT_EQ(toy.color, Color::kRed);
}

// A struct's value for "not given" is in no range, and is no default.
TEST(Fields, ValuesThatMeanNotGiven) {
  const auto table = ToyFields();
  const FieldSpec& limit = *table.Find("limit");
  EXPECT_EQ(limit.default_value, std::nullopt);
  EXPECT_EQ(limit.number, 20);
  Toy toy;
  EXPECT_EQ(FieldTable::OutOfRange(limit, &toy), "");
  toy.limit = -1;
  EXPECT_EQ(FieldTable::OutOfRange(limit, &toy), "must be at least 1, got -1");
}

TEST(Fields, EachSideOfALimitedRangeHasItsText) {
  EXPECT_EQ(FieldTable::OutOfRange(LimitedRange(1, 9), Attribute(int64_t{0})),
            "must be at least 1, got 0");
  EXPECT_EQ(FieldTable::OutOfRange(LimitedRange(1, 9), Attribute(int64_t{10})),
            "must be at most 9, got 10");
  EXPECT_EQ(ClosedRange(0, 1099511627776).text, "must be in [0, 1099511627776]");
  EXPECT_EQ(OpenRange(0, 1).text, "must lie in (0, 1)");
}

TEST(Fields, NestedFieldsOpenTheStructToFill) {
  const auto table = ToyFields();
  Toy toy;
  const auto open = [&](const char* name) {
    const FieldSpec& field = *table.Find(name);
    return field.nested->open(reinterpret_cast<char*>(&toy) + field.offset);
  };
  static_cast<Box*>(open("cover"))->width = 3;
  EXPECT_EQ(toy.cover->width, 3);
  static_cast<Ball*>(open("ball"))->seed = 9;
  EXPECT_EQ(std::get<Ball>(toy.shape).seed, 9u);
  static_cast<Box*>(open("part"))->width = 1;
  static_cast<Box*>(open("part"))->width = 4;
  ASSERT_EQ(toy.boxes.size(), 2u);
  EXPECT_EQ(toy.boxes[1].width, 4);
  EXPECT_EQ(table.Find("cover")->nested->type, "BoxConfig");
  EXPECT_EQ(table.Find("part")->nested->table->Find("width")->example, "width: 4");
  EXPECT_TRUE(table.Find("ball")->nested->choice);
  EXPECT_TRUE(table.Find("ball")->nested->table->Find("seed")->member.is_unsigned);
  EXPECT_EQ(table.choice_noun(), "form");
}

TEST(Fields, InlinedFieldsAndRulesAreThoseOfTheMember) {
  const auto table = ToyFields();
  const FieldSpec& width = *table.Find("width");
  Toy toy;
  FieldTable::Set(width, "me", Attribute(int64_t{8}), &toy);
  EXPECT_EQ(toy.inner.width, 8);
  const FieldPlaces::Map places = {{"", "t:1:1"}, {"toy", "t:1:3"}, {"toy.width", "t:2:4"}};
  EXPECT_EQ(ErrorOf([&] { table.ApplyRules(&toy, FieldPlaces(places, "toy")); }),
            "t:2:4: width must not be 8");
}

TEST(FieldPlaces, PathsAndLists) {
  const FieldPlaces::Map places = {{"", "t:1:1"},
                                   {"a", "t:2:1"},
                                   {"a.b[0]", "t:3:1"},
                                   {"a.b[1]", "t:4:1"},
                                   {"a.b[1].c", "t:5:1"}};
  const FieldPlaces root(places), a = root.Child("a");
  EXPECT_TRUE(root.Has("a.b"));
  EXPECT_TRUE(a.Has("b"));
  EXPECT_FALSE(a.Has("c"));
  EXPECT_EQ(a.Place("b", 1), "t:4:1");
  EXPECT_EQ(a.Place("x"), "t:2:1");
  EXPECT_EQ(a.Child("b", 1).Place("c"), "t:5:1");
  EXPECT_EQ(ErrorOf([&] { root.Fail("a.b", "is wrong", 1); }), "t:4:1: b is wrong");
  EXPECT_EQ(ErrorOf([&] { a.FailHere("a is empty"); }), "t:2:1: a is empty");
}

}  // namespace coracle::fields_test

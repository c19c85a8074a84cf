#include <coracle/test/op_test.h>

namespace coracle::string_edit_test {

using Texts = std::vector<std::string>;

Tensor Strings(const Shape& shape, const Texts& values) { return Tensor::OfStrings(shape, values); }

void ExpectStrings(const Tensor& got, const Shape& shape, const Texts& values) {
  EXPECT_EQ(got.shape(), shape);
  EXPECT_EQ(got.Strings(), values);
}

TEST(StringConcat, Broadcasts) {
  OpTest op("string_concat");
  op.TensorInput("X", Strings({2, 1}, {"a", ""})).TensorInput("Y", Strings({3}, {"x", "", "\xff"}));
  ExpectStrings(op.Output("Out"), {2, 3}, {"ax", "a", "a\xff", "x", "", "\xff"});
  OpTest none("string_concat");
  none.TensorInput("X", Strings({0}, {})).TensorInput("Y", Strings({1}, {"y"}));
  ExpectStrings(none.Output("Out"), {0}, {});
}

TEST(StringConcat, C3_Shapes) {
  OpTest("string_concat")
      .TensorInput("X", Strings({2}, {"a", "b"}))
      .TensorInput("Y", Strings({3}, {"a", "b", "c"}))
      .ExpectError("string_concat.C3");
}

TEST(StringConcat, C4_Numbers) {
  OpTest("string_concat")
      .TensorInput("X", Strings({1}, {"a"}))
      .Input("Y", {1}, {1})
      .ExpectError("string_concat.C4");
}

OpTest Normalize(const Shape& shape, const Texts& words) {
  OpTest op("string_normalize");
  op.TensorInput("X", Strings(shape, words));
  return op;
}

TEST(StringNormalize, StopWords) {
  OpTest cased = Normalize({4}, {"Monday", "monday", "", "Tuesday"});
  cased.Attr("stopwords", Texts{"monday"}).Attr("is_case_sensitive", true);
  ExpectStrings(cased.Output("Out"), {3}, {"Monday", "", "Tuesday"});
  OpTest any = Normalize({1, 4}, {"Monday", "monday", "\xc3\x84pfel", "Tuesday"});
  any.Attr("stopwords", Texts{"MONDAY", "\xc3\xa4PFEL"}).Attr("case_change", std::string("upper"));
  ExpectStrings(any.Output("Out"), {1, 1}, {"TUESDAY"});
}

TEST(StringNormalize, AllGone) {
  OpTest op = Normalize({1, 2}, {"a", "A"});
  op.Attr("stopwords", Texts{"a"});
  ExpectStrings(op.Output("Out"), {1, 1}, {""});
  ExpectStrings(Normalize({0}, {}).Output("Out"), {1}, {""});
}

// Umlauts, Greek, Cyrillic, a letter outside of the first plane; the sharp s has no upper case of
// one letter, and bytes that are not UTF-8 stay.
TEST(StringNormalize, Case) {
  const Texts mixed = {"a\xc3\xa4\xc3\x9f", "\xce\xa3\xcf\x83", "\xd0\xb6", "\xf0\x90\x90\xa8",
                       "a\xff\xc3"};
  OpTest up = Normalize({5}, mixed), down = Normalize({5}, mixed);
  up.Attr("case_change", std::string("upper"));
  ExpectStrings(
      up.Output("Out"), {5},
      {"A\xc3\x84\xc3\x9f", "\xce\xa3\xce\xa3", "\xd0\x96", "\xf0\x90\x90\x80", "A\xff\xc3"});
  down.Attr("case_change", std::string("lower"));
  ExpectStrings(
      down.Output("Out"), {5},
      {"a\xc3\xa4\xc3\x9f", "\xcf\x83\xcf\x83", "\xd0\xb6", "\xf0\x90\x90\xa8", "a\xff\xc3"});
}

TEST(StringNormalize, C1_Numbers) {
  OpTest("string_normalize").Input("X", {1}, {1}).ExpectError("string_normalize.C1");
}
TEST(StringNormalize, C2_Shape) {
  Normalize({2, 1}, {"a", "b"}).ExpectError("string_normalize.C2");
}

OpTest Split(const Shape& shape, const Texts& texts) {
  OpTest op("string_split");
  op.TensorInput("X", Strings(shape, texts));
  return op;
}

TEST(StringSplit, AtDelimiters) {
  OpTest op = Split({2}, {"o-n-n--x-", ""});
  op.Attr("delimiter", std::string("-"));
  ExpectStrings(op.Output("Out"), {2, 6}, {"o", "n", "n", "", "x", "", "", "", "", "", "", ""});
  op.Expect("Count", {2}, {6, 1});
  OpTest twice = Split({1}, {"a--b---c"});
  twice.Attr("delimiter", std::string("--")).Attr("maxsplit", int64_t{1});
  ExpectStrings(twice.Output("Out"), {1, 2}, {"a", "b---c"});
}

TEST(StringSplit, AtSpaces) {
  OpTest op = Split({2, 1}, {"  hello \t world ! ", " \n"});
  ExpectStrings(op.Output("Out"), {2, 1, 3}, {"hello", "world", "!", "", "", ""});
  op.Expect("Count", {2, 1}, {3, 0});
  OpTest once = Split({1}, {" a  b c "});
  once.Attr("maxsplit", int64_t{1});
  ExpectStrings(once.Output("Out"), {1, 2}, {"a", "b c "});
}

TEST(StringSplit, Nothing) {
  ExpectStrings(Split({0}, {}).Output("Out"), {0, 0}, {});
  OpTest none = Split({1}, {"a b"});
  none.Attr("maxsplit", int64_t{0});
  ExpectStrings(none.Output("Out"), {1, 1}, {"a b"});
}

TEST(StringSplit, C1_Numbers) {
  OpTest("string_split").Input("X", {1}, {1}).ExpectError("string_split.C1");
}
TEST(StringSplit, C2_Rank) {
  Split({1, 1, 1, 1, 1, 1, 1, 1, 1}, {"a"}).ExpectError("string_split.C2");
}

}  // namespace coracle::string_edit_test

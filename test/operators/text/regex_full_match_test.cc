#include <coracle/test/op_test.h>

namespace coracle::regex_full_match_test {

OpTest Match(const std::string& pattern, const std::vector<std::string>& texts) {
  OpTest op("regex_full_match");
  op.Attr("pattern", pattern)
      .TensorInput("X", Tensor::OfStrings({static_cast<int64_t>(texts.size())}, texts));
  return op;
}

TEST(RegexFullMatch, WholeTexts) {
  Match("www\\.[\\w.-]+\\.\\bcom\\b", {"www.google.com", "xwww.google.com", "www.google.com.", ""})
      .Expect("Out", {4}, {1, 0, 0, 0});
  Match("", {"", "a"}).Expect("Out", {2}, {1, 0});
  Match("x*", {}).Expect("Out", {0}, {});
}

// A dot is one character of UTF-8; a byte that is none is no character.
TEST(RegexFullMatch, Utf8) {
  Match("a.b", {"a\xc3\xa4"
                "b",
                "axb",
                "a\xff"
                "b",
                "axxb"})
      .Expect("Out", {4}, {1, 1, 0, 0});
}

TEST(RegexFullMatch, C1_Numbers) {
  OpTest("regex_full_match")
      .Attr("pattern", std::string("a"))
      .Input("X", {1}, {1})
      .ExpectError("regex_full_match.C1");
}
TEST(RegexFullMatch, C2_Pattern) {
  Match("a(", {"a"}).ExpectError("regex_full_match.C2");
  Match("(a)\\1", {"aa"}).ExpectError("regex_full_match.C2");
}

}  // namespace coracle::regex_full_match_test

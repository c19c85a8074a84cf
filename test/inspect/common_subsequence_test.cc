#include <coracle/inspect/common_subsequence.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace coracle::common_subsequence_test {

std::string Common(const std::string& a, const std::string& b) {
  std::string common;
  int last_a = -1, last_b = -1;
  const auto equal = [&](int i, int j) {
    return a.at(static_cast<size_t>(i)) == b.at(static_cast<size_t>(j));
  };
  for (const auto& [i, j] :
       CommonSubsequence(static_cast<int>(a.size()), static_cast<int>(b.size()), equal)) {
    EXPECT_LT(last_a, i);
    EXPECT_LT(last_b, j);
    EXPECT_TRUE(equal(i, j));
    last_a = i;
    last_b = j;
    common += a[static_cast<size_t>(i)];
  }
  return common;
}

// The length, by the table of all prefixes.
size_t Longest(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1, 0);
  for (const char c : a) {
    size_t diagonal = 0;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = c == b[j] ? diagonal + 1 : std::max(above, row[j]);
      diagonal = above;
    }
  }
  return row.back();
}

TEST(CommonSubsequence, SmallTexts) {
  EXPECT_EQ(Common("", ""), "");
  EXPECT_EQ(Common("abc", ""), "");
  EXPECT_EQ(Common("", "abc"), "");
  EXPECT_EQ(Common("abc", "abc"), "abc");
  EXPECT_EQ(Common("abc", "xabyc"), "abc");
  EXPECT_EQ(Common("abc", "def"), "");
  EXPECT_EQ(Common("abcabba", "cbabac").size(), 4u);  // the example of the paper
}

TEST(CommonSubsequence, AsLongAsTheTableSays) {
  uint32_t state = 1;
  const auto draw = [&](uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % below;
  };
  for (int round = 0; round < 300; ++round) {
    std::string a, b;
    const uint32_t letters = 1 + draw(4);
    for (uint32_t n = draw(30); n > 0; --n) a += static_cast<char>('a' + draw(letters));
    for (uint32_t n = draw(30); n > 0; --n) b += static_cast<char>('a' + draw(letters));
    EXPECT_EQ(Common(a, b).size(), Longest(a, b)) << a << " " << b;
  }
}

// Past the limit of edits the front is still aligned.
TEST(CommonSubsequence, StopsAfterManyEdits) {
  const std::string front(1000, 'a'), a = front + std::string(5000, 'b'),
                                      b = front + std::string(5000, 'c') + "bbb";
  const std::string common = Common(a, b);
  EXPECT_EQ(common, front);
}
}  // namespace coracle::common_subsequence_test

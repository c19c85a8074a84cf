#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>

namespace coracle::unique_test {

using Ints = std::vector<int32_t>;

TEST(Unique, InOrderOfAppearance) {
  for (int32_t dtype : {2, 3}) {
    OpTest("unique")
        .Attr("dtype", dtype)
        .Input("X", {6}, {2, 3, 3, 1, 5, 3})
        .Expect("Out", {4}, {2, 3, 1, 5})
        .Expect("Index", {6}, {0, 1, 1, 2, 3, 1})
        .ExpectDType("Index", static_cast<DType>(dtype));
  }
  OpTest("unique")
      .Attr("dtype", 3)
      .IntInput("X", {0}, {})
      .Expect("Out", {0}, {})
      .Expect("Index", {0}, {});
}

TEST(Unique, Sorted) {
  OpTest("unique")
      .Attr("dtype", 3)
      .Attr("is_sorted", true)
      .Attr("return_index", true)
      .Attr("return_inverse", true)
      .Attr("return_counts", true)
      .IntInput("X", {2, 3}, {2, 3, 3, 1, 5, 3})
      .Expect("Out", {4}, {1, 2, 3, 5})
      .Expect("Index", {6}, {1, 2, 2, 0, 3, 2})
      .Expect("Indices", {4}, {3, 0, 1, 4})
      .Expect("Counts", {4}, {1, 1, 3, 1});
  OpTest("unique")
      .Attr("dtype", 2)
      .Attr("is_sorted", true)
      .Input("X", {4}, {std::nan(""), 2, std::nan(""), 1})
      .Expect("Out", {3}, {1, 2, std::nan("")})
      .Expect("Counts", {3}, {1, 1, 2});
}

TEST(Unique, ManyElements) {
  std::mt19937 random(2);
  for (int64_t n : {50, 1000, 20000}) {
    std::vector<double> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(static_cast<double>(random() % 700) - 350);
    std::vector<double> out = x;
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    std::vector<double> index, counts(out.size(), 0);
    for (double v : x) {
      index.push_back(
          static_cast<double>(std::lower_bound(out.begin(), out.end(), v) - out.begin()));
      ++counts[static_cast<size_t>(index.back())];
    }
    const auto found = static_cast<int64_t>(out.size());
    OpTest("unique")
        .Attr("dtype", 3)
        .Attr("is_sorted", true)
        .Input("X", {n}, x)
        .Expect("Out", {found}, out)
        .Expect("Index", {n}, index)
        .Expect("Counts", {found}, counts);
  }
}

TEST(Unique, SlicesOfAnAxis) {
  OpTest("unique")
      .Attr("dtype", 3)
      .Attr("is_sorted", true)
      .Attr("axis", Ints{0})
      .Input("X", {4, 2}, {2, 1, 1, 5, 2, 1, 1, 3})
      .Expect("Out", {3, 2}, {1, 3, 1, 5, 2, 1})
      .Expect("Index", {4}, {2, 1, 2, 0})
      .Expect("Indices", {3}, {3, 1, 0})
      .Expect("Counts", {3}, {1, 1, 2});
  OpTest("unique")
      .Attr("dtype", 3)
      .Attr("is_sorted", true)
      .Attr("axis", Ints{-1})
      .Input("X", {2, 3}, {7, 1, 7, 8, 2, 8})
      .Expect("Out", {2, 2}, {1, 7, 2, 8})
      .Expect("Index", {3}, {1, 0, 1});
}

// Slices without elements are equal, and no loop runs over them.
TEST(Unique, SlicesWithoutElements) {
  const int64_t many = int64_t{1} << 20;
  OpTest("unique")
      .Attr("dtype", 3)
      .Attr("is_sorted", true)
      .Attr("axis", Ints{1})
      .Input("X", {many, 3, 0}, {})
      .Expect("Out", {many, 1, 0}, {})
      .Expect("Counts", {1}, {3});
}

TEST(Unique, Constraints) {
  OpTest("unique").Attr("dtype", 5).Input("X", {1}, {1}).ExpectError("unique.C1");
  OpTest("unique").Attr("dtype", 3).Input("X", {1, 1}, {1}).ExpectError("unique.C2");
  for (const Ints& axis : {Ints{1}, Ints{0, 0}}) {
    OpTest("unique")
        .Attr("dtype", 3)
        .Attr("is_sorted", true)
        .Attr("axis", axis)
        .Input("X", {1}, {1})
        .ExpectError("unique.C3");
  }
}

TEST(UniqueWithCounts, Values) {
  OpTest("unique_with_counts")
      .Attr("dtype", 2)
      .Input("X", {6}, {2, 3, 3, 1, 5, 3})
      .Expect("Out", {4}, {2, 3, 1, 5})
      .Expect("Index", {6}, {0, 1, 1, 2, 3, 1})
      .Expect("Count", {4}, {1, 3, 1, 1})
      .ExpectDType("Count", DType::kInt32);
}

TEST(UniqueWithCounts, Constraints) {
  OpTest("unique_with_counts")
      .Attr("dtype", 0)
      .Input("X", {1}, {1})
      .ExpectError("unique_with_counts.C1");
  OpTest("unique_with_counts")
      .Attr("dtype", 3)
      .Input("X", {1, 1}, {1})
      .ExpectError("unique_with_counts.C2");
}
}  // namespace coracle::unique_test

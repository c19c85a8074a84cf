#include <algorithm>

#include "../../op_test.h"

namespace coracle {
namespace {

using Ints = std::vector<int64_t>;

// By the recursive definition.
int64_t Distance(const Ints& a, size_t m, const Ints& b, size_t n) {
  if (m == 0 || n == 0) return static_cast<int64_t>(m + n);
  return std::min({Distance(a, m - 1, b, n) + 1, Distance(a, m, b, n - 1) + 1,
                   Distance(a, m - 1, b, n - 1) + (a[m - 1] != b[n - 1])});
}

OpTest Rows(const Ints& hyps, LoD hyp_lod, const Ints& refs, LoD ref_lod) {
  return std::move(OpTest("edit_distance")
                       .IntInput("Hyps", {static_cast<int64_t>(hyps.size()), 1}, hyps)
                       .Lod(std::move(hyp_lod))
                       .IntInput("Refs", {static_cast<int64_t>(refs.size()), 1}, refs)
                       .Lod(std::move(ref_lod)));
}

TEST(EditDistance, AgreesWithTheDefinition) {
  std::mt19937 random(6);
  for (int round = 0; round < 30; ++round) {
    Ints a(random() % 6), b(random() % 6);
    for (int64_t& v : a) v = static_cast<int64_t>(random() % 3);
    for (int64_t& v : b) v = static_cast<int64_t>(random() % 3);
    const auto distance = static_cast<double>(Distance(a, a.size(), b, b.size()));
    Rows(a, {{0, a.size()}}, b, {{0, b.size()}}).Expect("Out", {1, 1}, {distance});
  }
}

TEST(EditDistance, Batches) {
  // "kitten" to "sitting" takes 3 steps.
  Rows({1, 2, 3, 3, 4, 5, 9}, {{0, 6, 6, 7}}, {6, 2, 3, 3, 2, 5, 7, 1, 2}, {{0, 7, 9, 9}})
      .Expect("Out", {3, 1}, {3, 2, 1})
      .Expect("SequenceNum", {1}, {3})
      .ExpectDType("SequenceNum", DType::kInt64)
      .ExpectLod("Out", {});
  OpTest("edit_distance")
      .Attr("normalized", true)
      .IntInput("Hyps", {2, 3}, {1, 2, 3, 4, 4, 4}, DType::kInt32)
      .IntInput("Refs", {2, 2}, {1, 2, 4, 9}, DType::kInt32)
      .IntInput("HypsLength", {2}, {2, 3})
      .IntInput("RefsLength", {2, 1}, {2, 1})
      .Expect("Out", {2, 1}, {0, 2});
}

TEST(EditDistance, Constraints) {
  OpTest("edit_distance")
      .IntInput("Hyps", {1, 2}, {1, 2})
      .Lod({{0, 1}})
      .IntInput("Refs", {1}, {1})
      .Lod({{0, 1}})
      .ExpectError("edit_distance.C1");
  Rows({1}, {}, {1}, {{0, 1}}).ExpectError("edit_distance.C2");
  Rows({1}, {{0, 1}}, {1}, {{0, 1, 1}}).ExpectError("edit_distance.C3");
  Rows({1}, {{0, 1}}, {}, {{0, 0}}).Attr("normalized", true).ExpectError("edit_distance.C4");
}

}  // namespace
}  // namespace coracle

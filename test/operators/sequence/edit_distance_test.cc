#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <algorithm>

namespace coracle::edit_distance_test {

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

// By a table of all beginnings of both sides.
int64_t DistanceByTable(const Ints& a, const Ints& b) {
  std::vector<Ints> table(a.size() + 1, Ints(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      table[i][j] = static_cast<int64_t>(i + j);
      if (i > 0 && j > 0)
        table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1,
                                table[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
    }
  }
  return table[a.size()][b.size()];
}

TEST(EditDistance, RandomShapes) {
  std::mt19937 random(10);
  for (int round = 0; round < 20; ++round) {
    const int64_t count = 1 + static_cast<int64_t>(random() % 9), time = 80;
    const bool normalized = round % 2 == 1;
    const uint64_t symbols = 2 + random() % 4;
    Ints hyps, refs, hyp_lengths, ref_lengths;
    Ints padded_hyps(static_cast<size_t>(count * time), 1), padded_refs = padded_hyps;
    LoD hyp_lod{{0}}, ref_lod{{0}};
    std::vector<double> out;
    for (int64_t b = 0; b < count; ++b) {
      const auto draw = [&](size_t least, Ints& rows, Ints& padded, Ints& lengths, LoD& lod) {
        Ints values(least + random() % (static_cast<size_t>(time) + 1 - least));
        for (int64_t& v : values) v = static_cast<int64_t>(random() % symbols);
        rows.insert(rows.end(), values.begin(), values.end());
        std::copy(values.begin(), values.end(), padded.begin() + b * time);
        lengths.push_back(static_cast<int64_t>(values.size()));
        lod[0].push_back(rows.size());
        return values;
      };
      const Ints hyp = draw(0, hyps, padded_hyps, hyp_lengths, hyp_lod);
      const Ints ref = draw(1, refs, padded_refs, ref_lengths, ref_lod);
      const auto distance = static_cast<double>(DistanceByTable(hyp, ref));
      out.push_back(normalized ? distance / static_cast<double>(ref.size()) : distance);
    }
    SCOPED_TRACE(round);
    const Threads threads(1 + round % 3);
    Rows(hyps, hyp_lod, refs, ref_lod)
        .Attr("normalized", normalized)
        .Expect("Out", {count, 1}, out, 1e-6);
    OpTest("edit_distance")
        .Attr("normalized", normalized)
        .IntInput("Hyps", {count, time}, padded_hyps, DType::kInt32)
        .IntInput("Refs", {count, time}, padded_refs)
        .IntInput("HypsLength", {count}, hyp_lengths)
        .IntInput("RefsLength", {count}, ref_lengths, DType::kInt32)
        .Expect("Out", {count, 1}, out, 1e-6);
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
}  // namespace coracle::edit_distance_test

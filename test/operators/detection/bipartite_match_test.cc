#include <coracle/test/op_test.h>

namespace coracle::bipartite_match_test {

using Doubles = std::vector<double>;

TEST(BipartiteMatch, Values) {
  // In the first image (1, 2) is the largest, then (0, 0). Rows tie in the second image.
  OpTest("bipartite_match")
      .Input("DistMat", {4, 3}, {0.6, 0.5, 0.7, 0.5, 0.1, 0.9, 0.4, 0.4, 0, 0.4, 0.4, 0})
      .Lod({{0, 2, 4}})
      .Expect("ColToRowMatchIndices", {2, 3}, {0, -1, 1, 0, 1, -1})
      .Expect("ColToRowMatchDist", {2, 3}, {0.6, 0, 0.9, 0.4, 0.4, 0});
  OpTest("bipartite_match")
      .Attr("match_type", std::string("per_prediction"))
      .Attr("dist_threshold", 0.45f)
      .Input("DistMat", {2, 4}, {0.6, 0.5, 0.7, 0.4, 0.5, 0.1, 0.9, 0.1})
      .Expect("ColToRowMatchIndices", {1, 4}, {0, 0, 1, -1})
      .Expect("ColToRowMatchDist", {1, 4}, {0.6, 0.5, 0.9, 0})
      .ExpectDType("ColToRowMatchIndices", DType::kInt32);
  OpTest("bipartite_match")
      .Input("DistMat", {0, 2}, {})
      .Expect("ColToRowMatchIndices", {1, 2}, {-1, -1});
  OpTest("bipartite_match").RandomInput("DistMat", {4}).ExpectError("bipartite_match.C1");
}

// The rule word by word: search the whole matrix for each pair.
TEST(BipartiteMatch, Random) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t rows = 1 + static_cast<int64_t>(random() % 7);
    const int64_t columns = 1 + static_cast<int64_t>(random() % 7);
    Doubles dist;
    for (int64_t i = 0; i < rows * columns; ++i) dist.push_back((random() % 6) / 8.0);
    Doubles matched(static_cast<size_t>(columns), -1);
    std::vector<bool> taken(static_cast<size_t>(rows));
    while (true) {
      double best = 0;
      size_t row = 0, column = 0;
      for (size_t c = 0; c < matched.size(); ++c) {
        for (size_t r = 0; r < taken.size() && matched[c] < 0; ++r) {
          const double d = dist[r * matched.size() + c];
          if (taken[r] || d <= best) continue;
          best = d;
          row = r;
          column = c;
        }
      }
      if (best == 0) break;
      taken[row] = true;
      matched[column] = static_cast<double>(row);
    }
    OpTest("bipartite_match")
        .Input("DistMat", {rows, columns}, dist)
        .Expect("ColToRowMatchIndices", {1, columns}, matched);
  }
}

TEST(TargetAssign, Values) {
  OpTest("target_assign")
      .Attr("mismatch_value", 7)
      .Input("X", {3, 2, 1}, {1, 2, 3, 4, 5, 6})
      .Lod({{0, 2, 3}})
      .IntInput("MatchIndices", {2, 3}, {1, 0, -1, -1, 0, 0}, DType::kInt32)
      .IntInput("NegIndices", {2, 1}, {2, 0}, DType::kInt32)
      .Lod({{0, 1, 2}})
      .Expect("Out", {2, 3, 1}, {3, 2, 7, 7, 6, 5})
      .Expect("OutWeight", {2, 3, 1}, {1, 1, 1, 1, 1, 1});
  OpTest("target_assign")
      .IntInput("X", {1, 1, 2}, {8, 9}, DType::kInt32)
      .IntInput("MatchIndices", {1, 2}, {-1, 0}, DType::kInt32)
      .Expect("Out", {1, 2, 2}, {0, 0, 8, 9})
      .Expect("OutWeight", {1, 2, 1}, {0, 1})
      .ExpectDType("OutWeight", DType::kFloat32);
}

TEST(TargetAssign, Constraints) {
  const auto with = [](const Shape& x, const Shape& match, std::vector<int64_t> values,
                       DType dtype = DType::kInt32) {
    return std::move(
        OpTest("target_assign").RandomInput("X", x).IntInput("MatchIndices", match, values, dtype));
  };
  with({1, 1}, {1, 1}, {0}).ExpectError("target_assign.C1");
  with({1, 1, 1}, {1, 1}, {0}, DType::kInt64).ExpectError("target_assign.C2");
  with({1, 1, 1}, {1, 1}, {0}).IntInput("NegIndices", {1, 1}, {0}).ExpectError("target_assign.C3");
  with({2, 1, 1}, {2, 1}, {0, 0}).ExpectError("target_assign.C4");
  with({1, 1, 1}, {1, 1}, {1}).ExpectError("target_assign.C5");
  with({1, 1, 1}, {1, 1}, {0})
      .IntInput("NegIndices", {1, 1}, {1}, DType::kInt32)
      .ExpectError("target_assign.C5");
}

OpTest Mine(const Shape& shape, const Doubles& loss, const std::vector<int64_t>& match,
            const Doubles& dist) {
  return std::move(OpTest("mine_hard_examples")
                       .Input("ClsLoss", shape, loss)
                       .IntInput("MatchIndices", shape, match, DType::kInt32)
                       .Input("MatchDist", shape, dist));
}

TEST(MineHardExamples, MaxNegative) {
  Mine({2, 5}, {1, 5, 2, 3, 4, 1, 1, 1, 1, 1}, {0, -1, -1, -1, -1, 0, -1, -1, 1, -1},
       {.9, .2, .2, .2, .6, .9, 0, 0, .9, 0})
      .Attr("neg_pos_ratio", 2.f)
      .Expect("NegIndices", {5, 1}, {1, 3, 1, 2, 4})
      .ExpectLod("NegIndices", {{0, 2, 5}})
      .Expect("UpdatedMatchIndices", {2, 5}, {0, -1, -1, -1, -1, 0, -1, -1, 1, -1});
  // 0.7 * 10 is 7, though 0.7f is below 0.7.
  std::vector<int64_t> match(18, -1);
  std::fill_n(match.begin(), 10, 0);
  Mine({1, 18}, std::vector<double>(18, 1), match, std::vector<double>(18, 0))
      .Attr("neg_pos_ratio", 0.7f)
      .Expect("NegIndices", {7, 1}, {10, 11, 12, 13, 14, 15, 16});
  // No positive one, no negative one.
  Mine({1, 2}, {1, 2}, {-1, -1}, {0, 0})
      .Expect("NegIndices", {0, 1}, {})
      .ExpectLod("NegIndices", {{0, 0}});
}

TEST(MineHardExamples, HardExample) {
  Mine({1, 4}, {1, 5, 2, 3}, {0, 1, -1, -1}, {.9, .9, 0, 0})
      .Attr("mining_type", std::string("hard_example"))
      .Attr("sample_size", 2)
      .Input("LocLoss", {1, 4}, {0, 0, 3, 0})
      .Expect("NegIndices", {1, 1}, {2})
      .Expect("UpdatedMatchIndices", {1, 4}, {-1, 1, -1, -1});
}

TEST(MineHardExamples, Constraints) {
  OpTest("mine_hard_examples")
      .RandomInput("ClsLoss", {1, 1})
      .IntInput("MatchIndices", {1, 1}, {0}, DType::kInt32)
      .IntInput("MatchDist", {1, 1}, {0})
      .ExpectError("mine_hard_examples.C1");
  Mine({1, 1}, {1}, {0}, {1}).RandomInput("LocLoss", {1, 2}).ExpectError("mine_hard_examples.C2");
  Mine({1}, {1}, {0}, {1}).ExpectError("mine_hard_examples.C2");
  OpTest("mine_hard_examples")
      .RandomInput("ClsLoss", {1, 1})
      .IntInput("MatchIndices", {1, 1}, {0})
      .RandomInput("MatchDist", {1, 1})
      .ExpectError("mine_hard_examples.C3");
  Mine({1, 1}, {1}, {0}, {1}).Attr("neg_pos_ratio", 0.f).ExpectError("mine_hard_examples.C4");
}
}  // namespace coracle::bipartite_match_test

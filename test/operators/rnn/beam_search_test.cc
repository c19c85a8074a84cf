#include <cmath>

#include "../../op_test.h"

namespace coracle {
namespace {

using Ints = std::vector<int64_t>;

OpTest Search(int32_t beams, int32_t end, const Ints& pre_ids,
              const std::vector<double>& pre_scores, const std::vector<double>& scores, LoD lod) {
  const auto rows = static_cast<int64_t>(pre_ids.size());
  const int64_t columns = rows == 0 ? 2 : static_cast<int64_t>(scores.size()) / rows;
  return std::move(OpTest("beam_search")
                       .Attr("level", 0)
                       .Attr("beam_size", beams)
                       .Attr("end_id", end)
                       .IntInput("pre_ids", {rows, 1}, pre_ids)
                       .Input("pre_scores", {rows, 1}, pre_scores)
                       .Input("scores", {rows, columns}, scores)
                       .Lod(std::move(lod)));
}

TEST(BeamSearch, KeepsTheBest) {
  Search(2, 0, {1, 2, 3, 4}, {0.1, 0.2, 0.3, 0.4},
         {0.5, 0.3, 0.2, 0.6, 0.3, 0.1, 0.9, 0.8, 0.1, 0.7, 0.5, 0.1}, {{0, 2, 4}, {0, 1, 2, 3, 4}})
      .IntInput("ids", {4, 3}, {4, 2, 5, 2, 1, 3, 3, 5, 2, 8, 2, 1})
      .Expect("selected_ids", {4, 1}, {4, 2, 3, 5})
      .Expect("selected_scores", {4, 1}, {0.5, 0.6, 0.9, 0.8})
      .ExpectLod("selected_ids", {{0, 2, 4}, {0, 1, 2, 4, 4}})
      .ExpectLod("selected_scores", {{0, 2, 4}, {0, 1, 2, 4, 4}})
      .Expect("parent_idx", {4}, {0, 1, 2, 2})
      .ExpectDType("parent_idx", DType::kInt32);
}

// Without ids the columns are the ids; probabilities of one step are added to the prefix's score.
TEST(BeamSearch, NotAccumulated) {
  Search(1, 9, {1, 2}, {-1, -2}, {0.25, 0.5, 0.125, 1}, {{0, 2}})
      .Attr("is_accumulated", false)
      .Expect("selected_ids", {1, 1}, {1})
      .Expect("selected_scores", {1, 1}, {-1 + std::log(0.5)})
      .ExpectLod("selected_ids", {{0, 2}, {0, 1, 1}});
}

TEST(BeamSearch, FinishedPrefixes) {
  // The first prefix of each source has ended. That of source 0 stays beside a new candidate;
  // source 1 keeps nothing but what has ended, and is done.
  Search(2, 0, {0, 2, 0, 2}, {5, 1, 5, 5}, {9, 9, 3, 2, 9, 9, 3, 2}, {{0, 2, 3, 4}})
      .Expect("selected_ids", {4, 1}, {0, 0, 0, 1})
      .Expect("selected_scores", {4, 1}, {5, 3, 3, 2})
      .ExpectLod("selected_ids", {{0, 2, 3, 4}, {0, 1, 2, 2, 4}});
}

// Equal scores: later rows first; in a row earlier columns, but the last place goes to the latest.
TEST(BeamSearch, Ties) {
  Search(3, 9, {1, 2}, {0, 0}, {1, 1, 1, 1, 1, 1, 1, 1}, {{0, 2}})
      .Expect("selected_ids", {3, 1}, {0, 1, 3})
      .Expect("parent_idx", {3}, {1, 1, 1});
}

TEST(BeamSearch, FewCandidates) {
  Search(5, 9, {1}, {0}, {1, 2}, {{0, 1, 1}})
      .Expect("selected_ids", {2, 1}, {1, 0})
      .ExpectLod("selected_ids", {{0, 1, 1}, {0, 2}});
  Search(5, 9, {}, {}, {}, {{0, 0}})
      .Expect("selected_ids", {0, 1}, {})
      .ExpectLod("selected_ids", {{0, 0}, {0}});
}

TEST(BeamSearch, Constraints) {
  OpTest("beam_search")
      .Attr("level", 0)
      .Attr("beam_size", 1)
      .Attr("end_id", 0)
      .IntInput("pre_ids", {1}, {1})
      .RandomInput("pre_scores", {1})
      .RandomInput("scores", {1})
      .ExpectError("beam_search.C1");
  OpTest("beam_search")
      .Attr("level", 0)
      .Attr("beam_size", 1)
      .Attr("end_id", 0)
      .IntInput("pre_ids", {2, 1}, {1, 1})
      .RandomInput("pre_scores", {1, 1})
      .RandomInput("scores", {1, 2})
      .Lod({{0, 1}})
      .ExpectError("beam_search.C2");
  Search(1, 0, {1}, {0}, {1, 2}, {{0, 1}})
      .IntInput("ids", {1, 3}, {1, 2, 3})
      .ExpectError("beam_search.C3");
  Search(1, 0, {1}, {0}, {1, 2}, {}).ExpectError("beam_search.C4");
}

}  // namespace
}  // namespace coracle

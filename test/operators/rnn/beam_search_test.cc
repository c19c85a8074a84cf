#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>

namespace coracle::beam_search_test {

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
  // The first prefix of each source has ended. In source 0 it stays, with a new candidate. Source 1
  // keeps only ended prefixes and is done.
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

// Candidates offered one by one, none left out: the best of each source, and where they come from.
struct Selected {
  std::vector<double> ids, scores, parents;
  std::vector<uint64_t> counts{0};
};
Selected SearchAll(size_t beams, int64_t end, const Ints& pre_ids, const std::vector<double>& pre,
                   const std::vector<double>& scores, size_t columns, bool accumulated,
                   const std::vector<uint64_t>& sources) {
  struct Candidate {
    double score;
    uint64_t row;
    int64_t id;
    bool finished;
  };
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.score < b.score || (a.score == b.score && a.row < b.row);
  };
  Selected out;
  for (size_t s = 0; s + 1 < sources.size(); ++s) {
    std::vector<Candidate> best;
    const auto offer = [&](const Candidate& c) {
      if (best.size() == beams && worse(c, best.back())) return;
      if (best.size() == beams) best.pop_back();
      size_t place = 0;
      while (place < best.size() && !worse(best[place], c)) ++place;
      best.insert(best.begin() + static_cast<ptrdiff_t>(place), c);
    };
    for (uint64_t r = sources[s]; r < sources[s + 1]; ++r) {
      if (pre_ids[r] == end) {
        offer({pre[r], r, end, true});
        continue;
      }
      for (size_t d = 0; d < columns; ++d) {
        const double score = scores[r * columns + d];
        offer({accumulated ? score : pre[r] + std::log(score), r, static_cast<int64_t>(d), false});
      }
    }
    const bool done =
        std::all_of(best.begin(), best.end(), [](const Candidate& c) { return c.finished; });
    for (uint64_t r = sources[s]; r < sources[s + 1]; ++r) {
      for (const Candidate& c : best) {
        if (done || c.row != r) continue;
        out.ids.push_back(static_cast<double>(c.id));
        out.scores.push_back(c.score);
        out.parents.push_back(static_cast<double>(r));
      }
      out.counts.push_back(out.ids.size());
    }
  }
  return out;
}

// More columns than are looked at together; scores that are all different, and scores with ties.
TEST(BeamSearch, ManyColumns) {
  std::mt19937 random(13);
  for (int round = 0; round < 60; ++round) {
    const auto beams = static_cast<int32_t>(1 + random() % 6);
    const size_t columns = 60 + random() % 300;
    const bool accumulated = round % 2 == 0;
    const uint64_t kinds = round % 3 == 0 ? 8 : 100000;
    std::vector<uint64_t> sources{0};
    for (int s = 0; s < 3; ++s) sources.push_back(sources.back() + random() % 4);
    Ints pre_ids;
    std::vector<double> pre, scores;
    for (uint64_t r = 0; r < sources.back(); ++r) {
      pre_ids.push_back(static_cast<int64_t>(random() % 5));
      // Log-probabilities of long prefixes are large.
      pre.push_back(-static_cast<double>(random() % 4) - (kinds == 8 ? 2048 : 0));
      for (size_t d = 0; d < columns; ++d) {
        // Exact in float, as are ties; halves and so on are probabilities.
        const auto kind = static_cast<double>(random() % kinds);
        scores.push_back(accumulated  ? -kind / 64
                         : kinds == 8 ? std::ldexp(1.0, -static_cast<int>(kind))
                                      : (1 + kind) / 131072);
      }
    }
    if (pre_ids.empty()) continue;
    const Selected best = SearchAll(static_cast<size_t>(beams), 0, pre_ids, pre, scores, columns,
                                    accumulated, sources);
    const auto selected = static_cast<int64_t>(best.ids.size());
    SCOPED_TRACE(round);
    Search(beams, 0, pre_ids, pre, scores, {sources})
        .Attr("is_accumulated", accumulated)
        .Expect("selected_ids", {selected, 1}, best.ids)
        .Expect("selected_scores", {selected, 1}, best.scores)
        .Expect("parent_idx", {selected}, best.parents)
        .ExpectLod("selected_ids", {sources, best.counts});
  }
}

// In float, with a prefix whose score is large, log(0.5) and log(0.4996) make equal sums; of equal
// ones the last place goes to the latest.
TEST(BeamSearch, RoundedScores) {
  std::vector<double> scores(100, 0.1);
  scores[0] = 0.5;
  scores[70] = 0.4996;
  const Tensor ids = Search(1, 0, {1}, {-20000}, scores, {{0, 1}})
                         .Attr("is_accumulated", false)
                         .Output("selected_ids");
  EXPECT_EQ(ids.data<int64_t>()[0], 70);
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
}  // namespace coracle::beam_search_test

#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <algorithm>

namespace coracle::fpn_proposals_test {

using Doubles = std::vector<double>;

OpTest Distribute() {
  OpTest test("distribute_fpn_proposals");
  test.Attr("min_level", 2)
      .Attr("max_level", 4)
      .Attr("refer_level", 3)
      .Attr("refer_scale", 8)
      .Outputs("MultiFpnRois", 3);
  return test;
}

// Sides of 8, 2, 33, 16 and an inverted box: levels 3, 2 (limited), 4 (limited), 4, 2.
const Doubles kRois = {0, 0, 8, 8, 1, 1, 3, 3, 0, 0, 33, 33, 0, 0, 16, 16, 4, 4, 2, 2};

TEST(DistributeFpnProposals, Values) {
  for (bool counts : {true, false}) {
    OpTest test = Distribute();
    test.Attr("pixel_offset", false).Input("FpnRois", {5, 4}, kRois);
    if (counts)
      test.IntInput("RoisNum", {3}, {2, 0, 3}, DType::kInt32).Outputs("MultiLevelRoIsNum", 3);
    else
      test.Lod({{0, 2, 2, 5}}).NoOutput("MultiLevelRoIsNum");
    test.Expect("MultiFpnRois", {2, 4}, {1, 1, 3, 3, 4, 4, 2, 2}, 1e-5, 0)
        .Expect("MultiFpnRois", {1, 4}, {0, 0, 8, 8}, 1e-5, 1)
        .Expect("MultiFpnRois", {2, 4}, {0, 0, 33, 33, 0, 0, 16, 16}, 1e-5, 2)
        .ExpectLod("MultiFpnRois", {{0, 1, 1, 2}}, 0)
        .ExpectLod("MultiFpnRois", {{0, 1, 1, 1}}, 1)
        .Expect("RestoreIndex", {5, 1}, {2, 0, 3, 4, 1});
    if (!counts) continue;
    test.Expect("MultiLevelRoIsNum", {3}, {1, 0, 1}, 0, 0)
        .Expect("MultiLevelRoIsNum", {3}, {0, 0, 2}, 0, 2);
  }
  // In whole pixels a side of 7 is 8 wide.
  Distribute()
      .NoOutput("MultiLevelRoIsNum")
      .Input("FpnRois", {1, 4}, {0, 0, 7, 7})
      .Expect("MultiFpnRois", {1, 4}, {0, 0, 7, 7}, 1e-5, 1);
}

TEST(DistributeFpnProposals, Constraints) {
  const auto with = [](const Shape& rois) {
    OpTest test = Distribute();
    test.NoOutput("MultiLevelRoIsNum").RandomInput("FpnRois", rois);
    return test;
  };
  with({4}).ExpectError("distribute_fpn_proposals.C1");
  with({2, 4}).IntInput("RoisNum", {1}, {3}).ExpectError("distribute_fpn_proposals.C2");
  with({2, 4}).IntInput("RoisNum", {1, 1}, {2}).ExpectError("distribute_fpn_proposals.C2");
  with({2, 4}).Outputs("MultiFpnRois", 2).ExpectError("distribute_fpn_proposals.C3");
}

OpTest Collect(int32_t most) {
  return std::move(OpTest("collect_fpn_proposals").Attr("post_nms_topN", most));
}

TEST(CollectFpnProposals, Values) {
  for (bool counts : {true, false}) {
    OpTest test = Collect(4);
    test.Input("MultiLevelRois", {2, 4}, {1, 1, 1, 1, 2, 2, 2, 2});
    if (!counts) test.Lod({{0, 1, 1, 2}});
    test.Input("MultiLevelRois", {3, 4}, {3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5});
    if (!counts) test.Lod({{0, 2, 2, 3}});
    test.Input("MultiLevelScores", {2, 1}, {.5, .7}).Input("MultiLevelScores", {3}, {.9, .5, .2});
    if (counts)
      test.IntInput("MultiLevelRoIsNum", {3}, {1, 0, 1}, DType::kInt32)
          .IntInput("MultiLevelRoIsNum", {3}, {2, 0, 1}, DType::kInt32);
    test.Expect("FpnRois", {4, 4}, {3, 3, 3, 3, 1, 1, 1, 1, 4, 4, 4, 4, 2, 2, 2, 2})
        .ExpectLod("FpnRois", {{0, 3, 3, 4}})
        .Expect("RoisNum", {3}, {3, 0, 1});
  }
  Collect(9)
      .Input("MultiLevelRois", {0, 4}, {})
      .Input("MultiLevelScores", {0, 1}, {})
      .Expect("FpnRois", {0, 4}, {})
      .Expect("RoisNum", {1}, {0});
}

// Among equal scores the earlier box comes first, also across levels.
TEST(CollectFpnProposals, ManyTies) {
  struct Roi {
    double at, score;
    int64_t image;
  };
  const std::vector<std::vector<int64_t>> counts = {{100, 0, 200}, {50, 150, 101}};
  std::vector<std::vector<Roi>> levels;
  std::vector<Roi> all;
  for (const std::vector<int64_t>& of_level : counts) {
    std::vector<Roi> level;
    for (int64_t image = 0; image < 3; ++image) {
      for (int64_t i = 0; i < of_level[static_cast<size_t>(image)]; ++i) {
        const auto n = static_cast<int64_t>(all.size());
        all.push_back({static_cast<double>(n), static_cast<double>(n * 7 % 5) / 4, image});
        level.push_back(all.back());
      }
    }
    levels.push_back(level);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Roi& a, const Roi& b) { return a.score > b.score; });
  for (const int threads : {1, 3}) {
    const Threads set(threads);
    for (const int32_t most : {1, 130, 250, 601, 1000}) {
      std::vector<Roi> best = all;
      best.resize(std::min(all.size(), static_cast<size_t>(most)));
      std::stable_sort(best.begin(), best.end(),
                       [](const Roi& a, const Roi& b) { return a.image < b.image; });
      Doubles rois, of_image(3, 0);
      for (const Roi& roi : best) {
        rois.insert(rois.end(), 4, roi.at);
        ++of_image[static_cast<size_t>(roi.image)];
      }
      OpTest test = Collect(most);
      for (size_t k = 0; k < levels.size(); ++k) {
        Doubles boxes, scores;
        for (const Roi& roi : levels[k]) {
          boxes.insert(boxes.end(), 4, roi.at);
          scores.push_back(roi.score);
        }
        const auto n = static_cast<int64_t>(scores.size());
        test.Input("MultiLevelRois", {n, 4}, boxes).Input("MultiLevelScores", {n, 1}, scores);
        test.IntInput("MultiLevelRoIsNum", {3}, counts[k], DType::kInt32);
      }
      test.Expect("FpnRois", {static_cast<int64_t>(best.size()), 4}, rois)
          .Expect("RoisNum", {3}, of_image);
    }
  }
}

TEST(CollectFpnProposals, Constraints) {
  Collect(1)
      .RandomInput("MultiLevelRois", {1, 4})
      .RandomInput("MultiLevelScores", {1})
      .RandomInput("MultiLevelScores", {1})
      .ExpectError("collect_fpn_proposals.C1");
  Collect(1)
      .RandomInput("MultiLevelRois", {1, 4})
      .IntInput("MultiLevelScores", {1}, {1})
      .ExpectError("collect_fpn_proposals.C2");
  Collect(1)
      .RandomInput("MultiLevelRois", {1, 4})
      .RandomInput("MultiLevelScores", {2})
      .ExpectError("collect_fpn_proposals.C3");
  Collect(1)
      .RandomInput("MultiLevelRois", {1, 4})
      .RandomInput("MultiLevelScores", {1})
      .IntInput("MultiLevelRoIsNum", {1}, {2})
      .ExpectError("collect_fpn_proposals.C4");
  Collect(1)
      .RandomInput("MultiLevelRois", {1, 4})
      .Lod({{0, 1}})
      .RandomInput("MultiLevelRois", {1, 4})
      .Lod({{0, 0, 1}})
      .RandomInput("MultiLevelScores", {1})
      .RandomInput("MultiLevelScores", {1})
      .ExpectError("collect_fpn_proposals.C4");
}
}  // namespace coracle::fpn_proposals_test

#include <coracle/test/op_test.h>

#include <cmath>
#include <set>

namespace coracle::rpn_target_assign_test {

using Doubles = std::vector<double>;

// The second is half of the first; the last one leaves the image.
const Doubles kAnchors = {0, 0, 9, 9, 0, 0, 9, 4, 20, 20, 29, 29, -5, -5, 4, 4};

OpTest Assign(float positive, float negative) {
  return std::move(OpTest("rpn_target_assign")
                       .Attr("rpn_straddle_thresh", 0.f)
                       .Attr("rpn_positive_overlap", positive)
                       .Attr("rpn_negative_overlap", negative)
                       .Attr("use_random", false)
                       .Input("Anchor", {4, 4}, kAnchors));
}

TEST(RpnTargetAssign, Values) {
  // The first image is scaled, and one of its boxes is a crowd. In the second one, anchor 2 is the
  // best one of a box of half its size.
  Assign(0.7f, 0.3f)
      .Input("GtBoxes", {3, 4}, {40, 40, 58, 58, 0, 0, 18, 18, 20, 20, 24, 29})
      .Lod({{0, 2, 3}})
      .IntInput("IsCrowd", {3, 1}, {1, 0, 0}, DType::kInt32)
      .Input("ImInfo", {2, 3}, {40, 40, 0.5, 40, 40, 1})
      .Expect("LocationIndex", {2}, {0, 6})
      .ExpectLod("LocationIndex", {{0, 1, 2}})
      .Expect("ScoreIndex", {5}, {0, 2, 6, 4, 5})
      .ExpectLod("ScoreIndex", {{0, 2, 5}})
      .Expect("TargetLabel", {5, 1}, {1, 0, 1, 0, 0})
      .Expect("TargetBBox", {2, 4}, {0, 0, 0, 0, -.25, 0, std::log(0.5), 0})
      .Expect("BBoxInsideWeight", {2, 4}, Doubles(8, 1))
      .ExpectDType("TargetLabel", DType::kInt32);
}

TEST(RpnTargetAssign, ForegroundDrawnAsBackground) {
  Assign(0.7f, 0.6f)
      .Input("GtBoxes", {1, 4}, {20, 20, 24, 29})
      .IntInput("IsCrowd", {1, 1}, {0})
      .Input("ImInfo", {1, 3}, {40, 40, 1})
      .Expect("LocationIndex", {1}, {2})
      .Expect("ScoreIndex", {3}, {0, 1, 2})
      .Expect("TargetLabel", {3, 1}, {0, 0, 0})
      .Expect("TargetBBox", {1, 4}, {-.25, 0, std::log(0.5), 0})
      .Expect("BBoxInsideWeight", {1, 4}, {0, 0, 0, 0});
}

TEST(RpnTargetAssign, Samples) {
  // Anchors 0 and 1 would be foreground, 2 and 3 background.
  const auto with = [](bool at_random) {
    return std::move(Assign(0.5f, 0.3f)
                         .Attr("rpn_straddle_thresh", -1.f)
                         .Attr("rpn_batch_size_per_im", 2)
                         .Attr("rpn_fg_fraction", 0.5f)
                         .Attr("use_random", at_random)
                         .Input("GtBoxes", {1, 4}, {0, 0, 9, 9})
                         .IntInput("IsCrowd", {1, 1}, {0})
                         .Input("ImInfo", {1, 3}, {40, 40, 1}));
  };
  with(false).Expect("ScoreIndex", {2}, {0, 2});
  std::set<std::pair<int32_t, int32_t>> seen;
  for (uint64_t step = 0; step < 40; ++step) {
    const Tensor index = with(true).Step(step).Output("ScoreIndex");
    ASSERT_EQ(index.numel(), 2);
    seen.insert({index.data<int32_t>()[0], index.data<int32_t>()[1]});
  }
  EXPECT_EQ(seen, (std::set<std::pair<int32_t, int32_t>>{{0, 2}, {0, 3}, {1, 2}, {1, 3}}));
}

// The first anchor is half a pixel apart from the true box: 5 of 195 pixels are common, which is
// above 0.02 and the best there is.
TEST(RpnTargetAssign, BoxesLessThanAPixelApart) {
  for (const std::string type : {"rpn_target_assign", "retinanet_target_assign"}) {
    const bool rpn = type == "rpn_target_assign";
    OpTest test(type);
    test.Attr(rpn ? "rpn_positive_overlap" : "positive_overlap", 0.02f)
        .Attr(rpn ? "rpn_negative_overlap" : "negative_overlap", 0.02f)
        .Input("Anchor", {2, 4}, {0, 0, 9, 9, 30, 30, 39, 39})
        .Input("GtBoxes", {1, 4}, {9.5, 0, 18.5, 9})
        .IntInput("IsCrowd", {1, 1}, {0})
        .Input("ImInfo", {1, 3}, {40, 40, 1});
    if (rpn)
      test.Attr("rpn_straddle_thresh", 0.f).Attr("use_random", false);
    else
      test.IntInput("GtLabels", {1, 1}, {1});
    test.Expect("TargetLabel", {2, 1}, {1, 0}).Expect("BBoxInsideWeight", {1, 4}, {1, 1, 1, 1});
  }
}

// 0.7 * 10 is 7, though 0.7f is below 0.7.
TEST(RpnTargetAssign, PartOfTheSamples) {
  Doubles anchors;
  for (int i = 0; i < 10; ++i) anchors.insert(anchors.end(), {0, 0, 9, 9});
  OpTest("rpn_target_assign")
      .Attr("rpn_straddle_thresh", 0.f)
      .Attr("rpn_batch_size_per_im", 10)
      .Attr("rpn_fg_fraction", 0.7f)
      .Attr("use_random", false)
      .Input("Anchor", {10, 4}, anchors)
      .Input("GtBoxes", {1, 4}, {0, 0, 9, 9})
      .IntInput("IsCrowd", {1, 1}, {0})
      .Input("ImInfo", {1, 3}, {40, 40, 1})
      .Expect("TargetLabel", {7, 1}, Doubles(7, 1));
}

TEST(RpnTargetAssign, NoBoxes) {
  Assign(0.7f, 0.3f)
      .Input("GtBoxes", {0, 4}, {})
      .IntInput("IsCrowd", {0, 1}, {})
      .Input("ImInfo", {1, 3}, {40, 40, 1})
      .Expect("LocationIndex", {0}, {})
      .Expect("TargetBBox", {0, 4}, {})
      .Expect("ScoreIndex", {3}, {0, 1, 2});
}

TEST(RetinanetTargetAssign, Values) {
  OpTest("retinanet_target_assign")
      .Input("Anchor", {4, 4}, kAnchors)
      .Input("GtBoxes", {2, 4}, {0, 0, 9, 9, 20, 20, 29, 22})
      .IntInput("GtLabels", {2, 1}, {7, 3}, DType::kInt32)
      .IntInput("IsCrowd", {2, 1}, {0, 0}, DType::kInt32)
      .Input("ImInfo", {1, 3}, {40, 40, 1})
      // Anchor 2 is the best of a box with which it overlaps by 0.3 alone.
      .Expect("LocationIndex", {3}, {0, 0, 1})
      .Expect("ScoreIndex", {4}, {0, 1, 2, 3})
      .Expect("TargetLabel", {4, 1}, {7, 7, 0, 0})
      .Expect("TargetBBox", {3, 4}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5, 0, std::log(2.0)})
      .Expect("BBoxInsideWeight", {3, 4}, {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1})
      .Expect("ForegroundNumber", {1, 1}, {4});
}

TEST(RpnTargetAssign, Constraints) {
  for (const std::string type : {"rpn_target_assign", "retinanet_target_assign"}) {
    const auto with = [&](const Shape& anchor, int64_t crowds, const Shape& info) {
      OpTest test(type);
      if (type == "rpn_target_assign")
        test.Attr("rpn_straddle_thresh", 0.f);
      else
        test.IntInput("GtLabels", {1, 1}, {0});
      return std::move(test.RandomInput("Anchor", anchor)
                           .IntInput("IsCrowd", {crowds, 1},
                                     std::vector<int64_t>(static_cast<size_t>(crowds), 0))
                           .RandomInput("ImInfo", info));
    };
    with({1, 4}, 1, {1, 3}).IntInput("GtBoxes", {1, 4}, {0, 0, 0, 0}).ExpectError(type + ".C1");
    with({1, 5}, 1, {1, 3}).RandomInput("GtBoxes", {1, 4}).ExpectError(type + ".C2");
    with({1, 4}, 2, {1, 3}).RandomInput("GtBoxes", {1, 4}).ExpectError(type + ".C3");
    with({1, 4}, 1, {1, 2}).RandomInput("GtBoxes", {1, 4}).ExpectError(type + ".C4");
    with({1, 4}, 1, {2, 3}).RandomInput("GtBoxes", {1, 4}).ExpectError(type + ".C4");
  }
}
}  // namespace coracle::rpn_target_assign_test

#include <coracle/framework/base/resource_limits.h>
#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <cmath>
#include <cstring>

namespace coracle::generate_proposals_test {

using Doubles = std::vector<double>;

OpTest Proposals(const std::string& type, int32_t pre, int32_t post, float threshold,
                 float min_size = 0) {
  return std::move(OpTest(type)
                       .Attr("pre_nms_topN", pre)
                       .Attr("post_nms_topN", post)
                       .Attr("nms_thresh", threshold)
                       .Attr("min_size", min_size)
                       .Attr("eta", 1.f));
}

// Two cells with two anchors: 0 and 1 of the first cell, 2 and 3 of the second.
const Doubles kAnchors = {0, 0, 3, 3, 0, 0, 7, 7, 4, 0, 7, 3, 4, 4, 15, 11};
// Anchor by anchor, then cell by cell: boxes 0, 2, 1, 3.
const Doubles kScores = {.9, .6, .8, .7};

TEST(GenerateProposals, Values) {
  // 3 is clipped to (4, 4, 9, 7), 6 by 4; 1 covers 0 and 2 by a quarter each.
  const auto with = [](OpTest test) {
    return std::move(test.Input("Scores", {1, 2, 1, 2}, kScores)
                         .Input("BboxDeltas", {1, 8, 1, 2}, Doubles(16, 0))
                         .Input("ImInfo", {1, 3}, {8, 10, 1})
                         .Input("Anchors", {1, 2, 2, 4}, kAnchors)
                         .Input("Variances", {1, 2, 2, 4}, Doubles(16, 1)));
  };
  with(Proposals("generate_proposals", 0, 0, 0.2f))
      .Expect("RpnRois", {3, 4}, {0, 0, 3, 3, 4, 4, 9, 7, 4, 0, 7, 3})
      .Expect("RpnRoiProbs", {3, 1}, {.9, .7, .6})
      .Expect("RpnRoisNum", {1}, {3})
      .ExpectLod("RpnRois", {{0, 3}});
  with(Proposals("generate_proposals", 3, 0, 0.5f)).Expect("RpnRoiProbs", {3, 1}, {.9, .8, .7});
  with(Proposals("generate_proposals", 0, 2, 0.5f)).Expect("RpnRoiProbs", {2, 1}, {.9, .8});
  with(Proposals("generate_proposals", 0, 0, 0.f)).Expect("RpnRoiProbs", {4, 1}, {.9, .8, .7, .6});
  with(Proposals("generate_proposals", 0, 0, 0.5f, 5)).Expect("RpnRois", {1, 4}, {0, 0, 7, 7});
  with(Proposals("generate_proposals", 0, 0, 0.5f, 50))
      .Expect("RpnRois", {1, 4}, {0, 0, 0, 0})
      .Expect("RpnRoiProbs", {1, 1}, {0})
      .ExpectLod("RpnRoiProbs", {{0, 1}});
}

TEST(GenerateProposals, DeltasAndScale) {
  // The second image is scaled by 2 and wants 3 pixels: only the larger box remains.
  const double grow = std::log(2.0);
  Proposals("generate_proposals", 0, 0, 0.5f, 3)
      .Input("Scores", {2, 1, 1, 1}, {.5, .25})
      .Input("BboxDeltas", {2, 4, 1, 1}, {2, 0, 0, 0, 0, 0, 2 * grow, 2 * grow})
      .Input("ImInfo", {2, 3}, {20, 20, 1, 20, 20, 2})
      .Input("Anchors", {1, 1, 1, 4}, {4, 4, 7, 7})
      .Input("Variances", {1, 1, 1, 4}, {0.5, 1, 0.5, 0.5})
      .Expect("RpnRois", {2, 4}, {8, 4, 11, 7, 2, 2, 9, 9})
      .ExpectLod("RpnRois", {{0, 1, 2}});
}

// Threads have images of their own.
TEST(GenerateProposals, AnyNumberOfThreads) {
  const int64_t images = 5, rows = 8, columns = 9;
  Doubles anchors, sizes;
  for (int64_t cell = 0; cell < rows * columns; ++cell) {
    const auto x = static_cast<double>(cell % columns * 8);
    const auto y = static_cast<double>(cell / columns * 8);
    for (const double side : {7.0, 15.0, 31.0})
      anchors.insert(anchors.end(), {x, y, x + side, y + side});
  }
  for (int64_t i = 0; i < images; ++i)
    sizes.insert(sizes.end(), {64.0 - static_cast<double>(i), 72, 1});
  OpTest test = Proposals("generate_proposals", 150, 60, 0.5f);
  test.RandomInput("Scores", {images, 3, rows, columns})
      .RandomInput("BboxDeltas", {images, 12, rows, columns}, -0.3, 0.3)
      .Input("ImInfo", {images, 3}, sizes)
      .Input("Anchors", {rows, columns, 3, 4}, anchors)
      .Input("Variances", {rows, columns, 3, 4}, Doubles(anchors.size(), 1));
  for (const char* slot : {"RpnRois", "RpnRoiProbs", "RpnRoisNum"}) {
    const auto run = [&](int threads) {
      const Threads set(threads);
      return test.Output(slot);
    };
    const Tensor one = run(1), three = run(3);
    ASSERT_EQ(one.shape(), three.shape()) << slot;
    EXPECT_EQ(one.lod(), three.lod()) << slot;
    EXPECT_GE(one.numel(), images) << slot;
    EXPECT_EQ(std::memcmp(one.raw(), three.raw(), one.nbytes()), 0) << slot;
  }
}

// A matrix of all pairs would have 10^10 elements.
TEST(GenerateProposals, ManyBoxesInLittleMemory) {
  const int64_t rows = 200, columns = 500;
  Doubles anchors, scores;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto x = static_cast<double>(i % columns), y = static_cast<double>(i / columns);
    // Ten by ten cells have almost the same anchor.
    const double left = std::floor(x / 10) * 40, top = std::floor(y / 10) * 40;
    const Doubles box = {left, top, left + 19, top + 19 + static_cast<double>(i % 3)};
    anchors.insert(anchors.end(), box.begin(), box.end());
    scores.push_back(static_cast<double>(i * 7919 % 100003) / 100003);
  }
  const auto limits =
      std::make_shared<ResourceLimits>(ResourceOptions{.memory = 16 << 20, .seconds = 120});
  const ScopedLimits scope(limits);
  const Tensor rois = Proposals("generate_proposals", 0, 0, 0.5f)
                          .Input("Scores", {1, 1, rows, columns}, scores)
                          .Input("BboxDeltas", {1, 4, rows, columns},
                                 Doubles(static_cast<size_t>(4 * rows * columns), 0))
                          .Input("ImInfo", {1, 3}, {4000, 4000, 1})
                          .Input("Anchors", {rows, columns, 1, 4}, anchors)
                          .Input("Variances", {rows, columns, 1, 4},
                                 Doubles(static_cast<size_t>(4 * rows * columns), 1))
                          .Output("RpnRois");
  EXPECT_EQ(rois.shape(), (Shape{rows * columns / 100, 4}));
}

TEST(GenerateProposalsV2, Values) {
  for (bool pixels : {true, false}) {
    // As points, anchors 0 and 2 overlap with 1 by 9/49, else by 16/64; the image ends at 10 or 9.
    Proposals("generate_proposals_v2", 0, 0, 0.2f)
        .Attr("pixel_offset", pixels)
        .Input("Scores", {1, 2, 1, 2}, kScores)
        .Input("BboxDeltas", {1, 8, 1, 2}, Doubles(16, 0))
        .Input("ImShape", {1, 2}, {8, 10})
        .Input("Anchors", {1, 2, 2, 4}, kAnchors)
        .Input("Variances", {1, 2, 2, 4}, Doubles(16, 1))
        .Expect("RpnRois", {pixels ? 3 : 4, 4},
                pixels ? Doubles{0, 0, 3, 3, 4, 4, 9, 7, 4, 0, 7, 3}
                       : Doubles{0, 0, 3, 3, 0, 0, 7, 7, 4, 4, 10, 8, 4, 0, 7, 3})
        .Expect("RpnRoisNum", {1}, {pixels ? 3.0 : 4.0});
  }
}

TEST(GenerateProposals, Constraints) {
  for (const std::string type : {"generate_proposals", "generate_proposals_v2"}) {
    const bool first = type == "generate_proposals";
    const auto with = [&](const Shape& deltas, const Shape& anchors, int64_t columns) {
      OpTest test = Proposals(type, 0, 0, 0.5f);
      test.RandomInput("Scores", {1, 1, 1, 1})
          .RandomInput("BboxDeltas", deltas)
          .RandomInput("Anchors", anchors)
          .RandomInput(first ? "ImInfo" : "ImShape", {1, columns});
      return test;
    };
    const int64_t columns = first ? 3 : 2;
    with({1, 4, 1, 1}, {1, 1, 1, 4}, columns)
        .IntInput("Variances", {1, 1, 1, 4}, {1, 1, 1, 1})
        .ExpectError(type + ".C1");
    with({1, 3, 1, 1}, {1, 1, 1, 4}, columns)
        .RandomInput("Variances", {1, 1, 1, 4})
        .ExpectError(type + ".C2");
    with({1, 4, 1, 1}, {1, 1, 4}, columns)
        .RandomInput("Variances", {1, 1, 1, 4})
        .ExpectError(type + ".C3");
    with({1, 4, 1, 1}, {1, 1, 1, 4}, 4)
        .RandomInput("Variances", {1, 1, 1, 4})
        .ExpectError(type + ".C4");
  }
}
}  // namespace coracle::generate_proposals_test

#include <coracle/framework/base/resource_limits.h>
#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace coracle::multiclass_nms_test {

using Doubles = std::vector<double>;

OpTest Nms(const std::string& type, float score, int32_t top, int32_t keep) {
  return std::move(
      OpTest(type).Attr("score_threshold", score).Attr("nms_top_k", top).Attr("keep_top_k", keep));
}

// 0 and 1 overlap by 1/3, 1 and 2 by 1/3, 0 and 2 do not, 3 is apart.
const Doubles kBoxes = {0, 0, 2, 1, 1, 0, 3, 1, 2, 0, 4, 1, 8, 8, 9, 9};

Doubles Row(double label, double score, size_t box, const Doubles& boxes = kBoxes) {
  Doubles row = {label, score};
  const auto at = boxes.begin() + static_cast<std::ptrdiff_t>(4 * box);
  row.insert(row.end(), at, at + 4);
  return row;
}

Doubles Rows(const std::vector<Doubles>& rows) {
  Doubles all;
  for (const Doubles& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

TEST(MulticlassNms, Values) {
  const Doubles scores = {.9, .9, .9, .9, .5, .8, .6, .25, .5, .6, .7, .1};
  for (const std::string type : {"multiclass_nms", "multiclass_nms2", "multiclass_nms3"}) {
    OpTest test = Nms(type, 0.2f, -1, -1);
    test.Input("BBoxes", {1, 4, 4}, kBoxes)
        .Input("Scores", {1, 3, 4}, scores)
        .Expect("Out", {4, 6}, Rows({Row(1, .8, 1), Row(1, .25, 3), Row(2, .7, 2), Row(2, .5, 0)}))
        .ExpectLod("Out", {{0, 4}});
    if (type != "multiclass_nms")
      test.Expect("Index", {4, 1}, {1, 3, 2, 0}).ExpectLod("Index", {{0, 4}});
    if (type == "multiclass_nms3") test.Expect("NmsRoisNum", {1}, {4});
  }
  // The best three over the classes; then only the two best boxes of each class are looked at.
  Nms("multiclass_nms2", 0.2f, -1, 3)
      .Input("BBoxes", {1, 4, 4}, kBoxes)
      .Input("Scores", {1, 3, 4}, scores)
      .Expect("Index", {3, 1}, {1, 2, 0});
  Nms("multiclass_nms2", 0.2f, 2, -1)
      .Input("BBoxes", {1, 4, 4}, kBoxes)
      .Input("Scores", {1, 3, 4}, scores)
      .Expect("Index", {2, 1}, {1, 2});
  // A score that equals the threshold is too low.
  Nms("multiclass_nms2", 0.25f, -1, -1)
      .Input("BBoxes", {1, 4, 4}, kBoxes)
      .Input("Scores", {1, 3, 4}, scores)
      .Expect("Index", {3, 1}, {1, 2, 0});
  Nms("multiclass_nms2", 0.2f, 2, -1)
      .Attr("nms_threshold", 0.4f)
      .Attr("background_label", 1)
      .Input("BBoxes", {1, 4, 4}, kBoxes)
      .Input("Scores", {1, 3, 4}, scores)
      .Expect("Out", {4, 6}, Rows({Row(0, .9, 0), Row(0, .9, 1), Row(2, .7, 2), Row(2, .6, 1)}));
}

// As with attr nms_threshold of 0.4 in Values.
TEST(MulticlassNms, ThresholdOfATensor) {
  Nms("multiclass_nms3", 0.2f, 2, -1)
      .Attr("background_label", 1)
      .Input("BBoxes", {1, 4, 4}, kBoxes)
      .Input("Scores", {1, 3, 4}, {.9, .9, .9, .9, .5, .8, .6, .25, .5, .6, .7, .1})
      .Input("NmsThreshold", {1}, {0.4})
      .Expect("Out", {4, 6}, Rows({Row(0, .9, 0), Row(0, .9, 1), Row(2, .7, 2), Row(2, .6, 1)}));
  Nms("multiclass_nms3", 0.2f, 2, -1)
      .Input("BBoxes", {1, 4, 4}, kBoxes)
      .Input("Scores", {1, 1, 4}, {.9, .9, .9, .9})
      .Input("NmsThreshold", {2}, {0.4, 0.4})
      .ExpectError("multiclass_nms3.C6");
}

TEST(MulticlassNms, Images) {
  Doubles boxes = kBoxes;
  boxes.insert(boxes.end(), kBoxes.begin(), kBoxes.end());
  Nms("multiclass_nms3", 0.5f, -1, -1)
      .Attr("background_label", -1)
      .Input("BBoxes", {2, 4, 4}, boxes)
      .Input("Scores", {2, 1, 4}, {0, 0, 0, 0, .6, 0, 0, .7})
      .Expect("Out", {2, 6}, Rows({Row(0, .7, 3), Row(0, .6, 0)}))
      .ExpectLod("Out", {{0, 0, 2}})
      .Expect("Index", {2, 1}, {7, 4})
      .Expect("NmsRoisNum", {2}, {0, 2});
}

TEST(MulticlassNms, Nothing) {
  for (const std::string type : {"multiclass_nms", "multiclass_nms2"}) {
    OpTest test = Nms(type, 0.95f, -1, -1);
    test.Input("BBoxes", {1, 4, 4}, kBoxes).Input("Scores", {1, 1, 4}, {.9, .9, .9, .9});
    if (type == "multiclass_nms")
      test.Expect("Out", {1, 1}, {-1}).ExpectLod("Out", {{0, 1}});
    else
      test.Expect("Out", {0, 6}, {}).ExpectLod("Out", {{0, 0}}).Expect("Index", {0, 1}, {});
  }
}

// Boxes and scores by row and class; the rows of an image by LoD or counts.
TEST(MulticlassNms, BoxesOfClasses) {
  const Doubles boxes = {0, 0, 2, 1, 9, 9, 9, 9, 2, 0, 4, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 2, 1};
  const Doubles scores = {.5, .1, .9, .1, .1, .8};
  for (const Shape& counts : {Shape(), Shape{2}, Shape{2, 1}}) {
    OpTest test = Nms("multiclass_nms3", 0.2f, -1, -1);
    test.Attr("background_label", -1).Input("BBoxes", {3, 2, 4}, boxes);
    if (counts.rank() > 0)
      test.IntInput("RoisNum", counts, {2, 1}, DType::kInt32);
    else
      test.Lod({{0, 2, 3}});
    test.Input("Scores", {3, 2}, scores)
        .Expect("Out", {3, 6},
                Rows({Row(0, .5, 0, boxes), Row(0, .9, 2, boxes), Row(1, .8, 5, boxes)}))
        .Expect("Index", {3, 1}, {0, 2, 5})
        .ExpectLod("Out", {{0, 2, 3}});
  }
}

TEST(MulticlassNms, EtaAndPixels) {
  // In whole pixels, 0 and 1 overlap by 2/4, 1 and 2 by 2/4 too.
  const Doubles boxes = {0, 0, 2, 0, 1, 0, 3, 0, 2, 0, 4, 0};
  const auto run = [&](float threshold, float eta, const Doubles& index) {
    Nms("multiclass_nms2", 0.f, -1, -1)
        .Attr("background_label", -1)
        .Attr("normalized", false)
        .Attr("nms_threshold", threshold)
        .Attr("nms_eta", eta)
        .Input("BBoxes", {1, 3, 4}, boxes)
        .Input("Scores", {1, 1, 3}, {.9, .8, .7})
        .Expect("Index", {static_cast<int64_t>(index.size()), 1}, index);
  };
  run(0.45f, 1.f, {0, 2});
  run(0.6f, 1.f, {0, 1, 2});
  run(0.6f, 0.7f, {0, 2});
}

// Squares as polygons: the same overlaps as boxes; and a rhombus in a square.
TEST(MulticlassNms, Polygons) {
  const Doubles quads = {0, 0, 2, 0, 2, 2, 0, 2, 0, 1, 1, 0, 2, 1, 1, 2, 5, 5, 6, 5, 6, 6, 5, 6};
  for (double threshold : {0.49, 0.51}) {
    const bool apart = threshold > 0.5;  // the rhombus is half of the square
    Nms("multiclass_nms2", 0.f, -1, -1)
        .Attr("background_label", -1)
        .Attr("nms_threshold", static_cast<float>(threshold))
        .Input("BBoxes", {1, 3, 8}, quads)
        .Input("Scores", {1, 1, 3}, {.9, .8, .7})
        .Expect("Index", {apart ? 3 : 2, 1}, apart ? Doubles{0, 1, 2} : Doubles{0, 2});
  }
}

double Iou(const Doubles& b, size_t i, size_t j) {
  const auto side = [&](size_t k) {
    return std::max(
        0.0, std::min(b[4 * i + k + 2], b[4 * j + k + 2]) - std::max(b[4 * i + k], b[4 * j + k]));
  };
  const auto area = [&](size_t k) {
    return (b[4 * k + 2] - b[4 * k]) * (b[4 * k + 3] - b[4 * k + 1]);
  };
  const double common = side(0) * side(1);
  return common / (area(i) + area(j) - common);
}

// Strike out all that a box suppresses, box by box.
TEST(MulticlassNms, Random) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> unit(0, 1);
  const size_t n = 60;
  Doubles boxes, scores;
  for (size_t i = 0; i < n; ++i) {
    const double x = unit(random), y = unit(random);
    for (double v : {x, y, x + 0.1 + unit(random) / 2, y + 0.1 + unit(random) / 2})
      boxes.push_back(std::round(v * 1024) / 1024);
    scores.push_back(std::round(unit(random) * 64) / 64);
  }
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<bool> gone(n);
  Doubles expected;
  for (size_t i = 0; i < n; ++i) {
    if (gone[i] || scores[order[i]] <= 0.1f) continue;
    expected.push_back(static_cast<double>(order[i]));
    for (size_t j = i + 1; j < n; ++j) gone[j] = gone[j] || Iou(boxes, order[i], order[j]) > 0.3f;
  }
  Nms("multiclass_nms2", 0.1f, -1, -1)
      .Attr("background_label", -1)
      .Input("BBoxes", {1, 60, 4}, boxes)
      .Input("Scores", {1, 1, 60}, scores)
      .Expect("Index", {static_cast<int64_t>(expected.size()), 1}, expected);
}

// A hundred thousand boxes in 400 clusters; `spread` is how far they are from the cluster's centre.
struct ManyBoxes {
  int64_t count;
  Doubles boxes, scores;

  ManyBoxes(int64_t n, double spread) : count(n) {
    std::mt19937 random(11);
    std::uniform_real_distribution<double> unit(0, 1);
    for (int64_t i = 0; i < n; ++i) {
      const auto x = static_cast<double>(i % 20) * 10 + spread * unit(random);
      const auto y = static_cast<double>(i / 20 % 20) * 10 + spread * unit(random);
      for (double v : {x, y, x + 5, y + 5}) boxes.push_back(static_cast<float>(v));
      scores.push_back(static_cast<float>(unit(random)));
    }
  }
};

// A matrix of all pairs would have 10^10 elements.
TEST(MulticlassNms, ManyBoxesInLittleMemory) {
  const ManyBoxes many(100000, 1);
  const auto limits =
      std::make_shared<ResourceLimits>(ResourceOptions{.memory = 16 << 20, .seconds = 120});
  const ScopedLimits scope(limits);
  for (const char* type : {"multiclass_nms2", "locality_aware_nms"}) {
    const Tensor out = Nms(type, 0.f, -1, -1)
                           .Attr("background_label", -1)
                           .Attr("nms_threshold", 0.4f)
                           .Input("BBoxes", {1, many.count, 4}, many.boxes)
                           .Input("Scores", {1, 1, many.count}, many.scores)
                           .Output("Out");
    // Boxes of one cluster overlap by 16/34 or more, boxes of two clusters do not.
    EXPECT_EQ(out.shape(), (Shape{400, 6})) << type;
  }
  const Tensor best = Nms("matrix_nms", 0.f, 3000, 50)
                          .Attr("background_label", -1)
                          .Input("BBoxes", {1, many.count, 4}, many.boxes)
                          .Input("Scores", {1, 1, many.count}, many.scores)
                          .Output("Out");
  EXPECT_EQ(best.shape(), (Shape{50, 6}));
}

// The best of an image do not depend on how many of a class are looked for.
TEST(MulticlassNms, KeepsTheBestOfSeveralClasses) {
  const ManyBoxes many(300, 4);
  Doubles scores = many.scores;
  for (size_t i = 0; i < 300; ++i) scores.push_back(std::round(many.scores[299 - i] * 16) / 16);
  const auto run = [&](int32_t keep) {
    return Nms("multiclass_nms2", 0.1f, -1, keep)
        .Attr("background_label", -1)
        .Input("BBoxes", {1, 300, 4}, many.boxes)
        .Input("Scores", {1, 2, 300}, scores)
        .Output("Out");
  };
  const Tensor all = run(-1);
  for (int32_t keep : {0, 1, 20, 100}) {
    std::vector<int64_t> order(static_cast<size_t>(all.shape()[0]));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    const auto score = [&](int64_t row) { return all.data<float>()[6 * row + 1]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return score(a) > score(b); });
    order.resize(static_cast<size_t>(keep));
    std::sort(order.begin(), order.end());
    const Tensor kept = run(keep);
    ASSERT_EQ(kept.shape(), (Shape{keep, 6}));
    for (int64_t i = 0; i < kept.numel(); ++i)
      ASSERT_EQ(kept.data<float>()[i],
                all.data<float>()[6 * order[static_cast<size_t>(i / 6)] + i % 6]);
  }
}

// Thousands of boxes that are kept, more than are compared at once; a threshold that sinks.
TEST(MulticlassNms, ManyKeptBoxes) {
  std::mt19937 random(9);
  std::uniform_real_distribution<double> unit(0, 1);
  const int64_t n = 6000;
  Doubles boxes, scores;
  for (int64_t i = 0; i < n; ++i) {
    const double x = 100 * unit(random), y = 100 * unit(random);
    for (double v : {x, y, x + 1 + unit(random), y + 1 + unit(random)})
      boxes.push_back(std::round(v * 64) / 64);
    scores.push_back(1 - static_cast<double>(i) / 8192);
  }
  for (float eta : {1.f, 0.9999f}) {
    double threshold = 0.55f;
    std::vector<size_t> kept;
    Doubles expected;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      const auto covers = [&](size_t k) { return Iou(boxes, k, i) > threshold; };
      if (std::any_of(kept.begin(), kept.end(), covers)) continue;
      kept.push_back(i);
      expected.push_back(static_cast<double>(i));
      if (eta < 1 && threshold > 0.5) threshold *= static_cast<double>(eta);
    }
    ASSERT_GT(kept.size(), 4200u);
    Nms("multiclass_nms2", 0.f, -1, -1)
        .Attr("background_label", -1)
        .Attr("nms_threshold", 0.55f)
        .Attr("nms_eta", eta)
        .Input("BBoxes", {1, n, 4}, boxes)
        .Input("Scores", {1, 1, n}, scores)
        .Expect("Index", {static_cast<int64_t>(kept.size()), 1}, expected);
  }
}

void CheckConstraints(const std::string& type) {
  const auto with = [&](const Shape& boxes, const Shape& scores) {
    return std::move(
        Nms(type, 0.f, -1, -1).RandomInput("BBoxes", boxes).RandomInput("Scores", scores));
  };
  Nms(type, 0.f, -1, -1)
      .RandomInput("BBoxes", {1, 1, 4})
      .IntInput("Scores", {1, 1, 1}, {1})
      .ExpectError(type + ".C1");
  with({1, 2, 4}, {1, 1, 3}).ExpectError(type + ".C2");
  with({1, 2, 5}, {1, 1, 2}).ExpectError(type + ".C3");
}

TEST(MulticlassNms, Constraints) {
  for (const char* type :
       {"multiclass_nms", "multiclass_nms2", "multiclass_nms3", "matrix_nms", "locality_aware_nms"})
    CheckConstraints(type);
  for (const std::vector<int64_t>& counts : {std::vector<int64_t>{2, 2}, {-1, 4}, {1, 1}}) {
    Nms("multiclass_nms3", 0.f, -1, -1)
        .RandomInput("BBoxes", {3, 1, 4})
        .RandomInput("Scores", {3, 1})
        .IntInput("RoisNum", {2}, counts)
        .ExpectError("multiclass_nms3.C5");
  }
}

TEST(MatrixNms, Values) {
  // IoU(0, 1) = IoU(1, 2) = 1/3. Box 2 overlaps with 1, which itself overlaps with 0 as much.
  OpTest linear = Nms("matrix_nms", 0.2f, -1, -1);
  linear.Attr("background_label", -1)
      .Input("BBoxes", {1, 4, 4}, kBoxes)
      .Input("Scores", {1, 1, 4}, {.9, .6, .5, .1})
      .Expect("Out", {3, 6}, Rows({Row(0, .9, 0), Row(0, .5, 2), Row(0, .4, 1)}))
      .Expect("Index", {3, 1}, {0, 2, 1})
      .Expect("RoisNum", {1}, {3})
      .ExpectLod("Out", {{0, 3}});
  const double lowered = .6 * std::exp(-2.0 / 9);
  Nms("matrix_nms", 0.2f, -1, 2)
      .Attr("use_gaussian", true)
      .Attr("post_threshold", 0.3f)
      .Input("BBoxes", {1, 4, 4}, kBoxes)
      .Input("Scores", {1, 2, 4}, {0, 0, 0, 0, .9, .6, .25, .1})
      .Expect("Out", {2, 6}, Rows({Row(1, .9, 0), Row(1, lowered, 1)}));
  Nms("matrix_nms", 1.f, -1, -1)
      .Input("BBoxes", {1, 4, 4}, kBoxes)
      .Input("Scores", {1, 2, 4}, Doubles(8, .5))
      .Expect("Out", {0, 6}, {})
      .ExpectLod("Out", {{0, 0}});
}

// The second and third box are copies of the first one: the second is lowered to nothing, and
// has no say about the third.
TEST(MatrixNms, Copies) {
  Nms("matrix_nms", 0.f, -1, -1)
      .Attr("background_label", -1)
      .Input("BBoxes", {1, 3, 4}, {0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1})
      .Input("Scores", {1, 1, 3}, {.9, .8, .7})
      .Expect("Index", {1, 1}, {0});
}

// The formula, pair by pair.
TEST(MatrixNms, Random) {
  std::mt19937 random(8);
  std::uniform_real_distribution<double> unit(0, 1);
  const size_t n = 61;
  Doubles boxes, scores;
  for (size_t i = 0; i < n; ++i) {
    const double x = unit(random), y = unit(random);
    for (double v : {x, y, x + 0.1 + unit(random) / 2, y + 0.1 + unit(random) / 2})
      boxes.push_back(std::round(v * 1024) / 1024);
    scores.push_back(1 - static_cast<double>(i) / 64);
  }
  for (bool gaussian : {false, true}) {
    Doubles largest, lowered;
    for (size_t i = 0; i < n; ++i) {
      double m = 0, decay = 1;
      for (size_t j = 0; j < i; ++j) {
        const double u = Iou(boxes, j, i), better = largest[j];
        m = std::max(m, u);
        const double factor = gaussian ? std::exp(-2 * u * u) / std::exp(-2 * better * better)
                                       : (1 - u) / (1 - better);
        decay = std::min(decay, factor);
      }
      largest.push_back(m);
      lowered.push_back(scores[i] * decay);
    }
    std::sort(lowered.begin(), lowered.end(), std::greater<>());
    const Tensor out = Nms("matrix_nms", 0.f, -1, -1)
                           .Attr("background_label", -1)
                           .Attr("use_gaussian", gaussian)
                           .Input("BBoxes", {1, 61, 4}, boxes)
                           .Input("Scores", {1, 1, 61}, scores)
                           .Output("Out");
    ASSERT_EQ(out.shape(), (Shape{61, 6}));
    for (size_t i = 0; i < n; ++i)
      EXPECT_NEAR(out.data<float>()[6 * i + 1], lowered[i], 1e-5) << gaussian << " " << i;
  }
}

TEST(LocalityAwareNms, Values) {
  // 0 and 1 merge to (.5, 0, 2.5, 1), which overlaps with 2 by 1/7.
  const Doubles boxes = {0, 0, 2, 1, 1, 0, 3, 1, 2, 0, 4, 1};
  Nms("locality_aware_nms", 0.2f, -1, -1)
      .Input("BBoxes", {1, 3, 4}, boxes)
      .Input("Scores", {1, 1, 3}, {.5, .5, .75})
      .Expect("Out", {2, 6}, {0, 1, .5, 0, 2.5, 1, 0, .75, 2, 0, 4, 1})
      .ExpectLod("Out", {{0, 2}});
  // Each class merges boxes of its own.
  Nms("locality_aware_nms", 0.2f, -1, 2)
      .Input("BBoxes", {1, 2, 4}, {0, 0, 2, 1, 1, 0, 3, 1})
      .Input("Scores", {1, 2, 2}, {.5, .5, .25, .75})
      .Expect("Out", {2, 6}, {0, 1, .5, 0, 2.5, 1, 1, 1, .75, 0, 2.75, 1});
  Nms("locality_aware_nms", 2.f, -1, -1)
      .Input("BBoxes", {1, 3, 4}, boxes)
      .Input("Scores", {1, 1, 3}, {.5, .5, .75})
      .Expect("Out", {1, 1}, {-1})
      .ExpectLod("Out", {{0, 1}});
}
}  // namespace coracle::multiclass_nms_test

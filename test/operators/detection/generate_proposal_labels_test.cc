#include <coracle/framework/base/resource_limits.h>
#include <coracle/test/op_test.h>

#include <cmath>
#include <memory>
#include <set>

namespace coracle::generate_proposal_labels_test {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

OpTest Labels(int32_t batch, float fraction) {
  return std::move(OpTest("generate_proposal_labels")
                       .Attr("batch_size_per_im", batch)
                       .Attr("fg_fraction", fraction)
                       .Attr("fg_thresh", 0.5f)
                       .Attr("bg_thresh_hi", 0.5f)
                       .Attr("bg_thresh_lo", 0.f)
                       .Attr("bbox_reg_weights", Floats{0.5f, 0.25f, 0.5f, 0.25f})
                       .Attr("class_nums", 3)
                       .Attr("use_random", false));
}

// True boxes: class 2, and a crowd. RoIs, scaled by 2: half of the first one, and one apart.
OpTest& Image(OpTest& test) {
  return test.Input("RpnRois", {2, 4}, {0, 0, 18, 8, 40, 40, 58, 58})
      .IntInput("GtClasses", {2, 1}, {2, 1}, DType::kInt32)
      .IntInput("IsCrowd", {2, 1}, {0, 1}, DType::kInt32)
      .Input("GtBoxes", {2, 4}, {0, 0, 9, 9, 30, 30, 39, 39})
      .Input("ImInfo", {1, 3}, {100, 100, 2});
}

TEST(GenerateProposalLabels, Values) {
  const double grow = 4 * std::log(2.0);
  for (bool agnostic : {false, true}) {
    Doubles targets(36, 0), weights(36, 0);
    for (size_t row : {0, 1}) {
      const size_t at = row * 12 + (agnostic ? 4 : 8);
      for (size_t k = 0; k < 4; ++k) weights[at + k] = 1;
    }
    targets[12 + (agnostic ? 5 : 9)] = 2;
    targets[12 + (agnostic ? 7 : 11)] = grow;
    OpTest test = Labels(4, 0.5f);
    Image(test.Attr("is_cls_agnostic", agnostic))
        .Expect("Rois", {3, 4}, {0, 0, 18, 18, 0, 0, 18, 8, 40, 40, 58, 58})
        .ExpectLod("Rois", {{0, 3}})
        .Expect("LabelsInt32", {3, 1}, {2, 2, 0})
        .Expect("MaxOverlapWithGT", {3}, {1, .5, 0})
        .Expect("BboxTargets", {3, 12}, targets)
        .Expect("BboxInsideWeights", {3, 12}, weights)
        .Expect("BboxOutsideWeights", {3, 12}, weights);
  }
  // One of two foreground boxes.
  OpTest first = Labels(2, 0.5f);
  Image(first).Expect("LabelsInt32", {2, 1}, {2, 0}).Expect("MaxOverlapWithGT", {2}, {1, 0});
  std::set<float> seen;
  for (uint64_t step = 0; step < 20; ++step) {
    OpTest test = Labels(2, 0.5f);
    Image(test.Attr("use_random", true)).Step(step);
    seen.insert(test.Output("MaxOverlapWithGT").data<float>()[0]);
  }
  EXPECT_EQ(seen, (std::set<float>{1.f, .5f}));
}

// 0.7 * 10 is 7, though 0.7f is below 0.7.
TEST(GenerateProposalLabels, PartOfTheSamples) {
  Doubles rois;
  for (int i = 0; i < 9; ++i) rois.insert(rois.end(), {0, 0, 9, 9});
  Labels(10, 0.7f)
      .Input("RpnRois", {9, 4}, rois)
      .IntInput("GtClasses", {1, 1}, {1})
      .IntInput("IsCrowd", {1, 1}, {0})
      .Input("GtBoxes", {1, 4}, {0, 0, 9, 9})
      .Input("ImInfo", {1, 3}, {100, 100, 1})
      .Expect("LabelsInt32", {7, 1}, Doubles(7, 1));
}

// The RoI is half a pixel apart from the true box: 5 of 195 pixels are common.
TEST(GenerateProposalLabels, BoxesLessThanAPixelApart) {
  Labels(4, 0.5f)
      .Input("RpnRois", {1, 4}, {9.5, 0, 18.5, 9})
      .IntInput("GtClasses", {1, 1}, {1})
      .IntInput("IsCrowd", {1, 1}, {0})
      .Input("GtBoxes", {1, 4}, {0, 0, 9, 9})
      .Input("ImInfo", {1, 3}, {100, 100, 1})
      .Expect("MaxOverlapWithGT", {2}, {1, 5.0 / 195});
}

// The number of classes does not affect which RoIs are kept. Outputs that no memory can hold are
// refused before they are made.
TEST(GenerateProposalLabels, MemoryOfManyClasses) {
  const auto limits = std::make_shared<ResourceLimits>(ResourceOptions{.memory = 1 << 20});
  const ScopedLimits scope(limits);
  OpTest test = Labels(4, 0.5f);
  Image(test.Attr("class_nums", 1 << 20)).ExpectError("memory");
}

TEST(GenerateProposalLabels, Cascade) {
  // RoI 0 was a true box in the stage before. All others are taken.
  OpTest test = Labels(1, 1.f);
  Image(test.Attr("is_cascade_rcnn", true))
      .Input("MaxOverlap", {2}, {1, .2})
      .Expect("Rois", {2, 4}, {0, 0, 18, 18, 40, 40, 58, 58});
  OpTest none = Labels(1, 1.f);
  Image(none.Attr("is_cascade_rcnn", true))
      .Input("MaxOverlap", {2}, {1, 1})
      .Expect("Rois", {2, 4}, {0, 0, 18, 18, 0, 0, 0, 0});
}

TEST(GenerateProposalLabels, Images) {
  // The first has no RoIs, the second no true boxes.
  Labels(4, 0.5f)
      .Input("RpnRois", {1, 4}, {1, 2, 3, 4})
      .Lod({{0, 0, 1}})
      .IntInput("GtClasses", {1, 1}, {1})
      .IntInput("IsCrowd", {1, 1}, {0})
      .Input("GtBoxes", {1, 4}, {0, 0, 9, 9})
      .Lod({{0, 1, 1}})
      .Input("ImInfo", {2, 3}, {100, 100, 1, 100, 100, 1})
      .Expect("Rois", {1, 4}, {1, 2, 3, 4})
      .ExpectLod("BboxTargets", {{0, 0, 1}})
      .Expect("LabelsInt32", {1, 1}, {0});
}

TEST(GenerateProposalLabels, Constraints) {
  const auto with = [](const Shape& rois, int64_t crowds, int64_t label, const Shape& info) {
    return std::move(
        Labels(4, 0.5f)
            .RandomInput("RpnRois", rois)
            .IntInput("GtClasses", {1, 1}, {label})
            .IntInput("IsCrowd", {crowds, 1}, std::vector<int64_t>(static_cast<size_t>(crowds), 0))
            .RandomInput("GtBoxes", {1, 4})
            .RandomInput("ImInfo", info));
  };
  const std::string op = "generate_proposal_labels";
  with({1, 4}, 1, 0, {1, 3}).IntInput("MaxOverlap", {1}, {0}).ExpectError(op + ".C1");
  with({4}, 1, 0, {1, 3}).ExpectError(op + ".C2");
  with({1, 4}, 2, 0, {1, 3}).ExpectError(op + ".C3");
  with({1, 4}, 1, 0, {1, 2}).ExpectError(op + ".C4");
  with({1, 4}, 1, 0, {2, 3}).ExpectError(op + ".C4");
  with({1, 4}, 1, 0, {1, 3}).Attr("is_cascade_rcnn", true).ExpectError(op + ".C5");
  with({1, 4}, 1, 0, {1, 3}).RandomInput("MaxOverlap", {2}).ExpectError(op + ".C5");
  with({1, 4}, 1, 0, {1, 3}).Attr("bbox_reg_weights", Floats{1, 1, 0, 1}).ExpectError(op + ".C6");
  with({1, 4}, 1, 0, {1, 3}).Attr("class_nums", 1).ExpectError(op + ".C7");
  with({1, 4}, 1, 3, {1, 3}).ExpectError(op + ".C7");
}
}  // namespace coracle::generate_proposal_labels_test

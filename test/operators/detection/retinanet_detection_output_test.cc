#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::retinanet_detection_output_test {

OpTest Output(int32_t top, int32_t keep, float threshold) {
  return std::move(OpTest("retinanet_detection_output")
                       .Attr("score_threshold", 0.5f)
                       .Attr("nms_top_k", top)
                       .Attr("nms_threshold", threshold)
                       .Attr("nms_eta", 1.f)
                       .Attr("keep_top_k", keep));
}

// Two levels of two anchors and two classes. The second anchor of the first level is moved by a
// whole width, and lies in the same place as the first of the second level.
OpTest Levels(OpTest test) {
  return std::move(test.Input("BBoxes", {1, 2, 4}, {0, 0, 0, 0, 1, 0, 0, 0})
                       .Input("BBoxes", {1, 2, 4}, {0, 0, 0, 0, 0, 0, std::log(2.0), 0})
                       .Input("Scores", {1, 2, 2}, {.9, .1, .6, .7})
                       .Input("Scores", {1, 2, 2}, {.8, .4, .3, 0})
                       .Input("Anchors", {2, 4}, {0, 0, 3, 3, 0, 0, 3, 3})
                       .Input("Anchors", {2, 4}, {4, 0, 7, 3, 8, 8, 11, 11})
                       .Input("ImInfo", {1, 3}, {12, 24, 1}));
}

TEST(RetinanetDetectionOutput, Values) {
  // Each class keeps the better one of the two boxes in one place.
  Levels(Output(-1, -1, 0.5f))
      .Expect("Out", {4, 6},
              {1, .9, 0, 0, 3, 3, 1, .8, 4, 0, 7, 3, 2, .7, 4, 0, 7, 3, 1, .3, 6, 8, 13, 11})
      .ExpectLod("Out", {{0, 4}});
}

TEST(RetinanetDetectionOutput, Limits) {
  Levels(Output(1, -1, 0.5f)).Expect("Out", {2, 6}, {1, .9, 0, 0, 3, 3, 1, .8, 4, 0, 7, 3});
  Levels(Output(-1, 1, 0.5f)).Expect("Out", {1, 6}, {1, .9, 0, 0, 3, 3});
  // One level is the last one too. The image is scaled by 2, so it ends at 5.
  Output(-1, -1, 0.5f)
      .Input("BBoxes", {2, 1, 4}, {0, 0, 0, 0, 0, 0, 0, 0})
      .Input("Scores", {2, 1, 1}, {0, .1})
      .Input("Anchors", {1, 4}, {4, 4, 15, 7})
      .Input("ImInfo", {2, 3}, {12, 12, 1, 12, 12, 2})
      .Expect("Out", {1, 6}, {1, .1, 2, 2, 5, 3.5})
      .ExpectLod("Out", {{0, 0, 1}});
}

TEST(RetinanetDetectionOutput, Constraints) {
  const auto with = [](const Shape& boxes, const Shape& info) {
    return std::move(Output(-1, -1, 0.5f)
                         .RandomInput("BBoxes", boxes)
                         .RandomInput("Scores", {1, 1, 1})
                         .RandomInput("Anchors", {1, 4})
                         .RandomInput("ImInfo", info));
  };
  const std::string op = "retinanet_detection_output";
  with({1, 1, 4}, {1, 3}).RandomInput("Scores", {1, 1, 1}).ExpectError(op + ".C1");
  Output(-1, -1, 0.5f)
      .RandomInput("BBoxes", {1, 1, 4})
      .RandomInput("Scores", {1, 1, 1})
      .IntInput("Anchors", {1, 4}, {0, 0, 1, 1})
      .RandomInput("ImInfo", {1, 3})
      .ExpectError(op + ".C2");
  with({1, 1, 4}, {1, 2}).ExpectError(op + ".C3");
  with({1, 2, 4}, {1, 3}).ExpectError(op + ".C4");
}
}  // namespace coracle::retinanet_detection_output_test

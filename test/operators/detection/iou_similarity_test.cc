#include "../../op_test.h"

namespace coracle {
namespace {

TEST(IouSimilarity, Values) {
  OpTest("iou_similarity")
      .Input("X", {2, 4}, {0, 0, 2, 2, 1, 1, 1, 1})
      .Lod({{0, 2}})
      .Input("Y", {3, 4}, {1, 1, 3, 3, 0, 0, 2, 2, 5, 5, 6, 6})
      .Expect("Out", {2, 3}, {1.0 / 7, 1, 0, 0, 0, 0})
      .ExpectLod("Out", {{0, 2}});
  OpTest("iou_similarity")
      .Attr("box_normalized", false)
      .Input("X", {1, 4}, {0, 0, 1, 1})
      .Input("Y", {2, 4}, {1, 1, 2, 2, 0, 0, 1, 1})
      .Expect("Out", {1, 2}, {1.0 / 7, 1});
  // Half a pixel apart: 0.5 in common. A box whose corners are turned has the area 0.5 * 2.
  OpTest("iou_similarity")
      .Attr("box_normalized", false)
      .Input("X", {1, 4}, {0, 0, 1, 1})
      .Input("Y", {3, 4}, {1.5, 0, 2.5, 1, 1, 0, 0.5, 1, 2, 0, 3, 1})
      .Expect("Out", {1, 3}, {1.0 / 7, 1.0 / 4, 0});
  OpTest("iou_similarity")
      .Input("X", {0, 4}, {})
      .RandomInput("Y", {2, 4})
      .Expect("Out", {0, 2}, {});
}

TEST(IouSimilarity, Constraints) {
  OpTest("iou_similarity")
      .RandomInput("X", {1, 4})
      .IntInput("Y", {1, 4}, {1, 2, 3, 4})
      .ExpectError("iou_similarity.C1");
  OpTest("iou_similarity")
      .RandomInput("X", {1, 4})
      .RandomInput("Y", {4})
      .ExpectError("iou_similarity.C2");
}

TEST(BoxClip, Values) {
  OpTest("box_clip")
      .Input("Input", {3, 4}, {-1, 2, 30, 4, 1, -2, 3, 9, -5, 50, 5, 50})
      .Lod({{0, 2, 3}})
      .Input("ImInfo", {2, 3}, {10, 21, 2, 8, 4, 1})
      .Expect("Output", {3, 4}, {0, 2, 10, 4, 1, 0, 3, 4, 0, 7, 3, 7})
      .ExpectLod("Output", {{0, 2, 3}});
  OpTest("box_clip")
      .Input("Input", {1, 2, 4}, {-1, 2, 30, 4, 1, -2, 3, 9})
      .Input("ImInfo", {1, 3}, {4, 4, 1})
      .InPlace("Input", "Output")
      .Expect("Output", {1, 2, 4}, {0, 2, 3, 3, 1, 0, 3, 3});
}

TEST(BoxClip, Constraints) {
  const auto with = [](const Shape& boxes, const Shape& info) {
    return std::move(OpTest("box_clip").RandomInput("Input", boxes).RandomInput("ImInfo", info));
  };
  OpTest("box_clip")
      .RandomInput("Input", {1, 4})
      .IntInput("ImInfo", {1, 3}, {1, 2, 3})
      .ExpectError("box_clip.C1");
  with({4}, {1, 3}).ExpectError("box_clip.C2");
  with({1, 4}, {1, 2}).ExpectError("box_clip.C3");
  with({1, 4}, {2, 3}).ExpectError("box_clip.C4");
}

TEST(PolygonBoxTransform, Values) {
  OpTest("polygon_box_transform")
      .Input("Input", {1, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 2, 2})
      .Expect("Output", {1, 2, 2, 2}, {-1, 3, -1, 3, -1, -1, 2, 2});
  OpTest("polygon_box_transform")
      .RandomInput("Input", {1, 3, 2, 2})
      .ExpectError("polygon_box_transform.C1");
}

}  // namespace
}  // namespace coracle

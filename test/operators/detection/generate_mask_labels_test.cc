#include <coracle/test/op_test.h>

namespace coracle::generate_mask_labels_test {

using Doubles = std::vector<double>;

OpTest Masks(int32_t classes, int32_t resolution) {
  return std::move(
      OpTest("generate_mask_labels").Attr("num_classes", classes).Attr("resolution", resolution));
}

// One object of class 1 with one polygon, in one image with one RoI of label 1.
OpTest One(int32_t resolution, const Doubles& points, const Doubles& roi) {
  return std::move(Masks(2, resolution)
                       .Input("ImInfo", {1, 3}, {100, 100, 1})
                       .IntInput("GtClasses", {1, 1}, {1})
                       .IntInput("IsCrowd", {1, 1}, {0})
                       .Input("GtSegms", {static_cast<int64_t>(points.size()) / 2, 2}, points)
                       .Input("Rois", {1, 4}, roi)
                       .IntInput("LabelsInt32", {1, 1}, {1}));
}

Doubles AfterBackground(const Doubles& mask) {
  Doubles all(mask.size(), -1);
  all.insert(all.end(), mask.begin(), mask.end());
  return all;
}

// Image 0 has a crowd and an object of class 0, both as large as its RoI of the foreground, a small
// object, and one of two polygons. Image 1 has no foreground, image 2 no objects.
TEST(GenerateMaskLabels, Values) {
  const Doubles square = {0, 0, 4, 0, 4, 4, 0, 4};
  Doubles points = square;
  points.insert(points.end(), square.begin(), square.end());
  points.insert(points.end(), {2, 2, 4, 2, 4, 4});
  points.insert(points.end(), {0, 0, 4, 0, 0, 4, 2, 3, 4, 3, 4, 4, 2, 4});
  points.insert(points.end(), {0, 0, 1, 0, 0, 1});
  Doubles masks = AfterBackground({1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1});
  masks.resize(64, -1);
  Masks(2, 4)
      .Input("ImInfo", {3, 3}, {100, 100, 2, 100, 100, 1, 100, 100, 1})
      .IntInput("GtClasses", {5, 1}, {1, 0, 1, 1, 1}, DType::kInt32)
      .IntInput("IsCrowd", {5, 1}, {1, 0, 0, 0, 0}, DType::kInt32)
      .Input("GtSegms", {21, 2}, points)
      .Lod({{0, 4, 5, 5}, {0, 1, 2, 3, 5, 6}, {0, 4, 8, 11, 14, 18, 21}})
      .Input("Rois", {5, 4}, {5, 5, 6, 6, 0, 0, 8, 8, 0, 0, 1, 1, 3, 3, 4, 4, 0, 0, 2, 2})
      .Lod({{0, 2, 4, 5}})
      .IntInput("LabelsInt32", {5, 1}, {0, 1, -1, 0, 1}, DType::kInt32)
      .Expect("MaskRois", {2, 4}, {0, 0, 8, 8, 3, 3, 4, 4})
      .ExpectLod("MaskRois", {{0, 1, 2, 2}})
      .Expect("RoiHasMaskInt32", {2, 1}, {1, 1})
      .ExpectLod("RoiHasMaskInt32", {{0, 1, 2, 2}})
      .Expect("MaskInt32", {2, 32}, masks)
      .ExpectLod("MaskInt32", {{0, 1, 2, 2}})
      .ExpectDType("MaskInt32", DType::kInt32);
}

TEST(GenerateMaskLabels, Polygons) {
  const auto expect = [](const Doubles& points, const Doubles& mask) {
    SCOPED_TRACE(testing::PrintToString(points));
    One(4, points, {0, 0, 4, 4}).Expect("MaskInt32", {1, 32}, AfterBackground(mask));
  };
  // One row of two cells, in both directions.
  expect({1, 0, 3, 0, 3, 1, 1, 1}, {0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  expect({1, 0, 1, 1, 3, 1, 3, 0}, {0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  // Beyond the RoI.
  expect({-2, -3, 2, -3, 2, 9, -2, 9}, {1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0});
  expect({6, 0, 9, 0, 9, 4, 6, 4}, Doubles(16, 0));
  // The two halves of a square share no cell.
  expect({0, 0, 4, 0, 0, 4}, {1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0});
  expect({4, 0, 4, 4, 0, 4}, {0, 0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1});
  // Points and lines cover nothing.
  expect({2, 2}, Doubles(16, 0));
  expect({0, 0, 4, 4}, Doubles(16, 0));
  expect({}, Doubles(16, 0));
  // A RoI without a size counts as one pixel.
  One(1, {5, 5, 6, 5, 6, 6, 5, 6}, {5, 5, 5, 5}).Expect("MaskInt32", {1, 2}, {-1, 1});
}

TEST(GenerateMaskLabels, Constraints) {
  const auto with = [](const Shape& info, const Shape& points, const Shape& rois, int64_t crowds,
                       int64_t labels, int64_t label = 1) {
    const auto repeat = [](int64_t n, int64_t v) {
      return std::vector<int64_t>(static_cast<size_t>(n), v);
    };
    return std::move(Masks(2, 2)
                         .RandomInput("ImInfo", info)
                         .IntInput("GtClasses", {1, 1}, {1})
                         .IntInput("IsCrowd", {crowds, 1}, repeat(crowds, 0))
                         .IntInput("LabelsInt32", {labels, 1}, repeat(labels, label))
                         .RandomInput("Rois", rois)
                         .RandomInput("GtSegms", points));
  };
  const std::string op = "generate_mask_labels";
  Masks(2, 2)
      .RandomInput("ImInfo", {1, 3})
      .IntInput("GtClasses", {1, 1}, {1})
      .IntInput("IsCrowd", {1, 1}, {0})
      .IntInput("LabelsInt32", {1, 1}, {0})
      .IntInput("Rois", {1, 4}, {0, 0, 1, 1})
      .RandomInput("GtSegms", {3, 2})
      .ExpectError(op + ".C1");
  with({1, 2}, {3, 2}, {1, 4}, 1, 1).ExpectError(op + ".C2");
  with({1, 3}, {3, 3}, {1, 4}, 1, 1).ExpectError(op + ".C2");
  with({1, 3}, {3, 2}, {1, 5}, 1, 1).ExpectError(op + ".C2");
  with({1, 3}, {3, 2}, {1, 4}, 2, 1).ExpectError(op + ".C3");
  with({1, 3}, {3, 2}, {1, 4}, 1, 2).ExpectError(op + ".C4");
  with({2, 3}, {3, 2}, {1, 4}, 1, 1).ExpectError(op + ".C5");
  for (const LoD& lod :
       {LoD{{0, 3}}, LoD{{0, 2}, {0, 1, 2}, {0, 1, 3}}, LoD{{0, 0, 1}, {0, 1}, {0, 3}}})
    with({1, 3}, {3, 2}, {1, 4}, 1, 1).Lod(lod).ExpectError(op + ".C5");
  with({1, 3}, {3, 2}, {1, 4}, 1, 1, 2).ExpectError(op + ".C6");
  for (const double far : {1e9, -1e300, std::nan("")})
    One(4, {0, 0, far, 0, 0, 4}, {0, 0, 4, 4}).ExpectError(op + ".C7");
}
}  // namespace coracle::generate_mask_labels_test

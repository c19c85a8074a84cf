#include <coracle/test/op_test.h>

namespace coracle::crop_test {

using Ints = std::vector<int32_t>;

OpTest Of(const std::string& type) {
  OpTest test(type);
  test.Input("X", {2, 3}, {1, 2, 3, 4, 5, 6});
  return test;
}

TEST(Crop, ShapeFromAttr) {
  Of("crop")
      .Attr("offsets", Ints{1, 1})
      .Attr("shape", Ints{1, 2})
      .Expect("Out", {1, 2}, {5, 6})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  Of("crop").Attr("shape", Ints{-1, 1}).Expect("Out", {2, 1}, {1, 4}).CheckGradient({"X"});
  Of("crop").Attr("offsets", Ints{0, 3}).Attr("shape", Ints{2, 0}).Expect("Out", {2, 0}, {});
  OpTest("crop").Input("X", {}, {7}).Expect("Out", {}, {7});
}

TEST(Crop, ShapeAndOffsetsFromTensors) {
  Of("crop")
      .Attr("offsets", Ints{0, 0})
      .IntInput("Y", {2, 2}, {0, 0, 0, 0})
      .IntInput("Offsets", {2}, {0, 1}, DType::kInt32)
      .Expect("Out", {2, 2}, {2, 3, 5, 6})
      .CheckGradient({"X"})
      .CheckHigherGradients();
}

TEST(Crop, Constraints) {
  for (const std::string type : {"crop", "crop_tensor"}) {
    Of(type).Attr("shape", Ints{1}).ExpectError(type + ".C1");
    Of(type).Attr("shape", Ints{1, 1}).Attr("offsets", Ints{1}).ExpectError(type + ".C1");
    Of(type).Attr("shape", Ints{1, 1}).Attr("offsets", Ints{0, -1}).ExpectError(type + ".C2");
    Of(type).Attr("shape", Ints{1, 2}).Attr("offsets", Ints{0, 2}).ExpectError(type + ".C2");
    // Known only at run time.
    Of(type)
        .Attr("shape", Ints{1, 2})
        .IntInput("Offsets", {2}, {0, 2}, DType::kInt32)
        .ExpectError(type + ".C2");
  }
  Of("crop").Attr("shape", Ints{1, -1}).ExpectError("crop.C2");
  const auto grad = [] { return OpTest("crop_grad").Input("X", {2}, {1, 2}); };
  grad().Input("Out@GRAD", {1, 1}, {1}).ExpectError("crop_grad.C3");
  grad().Attr("offsets", Ints{0, 0}).Input("Out@GRAD", {1}, {1}).ExpectError("crop_grad.C1");
  grad().Attr("offsets", Ints{2}).Input("Out@GRAD", {1}, {1}).ExpectError("crop_grad.C2");
}

TEST(CropTensor, Values) {
  Of("crop_tensor")
      .Attr("offsets", Ints{1, 1})
      .Attr("shape", Ints{1, -1})
      .Expect("Out", {1, 2}, {5, 6})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  Of("crop_tensor")
      .IntInput("Shape", {2}, {-1, 2}, DType::kInt32)
      .IntInput("OffsetsTensor", {1}, {1}, DType::kInt32)
      .IntInput("OffsetsTensor", {1}, {0}, DType::kInt32)
      .Expect("Out", {1, 2}, {4, 5})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  // Lists win over tensors, tensors over attrs.
  Of("crop_tensor")
      .Attr("shape", Ints{2, 3})
      .Attr("offsets", Ints{0, 0})
      .IntInput("ShapeTensor", {1}, {1})
      .IntInput("ShapeTensor", {1}, {1})
      .IntInput("Shape", {2}, {2, 2})
      .IntInput("Offsets", {2}, {1, 2})
      .Expect("Out", {1, 1}, {6})
      .CheckGradient({"X"});
}
}  // namespace coracle::crop_test

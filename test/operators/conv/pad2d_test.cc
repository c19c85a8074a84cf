#include <coracle/test/op_test.h>

namespace coracle::pad2d_test {

OpTest Pad(std::vector<int32_t> pads, const std::string& mode) {
  OpTest test("pad2d");
  test.Attr("paddings", std::move(pads)).Attr("mode", mode);
  return test;
}

TEST(Pad2d, Values) {
  Pad({1, 0, 0, 2}, "constant")
      .Attr("pad_value", 9.f)
      .Input("X", {1, 1, 1, 2}, {1, 2})
      .Expect("Out", {1, 1, 2, 4}, {9, 9, 9, 9, 1, 2, 9, 9})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  Pad({0, 0, 2, 1}, "reflect")
      .Input("X", {1, 1, 1, 3}, {1, 2, 3})
      .Expect("Out", {1, 1, 1, 6}, {3, 2, 1, 2, 3, 2})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  Pad({1, 0, 0, 2}, "edge")
      .Input("X", {1, 1, 1, 2}, {1, 2})
      .Expect("Out", {1, 1, 2, 4}, {1, 2, 2, 2, 1, 2, 2, 2})
      .CheckGradient({"X"});
  Pad({0, 0, 1, 0}, "constant")
      .Attr("data_format", std::string("NHWC"))
      .Input("X", {1, 1, 1, 2}, {1, 2})
      .Expect("Out", {1, 1, 2, 2}, {0, 0, 1, 2})
      .CheckGradient({"X"});
  Pad({1, 0, 0, 0}, "constant").Input("X", {0, 1, 1, 1}, {}).Expect("Out", {0, 1, 2, 1}, {});
}

// A value that the element type does not hold becomes the nearest one that it holds.
TEST(Pad2d, ValueBeyondIntegers) {
  Pad({0, 0, 1, 0}, "constant")
      .Attr("pad_value", 1e30f)
      .IntInput("X", {1, 1, 1, 1}, {5})
      .Expect("Out", {1, 1, 1, 2}, {static_cast<double>(INT64_MAX), 5});
}

TEST(Pad2d, FromTensor) {
  OpTest("pad2d")
      .Input("X", {1, 1, 1, 1}, {5})
      .IntInput("Paddings", {4}, {0, 1, 1, 0}, DType::kInt32)
      .Expect("Out", {1, 1, 2, 2}, {0, 5, 0, 0})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(Pad2d, Constraints) {
  Pad({0, 0, 0, 0}, "constant").Input("X", {1}, {1}).ExpectError("pad2d.C1");
  Pad({0, 0, 0}, "constant").Input("X", {1, 1, 1, 1}, {1}).ExpectError("pad2d.C2");
  Pad({0, 0, 0, -1}, "constant").Input("X", {1, 1, 1, 1}, {1}).ExpectError("pad2d.C3");
  Pad({0, 0, 0, 1}, "reflect").Input("X", {1, 1, 1, 1}, {1}).ExpectError("pad2d.C4");
  Pad({0, 0, 0, 1}, "edge").Input("X", {1, 1, 1, 0}, {}).ExpectError("pad2d.C4");
  OpTest("pad2d_grad")
      .Input("X", {1}, {1})
      .Input("Out@GRAD", {1}, {1})
      .ExpectError("pad2d_grad.C1");
  OpTest("pad2d_grad")
      .Input("X", {1, 1, 1, 2}, {1, 2})
      .Input("Out@GRAD", {1, 1, 1, 1}, {1})
      .ExpectError("pad2d_grad.C5");
}

TEST(Pad2d, Bytes) {
  const std::vector<int32_t> left = {0, 0, 1, 0};
  for (const DType dtype : {DType::kInt8, DType::kUInt8}) {
    OpTest("pad2d")
        .Attr("paddings", left)
        .Attr("pad_value", 9.f)
        .IntInput("X", {1, 1, 2, 1}, {1, 127}, dtype)
        .Expect("Out", {1, 1, 2, 2}, {9, 1, 9, 127})
        .ExpectDType("Out", dtype);
  }
}

}  // namespace coracle::pad2d_test

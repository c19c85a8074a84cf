#include <coracle/test/op_test.h>

namespace coracle::pad3d_test {

OpTest Pad(std::vector<int32_t> pads, const std::string& mode) {
  OpTest test("pad3d");
  test.Attr("paddings", std::move(pads)).Attr("mode", mode);
  return test;
}

TEST(Pad3d, Constant) {
  // left, right, top, bottom, front, back
  Pad({1, 0, 0, 1, 0, 1}, "constant")
      .Attr("value", 9.f)
      .Input("X", {1, 1, 1, 1, 2}, {1, 2})
      .Expect("Out", {1, 1, 2, 2, 3}, {9, 1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  Pad({0, 1, 0, 0, 1, 0}, "constant")
      .Attr("data_format", std::string("NDHWC"))
      .Input("X", {1, 1, 1, 1, 2}, {1, 2})
      .Expect("Out", {1, 2, 1, 2, 2}, {0, 0, 0, 0, 1, 2, 0, 0})
      .CheckGradient({"X"});
  Pad({1, 0, 0, 0, 0, 0}, "constant")
      .Input("X", {0, 1, 1, 1, 1}, {})
      .Expect("Out", {0, 1, 1, 1, 2}, {});
}

TEST(Pad3d, OtherModes) {
  Pad({2, 1, 0, 0, 0, 0}, "reflect")
      .Input("X", {1, 1, 1, 1, 3}, {1, 2, 3})
      .Expect("Out", {1, 1, 1, 1, 6}, {3, 2, 1, 2, 3, 2})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  Pad({0, 0, 2, 1, 0, 0}, "replicate")
      .Input("X", {1, 1, 1, 2, 1}, {1, 2})
      .Expect("Out", {1, 1, 1, 5, 1}, {1, 1, 1, 2, 2})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  // More than once around.
  Pad({0, 0, 0, 0, 3, 4}, "circular")
      .Input("X", {1, 1, 3, 1, 1}, {1, 2, 3})
      .Expect("Out", {1, 1, 10, 1, 1}, {1, 2, 3, 1, 2, 3, 1, 2, 3, 1})
      .CheckGradient({"X"})
      .CheckHigherGradients();
}

TEST(Pad3d, FromTensor) {
  Pad({5, 5, 5, 5, 5, 5}, "constant")
      .IntInput("X", {1, 1, 1, 1, 1}, {5})
      .IntInput("Paddings", {6}, {0, 1, 0, 0, 0, 0}, DType::kInt32)
      .Expect("Out", {1, 1, 1, 1, 2}, {5, 0});
  OpTest("pad3d")
      .Input("X", {1, 1, 1, 1, 1}, {5})
      .IntInput("Paddings", {6}, {1, 0, 0, 1, 0, 0}, DType::kInt32)
      .Expect("Out", {1, 1, 1, 2, 2}, {0, 5, 0, 0})
      .CheckGradient({"X"});
}

TEST(Pad3d, Constraints) {
  const Shape one{1, 1, 1, 1, 1}, none{1, 1, 1, 1, 0};
  Pad({0, 0, 0, 0, 0, 0}, "constant").Input("X", {1}, {1}).ExpectError("pad3d.C1");
  Pad({0, 0, 0, 0}, "constant").Input("X", one, {1}).ExpectError("pad3d.C2");
  Pad({0, 0, 0, 0, 0, -1}, "constant").Input("X", one, {1}).ExpectError("pad3d.C3");
  Pad({0, 1, 0, 0, 0, 0}, "reflect").Input("X", one, {1}).ExpectError("pad3d.C4");
  Pad({0, 1, 0, 0, 0, 0}, "replicate").Input("X", none, {}).ExpectError("pad3d.C4");
  Pad({0, 1, 0, 0, 0, 0}, "circular").Input("X", none, {}).ExpectError("pad3d.C4");
  OpTest("pad3d_grad")
      .Input("X", one, {1})
      .Input("Out@GRAD", {1, 1, 1, 1, 2}, {1, 1})
      .ExpectError("pad3d_grad.C5");
}
}  // namespace coracle::pad3d_test

#include <coracle/test/op_test.h>

namespace coracle::im2sequence_test {

using Ints = std::vector<int32_t>;

TEST(Im2sequence, Values) {
  OpTest("im2sequence")
      .Attr("kernels", Ints{2, 1})
      .Input("X", {1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})
      .Expect("Out", {2, 4}, {1, 3, 5, 7, 2, 4, 6, 8})
      .ExpectLod("Out", {{0, 2}})
      .CheckGradient({"X"});
  OpTest("im2sequence")
      .Attr("kernels", Ints{2, 2})
      .Attr("strides", Ints{1, 2})
      .Attr("paddings", Ints{1, 1, 0, 0})
      .Input("X", {2, 1, 1, 2}, {1, 2, 3, 4})
      .Expect("Out", {2, 4}, {0, 0, 0, 1, 0, 0, 0, 3})
      .ExpectLod("Out", {{0, 1, 2}})
      .CheckGradient({"X"});
  // No patch fits, or there are no images.
  OpTest("im2sequence")
      .Attr("kernels", Ints{3, 1})
      .Input("X", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Expect("Out", {0, 3}, {})
      .ExpectLod("Out", {{0, 0}});
  OpTest("im2sequence")
      .Attr("kernels", Ints{1, 1})
      .Input("X", {0, 1, 2, 2}, {})
      .Expect("Out", {0, 1}, {})
      .ExpectLod("Out", {{0}});
}

TEST(Im2sequence, SizesOfImages) {
  OpTest("im2sequence")
      .Attr("kernels", Ints{1, 1})
      .Attr("out_stride", Ints{2, 2})
      .Input("X", {2, 1, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})
      .Input("Y", {2, 2}, {4, 1, 2, 3})
      .Expect("Out", {4, 1}, {1, 3, 5, 6})
      .ExpectLod("Out", {{0, 2, 4}})
      .CheckGradient({"X"});
}

// As in Paddle, a size may exceed X, and Y may have more rows than X has images.
TEST(Im2sequence, SizesBeyondTheImages) {
  OpTest("im2sequence")
      .Attr("kernels", Ints{1, 2})
      .Input("X", {1, 1, 1, 2}, {1, 2})
      .Input("Y", {2, 2}, {2, 3, 9, 9})
      .Expect("Out", {4, 2}, {1, 2, 2, 0, 0, 0, 0, 0})
      .ExpectLod("Out", {{0, 4}})
      .CheckGradient({"X"});
}

OpTest With(const Ints& kernels, const Shape& x) {
  return std::move(OpTest("im2sequence").Attr("kernels", kernels).RandomInput("X", x));
}

TEST(Im2sequence, Constraints) {
  With({1, 1}, {1, 1, 1}).ExpectError("im2sequence.C1");
  With({1}, {1, 1, 1, 1}).ExpectError("im2sequence.C2");
  With({1, 0}, {1, 1, 1, 1}).ExpectError("im2sequence.C2");
  With({1, 1}, {1, 1, 1, 1}).Attr("paddings", Ints{0, 0, 0, -1}).ExpectError("im2sequence.C2");
  With({1, 1}, {1, 1, 1, 1}).RandomInput("Y", {1, 3}).ExpectError("im2sequence.C3");
  With({1, 1}, {2, 1, 1, 1}).RandomInput("Y", {1, 2}).ExpectError("im2sequence.C3");
  for (const double bad : {-1.0, 3e9, std::nan("")})
    With({1, 1}, {1, 1, 1, 1}).Input("Y", {1, 2}, {bad, 1}).ExpectError("im2sequence.C4");
  for (int64_t width : {1, 2}) {
    OpTest("im2sequence_grad")
        .Attr("kernels", Ints{1, 1})
        .RandomInput("X", {1, 1, 1, 1})
        .Input("Y", {1, 2}, {1, 1})
        .RandomInput("Out@GRAD", {2, width})
        .ExpectError("im2sequence_grad.C5");
  }
}
}  // namespace coracle::im2sequence_test

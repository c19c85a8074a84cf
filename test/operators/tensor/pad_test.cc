#include <coracle/test/op_test.h>

namespace coracle::pad_test {

using Ints = std::vector<int32_t>;

TEST(Pad, Values) {
  OpTest("pad")
      .Attr("paddings", Ints{0, 1, 2, 1})
      .Attr("pad_value", 9.f)
      .Input("X", {1, 2}, {1, 2})
      .Expect("Out", {2, 5}, {9, 9, 1, 2, 9, 9, 9, 9, 9, 9})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("pad").Attr("paddings", Ints{0, 0}).Input("X", {2}, {1, 2}).Expect("Out", {2}, {1, 2});
  OpTest("pad").Attr("paddings", Ints{1, 1}).Input("X", {0}, {}).Expect("Out", {2}, {0, 0});
  OpTest("pad").Attr("paddings", Ints{}).Input("X", {}, {5}).Expect("Out", {}, {5});
  // A value that the element type does not hold becomes the nearest one that it holds.
  OpTest("pad")
      .Attr("paddings", Ints{1, 0})
      .Attr("pad_value", -1e30f)
      .IntInput("X", {1}, {5})
      .Expect("Out", {2}, {static_cast<double>(INT64_MIN), 5});
}

TEST(Pad, Constraints) {
  OpTest("pad").Attr("paddings", Ints{1}).Input("X", {1}, {1}).ExpectError("pad.C1");
  OpTest("pad").Attr("paddings", Ints{-1, 1}).Input("X", {1}, {1}).ExpectError("pad.C2");
}

TEST(PadConstantLike, Values) {
  OpTest("pad_constant_like")
      .Attr("pad_value", 9.f)
      .Input("X", {2, 3}, {0, 0, 0, 0, 0, 0})
      .Input("Y", {1, 2}, {1, 2})
      .Expect("Out", {2, 3}, {1, 2, 9, 9, 9, 9})
      .CheckGradient({"Y"})
      .CheckHigherGradients();
  OpTest("pad_constant_like")
      .IntInput("X", {2}, {0, 0})
      .IntInput("Y", {0}, {})
      .Expect("Out", {2}, {0, 0});
}

TEST(PadConstantLike, Constraints) {
  OpTest("pad_constant_like")
      .Input("X", {1}, {1})
      .IntInput("Y", {1}, {1})
      .ExpectError("pad_constant_like.C1");
  OpTest("pad_constant_like")
      .Input("X", {1}, {1})
      .Input("Y", {2}, {1, 2})
      .ExpectError("pad_constant_like.C2");
}

// The value is limited to the range of bytes.
TEST(Pad, Bytes) {
  const std::vector<int32_t> one_before = {1, 0};
  OpTest("pad")
      .Attr("paddings", one_before)
      .Attr("pad_value", -300.f)
      .IntInput("X", {2}, {5, -7}, DType::kInt8)
      .Expect("Out", {3}, {-128, 5, -7})
      .ExpectDType("Out", DType::kInt8);
  OpTest("pad")
      .Attr("paddings", one_before)
      .Attr("pad_value", 128.f)
      .IntInput("X", {2}, {0, 255}, DType::kUInt8)
      .Expect("Out", {3}, {128, 0, 255});
  OpTest("pad_constant_like")
      .IntInput("X", {3}, {1, 2, 3}, DType::kUInt8)
      .IntInput("Y", {2}, {4, 255}, DType::kUInt8)
      .Expect("Out", {3}, {4, 255, 0});
}

}  // namespace coracle::pad_test

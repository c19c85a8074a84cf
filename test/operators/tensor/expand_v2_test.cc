#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>

namespace coracle::expand_v2_test {

using Ints = std::vector<int32_t>;

TEST(ExpandV2, Values) {
  OpTest("expand_v2")
      .Attr("shape", Ints{2, -1, 3})
      .Input("X", {2, 1}, {5, 6})
      .Expect("Out", {2, 2, 3}, {5, 5, 5, 6, 6, 6, 5, 5, 5, 6, 6, 6})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("expand_v2").Attr("shape", Ints{2}).Input("X", {}, {3}).Expect("Out", {2}, {3, 3});
  OpTest("expand_v2")
      .Attr("shape", Ints{0, 2})
      .Input("X", {1, 2}, {3, 4})
      .Expect("Out", {0, 2}, {});
  OpTest("expand_v2")
      .Attr("shape", Ints{3, 2, 2, 2})
      .RandomInput("X", {2, 1, 2})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

// Sums over leading, trailing and inner axes, of few and of many elements.
TEST(ExpandV2, SumsOfTheGradient) {
  for (const Shape& x : {Shape{1, 1, 1}, Shape{1, 1, 130}, Shape{1, 9, 1}, Shape{5, 1, 70},
                         Shape{5, 1, 1}, Shape{1, 9, 130}, Shape{5, 9, 130}}) {
    const Shape out{5, x[1] == 1 ? 33 : x[1], x[2] == 1 ? 19 : x[2]};
    std::vector<double> dout, dx(static_cast<size_t>(x.numel()), 0);
    for (int64_t i = 0; i < out.numel(); ++i) {
      dout.push_back(static_cast<double>(i * 31 % 17) - 8);
      const int64_t c = i % out[2] % x[2], b = i / out[2] % out[1] % x[1];
      const int64_t a = i / out[2] / out[1] % x[0];
      dx[static_cast<size_t>((a * x[1] + b) * x[2] + c)] += dout.back();
    }
    OpTest("expand_v2_grad")
        .Attr("shape", Ints{5, static_cast<int32_t>(out[1]), static_cast<int32_t>(out[2])})
        .RandomInput("X", x)
        .Input("Out@GRAD", out, dout)
        .Expect("X@GRAD", x, dx);
  }
}

TEST(ExpandV2, ShapeFromTensors) {
  OpTest("expand_v2")
      .Attr("shape", Ints{7})
      .Input("X", {1}, {4})
      .IntInput("Shape", {2}, {2, -1}, DType::kInt32)
      .Expect("Out", {2, 1}, {4, 4})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("expand_v2")
      .Input("X", {1}, {4})
      .IntInput("expand_shapes_tensor", {1}, {3})
      .Expect("Out", {3}, {4, 4, 4})
      .CheckGradient({"X"});
}

TEST(ExpandV2, EveryDType) {
  for (DType dtype : {DType::kBool, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64,
                      DType::kBFloat16}) {
    OpTest("expand_v2")
        .Attr("shape", Ints{2, 2})
        .IntInput("X", {2}, {1, 0}, dtype)
        .Expect("Out", {2, 2}, {1, 0, 1, 0})
        .ExpectDType("Out", dtype);
  }
}

TEST(ExpandV2, Constraints) {
  auto op = [](Ints shape) {
    OpTest test("expand_v2");
    test.Attr("shape", std::move(shape)).Input("X", {2, 3}, {1, 2, 3, 4, 5, 6});
    return test;
  };
  op({3}).ExpectError("expand_v2.C1");
  op({-1, 2, 3}).ExpectError("expand_v2.C2");
  op({-2, 3}).ExpectError("expand_v2.C2");
  op({4, 3}).ExpectError("expand_v2.C3");
  op(Ints(10, 1)).ExpectError("expand_v2.C4");
}

TEST(Tile, Values) {
  OpTest("tile")
      .Attr("repeat_times", Ints{2, 2})
      .Input("X", {2}, {1, 2})
      .Expect("Out", {2, 4}, {1, 2, 1, 2, 1, 2, 1, 2})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("tile")
      .Attr("repeat_times", Ints{2})
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {2, 4}, {1, 2, 1, 2, 3, 4, 3, 4})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("tile")
      .Attr("repeat_times", Ints{2, 1})
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {4, 2}, {1, 2, 3, 4, 1, 2, 3, 4});
  OpTest("tile").Attr("repeat_times", Ints{3}).Input("X", {}, {7}).Expect("Out", {3}, {7, 7, 7});
  OpTest("tile").Attr("repeat_times", Ints{3}).Input("X", {0}, {}).Expect("Out", {0}, {});
  OpTest("tile")
      .Attr("repeat_times", Ints{2, 3, 2})
      .RandomInput("X", {2, 1, 3})
      .CheckGradient({"X"});
}

TEST(Tile, FromTensors) {
  OpTest("tile")
      .Input("X", {2}, {1, 2})
      .IntInput("RepeatTimes", {1}, {2}, DType::kInt32)
      .Expect("Out", {4}, {1, 2, 1, 2})
      .CheckGradient({"X"});
  OpTest("tile")
      .IntInput("X", {2}, {1, 2}, DType::kInt16)
      .IntInput("repeat_times_tensor", {1}, {2})
      .IntInput("repeat_times_tensor", {1}, {1})
      .Expect("Out", {2, 2}, {1, 2, 1, 2});
}

TEST(Tile, Constraints) {
  OpTest("tile").Attr("repeat_times", Ints{0}).Input("X", {1}, {1}).ExpectError("tile.C1");
  OpTest("tile").Attr("repeat_times", Ints{-1}).Input("X", {1}, {1}).ExpectError("tile.C1");
  OpTest("tile").Attr("repeat_times", Ints(10, 1)).Input("X", {1}, {1}).ExpectError("tile.C2");
}

}  // namespace coracle::expand_v2_test

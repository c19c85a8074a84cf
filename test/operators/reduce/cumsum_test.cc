#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

namespace coracle::cumsum_test {

TEST(Cumsum, Values) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6};
  OpTest("cumsum")
      .Input("X", {2, 3}, x)
      .Expect("Out", {2, 3}, {1, 3, 6, 4, 9, 15})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("cumsum")
      .Attr("axis", 0)
      .Attr("reverse", true)
      .Input("X", {2, 3}, x)
      .Expect("Out", {2, 3}, {5, 7, 9, 4, 5, 6})
      .CheckGradient({"X"});
  OpTest("cumsum")
      .Attr("exclusive", true)
      .InPlace("X", "Out")
      .Input("X", {2, 3}, x)
      .Expect("Out", {2, 3}, {0, 1, 3, 0, 4, 9});
  OpTest("cumsum")
      .Attr("exclusive", true)
      .Attr("reverse", true)
      .Input("X", {3}, {1, 2, 3})
      .Expect("Out", {3}, {5, 3, 0})
      .CheckGradient({"X"});
  OpTest("cumsum")
      .Attr("flatten", true)
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {4}, {1, 3, 6, 10})
      .CheckGradient({"X"});
  OpTest("cumsum").IntInput("X", {3}, {1, 2, 3}).Expect("Out", {3}, {1, 3, 6});
  OpTest("cumsum").Input("X", {}, {4}).Expect("Out", {}, {4});
  OpTest("cumsum").Input("X", {2, 0}, {}).Expect("Out", {2, 0}, {});
}

// Line by line, for any number of neighbouring lines.
TEST(Cumsum, ManyLines) {
  for (int threads : {1, 3}) {
    const Threads scope(threads);
    for (const Shape& shape :
         {Shape{7, 5, 45}, Shape{3, 9, 11}, Shape{2, 70, 1}, Shape{40, 900, 3}}) {
      for (int axis = 0; axis < 3; ++axis) {
        for (bool exclusive : {false, true}) {
          for (bool reverse : {false, true}) {
            std::vector<double> x, out;
            for (int64_t i = 0; i < shape.numel(); ++i)
              x.push_back(static_cast<double>(i * 37 % 19));
            const int64_t n = shape[axis], inner = shape.Product(axis + 1, 3);
            for (int64_t i = 0; i < shape.numel(); ++i) {
              const int64_t at = i / inner % n;
              double sum = exclusive ? 0 : x[static_cast<size_t>(i)];
              for (int64_t k = 0; k < n; ++k) {
                if (reverse ? k > at : k < at) sum += x[static_cast<size_t>(i + (k - at) * inner)];
              }
              out.push_back(sum);
            }
            OpTest("cumsum")
                .Attr("axis", axis)
                .Attr("exclusive", exclusive)
                .Attr("reverse", reverse)
                .Input("X", shape, x)
                .Expect("Out", shape, out);
          }
        }
      }
    }
  }
}

TEST(Cumsum, C1_Axis) {
  OpTest("cumsum").Attr("axis", 1).Input("X", {1}, {1}).ExpectError("cumsum.C1");
}

TEST(Cumsum, AxisTensor) {
  for (const int64_t axis : {0, 1, -1, -2}) {
    const bool columns = axis == 0 || axis == -2;
    OpTest("cumsum")
        .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
        .IntInput("AxisTensor", {1}, {axis})
        .Expect("Out", {2, 3},
                columns ? ListOf<double>{1, 2, 3, 5, 7, 9} : ListOf<double>{1, 3, 6, 4, 9, 15})
        .CheckGradient({"X"});
  }
  OpTest("cumsum").Input("X", {1}, {1}).IntInput("AxisTensor", {1}, {1}).ExpectError("cumsum.C1");
}

TEST(Cumsum, C2_AxisTensor) {
  OpTest("cumsum")
      .Input("X", {1}, {1})
      .IntInput("AxisTensor", {2}, {0, 0})
      .ExpectError("cumsum.C2");
}

}  // namespace coracle::cumsum_test

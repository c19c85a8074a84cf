#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <cmath>

namespace coracle::argsort_test {

TEST(Argsort, Values) {
  OpTest("argsort")
      .Input("X", {2, 3}, {3, 1, 2, 5, 6, 4})
      .Expect("Out", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Indices", {2, 3}, {1, 2, 0, 2, 0, 1})
      .ExpectDType("Indices", DType::kInt64)
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("argsort")
      .Attr("axis", 0)
      .Attr("descending", true)
      .Input("X", {3, 2}, {3, 1, 2, 5, 6, 4})
      .Expect("Out", {3, 2}, {6, 5, 3, 4, 2, 1})
      .Expect("Indices", {3, 2}, {2, 1, 0, 2, 1, 0})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  for (DType dtype : {DType::kInt32, DType::kInt64})
    OpTest("argsort").IntInput("X", {3}, {2, -7, 5}, dtype).Expect("Out", {3}, {-7, 2, 5});
  OpTest("argsort").Input("X", {2, 0}, {}).Expect("Out", {2, 0}, {});
  OpTest("argsort").Input("X", {1}, {4}).Expect("Indices", {1}, {0});
}

// Equal elements keep their order, whichever way the sort goes; nans are the largest.
TEST(Argsort, EqualsAndNans) {
  const double nan = std::nan("");
  OpTest("argsort").Input("X", {4}, {2, 1, 2, 1}).Expect("Indices", {4}, {1, 3, 0, 2});
  OpTest("argsort")
      .Attr("descending", true)
      .Input("X", {4}, {2, 1, 2, 1})
      .Expect("Indices", {4}, {0, 2, 1, 3});
  OpTest("argsort").Input("X", {4}, {nan, 1, nan, -INFINITY}).Expect("Indices", {4}, {3, 1, 0, 2});
}

// Values with many equals, zeros of both signs, infinities and nans.
Tensor Rough(DType dtype, const Shape& shape, std::mt19937& random) {
  Tensor x(dtype, shape);
  const double special[] = {0.0, -0.0, INFINITY, -INFINITY, std::nan(""), -std::nan(""), 1e-42};
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto bits = static_cast<int64_t>(random()) * 7919 - (int64_t{1} << 44);
    const double value =
        random() % 4 == 0 ? special[random() % 7] : static_cast<double>(bits >> (random() % 44));
    if (dtype == DType::kFloat32)
      x.data<float>()[i] = static_cast<float>(value);
    else if (dtype == DType::kFloat64)
      x.data<double>()[i] = value;
    else if (dtype == DType::kInt32)
      x.data<int32_t>()[i] = static_cast<int32_t>(bits >> (random() % 44));
    else
      x.data<int64_t>()[i] = bits << (random() % 20);
  }
  return x;
}

TEST(Argsort, FastAgainstReference) {
  std::mt19937 random(1);
  const std::vector<Shape> shapes = {{1},       {5, 1},       {3, 7, 2},  {2, 97},
                                     {193, 3},  {4, 300, 2},  {2, 5000},  {0, 3},
                                     {3, 1000}, {20, 9, 100}, {40, 40, 3}};
  for (int threads : {1, 3}) {
    const Threads scope(threads);
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64}) {
      for (const Shape& shape : shapes) {
        for (int axis = 0; axis < shape.rank(); ++axis) {
          OpTest test("argsort");
          test.Attr("axis", axis).Attr("descending", random() % 2 == 0);
          test.TensorInput("X", Rough(dtype, shape, random));
          const Tensor fast = test.Output("Indices");
          const Tensor slow = test.Output("Indices", KernelMode::kReference);
          for (int64_t i = 0; i < slow.numel(); ++i)
            ASSERT_EQ(fast.data<int64_t>()[i], slow.data<int64_t>()[i])
                << ToString(dtype) << shape.ToString() << " " << axis << " " << i;
        }
      }
    }
    OpTest("argsort").Attr("axis", 1).RandomInput("X", {3, 200, 2}).CheckFast(0, {"X"});
  }
}

TEST(Argsort, Constraints) {
  OpTest("argsort").Attr("axis", 1).Input("X", {1}, {1}).ExpectError("argsort.C1");
  OpTest("argsort_grad")
      .IntInput("Indices", {1}, {0})
      .Input("Out@GRAD", {2}, {1, 1})
      .ExpectError("argsort_grad.C2");
  OpTest("argsort_grad")
      .IntInput("Indices", {1}, {1})
      .Input("Out@GRAD", {1}, {1})
      .ExpectError("outside [0, 1)");
}
}  // namespace coracle::argsort_test

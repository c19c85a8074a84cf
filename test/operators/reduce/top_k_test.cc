#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coracle::top_k_test {

TEST(TopK, Values) {
  for (const char* type : {"top_k", "top_k_v2"}) {
    OpTest(type)
        .Attr("k", 2)
        .Input("X", {2, 4}, {1, 4, 2, 4.5, 9, 7, 8, 3})
        .Expect("Out", {2, 2}, {4.5, 4, 9, 8})
        .Expect("Indices", {2, 2}, {3, 1, 0, 2})
        .ExpectDType("Indices", DType::kInt64)
        .CheckGradient({"X"});
    OpTest(type)
        .Attr("k", 1)
        .Input("X", {3}, {1, 3, 2})
        .IntInput("K", {1}, {3}, DType::kInt32)
        .Expect("Out", {3}, {3, 2, 1})
        .CheckGradient({"X"});
    OpTest(type).Attr("k", 2).Input("X", {4}, {5, 5, 5, 5}).Expect("Indices", {2}, {0, 1});
    OpTest(type).Attr("k", 2).Input("X", {0, 3}, {}).Expect("Out", {0, 2}, {});
    OpTest(type).Attr("k", 2).IntInput("X", {3}, {1, 3, 2}).Expect("Out", {2}, {3, 2});
  }
}

TEST(TopK, AxisAndSmallest) {
  OpTest("top_k_v2")
      .Attr("k", 2)
      .Attr("axis", 0)
      .Attr("largest", false)
      .Input("X", {3, 2}, {3, 1, 2, 6, 5, 4})
      .Expect("Out", {2, 2}, {2, 1, 3, 4})
      .Expect("Indices", {2, 2}, {1, 0, 0, 2})
      .CheckGradient({"X"});
}

TEST(TopK, NanIsLargest) {
  const double nan = std::nan("");
  OpTest("top_k").Attr("k", 3).Input("X", {4}, {1, nan, 2, nan}).Expect("Indices", {3}, {1, 3, 2});
  OpTest("top_k_v2")
      .Attr("k", 3)
      .Attr("largest", false)
      .Input("X", {4}, {1, nan, 2, nan})
      .Expect("Indices", {3}, {0, 2, 1});
}

TEST(TopK, AgainstSort) {
  const int before = NumThreads();
  SetNumThreads(3);
  Philox random(1, 2, 3);
  for (int64_t k : {1, 7, 50, 100}) {
    Tensor x(DType::kFloat32, {400, 100});
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = std::floor(20 * random.UniformFloat(static_cast<uint64_t>(i)));
    Tensor found =
        OpTest("top_k").Attr("k", static_cast<int32_t>(k)).TensorInput("X", x).Output("Indices");
    for (int64_t r = 0; r < 400; ++r) {
      const float* row = x.data<float>() + r * 100;
      std::vector<int64_t> order(100);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return row[a] > row[b]; });
      for (int64_t j = 0; j < k; ++j)
        ASSERT_EQ(order[static_cast<size_t>(j)], found.data<int64_t>()[r * k + j]) << r << " " << j;
    }
  }
  SetNumThreads(before);
}

TEST(TopK, FastAgainstReference) {
  std::mt19937 random(5);
  const std::vector<Shape> shapes = {{1}, {63}, {64}, {3, 200}, {2, 65, 3}, {2, 3000}, {90, 33}};
  for (int threads : {1, 3}) {
    const Threads scope(threads);
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64}) {
      for (const Shape& shape : shapes) {
        for (int axis = 0; axis < shape.rank(); ++axis) {
          const int64_t n = shape[axis];
          for (int64_t k : {int64_t{1}, n / 20, n / 5, n - 1, n}) {
            if (k < 1) continue;
            Tensor x(dtype, shape);
            for (int64_t i = 0; i < x.numel(); ++i) {
              // From few values to many; now and then a nan.
              const auto value = static_cast<int32_t>(random() >> (random() % 24)) / 16;
              const double real = random() % 50 == 0 ? std::nan("") : value * 0.25;
              if (dtype == DType::kFloat32) x.data<float>()[i] = static_cast<float>(real);
              if (dtype == DType::kFloat64) x.data<double>()[i] = real;
              if (dtype == DType::kInt32) x.data<int32_t>()[i] = value;
              if (dtype == DType::kInt64) x.data<int64_t>()[i] = int64_t{value} << 20;
            }
            OpTest test("top_k_v2");
            test.Attr("k", static_cast<int32_t>(k)).Attr("axis", axis);
            test.Attr("largest", random() % 2 == 0).TensorInput("X", x);
            const Tensor fast = test.Output("Indices");
            const Tensor slow = test.Output("Indices", KernelMode::kReference);
            for (int64_t i = 0; i < slow.numel(); ++i)
              ASSERT_EQ(fast.data<int64_t>()[i], slow.data<int64_t>()[i])
                  << ToString(dtype) << shape.ToString() << " " << axis << " " << k << " " << i;
          }
        }
      }
    }
    OpTest("top_k").Attr("k", 3).RandomInput("X", {30, 500}).CheckFast(0, {"X"});
  }
}

TEST(TopK, Constraints) {
  for (const std::string type : {"top_k", "top_k_v2"}) {
    OpTest(type).Input("X", {}, {1}).ExpectError(type + ".C1");
    OpTest(type).Attr("k", 0).Input("X", {1}, {1}).ExpectError(type + ".C2");
    OpTest(type).Attr("k", 2).Input("X", {1}, {1}).ExpectError(type + ".C2");
    OpTest(type + "_grad")
        .Input("X", {}, {1})
        .IntInput("Indices", {1}, {0})
        .Input("Out@GRAD", {1}, {1})
        .ExpectError(type + "_grad.C1");
    OpTest(type + "_grad")
        .Input("X", {2}, {1, 2})
        .IntInput("Indices", {2}, {0, 1})
        .Input("Out@GRAD", {1}, {1})
        .ExpectError(type + "_grad.C2");
    OpTest(type + "_grad")
        .Input("X", {2, 2}, {1, 2, 3, 4})
        .IntInput("Indices", {1, 1}, {0})
        .Input("Out@GRAD", {1, 1}, {1})
        .ExpectError(type + "_grad.C3");
    OpTest(type + "_grad")
        .Input("X", {2}, {1, 2})
        .IntInput("Indices", {1}, {2})
        .Input("Out@GRAD", {1}, {1})
        .ExpectError("outside [0, 2)");
  }
}

}  // namespace coracle::top_k_test

#include <coracle/test/op_test.h>

#include <algorithm>
#include <numeric>

namespace coracle::randperm_test {

void ExpectPermutation(const Tensor& out) {
  const Tensor wide = out.Cast(DType::kInt64);
  std::vector<int64_t> sorted(wide.span<int64_t>().begin(), wide.span<int64_t>().end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> expected(sorted.size());
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(sorted, expected);
}

TEST(Randperm, IsAPermutation) {
  for (DType dtype : {DType::kInt64, DType::kInt32, DType::kFloat32, DType::kFloat64}) {
    const Tensor out =
        OpTest("randperm").Attr("n", 100).Attr("dtype", static_cast<int32_t>(dtype)).Output("Out");
    EXPECT_EQ(out.dtype(), dtype);
    ExpectPermutation(out);
  }
  OpTest("randperm").Attr("n", 0).Expect("Out", {0}, {});
  OpTest("randperm").Attr("n", 1).Expect("Out", {1}, {0});
}

// Each of the six orders of three comes up about as often.
TEST(Randperm, OrdersAreUniform) {
  int counts[27] = {};
  for (uint64_t step = 0; step < 1200; ++step) {
    const Tensor out = OpTest("randperm").Attr("n", 3).Step(step).Output("Out");
    const auto* p = out.data<int64_t>();
    ++counts[p[0] * 9 + p[1] * 3 + p[2]];
  }
  for (int code : {5, 7, 11, 15, 19, 21}) EXPECT_NEAR(counts[code], 200, 65) << code;
}

TEST(Randperm, Constraints) {
  OpTest("randperm").Attr("n", 1).Attr("dtype", 7).ExpectError("randperm.C1");
  OpTest("randperm").Attr("n", -1).ExpectError("attr n must be at least 0");
}

OpTest ShuffleBatch(int64_t seed) {
  OpTest test("shuffle_batch");
  test.Input("X", {2, 3, 2}, {0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51});
  test.IntInput("Seed", {1}, {seed});
  return test;
}

TEST(ShuffleBatch, MovesRows) {
  OpTest test = ShuffleBatch(5);
  const Tensor out = test.Output("Out"), order = test.Output("ShuffleIdx");
  ASSERT_EQ(order.shape().ToString(), "[6]");
  ASSERT_EQ(out.shape().ToString(), "[2, 3, 2]");
  ExpectPermutation(order);
  for (int64_t i = 0; i < 6; ++i) {
    const int64_t to = order.data<int64_t>()[i];
    EXPECT_EQ(out.data<float>()[2 * to], static_cast<float>(10 * i));
    EXPECT_EQ(out.data<float>()[2 * to + 1], static_cast<float>(10 * i + 1));
  }
}

TEST(ShuffleBatch, SeedDecides) {
  const auto order = [](int64_t seed, uint64_t step) {
    return ShuffleBatch(seed).Step(step).Output("ShuffleIdx");
  };
  EXPECT_TRUE(BitEqual(order(5, 1), order(5, 2)));
  EXPECT_FALSE(BitEqual(order(5, 1), order(6, 1)));
  EXPECT_EQ(ShuffleBatch(5).Output("SeedOut").shape().ToString(), "[1]");
  EXPECT_NE(ShuffleBatch(5).Output("SeedOut").Item<int64_t>(),
            ShuffleBatch(6).Output("SeedOut").Item<int64_t>());
  // Without a seed, the attr's seed counts.
  const auto startup = [](int32_t seed, uint64_t program) {
    return OpTest("shuffle_batch")
        .Attr("startup_seed", seed)
        .Seed(program)
        .Input("X", {8, 1}, {0, 1, 2, 3, 4, 5, 6, 7})
        .IntInput("Seed", {0}, {})
        .Output("ShuffleIdx");
  };
  EXPECT_TRUE(BitEqual(startup(3, 1), startup(3, 2)));
  EXPECT_FALSE(BitEqual(startup(0, 1), startup(0, 2)));
}

TEST(ShuffleBatch, Gradients) {
  ShuffleBatch(5).CheckGradient({"X"}).CheckHigherGradients();
  OpTest("shuffle_batch")
      .Input("X", {0, 2}, {})
      .IntInput("Seed", {1}, {1})
      .Expect("Out", {0, 2}, {});
}

TEST(ShuffleBatch, Constraints) {
  OpTest("shuffle_batch")
      .Input("X", {}, {1})
      .IntInput("Seed", {1}, {1})
      .ExpectError("shuffle_batch.C1");
  OpTest("shuffle_batch")
      .Input("X", {1}, {1})
      .Input("Seed", {1}, {1})
      .ExpectError("shuffle_batch.C2");
  OpTest("shuffle_batch_grad")
      .IntInput("ShuffleIdx", {1}, {0})
      .Input("Out@GRAD", {}, {1})
      .ExpectError("shuffle_batch_grad.C1");
  OpTest("shuffle_batch_grad")
      .IntInput("ShuffleIdx", {2}, {0, 1})
      .Input("Out@GRAD", {1, 1}, {1})
      .ExpectError("shuffle_batch_grad.C2");
}
}  // namespace coracle::randperm_test

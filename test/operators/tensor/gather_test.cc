#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

namespace coracle::gather_test {

TEST(Gather, Values) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("gather")
        .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
        .IntInput("Index", {4}, {2, 0, 2, 1}, dtype)
        .Expect("Out", {4, 2}, {5, 6, 1, 2, 5, 6, 3, 4})
        .CheckGradient({"X"})
        .CheckSecondGradient({"X"});
  }
  OpTest("gather")
      .Attr("axis", 1)
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .IntInput("Index", {2, 1}, {2, 0})
      .Expect("Out", {2, 2}, {3, 1, 6, 4})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("gather")
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .IntInput("Index", {1}, {1})
      .IntInput("Axis", {1}, {-1}, DType::kInt32)
      .Expect("Out", {2, 1}, {2, 5})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("gather").Input("X", {3}, {1, 2, 3}).IntInput("Index", {0}, {}).Expect("Out", {0}, {});
}

TEST(Gather, ManyRows) {
  std::mt19937 random(6);
  for (int threads : {1, 3}) {
    const Threads scope(threads);
    for (int64_t inner : {1, 2, 4, 8, 20}) {
      for (int64_t count : {1, 7, 4000}) {
        const int64_t outer = 3, n = 50;
        std::vector<double> x(static_cast<size_t>(outer * n * inner)), out;
        for (double& v : x) v = static_cast<double>(random() % 1000);
        std::vector<int64_t> index(static_cast<size_t>(count));
        for (int64_t& i : index) i = static_cast<int64_t>(random() % n);
        for (int64_t o = 0; o < outer; ++o) {
          for (int64_t i : index) {
            for (int64_t j = 0; j < inner; ++j)
              out.push_back(x[static_cast<size_t>((o * n + i) * inner + j)]);
          }
        }
        OpTest("gather")
            .Attr("axis", 1)
            .Input("X", {outer, n, inner}, x)
            .IntInput("Index", {count}, index)
            .Expect("Out", {outer, count, inner}, out);
      }
    }
  }
  OpTest("gather").RandomInput("X", {40, 5}).IntInput("Index", {3}, {7, 0, 7}).CheckGradient({"X"});
}

TEST(Gather, EveryDType) {
  for (DType dtype : {DType::kBool, DType::kInt8, DType::kFloat16, DType::kInt32, DType::kInt64}) {
    OpTest("gather")
        .IntInput("X", {3}, {0, 1, 0}, dtype)
        .IntInput("Index", {2}, {1, 2})
        .Expect("Out", {2}, {1, 0})
        .ExpectDType("Out", dtype);
  }
}

TEST(Gather, IndexOutOfRange) {
  for (int64_t bad : {-1, 3}) {
    OpTest("gather")
        .Input("X", {3}, {1, 2, 3})
        .IntInput("Index", {2}, {0, bad})
        .ExpectError("Index holds " + std::to_string(bad) + " at 1, outside [0, 3)");
    OpTest("gather_grad")
        .Input("X", {3}, {1, 2, 3})
        .IntInput("Index", {2}, {0, bad})
        .Input("Out@GRAD", {2}, {1, 1})
        .ExpectError("outside [0, 3)");
  }
  OpTest("gather").Input("X", {0, 2}, {}).IntInput("Index", {1}, {0}).ExpectError("outside [0, 0)");
}

TEST(Gather, Constraints) {
  OpTest("gather")
      .Attr("axis", 1)
      .Input("X", {1}, {1})
      .IntInput("Index", {1}, {0})
      .ExpectError("gather.C1");
  OpTest("gather").Input("X", {1}, {1}).Input("Index", {1}, {0}).ExpectError("gather.C2");
  OpTest("gather").Input("X", {1}, {1}).IntInput("Index", {1, 2}, {0, 0}).ExpectError("gather.C3");
}

TEST(Gather, GradientDoesNotDependOnThreads) {
  Tensor index(DType::kInt64, {5000}), dout(DType::kFloat32, {5000, 16});
  for (int64_t i = 0; i < 5000; ++i) index.data<int64_t>()[i] = i * i % 97;
  for (int64_t i = 0; i < dout.numel(); ++i)
    dout.data<float>()[i] = 1.f / static_cast<float>(1 + i % 1013);
  auto run = [&](int threads) {
    const Threads scope(threads);
    return OpTest("gather_grad")
        .TensorInput("X", Tensor::Zeros(DType::kFloat32, {3000, 16}))
        .TensorInput("Index", index)
        .TensorInput("Out@GRAD", dout)
        .Output("X@GRAD");
  };
  EXPECT_TRUE(BitEqual(run(1), run(4)));
}

TEST(IndexSelect, Values) {
  OpTest("index_select")
      .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
      .IntInput("Index", {4}, {2, 0, 2, 1}, DType::kInt32)
      .Expect("Out", {4, 2}, {5, 6, 1, 2, 5, 6, 3, 4})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("index_select")
      .Attr("dim", -1)
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .IntInput("Index", {2, 1}, {2, 0})
      .Expect("Out", {2, 2}, {3, 1, 6, 4})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("index_select")
      .IntInput("X", {2}, {1, 2})
      .IntInput("Index", {0}, {})
      .Expect("Out", {0}, {});
}

TEST(IndexSelect, Constraints) {
  const auto select = [] { return OpTest("index_select").Input("X", {1}, {1}); };
  select().Attr("dim", 1).IntInput("Index", {1}, {0}).ExpectError("index_select.C1");
  select().Input("Index", {1}, {0}).ExpectError("index_select.C2");
  select().IntInput("Index", {1, 2}, {0, 0}).ExpectError("index_select.C3");
  for (int64_t bad : {-1, 1})
    select().IntInput("Index", {1}, {bad}).ExpectError("index_select: Index holds");
}

TEST(GatherNd, Values) {
  OpTest("gather_nd")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .IntInput("Index", {3, 2}, {0, 1, 1, 1, 0, 1})
      .Expect("Out", {3}, {2, 4, 2})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("gather_nd")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .IntInput("Index", {1, 1}, {1}, DType::kInt32)
      .Expect("Out", {1, 2}, {3, 4})
      .CheckGradient({"X"});
  // An index for each axis, and no list of them: one element.
  OpTest("gather_nd")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .IntInput("Index", {2}, {1, 0})
      .Expect("Out", {}, {3})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("gather_nd")
      .Input("X", {2}, {1, 2})
      .IntInput("Index", {2, 0}, {})
      .Expect("Out", {2, 2}, {1, 2, 1, 2})
      .CheckGradient({"X"});
}

TEST(GatherNd, Constraints) {
  OpTest("gather_nd").Input("X", {1}, {1}).Input("Index", {1}, {0}).ExpectError("gather_nd.C1");
  OpTest("gather_nd").Input("X", {1}, {1}).IntInput("Index", {}, {0}).ExpectError("gather_nd.C2");
  OpTest("gather_nd")
      .Input("X", {1}, {1})
      .IntInput("Index", {2}, {0, 0})
      .ExpectError("gather_nd.C3");
  OpTest("gather_nd")
      .Input("X", {1, 1, 1, 1, 1}, {1})
      .IntInput("Index", {1, 1, 1, 1, 1, 0}, {})
      .ExpectError("gather_nd.C4");
  OpTest("gather_nd")
      .Input("X", {2}, {1, 2})
      .IntInput("Index", {1, 1}, {2})
      .ExpectError("outside [0, 2)");
}

}  // namespace coracle::gather_test

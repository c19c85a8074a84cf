#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <cmath>

namespace coracle::masked_select_test {

TEST(MaskedSelect, Values) {
  OpTest("masked_select")
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .IntInput("Mask", {2, 3}, {0, 1, 0, 1, 0, 1}, DType::kBool)
      .Expect("Y", {3}, {2, 4, 6})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("masked_select")
      .IntInput("X", {2}, {1, 2})
      .IntInput("Mask", {2}, {0, 0}, DType::kBool)
      .Expect("Y", {0}, {});
  OpTest("masked_select")
      .IntInput("X", {}, {5})
      .IntInput("Mask", {}, {1}, DType::kBool)
      .Expect("Y", {1}, {5});
}

TEST(MaskedSelect, ManyElements) {
  std::mt19937 random(3);
  for (int threads : {1, 3}) {
    const Threads scope(threads);
    for (int64_t n : {4095, 4096, 200000}) {
      for (uint32_t share : {0, 1, 50, 99, 100}) {  // percent that are chosen
        std::vector<double> x, y, dx;
        std::vector<int64_t> mask;
        for (int64_t i = 0; i < n; ++i) {
          x.push_back(static_cast<double>(random() % 1000));
          mask.push_back(random() % 100 < share ? 1 : 0);
          if (mask.back()) y.push_back(x.back());
          dx.push_back(mask.back() ? x.back() : 0);
        }
        const auto count = static_cast<int64_t>(y.size());
        OpTest("masked_select")
            .Input("X", {n}, x)
            .IntInput("Mask", {n}, mask, DType::kBool)
            .Expect("Y", {count}, y);
        OpTest("masked_select_grad")
            .Input("X", {n}, x)
            .IntInput("Mask", {n}, mask, DType::kBool)
            .Input("Y@GRAD", {count}, y)
            .Expect("X@GRAD", {n}, dx);
      }
    }
  }
}

TEST(MaskedSelect, Constraints) {
  OpTest("masked_select")
      .Input("X", {1}, {1})
      .IntInput("Mask", {1}, {1})
      .ExpectError("masked_select.C1");
  OpTest("masked_select")
      .Input("X", {1}, {1})
      .IntInput("Mask", {2}, {1, 1}, DType::kBool)
      .ExpectError("masked_select.C2");
  const auto grad = [] {
    return OpTest("masked_select_grad")
        .Input("X", {2}, {1, 2})
        .IntInput("Mask", {2}, {1, 0}, DType::kBool);
  };
  grad().Input("Y@GRAD", {1, 1}, {1}).ExpectError("masked_select_grad.C3");
  grad().Input("Y@GRAD", {2}, {1, 1}).ExpectError("masked_select_grad.C4");
}

TEST(WhereIndex, Values) {
  OpTest("where_index")
      .IntInput("Condition", {2, 3}, {0, 1, 0, 1, 1, 0}, DType::kBool)
      .Expect("Out", {3, 2}, {0, 1, 1, 0, 1, 1})
      .ExpectDType("Out", DType::kInt64);
  OpTest("where_index")
      .Input("Condition", {4}, {0, -0.5, -0.0, std::nan("")})
      .Expect("Out", {2, 1}, {1, 3});
  for (DType dtype : {DType::kInt32, DType::kInt64})
    OpTest("where_index").IntInput("Condition", {2}, {0, -3}, dtype).Expect("Out", {1, 1}, {1});
  OpTest("where_index").Input("Condition", {2, 1, 1}, {0, 0}).Expect("Out", {0, 3}, {});
  OpTest("where_index").Input("Condition", {0, 2}, {}).Expect("Out", {0, 2}, {});
}
}  // namespace coracle::masked_select_test

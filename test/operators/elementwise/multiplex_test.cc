#include <coracle/test/op_test.h>

namespace coracle::multiplex_test {

TEST(Multiplex, Values) {
  OpTest("multiplex")
      .IntInput("Ids", {3, 1}, {1, 0, 1}, DType::kInt32)
      .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
      .Input("X", {3, 2}, {10, 20, 30, 40, 50, 60})
      .Expect("Out", {3, 2}, {10, 20, 3, 4, 50, 60})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("multiplex")
      .IntInput("Ids", {1, 1}, {2}, DType::kInt32)
      .IntInput("X", {1}, {1})
      .IntInput("X", {1}, {2})
      .IntInput("X", {1}, {3})
      .Expect("Out", {1}, {3});
  OpTest("multiplex")
      .IntInput("Ids", {0, 1}, {}, DType::kInt32)
      .Input("X", {0, 2}, {})
      .Input("X", {0, 2}, {})
      .Expect("Out", {0, 2}, {});
}

TEST(Multiplex, Constraints) {
  const auto two = [] { return OpTest("multiplex").Input("X", {1}, {1}).Input("X", {1}, {2}); };
  OpTest("multiplex")
      .IntInput("Ids", {1, 1}, {0}, DType::kInt32)
      .Input("X", {1}, {1})
      .ExpectError("multiplex.C1");
  OpTest("multiplex")
      .IntInput("Ids", {1, 1}, {0}, DType::kInt32)
      .Input("X", {1}, {1})
      .Input("X", {2}, {1, 2})
      .ExpectError("multiplex.C2");
  two().IntInput("Ids", {2, 1}, {0, 0}, DType::kInt32).ExpectError("multiplex.C3");
  two().Input("Ids", {1, 1}, {0}).ExpectError("multiplex.C3");
  for (int64_t bad : {-1, 2})
    two().IntInput("Ids", {1, 1}, {bad}, DType::kInt32).ExpectError("outside [0, 2)");
}
}  // namespace coracle::multiplex_test

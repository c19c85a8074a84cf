#include <coracle/test/op_test.h>

namespace coracle::data_norm_test {

// Means {1, 2}, scales {2, 0.5}.
OpTest Norm() {
  OpTest test("data_norm");
  test.Input("BatchSize", {2}, {4, 4})
      .Input("BatchSum", {2}, {4, 8})
      .Input("BatchSquareSum", {2}, {1, 16});
  return test;
}

OpTest Grad() {
  OpTest test("data_norm_grad");
  test.Attr("epsilon", 0.5f)
      .Input("X", {2, 2}, {3, 4, 0, 6})
      .Input("Means", {2}, {1, 2})
      .Input("Scales", {2}, {2, 0.5});
  return test;
}

TEST(DataNorm, Values) {
  Norm()
      .Input("X", {2, 2}, {3, 4, 1, 6})
      .Expect("Y", {2, 2}, {4, 1, 0, 2})
      .Expect("Means", {2}, {1, 2})
      .Expect("Scales", {2}, {2, 0.5});
  Norm()
      .Attr("enable_scale_and_shift", true)
      .Input("X", {2, 2}, {3, 4, 1, 6})
      .Input("scale_w", {2}, {10, 100})
      .Input("bias", {2}, {0.5, -1})
      .Expect("Y", {2, 2}, {40.5, 99, 0.5, 199});
  Norm().Attr("slot_dim", 2).Input("X", {2, 2}, {0, 4, 1, 6}).Expect("Y", {2, 2}, {0, 0, 0, 2});
  Norm().Input("X", {0, 2}, {}).Expect("Y", {0, 2}, {});
}

// Means and Scales depend on the statistics alone.
TEST(DataNorm, Gradients) {
  for (const int32_t slot_dim : {-1, 1, 2}) {
    Norm()
        .Attr("enable_scale_and_shift", true)
        .Attr("slot_dim", slot_dim)
        .Input("X", {3, 2}, {0.5, 1, -1, 2, 3, 4})
        .RandomInput("scale_w", {2})
        .RandomInput("bias", {2})
        .CheckGradient({"X", "scale_w", "bias"});
  }
  Norm().Attr("slot_dim", 2).Input("X", {2, 2}, {3, 4, 1, 6}).CheckGradient({"X"});
}

TEST(DataNorm, GradientsOfStatistics) {
  const std::vector<double> dy = {1, 2, 3, 4};
  Grad()
      .Input("Y@GRAD", {2, 2}, dy)
      .Expect("X@GRAD", {2, 2}, {2, 1, 6, 2})
      .Expect("BatchSize@GRAD", {2}, {2, 2})
      .Expect("BatchSum@GRAD", {2}, {3, 10})
      .Expect("BatchSquareSum@GRAD", {2}, {4 + 1 + 1, 4 + 16 + 1});
  // Means and Scales of each row, as Paddle's tests give them.
  OpTest("data_norm_grad")
      .Attr("epsilon", 0.5f)
      .Input("X", {2, 2}, {3, 4, 0, 6})
      .Input("Means", {2, 2}, {1, 2, -1, 3})
      .Input("Scales", {2, 2}, {2, 0.5, 10, 20})
      .Input("Y@GRAD", {2, 2}, dy)
      .Expect("X@GRAD", {2, 2}, {2, 1, 30, 80})
      .Expect("BatchSize@GRAD", {2}, {2, 2})
      .Expect("BatchSum@GRAD", {2}, {3, 10})
      .Expect("BatchSquareSum@GRAD", {2}, {4 + 1 + 1, 4 + 9 + 1});
  // The second row has no slot; only the first counts.
  Grad()
      .Attr("slot_dim", 2)
      .Input("Y@GRAD", {2, 2}, dy)
      .Expect("X@GRAD", {2, 2}, {2, 1, 0, 0})
      .Expect("BatchSize@GRAD", {2}, {1, 1})
      .Expect("BatchSum@GRAD", {2}, {3, 4})
      .Expect("BatchSquareSum@GRAD", {2}, {4.5, 4.5});
  // Two slots of one column: the first has one row, the second two.
  Grad()
      .Attr("slot_dim", 1)
      .Attr("enable_scale_and_shift", true)
      .Input("scale_w", {2}, {10, 100})
      .Input("bias", {2}, {0, 0})
      .Input("Y@GRAD", {2, 2}, dy)
      .Expect("X@GRAD", {2, 2}, {20, 100, 0, 200})
      .Expect("BatchSize@GRAD", {2}, {1, 1})
      .Expect("BatchSum@GRAD", {2}, {3, 5})
      .Expect("BatchSquareSum@GRAD", {2}, {4.5, 11})
      .Expect("scale_w@GRAD", {2}, {4, 2 * 1 + 4 * 2})
      .Expect("bias@GRAD", {2}, {1, 6});
  // No row at all.
  OpTest("data_norm_grad")
      .Attr("slot_dim", 1)
      .Input("X", {1, 1}, {0})
      .Input("Means", {1}, {1})
      .Input("Scales", {1}, {2})
      .Input("Y@GRAD", {1, 1}, {1})
      .Expect("BatchSize@GRAD", {1}, {0})
      .Expect("BatchSum@GRAD", {1}, {0})
      .Expect("BatchSquareSum@GRAD", {1}, {0});
}

TEST(DataNorm, Constraints) {
  Norm().RandomInput("X", {2}).ExpectError("data_norm.C1");
  Norm().RandomInput("X", {2, 3}).ExpectError("data_norm.C2");
  Norm().Attr("slot_dim", 3).RandomInput("X", {2, 2}).ExpectError("data_norm.C3");
  Norm().Attr("enable_scale_and_shift", true).RandomInput("X", {2, 2}).ExpectError("data_norm.C4");
  Grad().RandomInput("Y@GRAD", {2, 1}).ExpectError("data_norm_grad.C5");
}

}  // namespace coracle::data_norm_test

#include <coracle/test/op_test.h>

namespace coracle::fsp_test {

TEST(Fsp, Values) {
  OpTest("fsp")
      .Input("X", {1, 2, 1, 2}, {1, 2, 3, 4})
      .Input("Y", {1, 1, 1, 2}, {5, 6})
      .Expect("Out", {1, 2, 1}, {8.5, 19.5});
}

TEST(Fsp, EmptySizes) {
  OpTest("fsp")
      .Input("X", {0, 2, 1, 1}, {})
      .Input("Y", {0, 3, 1, 1}, {})
      .Expect("Out", {0, 2, 3}, {});
  OpTest("fsp")
      .Input("X", {1, 1, 0, 1}, {})
      .Input("Y", {1, 1, 0, 1}, {})
      .Expect("Out", {1, 1, 1}, {0});
}

// A third is not exact in float32.
TEST(Fsp, DoublesKeepTheirPrecision) {
  OpTest test("fsp");
  test.Input("X", {1, 1, 1, 3}, {1, 2, 0}).Input("Y", {1, 1, 1, 3}, {1, 0, 0});
  EXPECT_EQ(std::get<Tensor>(test.Run(KernelMode::kReference, true).at("Out.0")).data<double>()[0],
            1.0 / 3);
}

TEST(Fsp, Gradients) {
  OpTest test("fsp");
  test.RandomInput("X", {2, 3, 2, 2}).RandomInput("Y", {2, 2, 2, 2});
  test.CheckGradient({"X", "Y"}).CheckFast().CheckHigherGradients();
}

TEST(Fsp, Constraints) {
  const auto test = [](const Shape& x, const Shape& y) {
    OpTest t("fsp");
    t.RandomInput("X", x).RandomInput("Y", y);
    return t;
  };
  test({1, 2, 2}, {1, 2, 2}).ExpectError("fsp.C1");
  test({1, 1, 2, 2}, {1, 1, 2, 3}).ExpectError("fsp.C2");
  OpTest("fsp")
      .RandomInput("X", {1, 1, 1, 1})
      .TensorInput("Y", Tensor::Zeros(DType::kFloat16, {1, 1, 1, 1}))
      .ExpectError("fsp.C3");
  OpTest("fsp_grad")
      .RandomInput("X", {1, 2, 1, 1})
      .RandomInput("Y", {1, 3, 1, 1})
      .RandomInput("Out@GRAD", {1, 3, 2})
      .ExpectError("fsp_grad.C4");
}

}  // namespace coracle::fsp_test

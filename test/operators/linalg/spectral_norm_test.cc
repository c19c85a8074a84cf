#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::spectral_norm_test {

OpTest Steps(int32_t steps, int32_t dim = 0) {
  OpTest test("spectral_norm");
  test.Attr("power_iters", steps).Attr("dim", dim);
  return test;
}

TEST(SpectralNorm, Values) {
  // Without a step sigma = u^T W v = 2.
  Steps(0)
      .Input("Weight", {2, 2}, {2, 3, 4, 5})
      .Input("U", {2}, {1, 0})
      .Input("V", {2}, {1, 0})
      .Expect("Out", {2, 2}, {1, 1.5, 2, 2.5});
  // The singular values of a diagonal matrix are its elements.
  for (int32_t dim : {0, 1}) {
    Steps(60, dim)
        .Input("Weight", {2, 2, 1}, {4, 0, 0, 2})
        .Input("U", {2}, {1, 1})
        .Input("V", {2}, {1, 1})
        .Expect("Out", {2, 2, 1}, {1, 0, 0, 0.5});
  }
  // One step on W = [[3, 4]] with dim 1, a column: u = [3, 4] / 5.
  Steps(1, 1)
      .Input("Weight", {1, 2}, {3, 4})
      .Input("U", {2}, {1, 0})
      .Input("V", {1}, {1})
      .Expect("Out", {1, 2}, {0.6, 0.8});
  Steps(1)
      .Input("Weight", {0, 2}, {})
      .Input("U", {0}, {})
      .Input("V", {2}, {1, 1})
      .Expect("Out", {0, 2}, {});
}

// Without steps u and v are constants indeed.
TEST(SpectralNorm, Gradients) {
  for (int32_t dim : {0, 1}) {
    OpTest test = Steps(0, dim);
    test.RandomInput("Weight", {3, 3, 2}, 0.5, 2).RandomInput("U", {3}, 0.5, 1);
    test.RandomInput("V", {6}, 0.5, 1).CheckGradient({"Weight"});
  }
  // After many, the iterations are at their fixed point, whose first derivative is 0.
  OpTest test = Steps(200);
  test.RandomInput("Weight", {2, 3}).RandomInput("U", {2}, 0.5, 1).RandomInput("V", {3}, 0.5, 1);
  test.CheckGradient({"Weight"}).CheckHigherGradients(1);
}

TEST(SpectralNorm, Constraints) {
  const auto test = [](const Shape& weight, int64_t u, int64_t v, int32_t dim) {
    OpTest t = Steps(1, dim);
    t.RandomInput("Weight", weight).RandomInput("U", {u}).RandomInput("V", {v});
    return t;
  };
  test({2, 3}, 2, 3, 2).ExpectError("spectral_norm.C1");
  test({2}, 2, 1, 0).ExpectError("spectral_norm.C1");
  test({2, 3}, 3, 2, 0).ExpectError("spectral_norm.C2");
  Steps(1)
      .RandomInput("Weight", {1, 1})
      .IntInput("U", {1}, {1})
      .RandomInput("V", {1})
      .ExpectError("spectral_norm.C3");
  OpTest("spectral_norm_grad")
      .RandomInput("Weight", {1, 2})
      .RandomInput("U", {1})
      .RandomInput("V", {2})
      .RandomInput("Out@GRAD", {2, 1})
      .ExpectError("spectral_norm_grad.C4");
}

}  // namespace coracle::spectral_norm_test

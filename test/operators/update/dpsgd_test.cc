#include <coracle/test/operators/update_test.h>

#include <cmath>

namespace coracle::dpsgd_test {

UpdateCase Case(float clip, float sigma) {
  return {"dpsgd", {{"clip", clip}, {"batch_size", 4.0f}, {"sigma", sigma}, {"seed", 5}}, {}};
}

// |Grad| = sqrt(1.25) is clipped to 0.5.
TEST(Dpsgd, WithoutNoise) {
  Case(0.5f, 0).Make().Expect("ParamOut", {3}, {0.977639320225, -1.95527864045, 0.5});
  Case(2, 0).Make().Expect("ParamOut", {3}, {0.95, -1.9, 0.5});
}

// One draw for all elements; over many steps its standard deviation is 0.1 sigma / batch_size.
TEST(Dpsgd, Noise) {
  double sum = 0, squares = 0;
  const int steps = 2000;
  for (int step = 0; step < steps; ++step) {
    const Tensor out = Case(2, 2).Make().Step(static_cast<uint64_t>(step)).Output("ParamOut");
    const auto p = out.span<float>();
    const double noise = p[2] - 0.5;
    EXPECT_NEAR(p[0] - 0.95, noise, 1e-6);
    EXPECT_NEAR(p[1] + 1.9, noise, 1e-6);
    sum += noise;
    squares += noise * noise;
  }
  EXPECT_NEAR(sum / steps, 0, 0.005);
  EXPECT_NEAR(std::sqrt(squares / steps), 0.05, 0.003);
}

TEST(Dpsgd, Edges) { Case(2, 0).CheckEdges(); }

TEST(Dpsgd, C3_ClipAndBatchSize) {
  Case(0, 1).Make().ExpectError("dpsgd.C3");
  UpdateCase none = Case(1, 1);
  none.attrs[1].value = 0.0f;
  none.Make().ExpectError("dpsgd.C3");
}
}  // namespace coracle::dpsgd_test

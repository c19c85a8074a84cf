#include <coracle/framework/base/resource_limits.h>
#include <coracle/test/operators/update_test.h>

#include <cmath>

namespace coracle::lars_momentum_test {

UpdateCase Case(float decay) {
  return {"lars_momentum",
          {{"mu", 0.5f},
           {"lars_coeff", 0.25f},
           {"lars_weight_decay", decay},
           {"epsilon", 0.5f},
           {"rescale_grad", decay > 0 ? 2.0f : 1.0f}},
          {{"Velocity", "VelocityOut", {0.5, 0, -0.25}}},
          {"LearningRate"},
          {0.1},
          {"MasterParamOut"}};
}

// |Param| = sqrt(5.25), |2 Grad| = sqrt(5): the rate is 0.025 sqrt(5.25) / (sqrt(5) +
// sqrt(5.25) / 8
// + 0.5).
TEST(LarsMomentum, Values) {
  Case(0.125f)
      .Make()
      .Expect("VelocityOut", {3}, {0.271321065125, -0.042642130249, -0.123815496382})
      .Expect("ParamOut", {3}, {0.728678934875, -1.957357869751, 0.623815496382});
}

// Without weight decay this is momentum.
TEST(LarsMomentum, WithoutDecay) {
  Case(0)
      .Make()
      .Expect("VelocityOut", {3}, {0.3, -0.1, -0.125})
      .Expect("ParamOut", {3}, {0.7, -1.9, 0.625});
}

TEST(LarsMomentum, InfiniteParameterAndLargeNumbers) {
  OpTest infinite("lars_momentum");
  infinite.Attr("mu", 0.5f).Attr("lars_weight_decay", 0.f).NoOutput("MasterParamOut");
  infinite.Input("Param", {1}, {HUGE_VAL}).Input("Grad", {1}, {1}).Input("Velocity", {1}, {0});
  infinite.Input("LearningRate", {1}, {0.5}).Expect("ParamOut", {1}, {HUGE_VAL});
  // |Param| / |g| = 1, though squares overflow: the rate is 0.5 0.25 / 1.125.
  OpTest large("lars_momentum");
  large.Attr("mu", 0.5f).Attr("lars_coeff", 0.25f).Attr("lars_weight_decay", 0.125f);
  large.NoOutput("MasterParamOut").TensorInput("Param", Tensor::Full<double>({2}, 1e200));
  large.TensorInput("Grad", Tensor::Full<double>({2}, 1e200));
  large.TensorInput("Velocity", Tensor::Zeros(DType::kFloat64, {2}));
  large.TensorInput("LearningRate", Tensor::Full<double>({1}, 0.5));
  large.Expect("VelocityOut", {2}, {0.125e200, 0.125e200}, 1e-7);
}

// The norm is computed from MasterParam too.
TEST(LarsMomentum, MasterParam) {
  UpdateCase plain = Case(0.125f);
  plain.absent.clear();
  OpTest test = plain.Make();
  test.Input("MasterParam", {3}, {2, -1, 0.25});
  UpdateCase other = Case(0.125f);
  OpTest expected("lars_momentum");
  for (const NamedAttr& attr : other.attrs) expected.Attr(attr.name, attr.value);
  expected.NoOutput("MasterParamOut")
      .Input("Param", {3}, {2, -1, 0.25})
      .Input("Grad", {3}, {0.5, -1, 0})
      .Input("Velocity", {3}, {0.5, 0, -0.25})
      .Input("LearningRate", {1}, {0.1});
  for (const char* out : {"ParamOut", "MasterParamOut"})
    EXPECT_TRUE(BitEqual(test.Output(out), expected.Output("ParamOut"))) << out;
  EXPECT_TRUE(BitEqual(test.Output("VelocityOut"), expected.Output("VelocityOut")));
}

TEST(LarsMomentum, C3_MasterParamWithoutItsOutput) {
  Case(0).Make().Input("MasterParam", {3}, {1, 2, 3}).ExpectError("lars_momentum.C3");
}

TEST(LarsMomentum, Edges) { Case(0.125f).CheckEdges(); }

TEST(LarsMomentum, SameBitsForAnyNumberOfThreads) {
  OpTest test("lars_momentum");
  test.Attr("mu", 0.5f).NoOutput("MasterParamOut");
  for (const char* slot : {"Param", "Grad", "Velocity"}) test.RandomInput(slot, {70001});
  test.Input("LearningRate", {1}, {0.1});
  const int threads = NumThreads();
  SetNumThreads(1);
  const Tensor one = test.Output("ParamOut");
  SetNumThreads(2);
  const Tensor two = test.Output("ParamOut");
  SetNumThreads(threads);
  EXPECT_TRUE(BitEqual(one, two));
}
}  // namespace coracle::lars_momentum_test

#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <cmath>
#include <limits>

namespace coracle::fused_elemwise_activation_test {

using Names = std::vector<std::string>;

OpTest Fused(const Names& functors, const std::string& type = "fused_elemwise_activation") {
  OpTest test(type);
  test.Attr("functor_list", functors);
  return test;
}

TEST(FusedElemwiseActivation, Values) {
  for (const std::string type : {"fused_elemwise_activation", "fused_elemwise_add_activation"}) {
    Fused({"relu", "elementwise_add"}, type)
        .Input("X", {2, 2}, {1, -2, 3, -4})
        .Input("Y", {2}, {0.5, 1})
        .Expect("IntermediateOut", {2, 2}, {1.5, -1, 3.5, -3})
        .Expect("Out", {2, 2}, {1.5, 0, 3.5, 0});
    // Y before: its unary function has its shape. X is the smaller operand.
    Fused({"elementwise_mul", "scale"}, type)
        .Attr("scale", 2.f)
        .Attr("axis", 0)
        .Input("X", {2}, {10, 100})
        .Input("Y", {2, 2}, {1, 2, 3, 4})
        .Expect("IntermediateOut", {2, 2}, {2, 4, 6, 8})
        .Expect("Out", {2, 2}, {20, 40, 600, 800});
  }
  const double x = 0.7;
  const double g = x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  Fused({"gelu", "elementwise_add"})
      .Input("X", {1}, {0.5})
      .Input("Y", {1}, {0.2})
      .Expect("Out", {1}, {g}, 1e-6);
  Fused({"gelu", "elementwise_add"})
      .Input("X", {1}, {-HUGE_VAL})
      .Input("Y", {1}, {0.2})
      .Expect("Out", {1}, {0});
  Fused({"elementwise_add", "tanh"})
      .Input("X", {1}, {1})
      .Input("Y", {1}, {0.2})
      .Expect("Out", {1}, {1 + std::tanh(0.2)}, 1e-6);
  Fused({"elementwise_mul", "sigmoid"})
      .Input("X", {1}, {2})
      .Input("Y", {1}, {0.2})
      .Expect("Out", {1}, {2 / (1 + std::exp(-0.2))}, 1e-6);
  Fused({"relu", "elementwise_mul"})
      .Input("X", {0, 2}, {})
      .Input("Y", {2}, {1, 2})
      .Expect("Out", {0, 2}, {});
}

// relu(-inf) is 0, so dX = 0.
TEST(FusedElemwiseActivation, GradientAtInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor dx = GradientOf(
      "fused_elemwise_activation", {{"functor_list", Names{"elementwise_mul", "relu"}}},
      {{"X", Tensor::Of<float>({3}, {1, 2, 3})}, {"Y", Tensor::Of<float>({3}, {-infinity, 4, -1})}},
      "X");
  EXPECT_EQ(NumbersOf(dx), (std::vector<double>{0, 4, 0}));
}

TEST(FusedElemwiseActivation, Gradients) {
  for (const char* unary : {"scale", "relu", "tanh", "sigmoid", "gelu"}) {
    for (const char* binary : {"elementwise_add", "elementwise_mul"}) {
      for (const Names& functors : {Names{unary, binary}, Names{binary, unary}}) {
        Fused(functors)
            .Attr("scale", 1.5f)
            .RandomInput("X", {2, 3}, 0.5, 1)
            .RandomInput("Y", {3}, 0.2, 0.4)
            .NoOutput("IntermediateOut")
            .CheckGradient({"X", "Y"});
      }
    }
  }
  for (const std::string type : {"fused_elemwise_activation", "fused_elemwise_add_activation"}) {
    Fused({"tanh", "elementwise_mul"}, type)
        .RandomInput("X", {2, 3})
        .RandomInput("Y", {3})
        .NoOutput("IntermediateOut")
        .CheckGradient({"X", "Y"});
    Fused({"tanh", "elementwise_mul"}, type)
        .RandomInput("X", {2, 3})
        .RandomInput("Y", {3})
        .NoOutput("IntermediateOut")
        .CheckHigherGradients(2);
  }
}

TEST(FusedElemwiseActivation, Constraints) {
  for (const std::string type : {"fused_elemwise_activation", "fused_elemwise_add_activation"}) {
    const auto op = [&](const Shape& x, const Shape& y, int32_t axis) {
      return std::move(Fused({"relu", "elementwise_add"}, type)
                           .Attr("axis", axis)
                           .RandomInput("X", x)
                           .RandomInput("Y", y));
    };
    op({2, 3}, {3}, -2).ExpectError(type + ".C1");
    op({2, 3}, {3}, 2).ExpectError(type + ".C2");
    op({2, 3}, {2}, -1).ExpectError(type + ".C3");
    Fused({"relu", "elementwise_add"}, type)
        .RandomInput("X", {1})
        .TensorInput("Y", Tensor::Zeros(DType::kFloat16, {1}))
        .ExpectError(type + ".C4");
    for (const Names& functors : {Names{}, Names{"relu", "tanh"}, Names{"exp", "elementwise_add"},
                                  Names{"elementwise_add", "elementwise_mul"}})
      Fused(functors, type).RandomInput("X", {1}).RandomInput("Y", {1}).ExpectError(type + ".C5");
  }
}

}  // namespace coracle::fused_elemwise_activation_test

#include <cmath>

#include "../../op_test.h"

namespace coracle {
namespace {

const std::string kType = "fused_residual_layer_norm";
const std::string kGradients = "fused_residual_layer_norm_gradients";

OpTest Forward(const Shape& x, const Shape& y, int32_t axis, int64_t columns) {
  OpTest test(kType);
  test.Attr("begin_norm_axis", axis)
      .RandomInput("X", x)
      .RandomInput("Y", y)
      .RandomInput("Scale", {columns}, 0.5, 2)
      .RandomInput("Bias", {columns});
  return test;
}

OpTest Grad(const Shape& x, int32_t axis, int64_t rows, int64_t columns) {
  OpTest test(kGradients);
  test.Attr("begin_norm_axis", axis)
      .RandomInput("X", x)
      .RandomInput("Scale", {columns}, 0.5, 2)
      .RandomInput("Mean", {rows})
      .RandomInput("Variance", {rows}, 0.5, 2)
      .RandomInput("Out@GRAD", x);
  return test;
}

Tensor Mask(const Shape& shape, uint32_t state = 1) {
  Tensor mask(DType::kUInt8, shape);
  for (uint8_t& kept : mask.span<uint8_t>()) {
    state = state * 1664525u + 1013904223u;
    kept = state >> 24 > 80;
  }
  return mask;
}

// Rows {1, 3} and {4, 12}: means 2 and 8, variances 1 and 16.
TEST(FusedResidualLayerNorm, Values) {
  OpTest(kType)
      .Attr("epsilon", 0.0f)
      .Input("X", {2, 2}, {1, 2, 0, 10})
      .Input("Y", {2, 2}, {0, 1, 4, 2})
      .Input("Scale", {2}, {10, 2})
      .Input("Bias", {2}, {5, 1})
      .NoOutput("Mask")
      .Expect("Sum", {2, 2}, {1, 3, 4, 12})
      .Expect("Out", {2, 2}, {-5, 3, -5, 3})
      .Expect("Mean", {2}, {2, 8})
      .Expect("Variance", {2}, {1, 16});
}

TEST(FusedResidualLayerNorm, WithoutTheSum) {
  for (const char* term : {"X", "Y"}) {
    OpTest(kType)
        .Attr("epsilon", 0.0f)
        .Input("X", {2, 2}, {1, 2, 0, 10})
        .Input("Y", {2, 2}, {0, 1, 4, 2})
        .NoOutput("Mask")
        .NoOutput("Sum")
        .Expect("Out", {2, 2}, {-1, 1, -1, 1});
    OpTest(kType)
        .Attr("epsilon", 0.0f)
        .Input("X", {2, 2}, {1, 2, 0, 10})
        .Input("Y", {2, 2}, {0, 1, 4, 2})
        .NoOutput("Mask")
        .InPlace(term, "Sum")
        .Expect("Out", {2, 2}, {-1, 1, -1, 1});
  }
}

TEST(FusedResidualLayerNorm, RepeatedTerms) {
  for (const bool first : {false, true}) {
    OpTest(kType)
        .Attr("epsilon", 0.0f)
        .Input(first ? "X" : "Y", {2, 2}, {0, 2, 3, 11})
        .Input(first ? "Y" : "X", {2}, {1, 1})
        .NoOutput("Mask")
        .Expect("Sum", {2, 2}, {1, 3, 4, 12})
        .Expect("Out", {2, 2}, {-1, 1, -1, 1});
  }
}

// With xh = X and g = Out@GRAD: g - mean(g) - xh mean(g xh) = {3, 0, 0} - 1 - {1, 0, -1}.
TEST(FusedResidualLayerNorm, GradientValues) {
  const auto grad = [] {
    OpTest test(kGradients);
    test.Attr("epsilon", 0.0f)
        .Input("X", {1, 3}, {1, 0, -1})
        .Input("Mean", {1}, {0})
        .Input("Variance", {1}, {1})
        .Input("Out@GRAD", {1, 3}, {3, 0, 0});
    return test;
  };
  grad()
      .Expect("A@GRAD", {1, 3}, {1, -1, 0})
      .Expect("B@GRAD", {1, 3}, {1, -1, 0})
      .Expect("Scale@GRAD", {3}, {3, 0, 0})
      .Expect("Bias@GRAD", {3}, {3, 0, 0});
  const std::vector<double> sum = {11, 19, 30}, dropped = {22, 0, 60};
  for (const bool first : {false, true}) {
    Tensor mask(DType::kUInt8, {1, 3});
    for (int64_t i = 0; i < 3; ++i) mask.data<uint8_t>()[i] = i != 1;
    grad()
        .Attr("dropped", std::string(first ? "A" : "B"))
        .Attr("dropout_prob", 0.5f)
        .Input("Sum@GRAD", {1, 3}, {10, 20, 30})
        .TensorInput("Mask", mask)
        .Expect("A@GRAD", {1, 3}, first ? dropped : sum)
        .Expect("B@GRAD", {1, 3}, first ? sum : dropped);
  }
  grad()
      .Input("B", {1}, {7})
      .Input("Sum@GRAD", {1, 3}, {10, 20, 30})
      .Expect("A@GRAD", {1, 3}, sum)
      .Expect("B@GRAD", {1}, {60});
}

TEST(FusedResidualLayerNorm, FastKernels) {
  struct Case {
    Shape shape;
    int32_t axis;
    int64_t columns;
  };
  for (const Case& c : {Case{{1, 1}, 1, 1}, Case{{3, 5}, 1, 5}, Case{{2, 3, 17}, 2, 17},
                        Case{{2, 3, 17}, 1, 51}, Case{{70, 64}, 1, 64}, Case{{3, 2500}, 1, 2500}}) {
    for (const char* dropped : {"", "X", "Y"}) {
      SCOPED_TRACE(c.shape.ToString() + dropped);
      Forward(c.shape, c.shape, c.axis, c.columns)
          .Attr("dropped", std::string(dropped))
          .Attr("dropout_prob", 0.3f)
          .Seed(7)
          .CheckFast(1e-5);
    }
    for (const char* dropped : {"", "A", "B"}) {
      for (const char* absent : {"", "A@GRAD", "B@GRAD", "Scale@GRAD"}) {
        for (const bool more : {false, true}) {
          SCOPED_TRACE(c.shape.ToString() + dropped + absent);
          OpTest test = Grad(c.shape, c.axis, c.shape.numel() / c.columns, c.columns);
          test.Attr("dropped", std::string(dropped)).Attr("dropout_prob", 0.3f);
          if (*dropped) test.TensorInput("Mask", Mask(c.shape));
          if (*absent) test.NoOutput(absent);
          if (more) test.RandomInput("Sum@GRAD", c.shape);
          test.CheckFast(1e-4);
        }
      }
    }
  }
  Forward({0, 3}, {0, 3}, 1, 3).CheckFast();
  Grad({0, 3}, 1, 0, 3).CheckFast();
}

TEST(FusedResidualLayerNorm, Constraints) {
  const std::string id = kType + ".";
  Forward({2, 3}, {2, 3}, 2, 3).ExpectError(id + "C1");
  Forward({2, 3}, {2, 3}, 1, 2).ExpectError(id + "C2");
  Forward({2, 3}, {2, 4}, 1, 3).ExpectError(id + "C4");
  OpTest(kType)
      .RandomInput("X", {2, 3})
      .TensorInput("Y", Tensor::Zeros(DType::kInt64, {2, 3}))
      .ExpectError(id + "C3");
}

TEST(FusedResidualLayerNorm, ConstraintsOfTheGradient) {
  const std::string id = kGradients + ".";
  Grad({2, 3}, 2, 2, 3).ExpectError(id + "C1");
  Grad({2, 3}, 1, 2, 2).ExpectError(id + "C2");
  Grad({2, 3}, 1, 2, 3)
      .TensorInput("Sum@GRAD", Tensor::Zeros(DType::kInt64, {2, 3}))
      .ExpectError(id + "C3");
  Grad({2, 3}, 1, 2, 3).RandomInput("A", {3, 2}).ExpectError(id + "C4");
  Grad({2, 3}, 1, 3, 3).ExpectError(id + "C5");
  Grad({2, 3}, 1, 2, 3).RandomInput("Sum@GRAD", {3, 3}).ExpectError(id + "C6");
  Grad({2, 3}, 1, 2, 3).Attr("dropped", std::string("A")).ExpectError(id + "C7");
  Grad({2, 3}, 1, 2, 3)
      .Attr("dropped", std::string("B"))
      .RandomInput("B", {2, 3})
      .TensorInput("Mask", Mask({3, 3}))
      .ExpectError(id + "C7");
}

}  // namespace
}  // namespace coracle

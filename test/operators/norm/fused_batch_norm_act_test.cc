#include <coracle/test/op_test.h>
#include <coracle/test/operators/inferred_shape.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace coracle::fused_batch_norm_act_test {

const char* const kPlain = "fused_batch_norm_act";
const char* const kWithSum = "fused_bn_add_activation";

int64_t ChannelsOf(const Shape& x, bool last) { return x[last ? x.rank() - 1 : 1]; }

// With Z of the given shape, or without Z.
OpTest Fused(const Shape& x, bool last, const Shape* z = nullptr) {
  OpTest test(z ? kWithSum : kPlain);
  const int64_t channels = ChannelsOf(x, last);
  test.Attr("data_layout", std::string(last ? "NHWC" : "NCHW")).RandomInput("X", x);
  if (z) test.RandomInput("Z", *z);
  test.RandomInput("Scale", {channels}, 0.5, 2)
      .RandomInput("Bias", {channels})
      .RandomInput("Mean", {channels})
      .RandomInput("Variance", {channels}, 0.5, 2);
  return test;
}

OpTest& WithoutRunning(OpTest& test) { return test.NoOutput("MeanOut").NoOutput("VarianceOut"); }

OpTest Grad(const char* type, const Shape& x, int64_t channels) {
  OpTest test(std::string(type) + "_grad");
  test.RandomInput("X", x).RandomInput("Scale", {channels}).RandomInput("Y", x);
  return test;
}

// Channel {1, 3}: mean 2, biased variance 1. Epsilon 0 keeps the numbers whole.
TEST(FusedBatchNormAct, Values) {
  OpTest test(kPlain);
  test.Attr("epsilon", 0.0f)
      .Attr("momentum", 0.75f)
      .Input("X", {2, 1, 1, 2}, {1, 30, 3, 10})
      .Input("Scale", {2}, {10, 1})
      .Input("Bias", {2}, {5, 2})
      .Input("Mean", {2}, {4, 0})
      .Input("Variance", {2}, {9, 0})
      .InPlace("Mean", "MeanOut")
      .InPlace("Variance", "VarianceOut")
      .Expect("Y", {2, 1, 1, 2}, {0, 3, 15, 1})
      .Expect("MeanOut", {2}, {4 * 0.75 + 2 * 0.25, 5})
      .Expect("VarianceOut", {2}, {9 * 0.75 + 1 * 0.25, 25})
      .Expect("SavedMean", {2}, {2, 20})
      .Expect("SavedVariance", {2}, {1, 0.1});
}

TEST(FusedBatchNormAct, ValuesWithASum) {
  OpTest test(kWithSum);
  test.Attr("epsilon", 0.0f)
      .Attr("data_layout", "NCHW")
      .Input("X", {2, 1, 1, 1}, {1, 3})
      .Input("Z", {2, 1, 1, 1}, {4, -20})
      .Input("Scale", {1}, {10})
      .Input("Bias", {1}, {7})
      .Input("Mean", {1}, {4})
      .Input("Variance", {1}, {9})
      .Expect("Y", {2, 1, 1, 1}, {1, 0})
      .Expect("SavedMean", {1}, {2});
}

// As elementwise_add would: Z is repeated, or what is normalised.
TEST(FusedBatchNormAct, SumsOfDifferentShapes) {
  const auto op = [](const Shape& x, const std::vector<double>& xs, const Shape& z,
                     const std::vector<double>& zs) {
    OpTest test(kWithSum);
    test.Attr("epsilon", 0.0f)
        .Attr("data_layout", "NCHW")
        .Input("X", x, xs)
        .Input("Z", z, zs)
        .Input("Scale", {1}, {1})
        .Input("Bias", {1}, {0})
        .Input("Mean", {1}, {0})
        .Input("Variance", {1}, {0});
    return test;
  };
  op({2, 1, 1}, {1, 3}, {1, 1, 1}, {5}).Expect("Y", {2, 1, 1}, {4, 6});
  op({2, 1, 1}, {1, 3}, {1}, {5}).Expect("Y", {2, 1, 1}, {4, 6});
  op({1, 1, 2}, {1, 3}, {2, 1, 1}, {5, 0}).Expect("Y", {2, 1, 2}, {4, 6, 0, 1});
  op({1, 1, 2}, {1, 3}, {2, 1, 1, 1}, {5, 0}).Expect("Y", {2, 1, 1, 2}, {4, 6, 0, 1});
}

TEST(FusedBatchNormAct, OneElementPerChannelPassesThrough) {
  const Shape shape{1, 2};
  OpTest test(kWithSum);
  test.Input("X", shape, {3, -4})
      .Input("Z", shape, {1, 1})
      .Input("Scale", {2}, {5, 5})
      .Input("Bias", {2}, {1, 1})
      .Input("Mean", {2}, {7, 8})
      .Input("Variance", {2}, {9, 10})
      .Expect("Y", shape, {4, 0})
      .Expect("MeanOut", {2}, {7, 8})
      .Expect("VarianceOut", {2}, {9, 10});
  OpTest("fused_bn_add_activation_grad")
      .Input("X", shape, {3, -4})
      .Input("Scale", {2}, {5, 5})
      .Input("Y", shape, {4, 0})
      .Input("Y@GRAD", shape, {2, 3})
      .Expect("X@GRAD", shape, {2, 0})
      .Expect("Z@GRAD", shape, {2, 0})
      .Expect("Scale@GRAD", {2}, {0, 0})
      .Expect("Bias@GRAD", {2}, {0, 0});
}

TEST(FusedBatchNormAct, EmptyBatch) {
  const Shape shape{0, 2, 1, 1};
  Fused(shape, false, &shape).Expect("Y", shape, {});
  Fused(shape, false).Expect("Y", shape, {});
}

// xh = {-1, 1}, the gradient of norm(X) is {0, 4}: Scale@GRAD = 4, Bias@GRAD = 4,
// X@GRAD = 10 ({0, 4} - 2 - 2 xh) = 0.
TEST(FusedBatchNormAct, GradientValues) {
  OpTest("fused_bn_add_activation_grad")
      .Input("X", {2, 1}, {1, 3})
      .Input("Scale", {1}, {10})
      .Input("SavedMean", {1}, {2})
      .Input("SavedVariance", {1}, {1})
      .Input("Y", {2, 1}, {0, 15})
      .Input("Y@GRAD", {2, 1}, {3, 4})
      .Expect("X@GRAD", {2, 1}, {0, 0})
      .Expect("Z@GRAD", {2, 1}, {0, 4})
      .Expect("Scale@GRAD", {1}, {4})
      .Expect("Bias@GRAD", {1}, {4});
}

// Elements that relu set to 0 get no gradient, not even a nan; a nan in Y was not set to 0.
TEST(FusedBatchNormAct, GradientsOfNan) {
  OpTest("fused_bn_add_activation_grad")
      .Input("X", {2, 1}, {1, 3})
      .Input("Scale", {1}, {10})
      .Input("SavedMean", {1}, {2})
      .Input("SavedVariance", {1}, {1})
      .Input("Y", {2, 1}, {0, std::nan("")})
      .Input("Y@GRAD", {2, 1}, {std::nan(""), 4})
      .Expect("X@GRAD", {2, 1}, {0, 0})
      .Expect("Z@GRAD", {2, 1}, {0, 4})
      .Expect("Scale@GRAD", {1}, {4})
      .Expect("Bias@GRAD", {1}, {4});
}

TEST(FusedBatchNormAct, Gradients) {
  for (const bool last : {false, true}) {
    const Shape x{3, 2, 4, 2};
    OpTest plain = Fused(x, last);
    WithoutRunning(plain).CheckGradient({"X", "Scale", "Bias"});
    for (const Shape& z : {x, Shape{1, 2, 4, 1}, Shape{2}, Shape{2, 3, 2, 4, 2}}) {
      SCOPED_TRACE(z.ToString());
      OpTest with_sum = Fused(x, last, &z);
      WithoutRunning(with_sum).CheckGradient({"X", "Z", "Scale", "Bias"});
    }
  }
  const Shape x{1, 3, 4}, z{5, 3, 4};
  OpTest repeated = Fused(x, false, &z);
  WithoutRunning(repeated).CheckGradient({"X", "Z", "Scale", "Bias"});
}

TEST(FusedBatchNormAct, FastAgainstReference) {
  std::mt19937 random(11);
  auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    const bool last = pick(0, 1);
    const int64_t channels = pick(1, last ? 140 : 40);
    Shape shape{pick(1, 5)};
    const int rank = pick(2, 5);
    for (int axis = 1; axis < rank; ++axis) {
      const bool is_channel = last ? axis == rank - 1 : axis == 1;
      shape.Append(is_channel ? channels : pick(1, 9));
    }
    SCOPED_TRACE(::testing::Message() << "trial " << trial << " " << shape.ToString());
    const int kind = pick(0, 3);
    Shape z = shape;
    if (kind == 3) z[0] = 1;  // left to the reference kernel
    // Groups of two or three elements have tiny variances now and then: keep 1 / sqrt tame.
    Fused(shape, last, kind > 0 ? &z : nullptr).Attr("epsilon", 1e-2f).CheckFast();
  }
}

TEST(FusedBatchNormAct, FastAgainstReferenceManyRows) {
  for (const auto& [x, last] : std::vector<std::pair<Shape, bool>>{{{70, 15, 5, 3}, true},
                                                                   {{40, 9, 9, 16}, true},
                                                                   {{9, 3, 40, 50}, false},
                                                                   {{2, 5, 300, 301}, false}}) {
    Fused(x, last).CheckFast(1e-3);
    Fused(x, last, &x).CheckFast(1e-3);
  }
}

// Some gradients are not wanted.
TEST(FusedBatchNormAct, FastPartsOfTheGradient) {
  const Shape x{4, 3, 5, 6};
  for (const char* absent : {"X@GRAD", "Z@GRAD", "Scale@GRAD", "Bias@GRAD"}) {
    Grad(kWithSum, x, 6).RandomInput("Y@GRAD", x).NoOutput(absent).CheckFast();
    OpTest only = Grad(kWithSum, x, 6);
    only.RandomInput("Y@GRAD", x);
    for (const char* other : {"X@GRAD", "Z@GRAD", "Scale@GRAD", "Bias@GRAD"})
      if (std::string(other) != absent) only.NoOutput(other);
    only.CheckFast();
  }
}

// With the statistics 0 and 1, Y = relu(Scale X + Bias), which is never near 0 here.
TEST(FusedBatchNormAct, MaskFromX) {
  for (const auto& [shape, last] :
       std::vector<std::pair<Shape, bool>>{{{7, 5, 3, 6}, true}, {{7, 3, 5, 21}, false}}) {
    const int64_t channels = ChannelsOf(shape, last), inner = last ? 1 : shape.Product(2, 4);
    std::vector<double> x, y, scale, bias, zero(static_cast<size_t>(channels), 0.0);
    for (int64_t c = 0; c < channels; ++c) {
      scale.push_back(c % 2 ? -1 : 2);
      bias.push_back(static_cast<double>(c));
    }
    for (int64_t i = 0; i < shape.numel(); ++i) {
      const auto c = static_cast<size_t>(i / inner % channels);
      x.push_back(static_cast<double>(i * 37 % 23) - 10.75);
      y.push_back(std::max(scale[c] * x.back() + bias[c], 0.0));
    }
    OpTest test("fused_batch_norm_act_grad");
    test.Attr("data_layout", std::string(last ? "NHWC" : "NCHW"))
        .Attr("mask_from_x", true)
        .Input("X", shape, x)
        .Input("Scale", {channels}, scale)
        .Input("Bias", {channels}, bias)
        .Input("SavedMean", {channels}, zero)
        .Input("SavedVariance", {channels}, std::vector<double>(zero.size(), 1.0))
        .Input("Y", shape, y)
        .RandomInput("Y@GRAD", shape)
        .CheckFast();
  }
}

// Even if the mean is far from 0, the mask made from X equals the mask made from Y.
TEST(FusedBatchNormAct, MaskFromXOfLargeMeans) {
  for (const bool last : {false, true}) {
    SCOPED_TRACE(last);
    const Shape shape = last ? Shape{40, 50, 3} : Shape{40, 3, 50};
    OpTest forward(kPlain);
    forward.Attr("data_layout", std::string(last ? "NHWC" : "NCHW"));
    OpTest grad("fused_batch_norm_act_grad");
    grad.Attr("data_layout", std::string(last ? "NHWC" : "NCHW")).Attr("mask_from_x", true);
    std::vector<double> x;
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < shape.numel(); ++i) {
      const double means[] = {0, 1e4, -1e5};
      x.push_back(means[last ? i % 3 : i / 50 % 3] + normal(random));
    }
    for (OpTest* test : {&forward, &grad}) {
      test->Input("X", shape, x).Input("Scale", {3}, {1, 1, 1}).Input("Bias", {3}, {0, 0, 0});
    }
    forward.Input("Mean", {3}, {0, 0, 0}).Input("Variance", {3}, {0, 0, 0});
    const Tensor y = forward.Output("Y");
    std::vector<double> positive(3, 0.0), ones(x.size(), 1.0);
    for (int64_t i = 0; i < shape.numel(); ++i)
      positive[static_cast<size_t>(last ? i % 3 : i / 50 % 3)] += y.data<float>()[i] > 0;
    const Tensor sums = grad.TensorInput("SavedMean", forward.Output("SavedMean"))
                            .TensorInput("SavedVariance", forward.Output("SavedVariance"))
                            .TensorInput("Y", y)
                            .Input("Y@GRAD", shape, ones)
                            .Output("Bias@GRAD");
    for (int64_t c = 0; c < 3; ++c)
      EXPECT_EQ(sums.data<float>()[c], positive[static_cast<size_t>(c)]) << c;
  }
}

TEST(FusedBatchNormAct, UnknownDimsWhileBuilding) {
  const std::vector<std::pair<std::string, Shape>> ins = {
      {"X", {-1, -1, 4, 3}}, {"Z", {-1, 6, 4, 3}}, {"Scale", {3}},
      {"Bias", {3}},         {"Mean", {3}},        {"Variance", {-1}}};
  EXPECT_EQ("[-1, 6, 4, 3]", InferredShape(kWithSum, ins, "Y", {}));
  EXPECT_EQ("[3]", InferredShape(kWithSum, ins, "MeanOut", {}));
}

TEST(FusedBatchNormAct, C1_Rank) {
  const Shape x{2};
  OpTest(Fused(x, true)).ExpectError("fused_batch_norm_act.C1");
  OpTest(Fused(x, true, &x)).ExpectError("fused_bn_add_activation.C1");
  Grad(kPlain, x, 2).RandomInput("Y@GRAD", x).ExpectError("fused_batch_norm_act_grad.C1");
  Grad(kWithSum, x, 2).RandomInput("Y@GRAD", x).ExpectError("fused_bn_add_activation_grad.C1");
}
TEST(FusedBatchNormAct, C2_Channels) {
  const Shape x{2, 3};
  for (const bool add : {false, true}) {
    const std::string type = add ? kWithSum : kPlain;
    OpTest test(type);
    test.RandomInput("X", x);
    if (add) test.RandomInput("Z", x);
    test.RandomInput("Scale", {2}).RandomInput("Bias", {3}).RandomInput("Mean", {3});
    test.RandomInput("Variance", {3}).ExpectError(type + ".C2");
    Grad(type.c_str(), x, 2).RandomInput("Y@GRAD", x).ExpectError(type + "_grad.C2");
  }
}
TEST(FusedBatchNormAct, C3_DTypes) {
  const Shape x{2, 3};
  const Tensor half = Tensor::Zeros(DType::kFloat16, {3});
  for (const bool add : {false, true}) {
    const std::string type = add ? kWithSum : kPlain;
    OpTest test(type);
    test.RandomInput("X", x);
    if (add) test.RandomInput("Z", x);
    test.TensorInput("Scale", half).RandomInput("Bias", {3}).RandomInput("Mean", {3});
    test.RandomInput("Variance", {3}).ExpectError(type + ".C3");
    OpTest(type + "_grad")
        .RandomInput("X", x)
        .TensorInput("Scale", half)
        .RandomInput("Y", x)
        .RandomInput("Y@GRAD", x)
        .ExpectError(type + "_grad.C3");
  }
}
TEST(FusedBatchNormAct, C4_Sum) {
  const Shape x{2, 3}, z{4, 3};
  Fused(x, true, &z).ExpectError("fused_bn_add_activation.C4");
  Grad(kWithSum, x, 3)
      .RandomInput("Z", z)
      .RandomInput("Y@GRAD", x)
      .ExpectError("fused_bn_add_activation_grad.C4");
}
TEST(FusedBatchNormAct, C5_OutputGradShape) {
  for (const char* type : {kPlain, kWithSum}) {
    Grad(type, {2, 3}, 3).RandomInput("Y@GRAD", {3, 3}).ExpectError(std::string(type) + "_grad.C5");
  }
}

}  // namespace coracle::fused_batch_norm_act_test

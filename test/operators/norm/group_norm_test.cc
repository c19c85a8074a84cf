#include <coracle/test/op_test.h>
#include <coracle/test/operators/inferred_shape.h>

#include <cmath>
#include <numeric>
#include <random>

namespace coracle::group_norm_test {

OpTest Norm(int32_t groups, const std::string& layout = "NCHW", float epsilon = 0) {
  OpTest test("group_norm");
  test.Attr("groups", groups).Attr("epsilon", epsilon).Attr("data_layout", layout);
  return test;
}

TEST(GroupNorm, Values) {
  // Channels {1, 3} and {2, 2, 4, 4}: of means 2 and 3, variances 1 and 1.
  Norm(2)
      .Input("X", {1, 2, 2}, {1, 3, 2, 4})
      .Input("Scale", {2}, {2, 10})
      .Input("Bias", {2}, {0.5, 1})
      .Expect("Y", {1, 2, 2}, {-1.5, 2.5, -9, 11})
      .Expect("Mean", {1, 2}, {2, 3})
      .Expect("Variance", {1, 2}, {1, 1});
  // The same pixels with channels last; one group has both channels: mean 2.5, variance 1.25.
  const double d = std::sqrt(1.25);
  Norm(1, "NHWC")
      .Input("X", {1, 2, 2}, {1, 2, 3, 4})
      .Expect("Y", {1, 2, 2}, {-1.5 / d, -0.5 / d, 0.5 / d, 1.5 / d})
      .Expect("Mean", {1, 1}, {2.5})
      .Expect("Variance", {1, 1}, {1.25});
  // Five channels in groups of two, two, one and none.
  Norm(4, "NCHW", 1)
      .Input("X", {1, 5}, {1, 1, 0, 2, 7})
      .Expect("Mean", {1, 4}, {1, 1, 7, 0})
      .Expect("Variance", {1, 4}, {0, 1, 0, 0})
      .Expect("Y", {1, 5}, {0, 0, -1 / std::sqrt(2.0), 1 / std::sqrt(2.0), 0});
  Norm(1).Input("X", {0, 2, 3}, {}).Expect("Y", {0, 2, 3}, {}).Expect("Mean", {0, 1}, {});
}

TEST(GroupNorm, Gradients) {
  for (const std::string layout : {"NCHW", "NHWC"}) {
    for (const int32_t groups : {1, 2, 3, 5}) {
      Norm(groups, layout, 0.1f)
          .NoOutput("Mean")
          .NoOutput("Variance")
          .RandomInput("X", layout == "NCHW" ? Shape{2, 5, 2, 3} : Shape{2, 2, 3, 5})
          .RandomInput("Scale", {5})
          .RandomInput("Bias", {5})
          .CheckGradient({"X", "Scale", "Bias"});
    }
  }
  Norm(2, "NCHW", 0.1f)
      .NoOutput("Mean")
      .NoOutput("Variance")
      .RandomInput("X", {3, 4, 2})
      .CheckGradient({"X"});
}

TEST(GroupNorm, HigherGradients) {
  for (const int32_t groups : {1, 2, 4}) {
    OpTest test = Norm(groups, "NCHW", 0.1f);
    test.NoOutput("Mean").NoOutput("Variance");
    test.RandomInput("X", {2, 4, 3}).RandomInput("Scale", {4}).RandomInput("Bias", {4});
    test.CheckSecondGradient({"X", "Scale"}).CheckHigherGradients();
  }
  Norm(2, "NCHW", 0.1f)
      .NoOutput("Mean")
      .NoOutput("Variance")
      .RandomInput("X", {2, 4, 2, 2})
      .CheckSecondGradient({"X"});
}

TEST(GroupNorm, SecondGradientOfGroupsWithoutElements) {
  for (const Shape& shape : {Shape{2, 4, 5, 0}, Shape{0, 4, 0}, Shape{0, 4, 3}}) {
    SCOPED_TRACE(shape.ToString());
    OpTest("group_norm_grad")
        .Attr("groups", 2)
        .Attr("epsilon", 0.1f)
        .RandomInput("X", shape)
        .RandomInput("Scale", {4})
        .RandomInput("Bias", {4})
        .RandomInput("Y@GRAD", shape)
        .CheckFast();
  }
}

// The squares, or the sums too, are more than floats hold.
TEST(GroupNorm, LargeNumbers) {
  for (double size : {1e18, 1e19, 1e30, 1e37}) {
    SCOPED_TRACE(size);
    for (const std::string layout : {"NCHW", "NHWC"}) {
      std::vector<double> x, y;
      for (int i = 0; i < 400; ++i) {
        x.push_back(size * (i % 4 == 0 ? 3 : 1));
        y.push_back((i % 4 == 0 ? 1.5 : -0.5) / std::sqrt(0.75));
      }
      const Shape shape = layout == "NHWC" ? Shape{1, 400, 1} : Shape{1, 1, 400};
      Norm(1, layout).Input("X", shape, x).Expect("Y", shape, y);
    }
  }
}

TEST(GroupNorm, FastAgainstReference) {
  std::mt19937 random(4);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    const bool last = pick(0, 1) == 1;
    const int64_t channels = pick(1, 40), h = pick(0, 6) * pick(0, 9), w = pick(1, 7);
    const int32_t groups = pick(0, 2) ? std::gcd(pick(1, 40), channels) : pick(1, channels);
    const Shape shape =
        last ? Shape{pick(1, 4), h, w, channels} : Shape{pick(1, 4), channels, h, w};
    SCOPED_TRACE(::testing::Message() << groups << " groups of " << shape.ToString());
    OpTest test = Norm(groups, last ? "NHWC" : "NCHW", 1e-3f);
    test.NoOutput("Mean").NoOutput("Variance").RandomInput("X", shape);
    if (pick(0, 2)) test.RandomInput("Scale", {channels});
    if (pick(0, 2)) test.RandomInput("Bias", {channels});
    test.CheckFast();
  }
  for (const std::string layout : {"NCHW", "NHWC"}) {
    Norm(4, layout, 1e-5f)
        .NoOutput("Mean")
        .NoOutput("Variance")
        .RandomInput("X", layout == "NCHW" ? Shape{1, 8, 120, 130} : Shape{1, 120, 130, 8})
        .RandomInput("Scale", {8})
        .RandomInput("Bias", {8})
        .CheckFast(1e-3);  // sums of 31200 elements that nearly cancel
  }
}

// Groups far from zero, whose channels have means of their own.
TEST(GroupNorm, FastKeepsDigits) {
  for (const std::string layout : {"NCHW", "NHWC"}) {
    constexpr int64_t kChannels = 4, kPixels = 900;
    const bool last = layout == "NHWC";
    Tensor x(DType::kFloat32, last ? Shape{1, kPixels, kChannels} : Shape{1, kChannels, kPixels});
    std::mt19937 random(5);
    std::uniform_real_distribution<float> draw(-1, 1);
    for (int64_t c = 0; c < kChannels; ++c) {
      for (int64_t i = 0; i < kPixels; ++i) {
        const float centre = 1000.f + 2 * static_cast<float>(c);
        x.data<float>()[last ? i * kChannels + c : c * kPixels + i] =
            i == 0 ? 0 : centre + draw(random);
      }
    }
    OpTest test = Norm(2, layout, 1e-5f);
    test.TensorInput("X", x);
    const Tensor fast = test.Output("Y"), slow = test.Output("Y", KernelMode::kReference);
    for (int64_t i = 0; i < x.numel(); ++i)
      ASSERT_NEAR(fast.data<float>()[i], slow.data<float>()[i], 1e-4f) << i;
  }
}

TEST(GroupNorm, UnknownDimsWhileBuilding) {
  EXPECT_EQ("[-1, 2]",
            InferredShape("group_norm", {{"X", {-1, -1, 4, 4}}}, "Mean", {{"groups", int32_t{2}}}));
}

TEST(GroupNorm, Constraints) {
  Norm(1).Input("X", {2}, {1, 2}).ExpectError("group_norm.C1");
  Norm(1).RandomInput("X", {1, 2}).RandomInput("Bias", {3}).ExpectError("group_norm.C2");
  Norm(1).RandomInput("X", {1, 2}).IntInput("Scale", {2}, {1, 1}).ExpectError("group_norm.C3");
  for (const int32_t groups : {0, 3})
    Norm(groups).RandomInput("X", {1, 2}).ExpectError("group_norm.C4");
  OpTest("group_norm_grad")
      .Attr("groups", 1)
      .RandomInput("X", {1, 2})
      .RandomInput("Y@GRAD", {2, 1})
      .ExpectError("group_norm_grad.C5");
}

}  // namespace coracle::group_norm_test

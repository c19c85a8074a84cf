#include <coracle/test/op_test.h>
#include <coracle/test/operators/inferred_shape.h>

#include <algorithm>
#include <cmath>

namespace coracle::batch_norm_test {

// A batch_norm without outputs that the loss of a gradient check would see.
OpTest Norm(const Shape& x, const std::string& layout, int64_t channels) {
  OpTest test("batch_norm");
  test.Attr("data_layout", layout)
      .RandomInput("X", x)
      .RandomInput("Scale", {channels}, 0.5, 2)
      .RandomInput("Bias", {channels})
      .RandomInput("Mean", {channels})
      .RandomInput("Variance", {channels}, 0.5, 2);
  return test;
}

OpTest& WithoutRunning(OpTest& test) { return test.NoOutput("MeanOut").NoOutput("VarianceOut"); }

TEST(BatchNorm, TrainingValues) {
  // Channel {1, 3}: mean 2, biased variance 1. Epsilon 0 keeps the numbers whole.
  OpTest test("batch_norm");
  test.Attr("epsilon", 0.0f)
      .Attr("momentum", 0.75f)
      .Input("X", {2, 1, 1, 1}, {1, 3})
      .Input("Scale", {1}, {10})
      .Input("Bias", {1}, {5})
      .Input("Mean", {1}, {4})
      .Input("Variance", {1}, {9})
      .Expect("Y", {2, 1, 1, 1}, {-5, 15})
      .Expect("MeanOut", {1}, {4 * 0.75 + 2 * 0.25})
      .Expect("VarianceOut", {1}, {9 * 0.75 + 1 * 0.25})
      .Expect("SavedMean", {1}, {2})
      .Expect("SavedVariance", {1}, {1});
}

TEST(BatchNorm, SavedVarianceIsTheInverseDeviation) {
  OpTest("batch_norm")
      .Attr("epsilon", 0.0f)
      .Input("X", {2, 1}, {0, 8})
      .Input("Scale", {1}, {1})
      .Input("Bias", {1}, {0})
      .Input("Mean", {1}, {0})
      .Input("Variance", {1}, {1})
      .Expect("SavedVariance", {1}, {0.25})
      .Expect("Y", {2, 1}, {-1, 1});
}

TEST(BatchNorm, GlobalStatistics) {
  for (const char* attr : {"is_test", "use_global_stats"}) {
    OpTest("batch_norm")
        .Attr("epsilon", 0.0f)
        .Attr(attr, true)
        .Input("X", {1, 1, 2, 2}, {1, 10, 2, 20})
        .Attr("data_layout", "NHWC")
        .Input("Scale", {2}, {1, 2})
        .Input("Bias", {2}, {0, 1})
        .Input("Mean", {2}, {1, 10})
        .Input("Variance", {2}, {4, 25})
        .Expect("Y", {1, 1, 2, 2}, {0, 1, 0.5, 5})
        .Expect("MeanOut", {2}, {1, 10})
        .Expect("VarianceOut", {2}, {4, 25});
  }
}

TEST(BatchNorm, TrainableStatisticsUseTheBatchInATest) {
  OpTest("batch_norm")
      .Attr("epsilon", 0.0f)
      .Attr("is_test", true)
      .Attr("trainable_statistics", true)
      .Input("X", {2, 1}, {1, 3})
      .Input("Scale", {1}, {1})
      .Input("Bias", {1}, {0})
      .Input("Mean", {1}, {100})
      .Input("Variance", {1}, {1})
      .Expect("Y", {2, 1}, {-1, 1});
}

TEST(BatchNorm, RunningStatisticsInPlaceAndMomentumTensor) {
  OpTest test("batch_norm");
  test.Input("X", {2, 1}, {1, 3})
      .Input("Scale", {1}, {1})
      .Input("Bias", {1}, {0})
      .Input("Mean", {1}, {4})
      .Input("Variance", {1}, {9})
      .Input("MomentumTensor", {1}, {0.5})
      .InPlace("Mean", "MeanOut")
      .InPlace("Variance", "VarianceOut")
      .Expect("MeanOut", {1}, {3})
      .Expect("VarianceOut", {1}, {5});
}

TEST(BatchNorm, OneElementPerChannelPassesThrough) {
  OpTest("batch_norm")
      .Input("X", {1, 2}, {3, -4})
      .Input("Scale", {2}, {5, 5})
      .Input("Bias", {2}, {1, 1})
      .Input("Mean", {2}, {7, 8})
      .Input("Variance", {2}, {9, 10})
      .Expect("Y", {1, 2}, {3, -4})
      .Expect("MeanOut", {2}, {7, 8})
      .Expect("VarianceOut", {2}, {9, 10});
}

TEST(BatchNorm, EmptyBatch) {
  OpTest("batch_norm")
      .Input("X", {0, 2, 1, 1}, {})
      .Input("Scale", {2}, {5, 5})
      .Input("Bias", {2}, {1, 1})
      .Input("Mean", {2}, {7, 8})
      .Input("Variance", {2}, {9, 10})
      .Expect("Y", {0, 2, 1, 1}, {})
      .Expect("MeanOut", {2}, {7, 8});
}

TEST(BatchNorm, LargeMeanKeepsTheVariance) {
  std::vector<double> x;
  for (int i = 0; i < 1000; ++i) x.push_back(4096 + (i % 2 ? 1 : -1));
  for (const char* layout : {"NCHW", "NHWC"}) {
    OpTest("batch_norm")
        .Attr("data_layout", layout)
        .Attr("momentum", 0.0f)
        .Input("X", std::string(layout) == "NHWC" ? Shape{1000, 1, 1, 1} : Shape{1, 1, 1000, 1}, x)
        .Input("Scale", {1}, {1})
        .Input("Bias", {1}, {0})
        .Input("Mean", {1}, {0})
        .Input("Variance", {1}, {0})
        .Expect("VarianceOut", {1}, {1})
        .Expect("MeanOut", {1}, {4096});
  }
}

// Channel c of two: the mean plus what differs from channel to channel. The mean is not a float, so
// the part that rounding loses counts.
TEST(BatchNorm, LargeMeanKeepsTheDigits) {
  constexpr size_t kSize = 77;
  for (const std::string type : {"batch_norm", "sync_batch_norm", "fused_batch_norm_act"}) {
    for (const bool last : {false, true}) {
      SCOPED_TRACE(testing::Message() << type << " " << last);
      std::vector<double> x(2 * kSize), y(2 * kSize);
      for (size_t c = 0; c < 2; ++c) {
        const auto at = [&](size_t i) { return last ? 2 * i + c : c * kSize + i; };
        const double base = c == 0 ? 1e4 : -1e5;
        double mean = 0, square = 0;
        for (size_t i = 0; i < kSize; ++i) {
          x[at(i)] = base + static_cast<double>(i * (29 + c) % 64) / 32;
          mean += x[at(i)] / kSize;
        }
        for (size_t i = 0; i < kSize; ++i) square += (x[at(i)] - mean) * (x[at(i)] - mean) / kSize;
        for (size_t i = 0; i < kSize; ++i) {
          const double v = 2 * (x[at(i)] - mean) / std::sqrt(square) + 0.25;
          y[at(i)] = type == "fused_batch_norm_act" ? std::max(v, 0.0) : v;
        }
      }
      const Shape shape = last ? Shape{1, kSize, 2} : Shape{1, 2, kSize};
      OpTest(type)
          .Attr("epsilon", 0.0f)
          .Attr("data_layout", std::string(last ? "NHWC" : "NCHW"))
          .Input("X", shape, x)
          .Input("Scale", {2}, {2, 2})
          .Input("Bias", {2}, {0.25, 0.25})
          .Input("Mean", {2}, {0, 0})
          .Input("Variance", {2}, {0, 0})
          .Expect("Y", shape, y, 4e-6);
    }
  }
}

// The squares, or the sums too, are more than floats hold.
TEST(BatchNorm, LargeNumbers) {
  for (double size : {1e18, 1e19, 1e30, 1e37}) {
    SCOPED_TRACE(size);
    for (const std::string layout : {"NCHW", "NHWC"}) {
      std::vector<double> x, y;
      for (int i = 0; i < 400; ++i) {
        x.push_back(size * (i % 4 == 0 ? 3 : 1));
        y.push_back((i % 4 == 0 ? 1.5 : -0.5) / std::sqrt(0.75));
      }
      const Shape shape = layout == "NHWC" ? Shape{1, 400, 1} : Shape{1, 1, 400};
      OpTest("batch_norm")
          .Attr("data_layout", layout)
          .Input("X", shape, x)
          .Input("Scale", {1}, {1})
          .Input("Bias", {1}, {0})
          .Input("Mean", {1}, {0})
          .Input("Variance", {1}, {0})
          .Expect("Y", shape, y);
    }
  }
}

TEST(BatchNorm, Gradients) {
  for (const char* layout : {"NCHW", "NHWC"}) {
    for (const char* attr : {"", "use_global_stats", "is_test"}) {
      OpTest test = Norm({3, 2, 4, 2}, layout, 2);
      if (*attr) test.Attr(attr, true);
      WithoutRunning(test).CheckGradient({"X", "Scale", "Bias"});
    }
  }
  OpTest matrix = Norm({6, 3}, "NCHW", 3);
  WithoutRunning(matrix).CheckGradient({"X", "Scale", "Bias"});
}

// Without SavedMean and SavedVariance: as inputs of the gradient op they would be held fixed.
TEST(BatchNorm, SecondGradients) {
  for (const char* layout : {"NCHW", "NHWC"}) {
    for (const char* attr : {"", "use_global_stats"}) {
      OpTest test = Norm({3, 2, 3, 2}, layout, 2);
      if (*attr) test.Attr(attr, true);
      WithoutRunning(test).NoOutput("SavedMean").NoOutput("SavedVariance");
      test.CheckSecondGradient({"X", "Scale", "Bias"});
    }
  }
}

TEST(BatchNorm, GradientOfOneElementPassesThrough) {
  OpTest("batch_norm_grad")
      .RandomInput("X", {1, 2})
      .RandomInput("Scale", {2})
      .Input("Y@GRAD", {1, 2}, {3, 4})
      .Expect("X@GRAD", {1, 2}, {3, 4})
      .Expect("Scale@GRAD", {2}, {0, 0})
      .Expect("Bias@GRAD", {2}, {0, 0});
}

TEST(BatchNorm, FastAgainstReference) {
  std::mt19937 random(9);
  auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 40; ++trial) {
    const int64_t channels = pick(1, 70);
    const bool last = pick(0, 1);
    Shape shape{pick(1, 4)};
    const int rank = pick(2, 5);
    for (int axis = 1; axis < rank; ++axis) {
      const bool is_channel = last ? axis == rank - 1 : axis == 1;
      shape.Append(is_channel ? channels : pick(1, 9));
    }
    SCOPED_TRACE(::testing::Message() << "trial " << trial << " " << shape.ToString());
    OpTest test = Norm(shape, last ? "NHWC" : "NCHW", channels);
    // Groups of two or three elements have tiny variances now and then: keep 1 / sqrt tame.
    test.Attr("epsilon", 1e-2f).Attr("use_global_stats", pick(0, 2) == 0).CheckFast();
  }
}

TEST(BatchNorm, FastAgainstReferenceManyRows) {
  Norm({700, 5, 5, 3}, "NHWC", 3).CheckFast(1e-3);
  Norm({9, 3, 40, 50}, "NCHW", 3).CheckFast(1e-3);
}

TEST(BatchNorm, UnknownDimsWhileBuilding) {
  const std::vector<std::pair<std::string, Shape>> ins = {
      {"X", {-1, -1, 4, -1}}, {"Scale", {3}}, {"Bias", {3}}, {"Mean", {3}}, {"Variance", {-1}}};
  EXPECT_EQ("[-1, -1, 4, -1]", InferredShape("batch_norm", ins, "Y", {}));
  EXPECT_EQ("[3]", InferredShape("batch_norm", ins, "MeanOut", {}));
}

TEST(BatchNorm, C1_Rank) { Norm({2}, "NCHW", 2).ExpectError("batch_norm.C1"); }
TEST(BatchNorm, C2_Channels) { Norm({2, 3, 2}, "NCHW", 2).ExpectError("batch_norm.C2"); }
TEST(BatchNorm, C3_DTypes) {
  OpTest("batch_norm")
      .RandomInput("X", {2, 1})
      .TensorInput("Scale", Tensor::Zeros(DType::kFloat16, {1}))
      .RandomInput("Bias", {1})
      .RandomInput("Mean", {1})
      .RandomInput("Variance", {1})
      .ExpectError("batch_norm.C3");
}
TEST(BatchNorm, C4_Momentum) {
  Norm({2, 3}, "NCHW", 3).RandomInput("MomentumTensor", {2}).ExpectError("batch_norm.C4");
}
TEST(BatchNorm, C5_OutputGradShape) {
  OpTest("batch_norm_grad")
      .RandomInput("X", {2, 2})
      .RandomInput("Scale", {2})
      .RandomInput("Y@GRAD", {2, 3})
      .ExpectError("batch_norm_grad.C5");
}
TEST(BatchNorm, C6_GlobalStatisticsMissing) {
  OpTest("batch_norm_grad")
      .Attr("use_global_stats", true)
      .RandomInput("X", {2, 2})
      .RandomInput("Scale", {2})
      .RandomInput("Y@GRAD", {2, 2})
      .ExpectError("batch_norm_grad.C6");
}

TEST(BatchNorm, SecondOrderConstraints) {
  const auto second = [](const Shape& ddx) {
    OpTest test("batch_norm_grad_grad");
    test.RandomInput("X", {2, 2}).RandomInput("Scale", {2}).RandomInput("Y@GRAD", {2, 2});
    test.RandomInput("X@GRAD@GRAD", ddx);
    return test;
  };
  second({2, 3}).ExpectError("batch_norm_grad_grad.C5");
  second({2, 2}).Attr("use_global_stats", true).ExpectError("batch_norm_grad_grad.C6");
}

// As batch_norm on one device.
TEST(SyncBatchNorm, ValuesAndGradients) {
  OpTest test("sync_batch_norm");
  test.Attr("epsilon", 0.f)
      .Attr("momentum", 0.5f)
      .Input("X", {2, 1}, {1, 3})
      .Input("Scale", {1}, {2})
      .Input("Bias", {1}, {10})
      .Input("Mean", {1}, {4})
      .Input("Variance", {1}, {5});
  test.Expect("Y", {2, 1}, {8, 12}).Expect("MeanOut", {1}, {3}).Expect("VarianceOut", {1}, {3});
  const auto random = [] {
    return std::move(OpTest("sync_batch_norm")
                         .Attr("epsilon", 0.1f)
                         .RandomInput("X", {3, 2, 2})
                         .RandomInput("Scale", {2})
                         .RandomInput("Bias", {2})
                         .RandomInput("Mean", {2})
                         .RandomInput("Variance", {2}, 0.5, 1));
  };
  OpTest gradient = random();
  WithoutRunning(gradient).CheckGradient({"X", "Scale", "Bias"});
  random().CheckFast().CheckHigherGradients(2);
}

TEST(SyncBatchNorm, ConstraintsOfTheGradient) {
  const auto op = [](const Shape& dy) {
    return std::move(OpTest("sync_batch_norm_grad")
                         .RandomInput("X", {2, 2})
                         .RandomInput("Scale", {2})
                         .RandomInput("Y@GRAD", dy));
  };
  op({2, 3}).ExpectError("sync_batch_norm_grad.C5");
  op({2, 2}).Attr("use_global_stats", true).ExpectError("sync_batch_norm_grad.C6");
  op({2, 2}).RandomInput("Share", {2}).ExpectError("sync_batch_norm_grad.C7");
  const auto second = [](const Shape& ddx) {
    OpTest test("sync_batch_norm_grad_grad");
    test.RandomInput("X", {2, 2}).RandomInput("Scale", {2}).RandomInput("Y@GRAD", {2, 2});
    test.RandomInput("X@GRAD@GRAD", ddx);
    return test;
  };
  second({2, 3}).ExpectError("sync_batch_norm_grad_grad.C5");
  second({2, 2}).Attr("use_global_stats", true).ExpectError("sync_batch_norm_grad_grad.C6");
  OpTest("sync_batch_norm")
      .RandomInput("X", {2, 2})
      .RandomInput("Scale", {2})
      .RandomInput("Bias", {2})
      .RandomInput("Mean", {2})
      .RandomInput("Variance", {2})
      .RandomInput("Share", {2})
      .ExpectError("sync_batch_norm.C7");
}

}  // namespace coracle::batch_norm_test

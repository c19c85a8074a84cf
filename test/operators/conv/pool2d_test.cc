
#include <coracle/test/op_test.h>
#include <coracle/test/operators/inferred_shape.h>

#include <limits>

namespace coracle::pool2d_test {

using Ints = std::vector<int32_t>;

OpTest Pool(const std::string& type, const Ints& ksize) {
  OpTest test("pool2d");
  test.Attr("pooling_type", type).Attr("ksize", ksize);
  return test;
}

// Distinct values, so that a maximum has no kinks nearby: a permutation of 0 .. n-1.
std::vector<double> Distinct(int64_t n, uint32_t seed) {
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) * 0.1 - 2;
  std::shuffle(values.begin(), values.end(), std::mt19937(seed));
  return values;
}

TEST(Pool2d, Max) {
  Pool("max", {2, 2})
      .Attr("strides", Ints{2, 2})
      .Input("X", {1, 1, 2, 4}, {1, 5, -3, -4, 2, 0, -1, -2})
      .Expect("Out", {1, 1, 1, 2}, {5, -1});
}

TEST(Pool2d, MaxIgnoresPadding) {
  Pool("max", {1, 2})
      .Attr("paddings", Ints{0, 1})
      .Input("X", {1, 1, 1, 2}, {-5, -7})
      .Expect("Out", {1, 1, 1, 3}, {-5, -5, -7});
}

TEST(Pool2d, AverageExclusiveAndNot) {
  for (bool exclusive : {true, false}) {
    Pool("avg", {1, 2})
        .Attr("paddings", Ints{0, 1})
        .Attr("exclusive", exclusive)
        .Input("X", {1, 1, 1, 2}, {4, 6})
        .Expect("Out", {1, 1, 1, 3},
                exclusive ? std::vector<double>{4, 5, 6} : std::vector<double>{2, 5, 3});
  }
}

TEST(Pool2d, CeilModeClipsTheLastWindow) {
  // in 3, kernel 2, stride 2: floor gives one window, ceil a second one over {3} and the padding.
  Pool("avg", {1, 2})
      .Attr("strides", Ints{1, 2})
      .Input("X", {1, 1, 1, 3}, {1, 2, 3})
      .Expect("Out", {1, 1, 1, 1}, {1.5});
  for (bool exclusive : {true, false}) {
    Pool("avg", {1, 2})
        .Attr("strides", Ints{1, 2})
        .Attr("ceil_mode", true)
        .Attr("exclusive", exclusive)
        .Input("X", {1, 1, 1, 3}, {1, 2, 3})
        .Expect("Out", {1, 1, 1, 2}, {1.5, 3});
  }
}

TEST(Pool2d, WindowWithoutElementsGivesZero) {
  // in 5, kernel 1, stride 3, rounded up: the third window starts at 6.
  for (const char* type : {"max", "avg"}) {
    Pool(type, {1, 1})
        .Attr("strides", Ints{1, 3})
        .Attr("ceil_mode", true)
        .Input("X", {1, 1, 1, 5}, {1, 2, 3, 4, 5})
        .Expect("Out", {1, 1, 1, 3}, {1, 4, 0});
  }
}

TEST(Pool2d, GlobalIgnoresKsizeAndPaddings) {
  for (const char* format : {"NCHW", "NHWC"}) {
    const bool last = std::string(format) == "NHWC";
    Pool("avg", {7, 7})
        .Attr("paddings", Ints{3, 3})
        .Attr("global_pooling", true)
        .Attr("data_format", format)
        .Input("X", last ? Shape{1, 1, 2, 2} : Shape{1, 2, 1, 2},
               last ? std::vector<double>{1, 10, 3, 30} : std::vector<double>{1, 3, 10, 30})
        .Expect("Out", last ? Shape{1, 1, 1, 2} : Shape{1, 2, 1, 1}, {2, 20});
  }
}

TEST(Pool2d, AdaptiveBins) {
  // in 5, out 3: bins [0, 2), [1, 4), [3, 5).
  Pool("avg", {1, 3})
      .Attr("adaptive", true)
      .Input("X", {1, 1, 1, 5}, {1, 2, 3, 4, 5})
      .Expect("Out", {1, 1, 1, 3}, {1.5, 3, 4.5});
  Pool("max", {1, 3})
      .Attr("adaptive", true)
      .Input("X", {1, 1, 1, 5}, {1, 2, 3, 4, 5})
      .Expect("Out", {1, 1, 1, 3}, {2, 4, 5});
}

TEST(Pool2d, GradientOfEqualElementsGoesToTheFirst) {
  for (const char* format : {"NCHW", "NHWC"}) {
    const bool last = std::string(format) == "NHWC";
    OpTest("pool2d_grad")
        .Attr("pooling_type", "max")
        .Attr("ksize", Ints{2, 2})
        .Attr("strides", Ints{2, 2})
        .Attr("data_format", format)
        .Input("X", last ? Shape{1, 2, 2, 1} : Shape{1, 1, 2, 2}, {1, 3, 3, 3})
        .Input("Out", {1, 1, 1, 1}, {3})
        .Input("Out@GRAD", {1, 1, 1, 1}, {7})
        .Expect("X@GRAD", last ? Shape{1, 2, 2, 1} : Shape{1, 1, 2, 2}, {0, 7, 0, 0});
  }
}

TEST(Pool2d, EmptyBatch) {
  Pool("max", {2, 2}).Input("X", {0, 1, 2, 2}, {}).Expect("Out", {0, 1, 1, 1}, {});
}

// Every window lies in the padding: X has no memory, Out has elements.
TEST(Pool2d, NoRows) {
  for (const char* type : {"max", "avg"}) {
    Pool(type, {2, 2})
        .Attr("paddings", std::vector<int32_t>{1, 1})
        .Input("X", {2, 3, 0, 2}, {})
        .Expect("Out", {2, 3, 1, 3}, std::vector<double>(18, 0));
  }
}

TEST(Pool2d, Gradients) {
  for (const char* type : {"max", "avg"}) {
    for (const char* format : {"NCHW", "NHWC"}) {
      for (bool exclusive : {true, false}) {
        OpTest test = Pool(type, {3, 2});
        test.Attr("strides", Ints{2, 1})
            .Attr("paddings", Ints{1, 0, 1, 1})
            .Attr("ceil_mode", true)
            .Attr("exclusive", exclusive)
            .Attr("data_format", format)
            .Input("X", {2, 4, 5, 3}, Distinct(120, 4));
        test.CheckGradient({"X"}).CheckSecondGradient({"X"});
      }
    }
    Pool(type, {2, 3})
        .Attr("adaptive", true)
        .Input("X", {1, 2, 3, 4}, Distinct(24, 5))
        .CheckGradient({"X"})
        .CheckSecondGradient({"X"});
    Pool(type, {1, 1})
        .Attr("global_pooling", true)
        .Input("X", {2, 2, 3, 4}, Distinct(48, 6))
        .CheckGradient({"X"});
  }
}

TEST(Pool2d, FastAgainstReference) {
  std::mt19937 random(5);
  auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    const Ints ksize{pick(1, 3), pick(1, 3)};
    const Shape shape{pick(1, 3), ksize[0] + pick(0, 6), ksize[1] + pick(0, 6), pick(1, 40)};
    SCOPED_TRACE(::testing::Message() << "trial " << trial << " " << shape.ToString());
    OpTest test = Pool(pick(0, 1) ? "max" : "avg", ksize);
    test.Attr("strides", pick(0, 1) ? ksize : Ints{pick(1, 3), pick(1, 3)})
        .Attr("paddings", pick(0, 1) ? Ints{0, 0} : Ints{pick(0, 1), pick(0, 1), 0, pick(0, 2)})
        .Attr("ceil_mode", pick(0, 1) == 1)
        .Attr("exclusive", pick(0, 1) == 1)
        .Attr("adaptive", pick(0, 4) == 0)
        .Attr("global_pooling", pick(0, 6) == 0)
        .Attr("padding_algorithm", pick(0, 3) ? "EXPLICIT" : "SAME")
        .Attr("data_format", pick(0, 3) ? "NHWC" : "NCHW")
        .Input("X", shape, Distinct(shape.numel(), static_cast<uint32_t>(trial)))
        .CheckFast();
  }
}

// Threads share the rows of an image whose one window is all of it.
TEST(Pool2d, AverageOfAWholeImage) {
  const int before = NumThreads();
  for (int threads : {1, 2, 3, 8}) {
    SetNumThreads(threads);
    for (const Shape& shape :
         {Shape({1, 7, 9, 960}), Shape({2, 28, 28, 72}), Shape({1, 1, 50, 999}),
          Shape({1, 3, 40, 5000}), Shape({1, 90, 2, 301})}) {
      for (const char* how : {"global_pooling", "adaptive", "padded"}) {
        SCOPED_TRACE(::testing::Message() << threads << " " << shape.ToString() << " " << how);
        const bool padded = how == std::string("padded");
        const auto height = static_cast<int32_t>(shape[1]), width = static_cast<int32_t>(shape[2]);
        OpTest test = Pool("avg", padded ? Ints{height + 1, width + 1} : Ints{1, 1});
        test.Attr("data_format", std::string("NHWC"))
            .Attr("exclusive", false)
            .Input("X", shape, Distinct(shape.numel(), 7));
        if (padded)
          test.Attr("paddings", Ints{1, 0, 0, 1}).Attr("strides", Ints{height, width});
        else
          test.Attr(how, true);
        test.CheckFast();
        EXPECT_TRUE(BitEqual(test.Output("Out"), test.Output("Out")));
      }
    }
  }
  SetNumThreads(before);
}

TEST(Pool2d, UnknownDimsWhileBuilding) {
  const AttrList attrs = {
      {"pooling_type", std::string("max")}, {"ksize", Ints{2, 3}}, {"strides", Ints{2, 2}}};
  EXPECT_EQ("[-1, 3, -1, 3]", InferredShape("pool2d", {{"X", {-1, 3, -1, 8}}}, "Out", attrs));
  AttrList global = attrs;
  global.push_back({"global_pooling", true});
  EXPECT_EQ("[-1, 3, 1, 1]", InferredShape("pool2d", {{"X", {-1, 3, -1, -1}}}, "Out", global));
}

TEST(Pool2d, C1_Rank) { Pool("max", {1, 1}).RandomInput("X", {2, 2}).ExpectError("pool2d.C1"); }
TEST(Pool2d, Type) {
  Pool("min", {1, 1}).RandomInput("X", {1, 1, 2, 2}).ExpectError("one of max, avg");
}
TEST(Pool2d, C3_Ksize) {
  Pool("max", {1}).RandomInput("X", {1, 1, 2, 2}).ExpectError("pool2d.C3");
  Pool("max", {0, 1}).RandomInput("X", {1, 1, 2, 2}).ExpectError("pool2d.C3");
}
TEST(Pool2d, C4_Strides) {
  Pool("max", {1, 1})
      .Attr("strides", Ints{1, 0})
      .RandomInput("X", {1, 1, 2, 2})
      .ExpectError("pool2d.C4");
}
TEST(Pool2d, C5_Paddings) {
  Pool("max", {1, 1})
      .Attr("paddings", Ints{1, 1, 1})
      .RandomInput("X", {1, 1, 2, 2})
      .ExpectError("pool2d.C5");
}
TEST(Pool2d, WindowSticksOutByLessThanAStride) {
  for (const char* type : {"max", "avg"}) {
    Pool(type, {2, 2})
        .Attr("strides", Ints{2, 2})
        .Input("X", {1, 1, 1, 3}, {1, 3, 7})
        .Expect("Out", {1, 1, 1, 1}, {type[0] == 'm' ? 3.0 : 2.0})
        .CheckGradient({"X"})
        .CheckFast();
  }
}
TEST(Pool2d, C6_WindowFits) {
  Pool("max", {3, 1}).RandomInput("X", {1, 1, 2, 2}).ExpectError("pool2d.C6");
  Pool("avg", {1, 1})
      .Attr("global_pooling", true)
      .RandomInput("X", {1, 1, 0, 2})
      .ExpectError("pool2d.C6");
}

OpTest Grad(const Shape& out, const Shape& dout) {
  OpTest test("pool2d_grad");
  test.Attr("pooling_type", "max").Attr("ksize", Ints{2, 2});
  test.RandomInput("X", {1, 1, 3, 3}).RandomInput("Out", out).RandomInput("Out@GRAD", dout);
  return test;
}
TEST(Pool2d, C7_OutShape) {
  Grad({1, 1, 3, 3}, {1, 1, 2, 2}).ExpectError("pool2d_grad.C7");
  Grad({1, 1, 2, 2}, {1, 1, 2, 3}).ExpectError("pool2d_grad.C7");
  OpTest("pool2d_grad_grad")
      .Attr("pooling_type", "max")
      .Attr("ksize", Ints{2, 2})
      .RandomInput("X", {1, 1, 3, 3})
      .RandomInput("Out", {1, 1, 2, 2})
      .RandomInput("X@GRAD@GRAD", {1, 1, 2, 3})
      .ExpectError("pool2d_grad_grad.C7");
}
TEST(Pool2d, C8_DTypesOfTheSecondGradient) {
  OpTest("pool2d_grad_grad")
      .Attr("pooling_type", "max")
      .Attr("ksize", Ints{2, 2})
      .RandomInput("X", {1, 1, 3, 3})
      .RandomInput("Out", {1, 1, 2, 2})
      .TensorInput("X@GRAD@GRAD", Tensor::Zeros(DType::kInt32, {1, 1, 3, 3}))
      .ExpectError("pool2d_grad_grad.C8");
}
TEST(Pool2d, C8_DTypes) {
  OpTest("pool2d_grad")
      .Attr("pooling_type", "max")
      .Attr("ksize", Ints{2, 2})
      .RandomInput("X", {1, 1, 2, 2})
      .RandomInput("Out", {1, 1, 1, 1})
      .TensorInput("Out@GRAD", Tensor::Zeros(DType::kFloat16, {1, 1, 1, 1}))
      .ExpectError("pool2d_grad.C8");
}

OpTest Pool3d(const std::string& type, const Ints& ksize) {
  OpTest test("pool3d");
  test.Attr("pooling_type", type).Attr("ksize", ksize);
  return test;
}

TEST(Pool3d, Values) {
  const std::vector<double> x = {1, 8, -3, 4, 5, 0, 7, -2};
  Pool3d("max", {2, 1, 2}).Input("X", {1, 1, 2, 2, 2}, x).Expect("Out", {1, 1, 1, 2, 1}, {8, 7});
  Pool3d("avg", {2, 2, 1})
      .Input("X", {1, 1, 2, 2, 2}, x)
      .Expect("Out", {1, 1, 1, 1, 2}, {2.5, 2.5});
  Pool3d("avg", {1, 1, 1})
      .Attr("global_pooling", true)
      .Attr("data_format", "NDHWC")
      .Input("X", {1, 2, 2, 1, 2}, x)
      .Expect("Out", {1, 1, 1, 1, 2}, {(1 - 3 + 5 + 7) / 4.0, (8 + 4 + 0 - 2) / 4.0});
  // Padding before and after the depth; windows {1}, {1, 5} and {5}.
  for (const bool exclusive : {true, false}) {
    Pool3d("avg", {2, 1, 1})
        .Attr("paddings", Ints{1, 0, 0})
        .Attr("exclusive", exclusive)
        .Input("X", {1, 1, 2, 1, 1}, {1, 5})
        .Expect("Out", {1, 1, 3, 1, 1},
                exclusive ? std::vector<double>{1, 3, 5} : std::vector<double>{0.5, 3, 2.5});
  }
  // The divisor of a window that counts padding ends at the end of the padding.
  for (const char* type : {"pool2d", "pool3d"}) {
    const bool volume = std::string(type) == "pool3d";
    OpTest(type)
        .Attr("pooling_type", "avg")
        .Attr("ksize", volume ? Ints{1, 1, 3} : Ints{1, 3})
        .Attr("strides", volume ? Ints{1, 1, 2} : Ints{1, 2})
        .Attr("paddings", volume ? Ints{0, 0, 0, 0, 2, 0} : Ints{0, 0, 2, 0})
        .Attr("ceil_mode", true)
        .Attr("exclusive", false)
        .Input("X", volume ? Shape{1, 1, 1, 1, 2} : Shape{1, 1, 1, 2}, {6, 3})
        .Expect("Out", volume ? Shape{1, 1, 1, 1, 2} : Shape{1, 1, 1, 2}, {2, 4.5});
  }
  Pool3d("max", {2, 2, 2}).Input("X", {0, 1, 2, 2, 2}, {}).Expect("Out", {0, 1, 1, 1, 1}, {});
}

TEST(Pool3d, GradientOfEqualElementsGoesToTheFirst) {
  for (const std::string format : {"NCDHW", "NDHWC"}) {
    OpTest("pool3d_grad")
        .Attr("pooling_type", "max")
        .Attr("ksize", Ints{2, 1, 2})
        .Attr("data_format", format)
        .Input("X", format == "NCDHW" ? Shape{1, 1, 2, 1, 2} : Shape{1, 2, 1, 2, 1}, {1, 3, 3, 3})
        .Input("Out", {1, 1, 1, 1, 1}, {3})
        .Input("Out@GRAD", {1, 1, 1, 1, 1}, {7})
        .Expect("X@GRAD", format == "NCDHW" ? Shape{1, 1, 2, 1, 2} : Shape{1, 2, 1, 2, 1},
                {0, 7, 0, 0});
  }
}

TEST(Pool3d, GradientsAndFastKernels) {
  for (const char* type : {"max", "avg"}) {
    for (const char* format : {"NCDHW", "NDHWC"}) {
      for (const bool adaptive : {false, true}) {
        OpTest test = Pool3d(type, {3, 2, 2});
        test.Attr("strides", Ints{2, 1, 2})
            .Attr("paddings", adaptive ? Ints{0, 0, 0} : Ints{1, 0, 0, 1, 1, 1})
            .Attr("ceil_mode", true)
            .Attr("adaptive", adaptive)
            .Attr("exclusive", adaptive)
            .Attr("data_format", format)
            .Input("X", {2, 3, 4, 3, 4}, Distinct(288, 7));
        test.CheckGradient({"X"}).CheckSecondGradient({"X"}).CheckFast();
      }
    }
    Pool3d(type, {2, 1, 2})
        .Attr("strides", Ints{2, 1, 2})
        .Attr("data_format", "NDHWC")
        .Input("X", {2, 4, 3, 2, 9}, Distinct(432, 8))
        .CheckFast();
    Pool3d(type, {2, 1, 2}).Input("X", {1, 1, 3, 2, 2}, Distinct(12, 8)).CheckHigherGradients();
  }
}

// Rows wider than a vector, and a nan at each place of a window.
TEST(Pool3d, FastChannelsFirst) {
  std::mt19937 random(9);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 40; ++trial) {
    const Ints ksize{pick(1, 3), pick(1, 3), pick(1, 4)};
    const Shape shape{pick(1, 2), pick(1, 3), ksize[0] + pick(0, 3), ksize[1] + pick(0, 3),
                      ksize[2] + pick(0, 40)};
    SCOPED_TRACE(::testing::Message() << "trial " << trial << " " << shape.ToString());
    OpTest test = Pool3d(pick(0, 1) ? "max" : "avg", ksize);
    test.Attr("strides", Ints{pick(1, 3), pick(1, 3), pick(1, 3)})
        .Attr("paddings", Ints{pick(0, 1), pick(0, 1), 0, pick(0, 2), pick(0, 2), 0})
        .Attr("ceil_mode", pick(0, 1) == 1)
        .Attr("exclusive", pick(0, 1) == 1)
        .Attr("adaptive", pick(0, 4) == 0)
        .Attr("global_pooling", pick(0, 6) == 0)
        .Input("X", shape, Distinct(shape.numel(), static_cast<uint32_t>(trial)))
        .CheckFast();
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Pool3d("max", {1, 2, 2})
      .Attr("strides", Ints{1, 2, 2})
      .Input("X", {1, 1, 1, 2, 8}, {nan, 1, 3, 4, 5, 6, 2, 1, 2, 3, 1, 2, nan, 7, 1, nan})
      .Expect("Out", {1, 1, 1, 1, 4}, {nan, 4, nan, nan});
}

TEST(Pool3d, Constraints) {
  const auto x = [](OpTest test) { return std::move(test.RandomInput("X", {1, 1, 2, 2, 2})); };
  Pool3d("max", {1, 1, 1}).RandomInput("X", {1, 1, 2, 2}).ExpectError("pool3d.C1");
  x(Pool3d("max", {1, 1})).ExpectError("pool3d.C3");
  x(Pool3d("max", {1, 1, 1})).Attr("strides", Ints{1, 1}).ExpectError("pool3d.C4");
  x(Pool3d("max", {1, 1, 1})).Attr("paddings", Ints{1, 1}).ExpectError("pool3d.C5");
  x(Pool3d("max", {4, 1, 1})).ExpectError("pool3d.C6");
  const auto grad = [](const char* type) {
    return std::move(OpTest(type)
                         .Attr("pooling_type", "avg")
                         .Attr("ksize", Ints{2, 2, 2})
                         .RandomInput("X", {1, 1, 2, 2, 2}));
  };
  const Tensor wide = Tensor::Zeros(DType::kFloat16, {1, 1, 1, 1, 1});
  grad("pool3d_grad")
      .RandomInput("Out", {1, 1, 1, 1, 1})
      .RandomInput("Out@GRAD", {1, 1, 2, 1, 1})
      .ExpectError("pool3d_grad.C7");
  grad("pool3d_grad")
      .RandomInput("Out", {1, 1, 1, 1, 1})
      .TensorInput("Out@GRAD", wide)
      .ExpectError("pool3d_grad.C8");
  grad("pool3d_grad_grad")
      .RandomInput("Out", {1, 1, 1, 2, 1})
      .RandomInput("X@GRAD@GRAD", {1, 1, 2, 2, 2})
      .ExpectError("pool3d_grad_grad.C7");
  grad("pool3d_grad_grad")
      .TensorInput("Out", wide)
      .RandomInput("X@GRAD@GRAD", {1, 1, 2, 2, 2})
      .ExpectError("pool3d_grad_grad.C8");
}

}  // namespace coracle::pool2d_test

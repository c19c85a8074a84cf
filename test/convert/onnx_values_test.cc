// Values at which a formula that is right elsewhere goes wrong: infinite elements that are not
// selected, integers that a float does not hold, bounds beyond a dim, nothing to count.
#include <coracle/test/convert/one_node.h>

#include <cmath>
#include <limits>

namespace coracle::onnx::onnx_values_test {

const float kInf = std::numeric_limits<float>::infinity(), kNan = std::nanf("");

// The same elements, nan included.
void ExpectEqual(const Numbers& got, const Numbers& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = std::isnan(got[i]) && std::isnan(wanted[i]);
    EXPECT_TRUE(both_nan || got[i] == wanted[i])
        << "element " << i << ": " << got[i] << ", wanted " << wanted[i];
  }
}

// --- transforms ---

// Of one side: X[0] + (-1)^n X[2] + 2 Re(X[1] e^(2 pi i n / 4)), a fourth of it, for 4 elements.
// The imaginary parts of X[0] and X[2] belong to no real signal, and are not read.
TEST(OnnxValues, InverseTransformOfOneSide) {
  const Tensor spectrum = F({1, 3, 2}, {10, 7, -2, 2, -2, 5});
  for (const int64_t opset : {17, 20}) {
    OneNode node("DFT", opset, {spectrum});
    node.Set("inverse", int64_t{1}).Set("onesided", int64_t{1});
    if (opset == 17) node.Set("axis", int64_t{1});
    const Numbers got = node.Run(), want = {1, 2, 3, 4};
    ASSERT_EQ(got.size(), 4U);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
    EXPECT_EQ(node.Result().shape(), Shape({1, 4, 1}));
  }
  // Five elements have no middle one: 1 + 2 cos(2 pi 2 n / 5), a fifth of it.
  OneNode odd("DFT", 20, {F({1, 3, 2}, {1, 0, 0, 0, 1, 0}), Tensor::Of<int64_t>({}, {5})});
  const Numbers got = odd.Set("inverse", int64_t{1}).Set("onesided", int64_t{1}).Run();
  ASSERT_EQ(got.size(), 5U);
  for (size_t n = 0; n < 5; ++n)
    EXPECT_NEAR(got[n], (1 + 2 * std::cos(4 * 3.14159265358979 * static_cast<double>(n) / 5)) / 5,
                1e-6);
}

// --- bounds ---

struct SliceCase {
  int64_t start, end, step;
  Numbers wanted;  // of 0, 1, 2, 3, 4
};

// With a negative step ONNX's end of -1 is the last element, and a start before all elements is
// the first one.
TEST(OnnxValues, SliceBackward) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  const std::vector<SliceCase> cases = {
      {4, -1, -1, {}},
      {100, -1, -2, {}},
      {-1, -1, -1, {}},
      {2, -1, -1, {}},
      {3, -6, -1, {3, 2, 1, 0}},
      {3, -5, -1, {3, 2, 1}},
      {-1, kLowest, -2, {4, 2, 0}},
      {-2, -4, -1, {3, 2}},
      {-100, -200, -1, {0}},
      {-100, -200, 1, {}},
      {-100, -1, 2, {0, 2}},
  };
  const Tensor x = F({5}, {0, 1, 2, 3, 4});
  for (const SliceCase& c : cases) {
    for (const bool open : {false, true}) {
      for (const bool fed : {false, true}) {
        OneNode node("Slice", 13, {x, I({c.start}), I({c.end}), I({0}), I({c.step})});
        node.Feed(0, open);
        if (fed) node.Feed(1).Feed(2);
        SCOPED_TRACE(testing::Message() << c.start << ":" << c.end << ":" << c.step
                                        << (open ? ", open" : "") << (fed ? ", fed" : ""));
        ExpectEqual(node.Run(), c.wanted);
      }
    }
  }
}

TEST(OnnxValues, SqueezeOfADimThatIsNotOne) {
  const auto node = [](const Shape& shape) {
    Numbers values(static_cast<size_t>(shape.numel()), 7);
    OneNode made("Squeeze", 13, {F(shape, values), I({0})});
    return made.Feed(0, true);
  };
  EXPECT_EQ(node({1, 3}).Result().shape(), (Shape{3}));
  EXPECT_EQ(node({1, 2, 3}).Result().shape(), (Shape{2, 3}));
  EXPECT_NE(node({2, 3}).Refusal().find("each of one element"), std::string::npos)
      << node({2, 3}).Refusal();
}

TEST(OnnxValues, RangesWithoutElements) {
  const auto scalar = [](int64_t value) { return Tensor::Full<int64_t>({}, value); };
  const auto run = [&](int64_t start, int64_t limit, int64_t delta, bool fed) {
    OneNode node("Range", 11, {scalar(start), scalar(limit), scalar(delta)});
    if (fed) node.Feed(0).Feed(1).Feed(2);
    const Tensor result = node.Result();
    return Integers(result.span<int64_t>().begin(), result.span<int64_t>().end());
  };
  constexpr int64_t kLarge = int64_t{1} << 60;
  for (const bool fed : {false, true}) {
    EXPECT_EQ(run(5, 3, 2, fed), Integers{});
    EXPECT_EQ(run(3, 5, -2, fed), Integers{});
    EXPECT_EQ(run(3, 3, 1, fed), Integers{});
    EXPECT_EQ(run(3, 6, 2, fed), (Integers{3, 5}));
    EXPECT_EQ(run(6, 3, -2, fed), (Integers{6, 4}));
    EXPECT_EQ(run(kLarge, kLarge + 2, 1, fed), (Integers{kLarge, kLarge + 1}));
  }
}

TEST(OnnxValues, GatherNDOfOneElementHasRankZero) {
  OneNode node("GatherND", 13, {F({2, 2}, {1, 2, 3, 4}), I({-1, 0})});
  const Tensor result = node.Feed(0).Feed(1).Result();
  EXPECT_EQ(result.shape(), Shape{1});
  EXPECT_EQ(result.Item<float>(), 3);
}

// Numbers whose lowest 32 bits say something else.
TEST(OnnxValues, NumbersBeyond32Bits) {
  constexpr int64_t kLarge = (int64_t{1} << 32) + 1;
  const Tensor x = F({2}, {1, 2});
  const auto refused = [](OneNode node, const char* why) {
    EXPECT_NE(node.Refusal().find(why), std::string::npos) << node.Refusal();
  };
  refused(OneNode("Pad", 13, {x, I({kLarge, 0})}), "a padding of 4294967297");
  refused(OneNode("Pad", 13, {x, I({-kLarge, 0})}), "a padding of -4294967297");
  refused(OneNode("OneHot", 11, {I({0}), I({kLarge}), x}), "at most 2^30");
  refused(OneNode("TopK", 11, {x, I({kLarge})}).Outputs(2), "k = 4294967297");
  refused(OneNode("Expand", 13, {F({1}, {1}), I({kLarge})}), "a dimension of 4294967297");
  refused(OneNode("Tile", 13, {x, I({kLarge})}), "repeats of 4294967297");
}

// --- numbers outside of what they count ---

TEST(OnnxValues, SplitWithoutOutputs) {
  for (const int64_t opset : {11, 13}) {
    const std::string why = OneNode("Split", opset, {F({4}, {1, 2, 3, 4})}).Outputs(0).Refusal();
    EXPECT_NE(why.find("has no outputs"), std::string::npos) << why;
  }
}

TEST(OnnxValues, EyeLikeOfAnyDiagonal) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  const Tensor x = F({2, 3}, Numbers(6, 0));
  const auto eye = [&](int64_t k, bool open) {
    return OneNode("EyeLike", 9, {x}).Set("k", k).Feed(0, open).Run();
  };
  for (const bool open : {false, true}) {
    for (const int64_t k : {kLowest, kLowest + 1, int64_t{-3}, int64_t{-2}, int64_t{3}, kHighest})
      ExpectEqual(eye(k, open), Numbers(6, 0));
    ExpectEqual(eye(-1, open), {0, 0, 0, 1, 0, 0});
    ExpectEqual(eye(0, open), {1, 0, 0, 0, 1, 0});
    ExpectEqual(eye(2, open), {0, 0, 1, 0, 0, 0});
  }
}

TEST(OnnxValues, ScatterOutsideOfAnAxis) {
  const Tensor x = F({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto elements = [&](int64_t index) {
    OneNode node("ScatterElements", 18, {x, Tensor::Of<int64_t>({1, 1}, {index}), F({1, 1}, {9})});
    return node.Set("axis", int64_t{1}).Feed(0);
  };
  const auto slices = [&](const Integers& index) {
    OneNode node("ScatterND", 18, {x, Tensor::Of<int64_t>({1, 2}, index), F({1}, {9})});
    return node.Feed(0);
  };
  ExpectEqual(elements(-3).Run(), {9, 2, 3, 4, 5, 6});
  ExpectEqual(slices({-1, 2}).Run(), {1, 2, 3, 4, 5, 9});
  const auto refused = [](OneNode node, const char* why) {
    EXPECT_NE(node.Refusal().find(why), std::string::npos) << node.Refusal();
  };
  refused(elements(3), "the index 3 is outside of axis 1, which has 3 elements");
  refused(elements(-4), "the index -4 is outside of axis 1, which has 3 elements");
  refused(slices({0, 3}), "the index 3 is outside of axis 1, which has 3 elements");
  refused(slices({2, -3}), "the index 2 is outside of axis 0, which has 2 elements");
  refused(slices({-3, 5}), "the index -3 is outside of axis 0, which has 2 elements");
}

TEST(OnnxValues, PadThatRemovesTooMuch) {
  const auto pad = [](const Numbers& x, const Integers& pads) {
    return OneNode("Pad", 13, {F({static_cast<int64_t>(x.size())}, x), I(pads)}).Feed(0);
  };
  ExpectEqual(pad({1, 2}, {-2, 3}).Run(), {0, 0, 0});
  ExpectEqual(pad({1, 2, 3}, {1, -2}).Run(), {0, 1});
  ExpectEqual(pad({1, 2}, {-1, -1}).Run(), {});
  for (const Integers& pads : {Integers{-2, 3}, {3, -2}, {-1, -1}}) {
    const std::string why = pad({1}, pads).Refusal();
    EXPECT_NE(why.find("pads that remove 2 elements of axis 0, which has 1"), std::string::npos)
        << why;
  }
}

// The first Resize rounds up along an axis that it shortens, and down along one that it lengthens.
TEST(OnnxValues, ResizeOfAxesInBothDirections) {
  for (const bool fed : {false, true}) {
    OneNode node("Resize", 10, {F({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7}), F({2}, {1.5f, 0.5f})});
    node.Feed(0);
    if (fed) node.Feed(1);
    ExpectEqual(node.Run(), {0, 2, 0, 2, 4, 6});
  }
}

// --- infinite elements that are not selected ---

TEST(OnnxValues, PadOfAnInfiniteValue) {
  const Tensor x = F({1, 2}, {1, kInf}), pads = I({0, 1, 0, 2});
  for (const bool fed : {false, true}) {
    OneNode node("Pad", 13, {x, pads, F({}, {-kInf})});
    if (fed) node.Feed(0).Feed(2);
    ExpectEqual(node.Run(), {-kInf, 1, kInf, -kInf, -kInf});
  }
  const Tensor wide = x.Cast(DType::kFloat64);
  OneNode node("Pad", 13, {wide, pads, Tensor::Full<double>({}, 0.1)});
  EXPECT_EQ(node.Result().data<double>()[0], 0.1);
}

TEST(OnnxValues, PadOfLargeIntegers) {
  constexpr int64_t kLarge = (int64_t{1} << 60) + 1;
  const Tensor x = I({kLarge, kLarge + 1});
  for (const int64_t value : {kLarge, int64_t{-16777217}, int64_t{7}}) {
    for (const bool fed : {false, true}) {
      OneNode node("Pad", 13, {x, I({1, 0}), Tensor::Full<int64_t>({}, value)});
      if (fed) node.Feed(0).Feed(2);
      const Tensor result = node.Result();
      EXPECT_EQ(Integers(result.data<int64_t>(), result.data<int64_t>() + 3),
                (Integers{value, kLarge, kLarge + 1}));
    }
  }
}

TEST(OnnxValues, OneHotOfInfiniteValues) {
  for (const bool open : {false, true}) {
    OneNode node("OneHot", 11, {I({0, 2}), I({3}), F({2}, {-kInf, 0})});
    node.Feed(0, open).Feed(2);
    ExpectEqual(node.Run(), {0, -kInf, -kInf, -kInf, -kInf, 0});
  }
  constexpr int64_t kLarge = (int64_t{1} << 60) + 1;
  const Tensor result = OneNode("OneHot", 11, {I({1}), I({2}), I({1, kLarge})}).Result();
  EXPECT_EQ(result.data<int64_t>()[0], 1);
  EXPECT_EQ(result.data<int64_t>()[1], kLarge);
}

TEST(OnnxValues, CumProdOfInfiniteElements) {
  OneNode node("CumProd", 26, {F({4}, {2, -kInf, 0.5f, kInf}), I({0})});
  ExpectEqual(node.Feed(0).Run(), {2, -kInf, -kInf, -kInf});
}

// Cells in the padding are copies of their neighbours, and must not count.
TEST(OnnxValues, PoolsOfInfiniteElements) {
  const Tensor x = F({1, 1, 3}, {kInf, 1, 2});
  OneNode lp("LpPool", 11, {x});
  lp.Set("kernel_shape", Integers{2}).Set("pads", Integers{1, 1}).Set("p", int64_t{1});
  ExpectEqual(lp.Feed(0).Run(), {kInf, kInf, 3, 2});
  OneNode average("AveragePool", 19, {F({1, 1, 4}, {1, 2, 3, kInf})});
  average.Set("kernel_shape", Integers{2}).Set("pads", Integers{2, 2});
  average.Set("dilations", Integers{2});
  ExpectEqual(average.Feed(0).Run(), {1, 2, 2, kInf, 3, kInf});
}

TEST(OnnxValues, GridSampleOutsideOfInfiniteElements) {
  OneNode node("GridSample", 16, {F({1, 1, 1, 2}, {kInf, 2}), F({1, 1, 2, 2}, {-9, 0, 0.5f, 0})});
  ExpectEqual(node.Set("mode", std::string("nearest")).Feed(0).Run(), {0, 2});
}

// Steps after the end of a sequence may hold anything.
TEST(OnnxValues, RecurrentStepsBehindTheEnd) {
  const Tensor x = F({3, 1, 1}, {1, kInf, kNan}), w = F({1, 1, 1}, {1}), r = F({1, 1, 1}, {1});
  const Tensor lengths = Tensor::Of<int32_t>({1}, {1});
  for (const char* activation : {"Tanh", "ThresholdedRelu"}) {
    OneNode node("RNN", 14, {x, w, r, kAbsent, lengths});
    node.Set("hidden_size", int64_t{1}).Set("activations", std::vector<std::string>{activation});
    const std::vector<Tensor> results = node.Feed(0).Outputs(2).Results();
    const float wanted = activation[1] == 'a' ? std::tanh(1.0f) : 0.0f;
    ExpectNear({results[0].data<float>(), results[0].data<float>() + 3}, {wanted, 0, 0});
    EXPECT_NEAR(results[1].Item<float>(), wanted, 1e-6f);
  }
}

// The squares in the formulas overflow long before the results do.
TEST(OnnxValues, InverseHyperbolicsOfLargeNumbers) {
  const std::vector<double> numbers = {1,   1.001, 5,    90,   1e3,  9.9e7,
                                       1e8, 1.1e8, 1e15, 1e19, 1e30, HUGE_VAL};
  Tensor x(DType::kFloat64, {static_cast<int64_t>(numbers.size())});
  std::copy(numbers.begin(), numbers.end(), x.data<double>());
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const double tolerance = dtype == DType::kFloat64 ? 1e-14 : 2e-6;
    const Tensor in = x.Cast(dtype), wide = in.Cast(DType::kFloat64);
    for (const char* type : {"Asinh", "Acosh"}) {
      const Tensor y = OneNode(type, 9, {in}).Feed(0).Result().Cast(DType::kFloat64);
      for (int64_t i = 0; i < x.numel(); ++i) {
        const double at = wide.data<double>()[i], got = y.data<double>()[i];
        const double want = type[1] == 's' ? std::asinh(at) : std::acosh(at);
        EXPECT_TRUE(got == want || std::abs(got - want) <= tolerance * want)
            << type << " " << ToString(dtype) << " " << at << ": " << got << ", wanted " << want;
      }
    }
  }
  ExpectEqual(OneNode("Asinh", 9, {F({1}, {-kInf})}).Feed(0).Run(), {-kInf});
  ExpectNear(OneNode("Asinh", 9, {F({1}, {-1e30f})}).Feed(0).Run(), {-std::asinh(1e30f)});
}

// Below its domain acosh is nan, and near -1 atanh is what it is near 1.
TEST(OnnxValues, InverseHyperbolicsAtTheirBounds) {
  const Numbers below = {0.999f, 0, -1, -2, -1e5f, -1e6f, -1e8f, -1e20f, -kInf, kNan};
  ExpectEqual(OneNode("Acosh", 9, {F({10}, below)}).Feed(0).Run(), Numbers(10, kNan));
  const Numbers x = {-0.99999994f, -0.999999821f, -0.9999f, -0.5f, -1e-20f, 1e-20f, 0.99999994f};
  const Numbers y = OneNode("Atanh", 9, {F({7}, x)}).Feed(0).Run();
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::atanh(static_cast<double>(x[i]));
    EXPECT_NEAR(static_cast<double>(y[i]), want, 1e-6 * std::abs(want)) << x[i];
  }
  ExpectEqual(OneNode("Atanh", 9, {F({5}, {-1, 1, -1.5f, 2, kInf})}).Feed(0).Run(),
              {-kInf, kInf, kNan, kNan, kNan});
  for (const char* type : {"Asinh", "Atanh"}) {
    const Numbers zeros = OneNode(type, 9, {F({2}, {-0.0f, 0.0f})}).Feed(0).Run();
    EXPECT_TRUE(zeros[0] == 0 && std::signbit(zeros[0])) << type;
    EXPECT_TRUE(zeros[1] == 0 && !std::signbit(zeros[1])) << type;
  }
}

// --- nothing to count ---

// 0 / 0, whatever else the node says.
TEST(OnnxValues, MeanLossOfAnEmptyBatch) {
  const auto run = [](bool open, bool ignored, bool weighted) {
    std::vector<std::optional<Tensor>> inputs = {F({0, 3}, {}), I({})};
    if (weighted) inputs.push_back(F({3}, {1, 1, 1}));
    OneNode node("NegativeLogLikelihoodLoss", 13, inputs);
    if (ignored) node.Set("ignore_index", int64_t{-100});
    return node.Feed(0).Feed(1, open).Run();
  };
  for (const bool open : {false, true}) {
    for (const bool ignored : {false, true}) {
      for (const bool weighted : {false, true}) ExpectEqual(run(open, ignored, weighted), {kNan});
    }
  }
}

TEST(OnnxValues, MeanLossOfNoLabels) {
  const Tensor x = F({2, 3}, {0, 0, 0, 0, 0, 0}), labels = I({1, 1});
  const auto run = [&](const char* type, int64_t ignored, const std::string& reduction) {
    OneNode node(type, 13, {x, labels});
    return node.Set("ignore_index", ignored).Set("reduction", reduction).Feed(0).Run();
  };
  const float each = std::log(3.0f);
  ExpectEqual(run("SoftmaxCrossEntropyLoss", 1, "mean"), {kNan});
  ExpectEqual(run("NegativeLogLikelihoodLoss", 1, "mean"), {kNan});
  ExpectNear(run("SoftmaxCrossEntropyLoss", 2, "mean"), {each});
  ExpectEqual(run("SoftmaxCrossEntropyLoss", 1, "sum"), {0});
  ExpectEqual(run("SoftmaxCrossEntropyLoss", 1, "none"), {0, 0});
  const Tensor weights = F({3}, {1, 0, 1});
  ExpectEqual(OneNode("SoftmaxCrossEntropyLoss", 13, {x, labels, weights}).Feed(0).Run(), {kNan});
}

}  // namespace coracle::onnx::onnx_values_test

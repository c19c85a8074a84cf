#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/resample.h>
#include <coracle/test/error_of.h>
#include <coracle/test/op_test.h>
#include <coracle/test/sanitizers.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <numeric>

namespace coracle::interp_test {

OpTest Interp(bool align = false) {
  OpTest test("nearest_interp_v2");
  test.Attr("align_corners", align);
  return test;
}

const std::vector<double> kImage = {1, 2, 3, 4};

// In double the weights have all its digits; the ratio is float32, as in Paddle.
TEST(BicubicInterp, WeightsOfDoubles) {
  const std::vector<double> x = {1, -2, 5, 0.5, 3};
  const auto cubic = [](double t) {
    const double a = -0.75, d = std::abs(t);
    return d <= 1 ? (a + 2) * d * d * d - (a + 3) * d * d + 1
                  : a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a;
  };
  const auto ratio = static_cast<double>(5.f / 7.f);
  std::vector<double> want;
  for (int k = 0; k < 7; ++k) {
    const double at = ratio * (k + 0.5) - 0.5, low = std::floor(at);
    double sum = 0;
    for (int t = -1; t <= 2; ++t) {
      const int place = std::min(std::max(static_cast<int>(low) + t, 0), 4);
      sum += cubic(at - low - t) * x[static_cast<size_t>(place)];
    }
    want.push_back(sum);
  }
  const Tensor line = Tensor::Of<double>({1, 1, 1, 5}, x);
  OpTest test("bicubic_interp");
  test.Attr("align_corners", false).Attr("out_h", 1).Attr("out_w", 7);
  const Tensor out = test.TensorInput("X", line).Output("Out", KernelMode::kReference);
  for (size_t k = 0; k < want.size(); ++k) EXPECT_NEAR(out.data<double>()[k], want[k], 1e-13);
}

TEST(NearestInterp, Values) {
  const std::vector<double> doubled = {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4};
  Interp()
      .Attr("scale", std::vector<float>{2, 2})
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 4, 4}, doubled)
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  Interp()
      .Attr("scale", std::vector<float>{2})
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 4, 4}, doubled);
  Interp()
      .Attr("out_h", 1)
      .Attr("out_w", 3)
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 1, 3}, {1, 1, 2})
      .CheckGradient({"X"});
  // Corners: rows 0, 0.5 -> 1, 1.
  Interp(true)
      .Attr("out_h", 3)
      .Attr("out_w", 2)
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 3, 2}, {1, 2, 3, 4, 3, 4})
      .CheckGradient({"X"});
  Interp(true)
      .Attr("out_h", 1)
      .Attr("out_w", 1)
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 1, 1}, {1});
  Interp()
      .Attr("scale", std::vector<float>{2})
      .Input("X", {0, 1, 2, 2}, {})
      .Expect("Out", {0, 1, 4, 4}, {});
}

TEST(NearestInterp, ChannelsLast) {
  Interp()
      .Attr("data_layout", std::string("NHWC"))
      .Attr("scale", std::vector<float>{1, 2})
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 4, 2}, {1, 2, 1, 2, 3, 4, 3, 4})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(NearestInterp, SizeFromTensors) {
  Interp()
      .Attr("scale", std::vector<float>{4})
      .Input("X", {1, 1, 2, 2}, kImage)
      .IntInput("SizeTensor", {1}, {1})
      .IntInput("SizeTensor", {1}, {4}, DType::kInt32)
      .IntInput("OutSize", {2}, {9, 9})
      .Expect("Out", {1, 1, 1, 4}, {1, 1, 2, 2})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  Interp()
      .Input("X", {1, 1, 2, 2}, kImage)
      .IntInput("OutSize", {2}, {1, 4}, DType::kInt32)
      .Expect("Out", {1, 1, 1, 4}, {1, 1, 2, 2});
  Interp()
      .Attr("out_h", 9)
      .Input("X", {1, 1, 2, 2}, kImage)
      .TensorInput("Scale", Tensor::Of<float>({2}, {1.f, 2.f}))
      .Expect("Out", {1, 1, 2, 4}, {1, 1, 2, 2, 3, 3, 4, 4});
}

TEST(NearestInterp, FirstVersion) {
  OpTest("nearest_interp")
      .Attr("scale", 2.f)
      .Attr("align_corners", false)
      .Input("X", {1, 1, 1, 2}, {1, 2})
      .Expect("Out", {1, 1, 2, 4}, {1, 1, 2, 2, 1, 1, 2, 2})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(NearestInterp, Constraints) {
  for (const std::string type : {"nearest_interp", "nearest_interp_v2"}) {
    auto op = [&] {
      OpTest test(type);
      test.Input("X", {1, 1, 2, 2}, kImage);
      return test;
    };
    OpTest(type).Input("X", {1}, {1}).ExpectError(type + ".C1");
    OpTest(type).Input("X", {1, 1, 0, 2}, {}).ExpectError(type + ".C2");
    op().IntInput("OutSize", {3}, {1, 1, 1}).ExpectError(type + ".C3");
    op().ExpectError(type + ".C4");
    op().Attr("out_h", 2).Attr("out_w", -3).ExpectError(type + ".C4");
    op().TensorInput("Scale", Tensor::Of<float>({1}, {1e30f})).ExpectError(type + ".C4");
    op().TensorInput("Scale", Tensor::Of<float>({3}, {1, 1, 1})).ExpectError(type + ".C5");
    OpTest(type + "_grad")
        .Attr("out_h", 2)
        .Attr("out_w", 2)
        .Input("X", {1, 1, 1, 1}, {1})
        .Input("Out@GRAD", {1}, {1})
        .ExpectError(type + "_grad.C6");
  }
}

OpTest Resize(const std::string& type, bool align, int32_t mode, const std::vector<int32_t>& size) {
  OpTest test(type);
  test.Attr("align_corners", align).Attr("align_mode", mode);
  const char* const attrs[] = {"out_d", "out_h", "out_w"};
  for (size_t i = 0; i < size.size(); ++i) test.Attr(attrs[3 - size.size() + i], size[i]);
  return test;
}

TEST(Interp, Linear) {
  for (const std::string version : {"", "_v2"}) {
    // x = 0, 0.5, 1, 1.5 (the last element repeats), and 0, 0.25, 0.75, 1.25 from pixel centres.
    Resize("linear_interp" + version, false, 1, {4})
        .Input("X", {1, 1, 2}, {1, 3})
        .Expect("Out", {1, 1, 4}, {1, 2, 3, 3})
        .CheckGradient({"X"})
        .CheckHigherGradients();
    Resize("linear_interp" + version, false, 0, {4})
        .Input("X", {1, 1, 2}, {1, 3})
        .Expect("Out", {1, 1, 4}, {1, 1.5, 2.5, 3});
    Resize("linear_interp" + version, true, 0, {1})
        .Input("X", {1, 1, 2}, {1, 3})
        .Expect("Out", {1, 1, 1}, {1});
    Resize("bilinear_interp" + version, true, 1, {3, 3})
        .Input("X", {1, 1, 2, 2}, kImage)
        .Expect("Out", {1, 1, 3, 3}, {1, 1.5, 2, 2, 2.5, 3, 3, 3.5, 4})
        .CheckGradient({"X"})
        .CheckHigherGradients();
    Resize("bilinear_interp" + version, true, 1, {1, 3})
        .Attr("data_layout", std::string("NHWC"))
        .Input("X", {1, 1, 2, 2}, kImage)
        .Expect("Out", {1, 1, 3, 2}, {1, 2, 2, 3, 3, 4})
        .CheckGradient({"X"});
    Resize("bilinear_interp" + version, true, 1, {1, 3})
        .TensorInput("X", Tensor::Of<uint8_t>({1, 1, 1, 2}, {1, 254}))
        .Expect("Out", {1, 1, 1, 3}, {1, 127, 254});
    Resize("trilinear_interp" + version, true, 1, {3, 3, 1})
        .Input("X", {1, 1, 2, 2, 1}, kImage)
        .Expect("Out", {1, 1, 3, 3, 1}, {1, 1.5, 2, 2, 2.5, 3, 3, 3.5, 4})
        .CheckGradient({"X"})
        .CheckHigherGradients();
    Resize("trilinear_interp" + version, false, 0, {4, 4, 4})
        .RandomInput("X", {2, 2, 2, 3, 2})
        .CheckGradient({"X"});
    Resize("bilinear_interp" + version, true, 1, {2, 2})
        .Input("X", {0, 1, 2, 2}, {})
        .Expect("Out", {0, 1, 2, 2}, {});
  }
}

TEST(Interp, Cubic) {
  // At the middles of pixels the weights are -3/32, 19/32, 19/32, -3/32.
  for (const std::string version : {"", "_v2"}) {
    Resize("bicubic_interp" + version, true, 1, {1, 9})
        .Input("X", {1, 1, 1, 5}, {1, 2, 4, 8, 16})
        .Expect("Out", {1, 1, 1, 9}, {1, 1.3125, 2, 2.71875, 4, 5.4375, 8, 12.375, 16})
        .CheckGradient({"X"})
        .CheckHigherGradients();
    // x = 0.5 and 2.5.
    Resize("bicubic_interp" + version, false, 1, {2, 1})
        .Input("X", {1, 1, 4, 1}, {1, 2, 4, 8})
        .Expect("Out", {1, 1, 2, 1}, {1.3125, -0.09375 * 10 + 0.59375 * 12});
    Resize("bicubic_interp" + version, false, 1, {3, 5})
        .RandomInput("X", {2, 3, 2, 2})
        .Attr("data_layout", std::string("NHWC"))
        .CheckGradient({"X"});
  }
}

TEST(Interp, FastAgainstReference) {
  std::mt19937 random(6);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  struct {
    const char* method;
    int axes;
  } kinds[] = {{"linear", 1}, {"nearest", 2}, {"bilinear", 2}, {"bicubic", 2}, {"trilinear", 3}};
  for (int trial = 0; trial < 150; ++trial) {
    const auto& kind = kinds[trial % 5];
    const bool last = pick(0, 2) == 0;
    Shape x{pick(1, 2)};
    std::vector<int32_t> sizes;
    const int64_t channels = pick(1, last ? kind.axes == 1 ? 150 : 20 : 3);
    if (!last) x.Append(channels);
    const int most = kind.axes == 3 ? 6 : 16;
    for (int i = 0; i < kind.axes; ++i) {
      const bool wide = i + 1 == kind.axes && !last && pick(0, 1) == 0;
      const int in = pick(1, wide ? 200 : most), out = pick(1, wide ? 200 : 2 * most);
      x.Append(in);
      sizes.push_back(pick(0, 3) == 0 ? in : out);
    }
    if (last) x.Append(channels);
    SCOPED_TRACE(::testing::Message() << kind.method << " " << x.ToString() << " trial " << trial);
    OpTest test = Resize(kind.method + std::string(pick(0, 1) ? "_interp" : "_interp_v2"),
                         pick(0, 1) == 1, pick(0, 1), sizes);
    const std::string layouts[] = {"NCHW", "NHWC"};
    test.Attr("data_layout", layouts[last]).RandomInput("X", x).CheckFast(1e-5);
  }
  Resize("bilinear_interp", true, 0, {7, 9})
      .Attr("data_layout", std::string("NHWC"))
      .RandomInput("X", {2, 5, 6, 150})
      .CheckFast(1e-5);
  // Rows longer than a tile, a strong reduction, and elements that many others read.
  Resize("bilinear_interp", false, 0, {2, 5000}).RandomInput("X", {1, 1, 2, 9000}).CheckFast(1e-5);
  Resize("bilinear_interp", false, 0, {2, 3}).RandomInput("X", {1, 1, 30, 9000}).CheckFast(1e-5);
  Resize("bilinear_interp", false, 0, {90, 900}).RandomInput("X", {1, 1, 3, 3}).CheckFast(1e-5);
  // The reference kernel adds 10000 numbers one by one.
  Resize("bicubic_interp", true, 0, {70, 800}).RandomInput("X", {2, 1, 5, 7}).CheckFast(1e-4);
  // Scale and size disagree: most places are past the end of X.
  OpTest("bilinear_interp_v2")
      .Attr("scale", std::vector<float>{0.5f})
      .IntInput("OutSize", {2}, {40, 500})
      .RandomInput("X", {1, 2, 9, 60})
      .CheckFast(1e-5);
}

// A gradient that is not finite reaches the elements that counted in its place of Out, no others.
TEST(Interp, GradientsThatAreNotFiniteDoNotSpread) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  Resize("bilinear_interp_grad", true, 1, {1, 2})
      .RandomInput("X", {1, 1, 1, 8})
      .Input("Out@GRAD", {1, 1, 1, 2}, {inf, 1})
      .Expect("X@GRAD", {1, 1, 1, 8}, {inf, 0, 0, 0, 0, 0, 0, 1});
  Resize("bilinear_interp_grad", true, 1, {2, 1})
      .RandomInput("X", {1, 1, 8, 1})
      .Input("Out@GRAD", {1, 1, 2, 1}, {-inf, nan})
      .Expect("X@GRAD", {1, 1, 8, 1}, {-inf, 0, 0, 0, 0, 0, 0, nan});
  // Two channels, which come last.
  Resize("bilinear_interp_grad", true, 1, {1, 2})
      .Attr("data_layout", std::string("NHWC"))
      .RandomInput("X", {1, 1, 4, 2})
      .Input("Out@GRAD", {1, 1, 2, 2}, {inf, 1, 1, nan})
      .Expect("X@GRAD", {1, 1, 4, 2}, {inf, 1, 0, 0, 0, 0, 1, nan});
  // Two elements count by halves.
  Resize("bilinear_interp_grad", false, 0, {1, 2})
      .RandomInput("X", {1, 1, 1, 4})
      .Input("Out@GRAD", {1, 1, 1, 2}, {inf, 1})
      .Expect("X@GRAD", {1, 1, 1, 4}, {inf, inf, 0.5, 0.5});
  // The first element counts in places 0 to 3 (4 has weight 0), the second in 1 to 7.
  Resize("linear_interp_grad", false, 1, {8})
      .RandomInput("X", {1, 1, 2})
      .Input("Out@GRAD", {1, 1, 8}, {0, 0, 0, 0, inf, 0, 0, 0})
      .Expect("X@GRAD", {1, 1, 2}, {0, inf});
}

// Forward a neighbour of weight 0 is read: 0 times inf is nan.
TEST(Interp, FastAgainstReferenceNotFinite) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  Resize("linear_interp", true, 1, {3})
      .Input("X", {1, 1, 2}, {1, inf})
      .Expect("Out", {1, 1, 3}, {nan, inf, nan});
  std::mt19937 random(8);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const std::string layouts[] = {"NCHW", "NHWC"};
  for (int trial = 0; trial < 80; ++trial) {
    const bool last = pick(0, 1) == 1, align = pick(0, 1) == 1;
    const int64_t h = pick(1, 9), w = pick(1, 40), channels = pick(1, 20);
    const int out_h = pick(1, 12), out_w = pick(1, 60), mode = pick(0, 1);
    const auto make = [&](const std::string& type) {
      OpTest test = Resize(type, align, mode, {out_h, out_w});
      test.Attr("data_layout", layouts[last]);
      return test;
    };
    const auto shape = [&](int64_t rows, int64_t columns) {
      return last ? Shape{2, rows, columns, channels} : Shape{2, channels, rows, columns};
    };
    const auto values = [&](const Shape& of) {
      std::vector<double> all(static_cast<size_t>(of.numel()));
      for (double& v : all) v = pick(0, 40) ? pick(-9, 9) / 8.0 : pick(0, 2) ? inf : nan;
      return all;
    };
    const Shape x = shape(h, w), out = shape(out_h, out_w);
    SCOPED_TRACE(::testing::Message() << x.ToString() << " to " << out.ToString() << " align "
                                      << align << " mode " << mode << " trial " << trial);
    for (const std::string type : {"bilinear_interp", "nearest_interp"}) {
      make(type).Input("X", x, values(x)).CheckFast(1e-4);
      make(type + "_grad").RandomInput("X", x).Input("Out@GRAD", out, values(out)).CheckFast(1e-4);
    }
    make("bicubic_interp").Input("X", x, values(x)).CheckFast(1e-4);
  }
}

TEST(Interp, TransposedMap) {
  // k = 0: element 0 twice; 1: 0 with weight 0, and 2; 2: 0 and 2.
  AxisMap map;
  map.in = 4;
  map.out = 3;
  map.begin = {0, 2, 4, 6};
  map.at = {0, 0, 0, 2, 0, 2};
  map.weight = {0.5f, 0.25f, 0, 1, 2, 3};
  const AxisMap back = Transposed(map);
  EXPECT_EQ(back.in, 3);
  EXPECT_EQ(back.out, 4);
  EXPECT_EQ(back.begin, (std::vector<int64_t>{0, 2, 2, 4, 4}));
  EXPECT_EQ(back.at, (std::vector<int32_t>{0, 2, 1, 2}));
  EXPECT_EQ(back.weight, (std::vector<float>{0.75f, 2, 1, 3}));
}

// A row of tables is at least as long as a vector, also where one element is made.
TEST(Interp, TablesStaySmall) {
  AxisMap one;
  one.begin = {0, 1};
  one.at = {0};
  one.weight = {1};
  const auto usable = [&](int64_t taps) {
    AxisMap width;
    width.in = taps;
    width.begin = {0, taps};
    width.at.resize(static_cast<size_t>(taps));
    std::iota(width.at.begin(), width.at.end(), 0);
    width.weight.assign(static_cast<size_t>(taps), 1);
    return Resample({one, one, width}, 1, 2, false).usable();
  };
  EXPECT_TRUE(usable(1000));
  EXPECT_FALSE(usable(1 << 20));
}

// An axis of 2^24 - 1 elements has no tables: one of 24 bytes for each would take 400 MB.
TEST(InterpDeathTest, LongAxesInLittleMemory) {
  if (UnderSanitizer()) GTEST_SKIP() << "sanitizers take the address space";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    SetNumThreads(1);
    const int64_t width = (1 << 24) - 1;
    OpTest test = Resize("bilinear_interp_grad", true, 1, {1, 2});
    test.TensorInput("X", Tensor::Zeros(DType::kFloat32, {1, 1, 1, width}));
    test.TensorInput("Out@GRAD", Tensor::Of<float>({1, 1, 1, 2}, {2, 3}));
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
    limit.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (400 << 20));
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(3);
    const Tensor dx = test.Output("X@GRAD");
    const float* to = dx.data<float>();
    std::exit(to[0] == 2 && to[1] == 0 && to[width - 1] == 3 ? 0 : 4);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST(Interp, FirstVersionTakesTheRatioOfSizes) {
  for (const bool v2 : {false, true}) {
    OpTest test(v2 ? "nearest_interp_v2" : "nearest_interp");
    test.Attr("align_corners", false);
    if (v2)
      test.Attr("scale", std::vector<float>{1});
    else
      test.Attr("scale", 1.f);
    test.Input("X", {1, 1, 1, 2}, {1, 2})
        .IntInput("OutSize", {2}, {1, 4})
        .Expect("Out", {1, 1, 1, 4},
                v2 ? std::vector<double>{1, 2, 2, 2} : std::vector<double>{1, 1, 2, 2});
  }
}

TEST(Interp, OneFactorServesVolumes) {
  OpTest("trilinear_interp_v2")
      .Attr("scale", std::vector<float>{2})
      .Attr("align_corners", false)
      .Input("X", {1, 1, 1, 1, 2}, {1, 3})
      .Expect("Out", {1, 1, 2, 2, 4}, {1, 2, 3, 3, 1, 2, 3, 3, 1, 2, 3, 3, 1, 2, 3, 3});
}

TEST(Interp, OfTheFirstFiles) {
  const auto op = [](const char* method) {
    return std::move(OpTest("interpolate")
                         .Attr("interp_method", std::string(method))
                         .Attr("out_h", 2)
                         .Attr("out_w", 3)
                         .Input("X", {1, 1, 1, 2}, {1, 3}));
  };
  op("bilinear").Expect("Out", {1, 1, 2, 3}, {1, 2, 3, 1, 2, 3}).CheckGradient({"X"});
  op("bilinear").CheckHigherGradients();
  op("nearest").Expect("Out", {1, 1, 2, 3}, {1, 3, 3, 1, 3, 3}).CheckGradient({"X"});
  op("nearest").IntInput("OutSize", {2}, {1, 1}, DType::kInt32).Expect("Out", {1, 1, 1, 1}, {1});
}

TEST(Interp, TheMethodIsThatOfTheType) {
  for (const std::string version : {"", "_v2"}) {
    for (const std::string method : {"linear", "nearest", "bilinear", "bicubic", "trilinear"}) {
      Shape ones = {1, 1, 1};
      for (int i = method == "linear" ? 1 : method == "trilinear" ? 3 : 2; i > 1; --i)
        ones.Append(1);
      const std::string type = method + "_interp" + version;
      OpTest test(type);
      for (const char* size : {"out_d", "out_h", "out_w"}) test.Attr(size, 1);
      test.Attr("interp_method", method).Input("X", ones, {5}).Expect("Out", ones, {5});
      const std::string other = method == "nearest" ? "bilinear" : "nearest";
      const std::string error = ErrorOf([&] {
        ProgramDesc program;
        program.Root().Var("x").SetShape(ones);
        const Writer writer{program.Root(), DefaultOps()};
        writer.Make(type, {{"X", {"x"}}},
                    {{"out_d", 1}, {"out_h", 1}, {"out_w", 1}, {"interp_method", other}});
      });
      EXPECT_NE(error.find("attr interp_method must be one of " + method + ", got"),
                std::string::npos)
          << error;
    }
  }
}

TEST(Interp, ConstraintsOfAll) {
  struct Form {
    const char* type;
    int axes;
  };
  for (const Form& form : {Form{"linear_interp", 1},
                           {"linear_interp_v2", 1},
                           {"bilinear_interp", 2},
                           {"bilinear_interp_v2", 2},
                           {"bicubic_interp", 2},
                           {"bicubic_interp_v2", 2},
                           {"trilinear_interp", 3},
                           {"trilinear_interp_v2", 3},
                           {"interpolate", 2}}) {
    const std::string type = form.type;
    const auto op = [&](const std::string& name, int64_t width, int axes) {
      OpTest test(name);
      if (type == "interpolate") test.Attr("interp_method", std::string("nearest"));
      Shape shape{1, 1};
      for (int i = 0; i < axes; ++i) shape.Append(i + 1 < axes ? 1 : width);
      test.RandomInput("X", shape);
      return test;
    };
    op(type, 2, form.axes + 1).ExpectError(type + ".C1");
    op(type, 0, form.axes).ExpectError(type + ".C2");
    op(type, 2, form.axes).IntInput("OutSize", {4}, {1, 1, 1, 1}).ExpectError(type + ".C3");
    op(type, 2, form.axes).ExpectError(type + ".C4");
    op(type, 2, form.axes)
        .TensorInput("Scale", Tensor::Zeros(DType::kFloat32, {4}))
        .ExpectError(type + ".C5");
    op(type + "_grad", 2, form.axes)
        .Attr("out_d", 1)
        .Attr("out_h", 1)
        .Attr("out_w", 1)
        .Input("Out@GRAD", {1}, {1})
        .ExpectError(type + "_grad.C6");
  }
}

}  // namespace coracle::interp_test

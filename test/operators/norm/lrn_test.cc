#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace coracle::lrn_test {

TEST(Lrn, Values) {
  // Squares 1, 4, 9, 16; sums of three: 5, 14, 29, 25.
  for (const std::string layout : {"AnyLayout", "NHWC"}) {
    const Shape shape = layout == "NHWC" ? Shape{1, 1, 1, 4} : Shape{1, 4, 1, 1};
    OpTest("lrn")
        .Attr("n", 3)
        .Attr("k", 1.f)
        .Attr("alpha", 2.f)
        .Attr("beta", 0.5f)
        .Attr("data_format", layout)
        .Input("X", shape, {1, -2, 3, 4})
        .Expect("MidOut", shape, {11, 29, 59, 51})
        .Expect(
            "Out", shape,
            {1 / std::sqrt(11.0), -2 / std::sqrt(29.0), 3 / std::sqrt(59.0), 4 / std::sqrt(51.0)});
  }
  // Pixels do not mix.
  OpTest("lrn")
      .Attr("k", 0.f)
      .Attr("alpha", 1.f)
      .Attr("beta", 1.f)
      .Input("X", {1, 2, 1, 2}, {1, 2, 3, 4})
      .Expect("MidOut", {1, 2, 1, 2}, {10, 20, 10, 20})
      .Expect("Out", {1, 2, 1, 2}, {0.1, 0.1, 0.3, 0.2});
  OpTest("lrn").Input("X", {0, 2, 1, 1}, {}).Expect("Out", {0, 2, 1, 1}, {});
}

// Against the formula, with more elements than a block has.
TEST(Lrn, ManyChannelsAndPixels) {
  for (const bool last : {false, true}) {
    constexpr int64_t kChannels = 150, kPixels = 140;
    const auto value = [](int64_t c, int64_t i) {
      return static_cast<double>((c * 31 + i * 17) % 23) / 10 - 1;
    };
    std::vector<double> x, out;
    for (int64_t at = 0; at < kChannels * kPixels; ++at) {
      const int64_t c = last ? at % kChannels : at / kPixels;
      const int64_t i = last ? at / kChannels : at % kPixels;
      double sum = 0;
      for (int64_t j = std::max<int64_t>(0, c - 2); j <= std::min(c + 2, kChannels - 1); ++j)
        sum += value(j, i) * value(j, i);
      x.push_back(value(c, i));
      out.push_back(value(c, i) / std::pow(1 + 0.5 * sum, 0.75));
    }
    const Shape shape = last ? Shape{1, 1, kPixels, kChannels} : Shape{1, kChannels, 1, kPixels};
    OpTest("lrn")
        .Attr("k", 1.f)
        .Attr("alpha", 0.5f)
        .Attr("data_format", std::string(last ? "NHWC" : "NCHW"))
        .Input("X", shape, x)
        .Expect("Out", shape, out);
  }
}

// A value that is not finite spreads over its window only: running sums are not subtracted.
TEST(Lrn, NotFinite) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const bool last : {false, true}) {
    constexpr int64_t kChannels = 140, kPixels = 3;
    const auto value = [&](int64_t c, int64_t i) {
      if (i == 0 && c == 10) return inf;
      if (i == 1 && c == 127) return -inf;
      if (i == 1 && c == 60) return nan;
      return static_cast<double>((c * 31 + i * 17) % 23) / 10 - 1.05;
    };
    std::vector<double> x, mid, out;
    for (int64_t at = 0; at < kChannels * kPixels; ++at) {
      const int64_t c = last ? at % kChannels : at / kPixels;
      const int64_t i = last ? at / kChannels : at % kPixels;
      double sum = 0;
      for (int64_t j = std::max<int64_t>(0, c - 2); j <= std::min(c + 2, kChannels - 1); ++j)
        sum += value(j, i) * value(j, i);
      x.push_back(value(c, i));
      mid.push_back(1 + 0.5 * sum);
      out.push_back(value(c, i) * std::pow(mid.back(), -0.75));
    }
    const Shape shape = last ? Shape{1, 1, kPixels, kChannels} : Shape{1, kChannels, 1, kPixels};
    OpTest("lrn")
        .Attr("k", 1.f)
        .Attr("alpha", 0.5f)
        .Attr("data_format", std::string(last ? "NHWC" : "NCHW"))
        .Input("X", shape, x)
        .Expect("MidOut", shape, mid)
        .Expect("Out", shape, out)
        .CheckFast();
  }
}

TEST(Lrn, Gradients) {
  for (const std::string layout : {"NCHW", "NHWC"}) {
    OpTest("lrn")
        .Attr("n", 3)
        .Attr("alpha", 0.5f)
        .Attr("data_format", layout)
        .RandomInput("X", {2, 4, 2, 3})
        .CheckGradient({"X"});
  }
}

// MidOut is negative, so Out is nan; a loss of MidOut alone still has a gradient.
TEST(Lrn, GradientOfMidOutAlone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  OpTest("lrn_grad")
      .Attr("n", 1)
      .Attr("k", -1.f)
      .Attr("alpha", 0.25f)
      .Input("X", {1, 1, 1, 2}, {1, -1})
      .Input("Out", {1, 1, 1, 2}, {nan, nan})
      .Input("MidOut", {1, 1, 1, 2}, {-0.75, -0.75})
      .Input("Out@GRAD", {1, 1, 1, 2}, {0, 0})
      .Input("MidOut@GRAD", {1, 1, 1, 2}, {1, 2})
      .Expect("X@GRAD", {1, 1, 1, 2}, {0.5, -1});
}

TEST(Lrn, Constraints) {
  OpTest("lrn").RandomInput("X", {2, 2}).ExpectError("lrn.C1");
  for (const int n : {0, -1, 4})
    OpTest("lrn").Attr("n", n).RandomInput("X", {1, 1, 1, 1}).ExpectError("lrn.C2");
  OpTest("lrn_grad")
      .RandomInput("X", {1, 1, 1, 1})
      .RandomInput("Out", {1, 1, 1, 1})
      .RandomInput("MidOut", {1, 1, 1, 2})
      .RandomInput("Out@GRAD", {1, 1, 1, 1})
      .ExpectError("lrn_grad.C3");
}

}  // namespace coracle::lrn_test

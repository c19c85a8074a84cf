#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::round_to_format_test {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// All numbers of a format with `exponents` bits of exponent and `digits` of mantissa, from its
// definition: bits beyond those of the largest number are not finite.
std::vector<double> Numbers(int exponents, int digits, int bias, double largest) {
  std::vector<double> numbers;
  for (int e = 0; e < 1 << exponents; ++e) {
    for (int m = 0; m < 1 << digits; ++m) {
      const double part = std::ldexp(m, -digits) + (e > 0 ? 1 : 0);
      const double value = std::ldexp(part, (e > 0 ? e : 1) - bias);
      if (value <= largest) numbers.push_back(value);
    }
  }
  return numbers;
}

std::vector<float> Rounded(const std::string& format, const std::vector<float>& x,
                           bool saturate = true, const std::string& mode = "up") {
  OpTest op("round_to_format");
  op.Attr("format", format)
      .Attr("saturate", saturate)
      .Attr("round_mode", mode)
      .TensorInput("X", Tensor::Of<float>({static_cast<int64_t>(x.size())}, x));
  const Tensor out = op.Output("Out");
  const auto values = out.span<float>();
  return {values.begin(), values.end()};
}

// The numbers themselves stay, the middle of two goes to the one with an even index, and what is
// left and right of the middle to the nearer one.
void CheckFormat(const std::string& format, const std::vector<double>& numbers) {
  for (const float sign : {1.0f, -1.0f}) {
    for (size_t i = 0; i + 1 < numbers.size(); ++i) {
      const auto low = static_cast<float>(numbers[i]), high = static_cast<float>(numbers[i + 1]);
      const float middle = (low + high) / 2;
      const std::vector<float> x = {sign * low, sign * middle, sign * std::nextafter(middle, 0.0f),
                                    sign * std::nextafter(middle, 1e6f), sign * high};
      const std::vector<float> wanted = {sign * low, sign * (i % 2 == 0 ? low : high), sign * low,
                                         sign * high, sign * high};
      EXPECT_EQ(Rounded(format, x), wanted) << format << " between " << low << " and " << high;
    }
  }
}

TEST(RoundToFormat, Nearest) {
  CheckFormat("float8e4m3fn", Numbers(4, 3, 7, 448));
  CheckFormat("float8e4m3fnuz", Numbers(4, 3, 8, 240));
  CheckFormat("float8e5m2", Numbers(5, 2, 15, 57344));
  CheckFormat("float8e5m2fnuz", Numbers(5, 2, 16, 57344));
  CheckFormat("float4e2m1", Numbers(2, 1, 1, 6));
}

// The two tables of ONNX's Cast: with and without saturation.
TEST(RoundToFormat, BeyondTheLargest) {
  struct Row {
    const char* format;
    double largest, beyond, infinite;  // without saturation
  };
  for (const Row& row :
       {Row{"float8e4m3fn", 448, kNan, kNan}, Row{"float8e4m3fnuz", 240, kNan, kNan},
        Row{"float8e5m2", 57344, kInf, kInf}, Row{"float8e5m2fnuz", 57344, kNan, kNan}}) {
    for (const double sign : {1.0, -1.0}) {
      OpTest("round_to_format")
          .Attr("format", std::string(row.format))
          .Input("X", {4}, {sign * 1e6, sign * kInf, kNan, sign * row.largest * 1.01})
          .Expect("Out", {4}, {sign * row.largest, sign * row.largest, kNan, sign * row.largest});
      OpTest("round_to_format")
          .Attr("format", std::string(row.format))
          .Attr("saturate", false)
          .Input("X", {4}, {sign * 1e6, sign * kInf, kNan, sign * row.largest * 1.01})
          .Expect("Out", {4}, {sign * row.beyond, sign * row.infinite, kNan, sign * row.largest});
    }
  }
  OpTest("round_to_format")
      .Attr("format", std::string("float4e2m1"))
      .Input("X", {4}, {1e6, -kInf, kNan, -7})
      .Expect("Out", {4}, {6, -6, 6, -6});
}

TEST(RoundToFormat, NegativeZero) {
  for (const char* format : {"float8e4m3fn", "float8e5m2", "float4e2m1"})
    EXPECT_TRUE(std::signbit(Rounded(format, {-0.0f})[0])) << format;
  for (const char* format : {"float8e4m3fnuz", "float8e5m2fnuz"})
    EXPECT_FALSE(std::signbit(Rounded(format, {-1e-9f})[0])) << format;
}

TEST(RoundToFormat, PowersOfTwo) {
  const std::vector<float> x = {0.0f, 0.124f, 0.25f, 0.5f, 1.1f, 1.5f, 3.0f, -8.0f, 3e38f};
  const float least = std::ldexp(1.0f, -127), most = std::ldexp(1.0f, 127);
  EXPECT_EQ(Rounded("float8e8m0", x),
            (std::vector<float>{least, 0.125f, 0.25f, 0.5f, 2, 2, 4, 8, most}));
  EXPECT_EQ(Rounded("float8e8m0", x, true, "down"),
            (std::vector<float>{least, 0.0625f, 0.25f, 0.5f, 1, 1, 2, 8, most}));
  EXPECT_EQ(Rounded("float8e8m0", x, true, "nearest"),
            (std::vector<float>{least, 0.125f, 0.25f, 0.5f, 1, 2, 4, 8, most}));
  OpTest("round_to_format")
      .Attr("format", std::string("float8e8m0"))
      .Attr("saturate", false)
      .Input("X", {3}, {0, kInf, kNan})
      .Expect("Out", {3}, {kNan, kNan, kNan});
}

}  // namespace coracle::round_to_format_test

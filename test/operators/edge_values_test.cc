// Values and gradients of elementwise ops at the edges of their dtypes: zeros, subnormal and huge
// numbers, negative bases, infinities. The references are formulas in long double, which has a
// wider range and 11 more bits than double.

#include <coracle/framework/tensor/half_array.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <cmath>
#include <functional>
#include <limits>

namespace coracle::edge_values_test {

using Wide = long double;
using Formula = std::function<Wide(Wide)>;

const Wide kInf = std::numeric_limits<Wide>::infinity();
const Wide kNan = std::numeric_limits<Wide>::quiet_NaN();

struct Limits {
  double eps, lowest, highest;  // of positive normal numbers
};
Limits LimitsOf(DType dtype) {
  if (dtype == DType::kFloat64) return {0x1p-52, 0x1p-1022, std::numeric_limits<double>::max()};
  if (dtype == DType::kFloat16) return {0x1p-10, 0x1p-14, 65504};
  if (dtype == DType::kBFloat16) return {0x1p-7, 0x1p-126, 0x1.fep127};
  return {0x1p-23, 0x1p-126, std::numeric_limits<float>::max()};
}

// Whether `got` is `want` within `ulps` of the dtype, or `absolute` times its epsilon, or 1024
// times the smallest number: factors of what is subnormal have few digits.
bool IsNear(double got, Wide want, const Limits& limits, double ulps, double absolute) {
  if (std::isnan(want)) return std::isnan(got);
  const Wide size = std::fabs(want);
  if (size > limits.highest * (1 - ulps * limits.eps) && got == std::copysign(1.0L, want) * kInf)
    return true;
  if (std::isinf(want) || !std::isfinite(got)) return got == want;
  const Wide bound = std::max<Wide>(
      {ulps * limits.eps * size, absolute * limits.eps, 1024 * limits.lowest * limits.eps});
  return std::fabs(got - want) <= bound;
}

// The places, rounded to a dtype.
Tensor Places(DType dtype, const std::vector<double>& numbers) {
  const auto n = static_cast<int64_t>(numbers.size());
  Tensor tensor = Tensor::Zeros(DType::kFloat64, {n});
  std::copy(numbers.begin(), numbers.end(), tensor.data<double>());
  return tensor.Cast(dtype);
}
std::vector<double> EdgesOf(DType dtype) {
  const Limits limits = LimitsOf(dtype);
  std::vector<double> all = {0, std::numeric_limits<double>::infinity()};
  for (const double x : {limits.lowest * limits.eps,
                         limits.lowest / 4,
                         limits.lowest,
                         1e-100,
                         1e-30,
                         1e-20,
                         1e-8,
                         1e-3,
                         0.3,
                         0.5,
                         1.0,
                         1.5,
                         2.5,
                         3.0,
                         4.0,
                         5.0,
                         6.5,
                         9.0,
                         12.0,
                         19.0,
                         25.0,
                         60.0,
                         100.0,
                         720.0,
                         1e4,
                         1e10,
                         1e19,
                         1e20,
                         1e30,
                         1e100,
                         1e160,
                         1e300,
                         limits.highest / 2,
                         limits.highest}) {
    if (x <= limits.highest && x >= limits.lowest * limits.eps) all.push_back(x);
  }
  for (size_t i = all.size(); i-- > 0;) all.push_back(-all[i]);
  return all;
}

struct Kernels {
  DType dtype;
  KernelMode mode;
};
constexpr Kernels kAllKernels[] = {{DType::kFloat32, KernelMode::kReference},
                                   {DType::kFloat64, KernelMode::kReference},
                                   {DType::kFloat32, KernelMode::kAuto},
                                   {DType::kFloat16, KernelMode::kAuto},
                                   {DType::kBFloat16, KernelMode::kAuto}};

struct Row {
  std::string type;
  Formula value, slope;
  AttrList attrs = {};
  double absolute = 0;  // error in epsilons: of a slope that is made from a rounded value
  double ulps = 8;
  bool periodic = false;  // without a limit at infinity
  std::string name = {};
};

// At an infinity where the formula gives no number: its limit, taken far away.
Wide At(const Row& row, const Formula& f, Wide x) {
  const Wide y = f(x);
  return std::isinf(x) && std::isnan(y) && !row.periodic ? f(std::copysign(1e1000L, x)) : y;
}

Wide Sigmoid(Wide x) { return 1 / (1 + std::exp(-x)); }
Wide SigmoidSlope(Wide x) {
  return std::exp(-std::fabs(x)) / std::pow(1 + std::exp(-std::fabs(x)), 2);
}
Wide Softplus(Wide x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
Wide Cdf(Wide x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; }
Wide Pdf(Wide x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0L)); }
Wide Sech2(Wide x) { return 1 / std::cosh(x) / std::cosh(x); }
Wide GeluInner(Wide x) { return std::sqrt(2 / std::acos(-1.0L)) * (x + 0.044715L * x * x * x); }
Wide GeluInnerSlope(Wide x) { return std::sqrt(2 / std::acos(-1.0L)) * (1 + 0.134145L * x * x); }
// Raised to 40 and more, where three terms of the series have all digits.
Wide Digamma(Wide x) {
  if (x == 0) return std::copysign(kInf, -x);
  if (x < 0 && std::floor(x) == x) return kNan;
  const Wide pi = std::acos(-1.0L);
  if (x < 0) return Digamma(1 - x) - pi / std::tan(pi * (x - std::round(x)));
  Wide sum = 0;
  for (; x < 40; ++x) sum -= 1 / x;
  const Wide z = 1 / x / x;
  return sum + std::log(x) - 0.5L / x -
         z * (1.0L / 12 - z * (1.0L / 120 - z * (1.0L / 252 - z / 240)));
}

std::vector<Row> ByParts() {
  const auto zero = [](Wide) -> Wide { return 0; };
  const Wide leak = 0.02f, slope = 0.2f;
  return {
      {"relu", [](Wide x) { return x < 0 ? 0 : x; }, [](Wide x) -> Wide { return x > 0; }},
      {"leaky_relu", [=](Wide x) { return x < 0 ? leak * x : x; },
       [=](Wide x) -> Wide { return x > 0 ? 1 : leak; }},
      {"relu6", [](Wide x) { return x < 0   ? 0
                                    : x > 6 ? 6
                                            : x; },
       [](Wide x) -> Wide { return x > 0 && x < 6; }},
      {"elu", [](Wide x) { return x < 0 ? std::expm1(x) : x; },
       [](Wide x) -> Wide { return x < 0 ? std::exp(x) : 1; }},
      {"hard_sigmoid",
       [=](Wide x) {
         const Wide y = slope * x + 0.5L;
         return y < 0 ? 0 : y > 1 ? 1 : y;
       },
       [=](Wide x) -> Wide {
         const Wide y = slope * x + 0.5L;
         return y > 0 && y < 1 ? slope : 0;
       }},
      {"hard_swish", [](Wide x) { return x <= -3  ? 0
                                         : x >= 3 ? x
                                                  : x * (x + 3) / 6; },
       [](Wide x) { return x <= -3  ? 0
                           : x >= 3 ? 1
                                    : (2 * x + 3) / 6; }},
      {"hard_shrink", [](Wide x) { return std::fabs(x) <= 0.5L ? 0 : x; },
       [](Wide x) -> Wide { return std::fabs(x) > 0.5L; }},
      {"softshrink",
       [](Wide x) {
         return x > 0.5L ? x - 0.5L : x < -0.5L ? x + 0.5L : x == x ? 0 : x;
       },
       [](Wide x) -> Wide { return std::fabs(x) > 0.5L; }},
      {"brelu", [](Wide x) { return x < 0    ? 0
                                    : x > 24 ? 24
                                             : x; },
       [](Wide x) -> Wide { return x > 0 && x < 24; }},
      {"thresholded_relu", [](Wide x) { return x <= 1 ? 0 : x; },
       [](Wide x) -> Wide { return x > 1; }},
      {"abs", [](Wide x) { return std::fabs(x); },
       [](Wide x) -> Wide { return (x > 0) - (x < 0); }},
      {"sign", [](Wide x) { return x != x ? x : (x > 0) - (x < 0); }, zero},
      {"floor", [](Wide x) { return std::floor(x); }, zero},
      {"ceil", [](Wide x) { return std::ceil(x); }, zero},
      {"round", [](Wide x) { return std::round(x); }, zero},
      {"trunc", [](Wide x) { return std::trunc(x); }, zero},
  };
}

std::vector<Row> Powers() {
  std::vector<Row> rows = {
      {"sqrt", [](Wide x) { return std::sqrt(x); }, [](Wide x) { return 0.5L / std::sqrt(x); }},
      {"rsqrt", [](Wide x) { return 1 / std::sqrt(x); },
       [](Wide x) { return -0.5L * std::pow(1 / std::sqrt(x), 3.0L); }},
      {"square", [](Wide x) { return x * x; }, [](Wide x) { return 2 * x; }},
      {"reciprocal", [](Wide x) { return 1 / x; }, [](Wide x) { return -1 / x / x; }},
      {"log", [](Wide x) { return std::log(x); }, [](Wide x) { return 1 / x; }},
      {"log2", [](Wide x) { return std::log2(x); }, [](Wide x) { return 1 / x / std::log(2.0L); }},
      {"log10", [](Wide x) { return std::log10(x); },
       [](Wide x) { return 1 / x / std::log(10.0L); }},
      {"log1p", [](Wide x) { return std::log1p(x); }, [](Wide x) { return 1 / (1 + x); }},
  };
  for (const float p : {-1.5f, -1.f, 0.f, 0.5f, 1.f, 2.f, 2.5f, 3.f}) {
    rows.push_back({"pow",
                    [p](Wide x) { return std::pow(x, Wide(p)); },
                    [p](Wide x) { return p == 0 ? 0 : p * std::pow(x, Wide(p) - 1); },
                    {{"factor", p}}});
    rows.back().periodic = true;  // infinities are as std::pow says
    rows.back().name = "pow " + std::to_string(p);
  }
  return rows;
}

std::vector<Row> Smooth() {
  const Wide scale = 1.0507009873554805f, alpha = 1.6732632423543773f, a = 0.67f, b = 1.7159f;
  const AttrList tanh_form = {{"approximate", true}};
  return {
      {"sigmoid", Sigmoid, SigmoidSlope, {}, 2},
      {"logsigmoid", [](Wide x) { return -Softplus(-x); }, [](Wide x) { return Sigmoid(-x); }},
      {"tanh", [](Wide x) { return std::tanh(x); }, Sech2, {}, 3},
      {"exp", [](Wide x) { return std::exp(x); }, [](Wide x) { return std::exp(x); }},
      {"expm1", [](Wide x) { return std::expm1(x); }, [](Wide x) { return std::exp(x); }, {}, 2},
      {"softplus", [](Wide x) { return x > 20 ? x : Softplus(x); },
       [](Wide x) { return x > 20 ? 1 : Sigmoid(x); }},
      {"soft_relu",
       [](Wide x) {
         return Softplus(x < -40 ? -40 : x > 40 ? 40 : x);
       },
       [](Wide x) { return std::fabs(x) >= 40 ? 0 : Sigmoid(x); },
       {},
       2},
      {"softsign", [](Wide x) { return x / (1 + std::fabs(x)); },
       [](Wide x) { return 1 / (1 + std::fabs(x)) / (1 + std::fabs(x)); }},
      {"swish", [](Wide x) { return x * Sigmoid(x); },
       [](Wide x) { return Sigmoid(x) + x * SigmoidSlope(x); }},
      {"silu", [](Wide x) { return x * Sigmoid(x); },
       [](Wide x) { return Sigmoid(x) + x * SigmoidSlope(x); }},
      {"mish",
       [](Wide x) {
         return x * std::tanh(x > 20 ? x : x < -20 ? std::exp(x) : Softplus(x));
       },
       [](Wide x) {
         const Wide s = x > 20 ? x : x < -20 ? std::exp(x) : Softplus(x);
         const Wide ds = x > 20 ? 1 : x < -20 ? std::exp(x) : Sigmoid(x);
         return std::tanh(s) + x * Sech2(s) * ds;
       }},
      {"gelu",
       [](Wide x) { return x * Cdf(x); },
       [](Wide x) { return Cdf(x) + x * Pdf(x); },
       {},
       0,
       256},
      {"gelu", [](Wide x) { return x * Sigmoid(2 * GeluInner(x)); },
       [](Wide x) {
         const Wide u = GeluInner(x);
         return Sigmoid(2 * u) + 2 * x * SigmoidSlope(2 * u) * GeluInnerSlope(x);
       },
       tanh_form, 0, 512},
      {"selu",
       [=](Wide x) { return scale * (x > 0 ? x : alpha * std::expm1(x)); },
       [=](Wide x) { return scale * (x > 0 ? 1 : alpha * std::exp(x)); },
       {},
       4},
      {"stanh",
       [=](Wide x) { return b * std::tanh(a * x); },
       [=](Wide x) { return a * b * Sech2(a * x); },
       {},
       8},
      {"tanh_shrink",
       [](Wide x) { return x - std::tanh(x); },
       [](Wide x) { return std::tanh(x) * std::tanh(x); },
       {},
       1},
      {"acos",
       [](Wide x) { return std::acos(x); },
       [](Wide x) { return -1 / std::sqrt((1 - x) * (1 + x)); },
       {},
       0,
       8,
       true},
      {"asin",
       [](Wide x) { return std::asin(x); },
       [](Wide x) { return 1 / std::sqrt((1 - x) * (1 + x)); },
       {},
       0,
       8,
       true},
      {"atan", [](Wide x) { return std::atan(x); }, [](Wide x) { return 1 / (1 + x * x); }},
      {"sin",
       [](Wide x) { return std::sin(x); },
       [](Wide x) { return std::cos(x); },
       {},
       0,
       8,
       true},
      {"cos",
       [](Wide x) { return std::cos(x); },
       [](Wide x) { return -std::sin(x); },
       {},
       0,
       8,
       true},
      {"tan",
       [](Wide x) { return std::tan(x); },
       [](Wide x) { return 1 + std::tan(x) * std::tan(x); },
       {},
       0,
       8,
       true},
      {"cosh", [](Wide x) { return std::cosh(x); }, [](Wide x) { return std::sinh(x); }},
      {"sinh", [](Wide x) { return std::sinh(x); }, [](Wide x) { return std::cosh(x); }},
      {"erf",
       [](Wide x) { return std::erf(x); },
       [](Wide x) { return 2 / std::sqrt(std::acos(-1.0L)) * std::exp(-x * x); },
       {},
       0,
       256},
      {"lgamma", [](Wide x) { return std::lgamma(x); }, Digamma, {}, 4, 8, true},
  };
}

void CheckRow(const Row& row, const Kernels& kernels) {
  const bool fast = kernels.mode == KernelMode::kAuto;
  const Limits limits = LimitsOf(kernels.dtype);
  std::vector<double> numbers = EdgesOf(kernels.dtype);
  numbers.push_back(std::nan(""));
  const Tensor x = Places(kernels.dtype, numbers);
  const ValueAndGradient run =
      Differentiate(row.type, row.attrs, {{"X", x}}, "X", "Out", kernels.mode);
  const std::vector<double> places = NumbersOf(x), out = NumbersOf(run.value);
  const std::vector<double> grad = NumbersOf(run.gradient);
  const bool half = IsHalf(kernels.dtype);
  // Vector kernels have relative errors of some 1e-6, and 0 for numbers below 2e-36.
  const double ulps = fast && !half ? std::max(row.ulps, 64.0) : row.ulps;
  const double next_to_0 = fast ? 2e-36 / limits.eps : 0;
  for (size_t i = 0; i < places.size(); ++i) {
    SCOPED_TRACE(testing::Message()
                 << (row.name.empty() ? row.type : row.name) << " of " << ToString(kernels.dtype)
                 << (fast ? " fast" : "") << " at " << places[i]);
    const Wide value = At(row, row.value, places[i]);
    const double absolute = row.type == "tanh_shrink" ? std::fabs(places[i]) : 0;
    EXPECT_PRED5(IsNear, out[i], value, limits, ulps, std::max(absolute, next_to_0));
    if (std::isnan(places[i])) continue;
    const Wide slope = At(row, row.slope, places[i]);
    EXPECT_PRED5(IsNear, grad[i], slope, limits, ulps, std::max(row.absolute, next_to_0));
  }
}

TEST(EdgeValues, OfOneOperand) {
  for (const std::vector<Row>& rows : {ByParts(), Powers(), Smooth()}) {
    for (const Row& row : rows) {
      for (const Kernels& kernels : kAllKernels) CheckRow(row, kernels);
    }
  }
}

// A gate next to 0 has as many right digits as one next to 1.
TEST(EdgeValues, TailsOfGates) {
  std::vector<double> numbers;
  for (int i = 150; i < 990; ++i) numbers.push_back(-0.01 * i);
  const Tensor x = Places(DType::kFloat32, numbers);
  const std::vector<double> places = NumbersOf(x);
  const Limits limits = LimitsOf(DType::kFloat32);
  for (const Row& row : Smooth()) {
    if (row.type != "gelu" && row.type != "swish" && row.type != "silu" && row.type != "mish")
      continue;
    const ValueAndGradient run =
        Differentiate(row.type, row.attrs, {{"X", x}}, "X", "Out", KernelMode::kAuto);
    const std::vector<double> out = NumbersOf(run.value), grad = NumbersOf(run.gradient);
    for (size_t i = 0; i < places.size(); ++i) {
      SCOPED_TRACE(testing::Message() << row.type << " at " << places[i]);
      EXPECT_PRED5(IsNear, out[i], row.value(places[i]), limits, 128, 0);
      EXPECT_PRED5(IsNear, grad[i], row.slope(places[i]), limits, 128, 0);
    }
  }
}

// --- two operands ---

struct PairRow {
  std::string type;
  std::function<Wide(Wide, Wide)> value, by_x, by_y;
  std::string x = "X", y = "Y";
};

// A power that is 0 beats infinite factors. Rules for a base of 0: 0^0 has gradients of 0, and the
// exponent has no effect on 0^y.
Wide PowByX(Wide x, Wide y) {
  // Rounded where y is large: y - 1 is even then.
  const Wide less = std::fabs(y) < 1e15L ? y - 1 : static_cast<Wide>(static_cast<double>(y) - 1);
  const Wide power = std::pow(x, less);
  return y == 0 || power == 0 ? 0 : y * power;
}
Wide PowByY(Wide x, Wide y) {
  if (x < 0) return kNan;
  const Wide power = std::pow(x, y);
  return (x == 0 && y == 0) || power == 0 ? 0 : power * std::log(x);
}

std::vector<PairRow> Pairs() {
  const auto one = [](Wide, Wide) -> Wide { return 1; };
  const auto larger = [](Wide x, Wide y) { return x > y || x != x ? x : y; };
  const auto smaller = [](Wide x, Wide y) { return x < y || x != x ? x : y; };
  return {
      {"elementwise_add", [](Wide x, Wide y) { return x + y; }, one, one},
      {"elementwise_sub", [](Wide x, Wide y) { return x - y; }, one,
       [](Wide, Wide) -> Wide { return -1; }},
      {"elementwise_mul", [](Wide x, Wide y) { return x * y; }, [](Wide, Wide y) { return y; },
       [](Wide x, Wide) { return x; }},
      {"elementwise_div", [](Wide x, Wide y) { return x / y; }, [](Wide, Wide y) { return 1 / y; },
       [](Wide x, Wide y) { return -(x / y) / y; }},
      {"elementwise_max", larger, [](Wide x, Wide y) -> Wide { return x > y; },
       [](Wide x, Wide y) -> Wide { return !(x > y); }},
      {"elementwise_min", smaller, [](Wide x, Wide y) -> Wide { return x < y; },
       [](Wide x, Wide y) -> Wide { return !(x < y); }},
      {"elementwise_pow", [](Wide x, Wide y) { return std::pow(x, y); }, PowByX, PowByY},
      {"atan2", [](Wide y, Wide x) { return std::atan2(y, x); },
       [](Wide y, Wide x) { return x == 0 && y == 0 ? 0 : x / (x * x + y * y); },
       [](Wide y, Wide x) { return x == 0 && y == 0 ? 0 : -y / (x * x + y * y); }, "X1", "X2"},
  };
}

void CheckPair(const PairRow& row, const Kernels& kernels) {
  const bool fast = kernels.mode == KernelMode::kAuto, half = IsHalf(kernels.dtype);
  const Limits limits = LimitsOf(kernels.dtype);
  std::vector<double> xs, ys;
  for (const double x : EdgesOf(kernels.dtype)) {
    for (const double y : EdgesOf(kernels.dtype)) {
      // atan2 has a value at infinities, but its gradient has no limit there.
      if (row.type == "atan2" && (std::isinf(x) || std::isinf(y))) continue;
      // A negative base has powers of whole exponents alone, as which y - 1 is rounded.
      if (row.type == "elementwise_pow" && x < 0 && y != 0 && std::fabs(y) < 1e-7) continue;
      xs.push_back(x);
      ys.push_back(y);
    }
  }
  const Tensor x = Places(kernels.dtype, xs), y = Places(kernels.dtype, ys);
  const std::vector<double> a = NumbersOf(x), b = NumbersOf(y);
  // In double y - 1 is rounded, which x^(y - 1) shows where x is far from 1.
  const bool far = row.type == "elementwise_pow" && kernels.dtype == DType::kFloat64;
  const double ulps = far ? 1024 : half ? 16 : fast ? 32 : 8;
  for (const auto& [slot, slope] : {std::pair{row.x, row.by_x}, std::pair{row.y, row.by_y}}) {
    const ValueAndGradient run =
        Differentiate(row.type, {}, {{row.x, x}, {row.y, y}}, slot, "Out", kernels.mode);
    const std::vector<double> out = NumbersOf(run.value), grad = NumbersOf(run.gradient);
    for (size_t i = 0; i < a.size(); ++i) {
      SCOPED_TRACE(testing::Message()
                   << row.type << " by " << slot << " of " << ToString(kernels.dtype)
                   << (fast ? " fast" : "") << " at " << a[i] << ", " << b[i]);
      EXPECT_PRED5(IsNear, out[i], row.value(a[i], b[i]), limits, ulps, 0);
      EXPECT_PRED5(IsNear, grad[i], slope(a[i], b[i]), limits, ulps, 0);
    }
  }
}

TEST(EdgeValues, OfTwoOperands) {
  for (const PairRow& row : Pairs()) {
    for (const Kernels& kernels : kAllKernels) CheckPair(row, kernels);
  }
}

}  // namespace coracle::edge_values_test

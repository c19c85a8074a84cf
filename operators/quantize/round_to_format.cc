#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::round_to_format_op {

// A format of few bits. Its numbers are multiples of 2^(e - digits) for exponents e from `least`.
struct Format {
  std::string_view name;
  int digits;  // of the mantissa, without the leading 1
  int least;   // exponent of the smallest normal number
  double largest;
  double overflow;  // what exceeds `largest` if the op does not saturate
  bool has_nan, has_negative_zero;
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// From ONNX's pages on floats of 8 and 4 bits, and the OCP's specification of microscaling formats.
constexpr Format kFormats[] = {
    {"float8e4m3fn", 3, -6, 448, kNan, true, true},
    {"float8e4m3fnuz", 3, -7, 240, kNan, true, false},
    {"float8e5m2", 2, -14, 57344, kInf, true, true},
    {"float8e5m2fnuz", 2, -15, 57344, kNan, true, false},
    {"float4e2m1", 1, 0, 6, 6, false, true},
};
constexpr std::string_view kPowers = "float8e8m0";  // 2^-127, ..., 2^127 and nan

const Format* FindFormat(const std::string& name) {
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [&](const Format& format) { return format.name == name; });
  return found == std::end(kFormats) ? nullptr : found;
}

// The nearest number of the format, of two equally near ones the one with an even last digit.
double Rounded(const Format& format, bool saturate, double x) {
  if (std::isnan(x)) return format.has_nan ? x : format.largest;
  double magnitude = std::abs(x);
  if (magnitude > 0 && std::isfinite(magnitude)) {
    const int exponent = std::max(std::ilogb(magnitude), format.least) - format.digits;
    magnitude = std::ldexp(std::nearbyint(std::ldexp(magnitude, -exponent)), exponent);
  }
  if (magnitude > format.largest) magnitude = saturate ? format.largest : format.overflow;
  if (magnitude == 0 && !format.has_negative_zero) return 0;
  return std::copysign(magnitude, x);
}

// The next power of two of |x|, which has no 0.
double RoundedToPower(const std::string& mode, bool saturate, double x) {
  constexpr int kLeast = -127, kMost = 127;
  const double magnitude = std::abs(x);
  if (std::isnan(x) || (!saturate && (magnitude == 0 || std::isinf(magnitude)))) return kNan;
  if (magnitude == 0) return std::ldexp(1, kLeast);
  if (std::isinf(magnitude)) return std::ldexp(1, kMost);
  int exponent = std::ilogb(magnitude);
  const double part = std::scalbn(magnitude, -exponent);  // 1 <= part < 2
  if (mode == "up" ? part > 1 : mode == "nearest" && part >= 1.5) ++exponent;
  if (!saturate && (exponent < kLeast || exponent > kMost)) return kNan;
  return std::ldexp(1, std::clamp(exponent, kLeast, kMost));
}

void InferRound(InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); }

template <class T>
KernelOf<T> Round(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const Format* format = FindFormat(ctx.Attr<std::string>("format"));
  const bool saturate = ctx.Attr<bool>("saturate");
  const auto mode = ctx.Attr<std::string>("round_mode");
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(x);
    T* to = ws.Data<T>(out);
    ParallelFor(x.numel, 8192, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto value = static_cast<double>(from[i]);
        to[i] = static_cast<T>(format ? Rounded(*format, saturate, value)
                                      : RoundedToPower(mode, saturate, value));
      }
    });
  };
}

void Register(OpRegistry& ops) {
  OpDef def("round_to_format");
  def.Doc(
         "Out = the numbers of a format of 8 or 4 bits that are nearest to X (of two equally near "
         "ones, the one with an even last digit), as floats of X's dtype. What rounds beyond the "
         "largest number becomes that number; without saturate, nan, or inf in float8e5m2. In "
         "float4e2m1, which has no nan, a nan becomes 6. float8e8m0 has the powers of two from "
         "2^-127 to 2^127, which hold |X|.")
      .Input("X", "tensor of floats")
      .Output("Out", "tensor of X's shape and dtype")
      .Attr<std::string>("format", "the format, by ONNX's name")
      .OneOf({"float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float4e2m1",
              std::string(kPowers)})
      .Attr<bool>("saturate", true, "whether numbers out of range become the largest ones")
      .Attr<std::string>("round_mode", std::string("up"),
                         "how float8e8m0 rounds; nearest rounds the middle up")
      .OneOf({"up", "down", "nearest"})
      .Inplace("X", "Out")
      .Elementwise()
      .Infer(InferRound)
      .NotDifferentiable("rounding is piecewise constant")
      .Reference(Round<float>, Round<double>);
  ops.Add(std::move(def));
}

}  // namespace coracle::round_to_format_op

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/elementwise/elementwise_gradient.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/kernels/lane_kernel.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/promotion.h>
#include <coracle/operators/rules/same_type.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

namespace coracle::elementwise_op {

[[noreturn]] void ThrowDivision(const char* op) {
  ThrowInvalid(std::string(op) + ": an integer was divided by 0; keep zeros out of Y");
}

// The lowest integer divided by -1 would trap. An unsigned y is never -1, even with all bits set
// (255 of uint8).
template <class T>
bool IsMinusOne(T y) {
  return std::is_signed_v<T> && y == static_cast<T>(-1);
}

// The family, one struct for each row: name, formula, gradient rule, SIMD loop, arithmetic.
struct Add {
  static constexpr const char* kType = "elementwise_add";
  static constexpr const char* kFormula = "Out = X + Y.";
  static constexpr auto kSimd = simd::Binary::kAdd;
  template <class T>
  static T Apply(T x, T y) {
    return WrapAdd(x, y);
  }
};
struct Sub {
  static constexpr const char* kType = "elementwise_sub";
  static constexpr const char* kFormula = "Out = X - Y.";
  static constexpr auto kSimd = simd::Binary::kSub;
  template <class T>
  static T Apply(T x, T y) {
    return WrapSub(x, y);
  }
};
struct Mul {
  static constexpr const char* kType = "elementwise_mul";
  static constexpr const char* kFormula = "Out = X * Y.";
  static constexpr auto kSimd = simd::Binary::kMul;
  template <class T>
  static T Apply(T x, T y) {
    return WrapMul(x, y);
  }
};
struct Div {
  static constexpr const char* kType = "elementwise_div";
  static constexpr const char* kFormula =
      "Out = X / Y; integers truncate, and an integer Y of 0 is an error.";
  static constexpr auto kSimd = simd::Binary::kDiv;
  template <class T>
  static T Apply(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      if (y == 0) ThrowDivision(kType);
      return IsMinusOne(y) ? WrapSub(T(0), x) : static_cast<T>(x / y);
    } else {
      return static_cast<T>(static_cast<Wide<T>>(x) / static_cast<Wide<T>>(y));
    }
  }
};
struct Max {
  static constexpr const char* kType = "elementwise_max";
  static constexpr const char* kFormula = "Out = max(X, Y); nan if either is nan.";
  static constexpr auto kSimd = simd::Binary::kMax;
  template <class T>
  static T Apply(T x, T y) {
    return y > x || y != y ? y : x;
  }
};
struct Min {
  static constexpr const char* kType = "elementwise_min";
  static constexpr const char* kFormula = "Out = min(X, Y); nan if either is nan.";
  static constexpr auto kSimd = simd::Binary::kMin;
  template <class T>
  static T Apply(T x, T y) {
    return y < x || y != y ? y : x;
  }
};
struct Pow {
  static constexpr const char* kType = "elementwise_pow";
  static constexpr const char* kFormula =
      "Out = X to the power of Y; integers compute in double, truncate and saturate.";
  template <class T>
  static T Apply(T x, T y) {
    if constexpr (std::is_integral_v<T>)
      return SaturateTo<T>(std::pow(static_cast<double>(x), static_cast<double>(y)));
    else
      return static_cast<T>(std::pow(static_cast<Wide<T>>(x), static_cast<Wide<T>>(y)));
  }
};
struct Mod {
  static constexpr const char* kType = "elementwise_mod";
  static constexpr const char* kFormula =
      "Out = X - Y floor(X / Y): the remainder has Y's sign. An integer Y of 0 is an error.";
  template <class T>
  static T Apply(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      if (y == 0) ThrowDivision(kType);
      if (IsMinusOne(y)) return T(0);
      const T rest = static_cast<T>(x % y);
      return rest != 0 && (rest < 0) != (y < 0) ? static_cast<T>(rest + y) : rest;
    } else {
      const Wide<T> b = y, rest = std::fmod(static_cast<Wide<T>>(x), b);
      return static_cast<T>(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
  }
};
struct FloorDiv {
  static constexpr const char* kType = "elementwise_floordiv";
  static constexpr const char* kFormula = "Out = floor(X / Y). An integer Y of 0 is an error.";
  template <class T>
  static T Apply(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      if (y == 0) ThrowDivision(kType);
      if (IsMinusOne(y)) return WrapSub(T(0), x);
      const T quotient = static_cast<T>(x / y);
      return x % y != 0 && (x < 0) != (y < 0) ? static_cast<T>(quotient - 1) : quotient;
    } else {
      return static_cast<T>(std::floor(static_cast<Wide<T>>(x) / static_cast<Wide<T>>(y)));
    }
  }
};

// Whether the row supports complex numbers.
template <class F>
constexpr bool kTakesComplex = std::is_same_v<F, Add> || std::is_same_v<F, Sub> ||
                               std::is_same_v<F, Mul> || std::is_same_v<F, Div>;

void InferElementwise(InferContext& ctx, bool takes_complex) {
  Shape out =
      InferBroadcast(ctx, ctx.InputShape("X"), ctx.InputShape("Y"), ctx.Attr<int32_t>("axis"));
  VarMeta meta = ctx.Input(ctx.InputShape("X").rank() >= ctx.InputShape("Y").rank() ? "X" : "Y");
  if (takes_complex)
    meta.dtype = RequirePromotable(ctx, "C4");
  else
    RequireSameDType(ctx, "C4", "X", "Y");
  meta.shape = out;
  ctx.SetOutput("Out", meta);
}

struct Operands {
  TensorArg x, y, out;
  BroadcastNest nest;
};
Operands OperandsOf(const PrepareContext& ctx) {
  Operands o{ctx.Input("X"), ctx.Input("Y"), ctx.Output("Out"), {}};
  o.nest = MakeBroadcastNest(o.x.shape, o.y.shape, ctx.Attr<int32_t>("axis"));
  return o;
}

template <class F, class T>
Kernel ElementwiseReference(const PrepareContext& ctx) {
  if (kTakesComplex<F> && MixesDTypes(ctx)) return PrepareComplex(ctx);
  return [o = OperandsOf(ctx)](Workspace& ws) {
    BroadcastLoop(o.nest, ws.Data<const T>(o.x), ws.Data<const T>(o.y), ws.Data<T>(o.out),
                  [](T x, T y) { return F::template Apply<T>(x, y); });
  };
}

// Maxima and minima of bytes: loops that compilers vectorise.
template <class F, class T>
Kernel ByteExtrema(const PrepareContext& ctx) {
  return [o = OperandsOf(ctx)](Workspace& ws) {
    const T *x = ws.Data<const T>(o.x), *y = ws.Data<const T>(o.y);
    T* out = ws.Data<T>(o.out);
    const bool x_repeats = o.nest.x_repeats(), y_repeats = o.nest.y_repeats();
    ParallelFor(o.nest.numel, 131072, [&](int64_t begin, int64_t end) {
      ForEachRow(o.nest, begin, end, [&](int64_t xo, int64_t yo, int64_t oo, int64_t count) {
        const T *a = x + xo, *b = y + yo, one = x_repeats ? *a : *b;
        T* to = out + oo;
        if (x_repeats) std::swap(a, b);
        if (x_repeats || y_repeats) {
          for (int64_t i = 0; i < count; ++i) to[i] = F::template Apply<T>(a[i], one);
        } else {
          for (int64_t i = 0; i < count; ++i) to[i] = F::template Apply<T>(a[i], b[i]);
        }
      });
    });
  };
}

template <class F>
Kernel ElementwiseFast(const PrepareContext& ctx) {
  if constexpr (std::is_same_v<F, Max> || std::is_same_v<F, Min>) {
    if (ctx.Input("X").dtype == DType::kInt8) return ByteExtrema<F, int8_t>(ctx);
    if (ctx.Input("X").dtype == DType::kUInt8) return ByteExtrema<F, uint8_t>(ctx);
  }
  if (ctx.Input("X").dtype != DType::kFloat32 || MixesDTypes(ctx)) return {};
  Operands operands = OperandsOf(ctx);
  const simd::Form form = operands.nest.x_repeats()   ? simd::Form::kScalarVector
                          : operands.nest.y_repeats() ? simd::Form::kVectorScalar
                                                      : simd::Form::kVectorVector;
  const simd::BinaryLoop rows = simd::FindBinary(F::kSimd, form);
  Kernel loop = [o = operands, rows](Workspace& ws) {
    const float *x = ws.Data<const float>(o.x), *y = ws.Data<const float>(o.y);
    float* out = ws.Data<float>(o.out);
    ParallelFor(o.nest.numel, 32768, [&](int64_t begin, int64_t end) {
      ForEachRow(o.nest, begin, end, [&](int64_t xo, int64_t yo, int64_t oo, int64_t count) {
        rows(x + xo, y + yo, out + oo, count);
      });
    });
  };
  if (operands.nest.rank > 1) return loop;
  return LaneKernel{{{simd::FindLanes(F::kSimd), {}, operands.x, operands.y, operands.out}},
                    std::move(loop)};
}

template <class F>
void DeclareReference(OpDef& def) {
  const auto kernel = []<class T>(const PrepareContext& c) {
    return ElementwiseReference<F, T>(c);
  };
  if constexpr (kTakesComplex<F>)
    def.Reference<float, double, int32_t, int64_t, uint64_t, int16_t, int8_t, uint8_t, float16,
                  bfloat16, complex64, complex128>(kernel);
  else
    def.Reference<float, double, int32_t, int64_t, uint64_t, int16_t, int8_t, uint8_t, float16,
                  bfloat16>(kernel);
}

template <class F>
OpDef Declare() {
  constexpr bool kComplex = kTakesComplex<F>;
  const char* dtypes = kComplex ? "X and Y must have one dtype, or one be complex and the other "
                                  "float32, float64 or complex"
                                : "X and Y must have one dtype";
  const char* y = kComplex ? "tensor of X's dtype; a real operand with a complex one is converted "
                             "to complex, and its gradient is the real part"
                           : "tensor of X's dtype";
  OpDef def(F::kType);
  const std::string doc = fmt::format("{} {}", F::kFormula, kBroadcastDoc);
  def.Doc(doc)
      .Apply(DeclareBroadcast)
      .Constraint("C4", dtypes)
      .Input("X", "tensor")
      .Input("Y", y)
      .Output("Out", "tensor of the broadcast shape")
      .Attr<int32_t>("axis", -1, "where the operand of lower rank begins in the other one")
      .Inplace("X", "Out")
      .Elementwise()
      .Infer([](InferContext& ctx) { InferElementwise(ctx, kTakesComplex<F>); });
  DeclareReference<F>(def);
  return def;
}

template <class F>
void AddRow(OpRegistry& ops, GradientFn gradient,
            const std::vector<std::vector<std::string>>& linear = {}) {
  OpDef def = Declare<F>().Gradient(std::move(gradient)).Fast(ElementwiseFast<F>);
  for (const std::vector<std::string>& slots : linear) def.Linear(slots);
  ops.Add(std::move(def));
}

template <class F>
void AddArithmeticRow(OpRegistry& ops, const ElementwiseReads& reads,
                      const std::vector<std::vector<std::string>>& linear) {
  const auto gradient = [reads](GradientContext& g) {
    const SlotList out = reads.out ? SlotList{{"Out", {g.Output("Out")}}} : SlotList();
    if (!SetMixedGradient(g, g.ForwardAttrs({"axis"}), out)) AppendElementwiseGrad(g, reads);
  };
  AddRow<F>(ops, gradient, linear);
}

constexpr int32_t kHighestOrder = 8;

struct PowOrders {
  int32_t x, y;
};

// The factors of log(x)^k, k = 0 to orders.y, in the derivative divided by x^(y - orders.x). With
// the falling factorial f(y) = y (y - 1) .. (y - orders.x + 1) and b = orders.y, the factor of
// log(x)^(b - j) is the binomial coefficient (b, j) times the derivative of order j of f. An
// infinite y times a factor of 0 is 0.
std::array<double, kHighestOrder + 1> LogFactors(double y, PowOrders orders) {
  std::array<double, kHighestOrder + 1> factors = {};
  factors[orders.y] = 1;
  for (int32_t i = 0; i < orders.x; ++i) {  // Taylor's coefficients of f at y
    for (int32_t k = 0; k <= orders.y; ++k)
      factors[k] =
          (factors[k] == 0 ? 0 : factors[k] * (y - i)) + (k < orders.y ? factors[k + 1] : 0);
  }
  // A coefficient is the derivative of order j over j!, and (b, j) j! = b (b - 1) .. (b - j + 1).
  double falling = 1;
  for (int32_t k = orders.y - 1; k >= 0; --k) {
    falling *= k + 1;
    factors[k] *= falling;
  }
  return factors;
}

// The sum of factors[k] log^k. The highest power determines the result if the logarithm
// is infinite.
double LogPolynomial(const std::array<double, kHighestOrder + 1>& factors, int32_t order,
                     double log) {
  double sum = factors[0], power = 1;
  for (int32_t k = 1; k <= order; ++k) {
    power *= log;
    if (factors[k] == 0 || power == 0) continue;
    sum = std::isinf(log) ? factors[k] * power : sum + factors[k] * power;
  }
  return sum;
}

// The derivative of x^y. Infinite factors are treated by limits: a power that is 0 dominates every
// other factor, and with base 0, a power of 1 also dominates the logarithm. At 0^0, which has no
// limit, all derivatives are 0.
double PowDerivative(double x, double y, PowOrders orders) {
  if (x == 0 && y == 0) return orders.x + orders.y == 0 ? 1 : 0;
  const double exponent = y - orders.x, power = std::pow(x, exponent);
  const bool by_y = orders.y > 0;
  if (power == 0 && !(x < 0 && by_y)) return 0;
  const bool logs = by_y && !(x == 0 && exponent >= 0);
  const double log = logs ? std::log(x) : 0;
  const double sum = orders.x + orders.y == 1
                         ? (by_y ? log : y)  // first derivatives, the usual case
                         : LogPolynomial(LogFactors(y, orders), logs ? orders.y : 0, log);
  if (sum == 0) return 0;
  if (std::isfinite(power) || x == 0) return sum * power;
  const double whole = std::pow(x, y);
  if (!std::isfinite(whole)) return sum * power;
  // Dividing step by step avoids an overflow that a small factor would undo.
  double product = sum * whole;
  for (int32_t i = 0; i < orders.x; ++i) product /= x;
  return product;
}

template <class T>
KernelOf<T> PowDerivativeReference(const PrepareContext& ctx) {
  const PowOrders orders{ctx.Attr<int32_t>("x_order"), ctx.Attr<int32_t>("y_order")};
  return [o = OperandsOf(ctx), orders](Workspace& ws) {
    BroadcastLoop(o.nest, ws.Data<const T>(o.x), ws.Data<const T>(o.y), ws.Data<T>(o.out),
                  [&](T x, T y) {
                    return static_cast<T>(
                        PowDerivative(static_cast<double>(x), static_cast<double>(y), orders));
                  });
  };
}

void PowDerivativeGradient(GradientContext& g) {
  SetPowGradient(g, g.Attr<int32_t>("x_order"), g.Attr<int32_t>("y_order"));
}

void DeclarePowDerivative(OpRegistry& ops) {
  ops.Add(
      OpDef("elementwise_pow_derivative")
          .Doc("Out = the derivative of X^Y, x_order times by X and y_order times by Y: Y X^(Y - "
               "1), X^Y log X, and so on. The power X^(Y - x_order) times an infinite factor is 0 "
               "where it is 0, as in the limit; where it is 0^0 = 1, its product with a logarithm "
               "is 0, too. All derivatives are 0 where X and Y are 0. Derivatives by Y are nan "
               "where X is negative. " +
               std::string(kBroadcastDoc))
          .Apply(DeclareBroadcast)
          .Constraint("C4", "X and Y must have one dtype")
          .Input("X", "floating-point tensor")
          .Input("Y", "tensor of X's dtype")
          .Output("Out", "tensor of the broadcast shape")
          .Attr<int32_t>("axis", -1, "where the operand of lower rank begins in the other one")
          .Attr<int32_t>("x_order", 0, "how often to differentiate by X")
          .Range(0, kHighestOrder)
          .Attr<int32_t>("y_order", 0, "how often to differentiate by Y")
          .Range(0, kHighestOrder)
          .Elementwise()
          .Infer([](InferContext& ctx) { InferElementwise(ctx, false); })
          .Gradient(PowDerivativeGradient)
          .Reference(PowDerivativeReference<float>, PowDerivativeReference<double>));
}

void Register(OpRegistry& ops) {
  AddArithmeticRow<Add>(ops, {false, false, false}, {{"X", "Y"}});
  AddArithmeticRow<Sub>(ops, {false, false, false}, {{"X", "Y"}});
  AddArithmeticRow<Mul>(ops, {true, true, false}, {{"X"}, {"Y"}});
  AddArithmeticRow<Div>(ops, {false, true, true}, {{"X"}});
  AddRow<Max>(ops, [](GradientContext& g) { AppendElementwiseGrad(g, {true, true, false}); });
  AddRow<Min>(ops, [](GradientContext& g) { AppendElementwiseGrad(g, {true, true, false}); });
  ops.Add(Declare<Pow>().Gradient([](GradientContext& g) { SetPowGradient(g, 0, 0); }));
  DeclarePowDerivative(ops);
  ops.Add(Declare<Mod>().NoGradient("a remainder is used on counters and indices"));
  ops.Add(Declare<FloorDiv>().NotDifferentiable("a rounded quotient is piecewise constant"));
}

}  // namespace coracle::elementwise_op

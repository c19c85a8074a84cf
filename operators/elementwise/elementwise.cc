#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/elementwise/elementwise_gradient.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/kernels/lane_kernel.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <string>
#include <type_traits>

namespace coracle::elementwise_op {

[[noreturn]] void ThrowDivision(const char* op) {
  ThrowInvalid(std::string(op) + ": an integer was divided by 0; keep zeros out of Y");
}

// The lowest integer divided by -1 would trap. An unsigned y is never -1: that of uint8 is 255.
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
  static constexpr const char* kFormula = "Out = max(X, Y); a nan in either comes out.";
  static constexpr auto kSimd = simd::Binary::kMax;
  template <class T>
  static T Apply(T x, T y) {
    return y > x || y != y ? y : x;
  }
};
struct Min {
  static constexpr const char* kType = "elementwise_min";
  static constexpr const char* kFormula = "Out = min(X, Y); a nan in either comes out.";
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

void InferElementwise(InferContext& ctx) {
  Shape out =
      InferBroadcast(ctx, ctx.InputShape("X"), ctx.InputShape("Y"), ctx.Attr<int32_t>("axis"));
  RequireSameDType(ctx, "C4", "X", "Y");
  VarMeta meta = ctx.Input(ctx.InputShape("X").rank() >= ctx.InputShape("Y").rank() ? "X" : "Y");
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
  return [o = OperandsOf(ctx)](Workspace& ws) {
    BroadcastLoop(o.nest, ws.Data<const T>(o.x), ws.Data<const T>(o.y), ws.Data<T>(o.out),
                  [](T x, T y) { return F::template Apply<T>(x, y); });
  };
}

template <class F>
Kernel ElementwiseFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
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

// The rows whose formula has a meaning for complex numbers.
template <class F>
constexpr bool kTakesComplex = std::is_same_v<F, Add> || std::is_same_v<F, Sub> ||
                               std::is_same_v<F, Mul> || std::is_same_v<F, Div>;

template <class F>
void DeclareReference(OpDef& def) {
  const auto kernel = []<class T>(const PrepareContext& c) {
    return ElementwiseReference<F, T>(c);
  };
  if constexpr (kTakesComplex<F>)
    def.Reference<float, double, int32_t, int64_t, int16_t, int8_t, uint8_t, float16, bfloat16,
                  complex64, complex128>(kernel);
  else
    def.Reference<float, double, int32_t, int64_t, int16_t, int8_t, uint8_t, float16, bfloat16>(
        kernel);
}

template <class F>
OpDef Declare() {
  OpDef def(F::kType);
  def.Doc(std::string(F::kFormula) + " " + kBroadcastDoc)
      .Apply(DeclareBroadcast)
      .Constraint("C4", "X and Y must have one dtype")
      .Input("X", "tensor")
      .Input("Y", "tensor of X's dtype")
      .Output("Out", "tensor of the broadcast shape")
      .Attr<int32_t>("axis", -1, "where the operand of lower rank begins in the other one")
      .Inplace("X", "Out")
      .Elementwise()
      .Infer(InferElementwise);
  DeclareReference<F>(def);
  return def;
}

template <class F>
void AddRow(OpRegistry& ops, GradientFn gradient) {
  ops.Add(Declare<F>().Gradient(std::move(gradient)).Fast(ElementwiseFast<F>));
}

// dX = dOut Y X^(Y - 1) and dY = dOut Out log X, each summed to its operand's shape by the gradient
// of a product. The logarithm reads X from below 1e-38 as 1e-38, so that 0^Y has the limit 0.
void PowGradient(GradientContext& g) {
  const ElementwiseAxes axes(g);
  const Variable x = g.In("X"), y = g.In("Y");
  const auto op = [&](const char* type, const Variable& a, const Variable& b, AttrList axis) {
    return g.Make(type, {{"X", {a.name()}}, {"Y", {b.name()}}}, std::move(axis));
  };
  const auto summed = [&](const char* slot, const Variable& a, const Variable& b, AttrList axis) {
    g.Set(slot, g.Make("elementwise_mul_grad",
                       {{"X", {a.name()}}, {"Y", {b.name()}}, {"Out@GRAD", {g.OutputGrad("Out")}}},
                       std::move(axis), std::string(slot) + "@GRAD"));
  };
  const Variable less = op("elementwise_pow", x, y - 1.0, axes.Original());
  summed("X", x, op("elementwise_mul", less, y, axes.OfY()), axes.OfX());
  const Variable safe = g.Make("clip", {{"X", {x.name()}}},
                               {{"min", 1e-38f}, {"max", std::numeric_limits<float>::max()}});
  const Variable log = Log(safe), power = op("elementwise_pow", x, y, axes.Original());
  summed("Y", op("elementwise_mul", power, log, axes.OfX()), y, axes.OfY());
}

void Register(OpRegistry& ops) {
  AddRow<Add>(ops, [](GradientContext& g) { AppendElementwiseGrad(g, {false, false, false}); });
  AddRow<Sub>(ops, [](GradientContext& g) { AppendElementwiseGrad(g, {false, false, false}); });
  AddRow<Mul>(ops, [](GradientContext& g) { AppendElementwiseGrad(g, {true, true, false}); });
  AddRow<Div>(ops, [](GradientContext& g) { AppendElementwiseGrad(g, {false, true, true}); });
  AddRow<Max>(ops, [](GradientContext& g) { AppendElementwiseGrad(g, {true, true, false}); });
  AddRow<Min>(ops, [](GradientContext& g) { AppendElementwiseGrad(g, {true, true, false}); });
  ops.Add(Declare<Pow>().Gradient(PowGradient));
  ops.Add(Declare<Mod>().NoGradient("a remainder is used on counters and indices"));
  ops.Add(Declare<FloorDiv>().NotDifferentiable("a rounded quotient is piecewise constant"));
}

}  // namespace coracle::elementwise_op

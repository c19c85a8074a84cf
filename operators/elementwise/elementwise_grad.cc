#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/elementwise/elementwise_gradient.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/kernels/lane_kernel.h>
#include <coracle/operators/kernels/reduce.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/bilinear_gradient.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

namespace coracle::elementwise_grad_op {

// The family, one struct for each row: the terms that are summed to the operands' shapes, and the
// forward values that they read.
struct AddGrad {
  static constexpr const char* kType = "elementwise_add_grad";
  static constexpr const char* kFormula = "X@GRAD = Out@GRAD, Y@GRAD = Out@GRAD";
  static constexpr ElementwiseReads kReads = {false, false, false};
  template <class T>
  static T Dx(T, T, T, T d) {
    return d;
  }
  template <class T>
  static T Dy(T, T, T, T d) {
    return d;
  }
};
struct SubGrad {
  static constexpr const char* kType = "elementwise_sub_grad";
  static constexpr const char* kFormula = "X@GRAD = Out@GRAD, Y@GRAD = -Out@GRAD";
  static constexpr ElementwiseReads kReads = {false, false, false};
  template <class T>
  static T Dx(T, T, T, T d) {
    return d;
  }
  template <class T>
  static T Dy(T, T, T, T d) {
    return -d;
  }
};
struct MulGrad {
  static constexpr const char* kType = "elementwise_mul_grad";
  static constexpr const char* kFormula =
      "X@GRAD = Out@GRAD * conj(Y), Y@GRAD = Out@GRAD * conj(X)";
  static constexpr ElementwiseReads kReads = {true, true, false};
  template <class T>
  static T Dx(T, T y, T, T d) {
    return d * Conj(y);
  }
  template <class T>
  static T Dy(T x, T, T, T d) {
    return d * Conj(x);
  }
};
struct DivGrad {
  static constexpr const char* kType = "elementwise_div_grad";
  static constexpr const char* kFormula =
      "X@GRAD = Out@GRAD / conj(Y), Y@GRAD = -Out@GRAD * conj(Out) / conj(Y)";
  static constexpr ElementwiseReads kReads = {false, true, true};
  template <class T>
  static T Dx(T, T y, T, T d) {
    return d / Conj(y);
  }
  template <class T>
  static T Dy(T, T y, T out, T d) {
    return -d * Conj(out) / Conj(y);
  }
};
// The chosen operand gets the gradient; Y gets it if both are equal, as in Paddle.
struct MaxGrad {
  static constexpr const char* kType = "elementwise_max_grad";
  static constexpr const char* kFormula =
      "X@GRAD = Out@GRAD where X > Y else 0, Y@GRAD = Out@GRAD where X <= Y else 0";
  static constexpr ElementwiseReads kReads = {true, true, false};
  static constexpr const char* kTakesX = "greater_than";
  template <class T>
  static T Dx(T x, T y, T, T d) {
    return x > y ? d : T(0);
  }
  template <class T>
  static T Dy(T x, T y, T, T d) {
    return x > y ? T(0) : d;
  }
};
struct MinGrad {
  static constexpr const char* kType = "elementwise_min_grad";
  static constexpr const char* kFormula =
      "X@GRAD = Out@GRAD where X < Y else 0, Y@GRAD = Out@GRAD where X >= Y else 0";
  static constexpr ElementwiseReads kReads = {true, true, false};
  static constexpr const char* kTakesX = "less_than";
  template <class T>
  static T Dx(T x, T y, T, T d) {
    return x < y ? d : T(0);
  }
  template <class T>
  static T Dy(T x, T y, T, T d) {
    return x < y ? T(0) : d;
  }
};

void InferElementwiseGrad(InferContext& ctx) {
  const VarMeta& dout = ctx.Input("Out@GRAD");
  const VarMeta& x = ctx.HasInput("X") ? ctx.Input("X") : dout;
  const VarMeta& y = ctx.HasInput("Y") ? ctx.Input("Y") : dout;
  const Shape out = InferBroadcast(ctx, x.shape, y.shape, ctx.Attr<int32_t>("axis"));
  const bool has_out = ctx.HasInput("Out");
  ctx.Require("C4",
              x.dtype == dout.dtype && y.dtype == dout.dtype &&
                  (!has_out || ctx.InputDType("Out") == dout.dtype),
              "X", x, "Y", y, "Out@GRAD", dout);
  ctx.Require("C5", out.CompatibleWith(dout.shape), dout.shape, out);
  if (has_out)
    ctx.Require("C5", out.CompatibleWith(ctx.InputShape("Out")), ctx.InputShape("Out"), out);
  ctx.SetOutput("X@GRAD", x);
  ctx.SetOutput("Y@GRAD", y);
}

// The args; an absent operand has Out's shape, and its elements are not read.
struct GradArgs {
  TensorArg x, y, out, dout, dx, dy;
  AlignedShapes aligned;
};
GradArgs ArgsOf(const PrepareContext& ctx) {
  GradArgs a{ctx.Input("X"),
             ctx.Input("Y"),
             ctx.Input("Out"),
             ctx.Input("Out@GRAD"),
             ctx.Output("X@GRAD"),
             ctx.Output("Y@GRAD"),
             {}};
  a.aligned = *AlignShapes(a.x ? a.x.shape : a.dout.shape, a.y ? a.y.shape : a.dout.shape,
                           ctx.Attr<int32_t>("axis"));
  return a;
}

// The type of terms and sums: a product or a partial sum may leave the range of a float where the
// gradient does not.
template <class T>
using Term = std::conditional_t<std::is_same_v<T, float>, double, T>;

// to[operand] = the term, or the sum of terms in the order of Out's elements, for which `sums` is
// scratch of a float gradient.
template <class T, class TermOf>
void Collect(const BroadcastNest& nest, bool to_x, T* to, int64_t to_numel, Term<T>* sums,
             const TermOf& term) {
  const int64_t dx = nest.x_repeats() ? 0 : 1, dy = nest.y_repeats() ? 0 : 1;
  const auto each = [&](const auto& body) {
    ForEachRow(nest, 0, nest.numel, [&](int64_t xo, int64_t yo, int64_t oo, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at_x = xo + i * dx, at_y = yo + i * dy;
        body(to_x ? at_x : at_y, term(at_x, at_y, oo + i));
      }
    });
  };
  if (to_numel == nest.numel)
    return each([to](int64_t at, Term<T> value) { to[at] = static_cast<T>(value); });
  std::fill_n(sums, to_numel, Term<T>(0));
  each([sums](int64_t at, Term<T> value) { sums[at] = sums[at] + value; });
  for (int64_t i = 0; i < to_numel; ++i) to[i] = static_cast<T>(sums[i]);
}

template <class F, class T>
KernelOf<T> GradReference(const PrepareContext& ctx) {
  const GradArgs args = ArgsOf(ctx);
  const BroadcastNest nest = MakeBroadcastNest(args.aligned.x, args.aligned.y, -1);
  TensorArg scratch;
  if constexpr (std::is_same_v<T, float>) {
    const auto needed = [&](const TensorArg& grad) {
      return grad && grad.numel != nest.numel ? grad.numel : 0;
    };
    scratch = ctx.Scratch(DType::kFloat64, {std::max(needed(args.dx), needed(args.dy))});
  }
  return [a = args, nest, scratch](Workspace& ws) {
    using W = Term<T>;
    const T* x = F::kReads.x ? ws.Data<const T>(a.x) : nullptr;
    const T* y = F::kReads.y ? ws.Data<const T>(a.y) : nullptr;
    const T* out = F::kReads.out ? ws.Data<const T>(a.out) : nullptr;
    const T* d = ws.Data<const T>(a.dout);
    const auto at = [](const T* p, int64_t i) { return p ? static_cast<W>(p[i]) : W(0); };
    const auto sums_of = [&](T* to) {
      if constexpr (std::is_same_v<T, float>)
        return to ? ws.Data<W>(scratch) : nullptr;
      else
        return to;
    };
    // X@GRAD may overwrite Out@GRAD, so it is computed last.
    if (a.dy) {
      T* to = ws.Data<T>(a.dy);
      Collect(nest, false, to, a.dy.numel, sums_of(to), [&](int64_t xi, int64_t yi, int64_t i) {
        return F::template Dy<W>(at(x, xi), at(y, yi), at(out, i), at(d, i));
      });
    }
    if (a.dx) {
      T* to = ws.Data<T>(a.dx);
      Collect(nest, true, to, a.dx.numel, sums_of(to), [&](int64_t xi, int64_t yi, int64_t i) {
        return F::template Dx<W>(at(x, xi), at(y, yi), at(out, i), at(d, i));
      });
    }
  };
}

simd::BinaryLoop Loop(simd::Binary op) { return simd::FindBinary(op, simd::Form::kVectorVector); }

// One gradient of a fast kernel: its args, and its sum if the operand was broadcast.
struct Target {
  TensorArg grad, scratch;
  bool full = false;
  FastSumPlan sum;
};
Target MakeTarget(const PrepareContext& ctx, const TensorArg& grad, const Shape& aligned,
                  const TensorArg& dout) {
  Target t;
  t.grad = grad;
  t.full = !grad || grad.numel == dout.numel;
  if (t.full) return t;
  bool reduce[Shape::kMaxRank];
  Shape out = dout.shape;
  for (int i = 0; i < out.rank(); ++i) reduce[i] = aligned[i] == 1 && out[i] != 1;
  t.sum = MakeFastSumPlan(MakeReduceNest(out, reduce));
  if (t.sum.scratch_floats > 0) t.scratch = ctx.Scratch(DType::kFloat32, {t.sum.scratch_floats});
  return t;
}
// The sums of the terms, without and with repair; term(at) is a term in double.
template <class Terms>
void RunFastSum(Workspace& ws, const Target& t, float scale, const Terms& terms) {
  FastSum(t.sum, terms, scale, ws.Data<float>(t.grad),
          t.scratch ? ws.Data<float>(t.scratch) : nullptr);
}
template <class Terms, class TermAt>
void RunSum(Workspace& ws, const Target& t, float scale, const Terms& terms, const TermAt& term) {
  RunFastSum(ws, t, scale, terms);
  RepairSums(t.sum, term, scale, ws.Data<float>(t.grad));
}

// grad = sign * dout, summed if the operand was broadcast.
void PassOn(Workspace& ws, const Target& t, const TensorArg& dout, float sign) {
  static const simd::UnaryLoop scale = simd::FindUnary(simd::Unary::kScale);
  const float* d = ws.Data<const float>(dout);
  if (!t.full)
    return RunSum(
        ws, t, sign, [d](int64_t offset, int64_t, float*) { return d + offset; },
        [d](int64_t at) { return static_cast<double>(d[at]); });
  float* to = ws.Data<float>(t.grad);
  if (to == d && sign == 1.0f) return;
  ParallelFor(dout.numel, 65536, [&](int64_t begin, int64_t end) {
    if (sign == 1.0f)
      std::copy(d + begin, d + end, to + begin);
    else
      scale(d + begin, to + begin, end - begin, {sign, 0, 0});
  });
}

LaneFormula PassOnFormula(const Target& t, const TensorArg& dout, float sign) {
  const simd::Lanes lanes = sign == 1.0f ? simd::Lanes() : simd::FindLanes(simd::Unary::kScale);
  return {lanes, {sign, 0, 0}, dout, {}, t.grad};
}

template <int kSignOfY>
Kernel LinearFast(const PrepareContext& ctx) {
  const GradArgs a = ArgsOf(ctx);
  if (a.dout.dtype != DType::kFloat32) return {};
  const Target dx = MakeTarget(ctx, a.dx, a.aligned.x, a.dout);
  const Target dy = MakeTarget(ctx, a.dy, a.aligned.y, a.dout);
  Kernel loop = [dout = a.dout, dx, dy](Workspace& ws) {
    if (dy.grad) PassOn(ws, dy, dout, kSignOfY);
    if (dx.grad) PassOn(ws, dx, dout, 1.0f);
  };
  if (!dx.full || !dy.full) return loop;
  std::vector<LaneFormula> formulas;
  if (dy.grad) formulas.push_back(PassOnFormula(dy, a.dout, kSignOfY));
  if (dx.grad) formulas.push_back(PassOnFormula(dx, a.dout, 1.0f));
  return LaneKernel{std::move(formulas), std::move(loop)};
}

// grad = dout (op) other, summed if the operand was broadcast.
struct Product {
  Target target;
  TensorArg dout, other;
  BroadcastNest nest;  // of (dout, other), for a full target
  simd::BinaryLoop rows, vectors;
  bool divides = false;

  void operator()(Workspace& ws) const {
    const float *d = ws.Data<const float>(dout), *o = ws.Data<const float>(other);
    if (!target.full) {
      const auto terms = [&](int64_t offset, int64_t count, float* buffer) {
        vectors(d + offset, o + offset, buffer, count);
        return static_cast<const float*>(buffer);
      };
      return RunSum(ws, target, 1.0f, terms, [&](int64_t at) {
        const auto a = static_cast<double>(d[at]), b = static_cast<double>(o[at]);
        return divides ? a / b : a * b;
      });
    }
    float* to = ws.Data<float>(target.grad);
    ParallelFor(nest.numel, 32768, [&](int64_t begin, int64_t end) {
      ForEachRow(nest, begin, end, [&](int64_t dd, int64_t oo, int64_t at, int64_t count) {
        rows(d + dd, o + oo, to + at, count);
      });
    });
  }
  // REQUIRES: a full target, and a nest of one dim.
  LaneFormula Formula(simd::Binary op) const {
    return {simd::FindLanes(op), {}, dout, other, target.grad};
  }
};
// False if the other operand is broadcast too: the reference kernel computes that case.
bool MakeProduct(const PrepareContext& ctx, const GradArgs& a, bool for_x, simd::Binary op,
                 Product* product) {
  const Shape& mine = for_x ? a.aligned.x : a.aligned.y;
  const Shape& others = for_x ? a.aligned.y : a.aligned.x;
  product->target = MakeTarget(ctx, for_x ? a.dx : a.dy, mine, a.dout);
  product->dout = a.dout;
  product->other = for_x ? a.y : a.x;
  if (!product->target.full && product->other.numel != a.dout.numel) return false;
  product->nest = MakeBroadcastNest(a.dout.shape, others, -1);
  product->vectors = Loop(op);
  product->divides = op == simd::Binary::kDiv;
  product->rows = simd::FindBinary(
      op, product->nest.y_repeats() ? simd::Form::kVectorScalar : simd::Form::kVectorVector);
  return true;
}

Kernel MulFast(const PrepareContext& ctx) {
  const GradArgs a = ArgsOf(ctx);
  if (a.dout.dtype != DType::kFloat32) return {};
  Product dx, dy;
  if (!MakeProduct(ctx, a, true, simd::Binary::kMul, &dx) ||
      !MakeProduct(ctx, a, false, simd::Binary::kMul, &dy))
    return {};
  Kernel loop = [dx, dy](Workspace& ws) {
    if (dy.target.grad) dy(ws);
    if (dx.target.grad) dx(ws);
  };
  std::vector<LaneFormula> formulas;
  for (const Product* product : {&dy, &dx}) {
    if (!product->target.full || product->nest.rank > 1) return loop;
    if (product->target.grad) formulas.push_back(product->Formula(simd::Binary::kMul));
  }
  return LaneKernel{std::move(formulas), std::move(loop)};
}

// dY = -sum(dOut * Out) / Y: Y is constant within a sum.
struct DivisorGrad {
  Target target;
  TensorArg dout, out, y;
  simd::BinaryLoop multiply;

  void operator()(Workspace& ws) const {
    const float *d = ws.Data<const float>(dout), *o = ws.Data<const float>(out);
    const float* divisor = ws.Data<const float>(y);
    float* to = ws.Data<float>(target.grad);
    const auto term = [&](int64_t at) { return double{d[at]} * double{o[at]}; };
    const auto quotient = [&](int64_t j, double sum) {
      return static_cast<float>(-sum / double{divisor[j]});
    };
    if (target.full) {
      ParallelFor(y.numel, 32768, [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j) to[j] = quotient(j, term(j));
      });
      return;
    }
    RunFastSum(ws, target, 1.0f, [&](int64_t offset, int64_t count, float* buffer) {
      multiply(d + offset, o + offset, buffer, count);
      return static_cast<const float*>(buffer);
    });
    ForEachOutput(target.sum.nest, [&](int64_t j, const auto& each) {
      // Whether products of floats may have overflowed, or vanished next to a small divisor.
      const bool vanishes = std::abs(to[j]) < 1e-30f && std::abs(divisor[j]) < 1;
      double sum = double{to[j]};
      if (vanishes || !std::isfinite(to[j])) {
        sum = 0;
        each([&](int64_t at) { sum += term(at); });
      }
      to[j] = quotient(j, sum);
    });
  }
};

Kernel DivFast(const PrepareContext& ctx) {
  const GradArgs a = ArgsOf(ctx);
  if (a.dout.dtype != DType::kFloat32) return {};
  Product dx;
  if (!MakeProduct(ctx, a, true, simd::Binary::kDiv, &dx)) return {};
  const DivisorGrad dy{MakeTarget(ctx, a.dy, a.aligned.y, a.dout), a.dout, a.out, a.y,
                       Loop(simd::Binary::kMul)};
  Kernel loop = [dx, dy](Workspace& ws) {
    if (dy.target.grad) dy(ws);
    if (dx.target.grad) dx(ws);
  };
  if (dy.target.grad || !dx.target.full || dx.nest.rank > 1) return loop;
  return LaneKernel{{dx.Formula(simd::Binary::kDiv)}, std::move(loop)};
}

// Below, DX and DY are the gradients of X@GRAD and Y@GRAD.

// The gradient of the gradient of `slot`, or zeros of its shape.
Variable Arrived(GradientContext& g, const std::string& slot) {
  if (g.HasOutputGrad(slot + "@GRAD")) return g.Grad(slot + "@GRAD");
  return ZerosLike(g.In(g.HasInput(slot) ? slot : "Out@GRAD"));
}

Variable WithAxis(GradientContext& g, const char* type, const Variable& x, const Variable& y,
                  AttrList axis) {
  return g.Make(type, {{"X", {x.name()}}, {"Y", {y.name()}}}, std::move(axis));
}

// dOut' = DX + DY, or DX - DY: the forward op applied to these.
void LinearGradient(GradientContext& g, const char* forward) {
  g.Set("Out@GRAD",
        WithAxis(g, forward, Arrived(g, "X"), Arrived(g, "Y"), g.ForwardAttrs({"axis"})));
}

void MulGradGradient(GradientContext& g) {
  SetBilinearGradGradient(g, "elementwise_mul", g.ForwardAttrs({"axis"}));
}

// With T = (DX - Out DY) / Y:  dOut' = T,  Y' = -dOut T / Y,  Out' = -dOut DY / Y. (T / Y and DY /
// Y conjugated.)
void DivGradGradient(GradientContext& g) {
  const Variable y = g.In("Y"), out = g.In("Out"), dout = g.In("Out@GRAD");
  const ElementwiseAxes axes(g, g.Input("X"), y.name());
  const auto mul_y = [&](const Variable& a, const Variable& b) {
    return WithAxis(g, "elementwise_mul", a, b, axes.OfY());
  };
  const auto over_y = [&](const Variable& a) {
    return WithAxis(g, "elementwise_div", a, y, axes.OfY());
  };
  Variable t;
  if (g.HasOutputGrad("Y@GRAD")) {
    // DX has X's shape; Out DY has Out's.
    Variable numerator = mul_y(out, g.Grad("Y@GRAD"));
    if (g.HasOutputGrad("X@GRAD"))
      numerator = WithAxis(g, "elementwise_sub", numerator, g.Grad("X@GRAD"), axes.OfX());
    t = -over_y(numerator);
    const Variable dy = g.Grad("Y@GRAD");
    if (IsComplex(dout.dtype())) {
      const Variable slope = WithAxis(g, "elementwise_div", dy, y, {{"axis", int32_t{-1}}});
      g.Set("Out", -mul_y(dout, g.Make("conj", {{"X", {slope.name()}}})));
    } else {
      g.Set("Out", -over_y(mul_y(dout, dy)));
    }
  } else {
    t = WithAxis(g, "elementwise_div", Arrived(g, "X"), y, axes.Original());
  }
  SlotList inputs = g.ForwardInputs({"X", "Y"});
  inputs.push_back({"Out", {t.name()}});
  inputs.push_back({"Out@GRAD", {dout.name()}});
  g.Set("Out@GRAD", t);
  g.Set("Y", g.Make("elementwise_div_grad", std::move(inputs), axes.Original(), "Y@GRAD"));
}

// dOut' = DX where X was chosen, else DY. X and Y affect only the choice.
void ChoiceGradient(GradientContext& g, const char* takes_x) {
  const ElementwiseAxes axes(g);
  const Variable x = g.In("X"), y = g.In("Y");
  const Variable mask = Cast(WithAxis(g, takes_x, x, y, axes.Original()), x.dtype());
  std::vector<Variable> terms;
  if (g.HasOutputGrad("X@GRAD"))
    terms.push_back(WithAxis(g, "elementwise_mul", mask, g.Grad("X@GRAD"), axes.OfX()));
  if (g.HasOutputGrad("Y@GRAD"))
    terms.push_back(WithAxis(g, "elementwise_mul", 1.0 - mask, g.Grad("Y@GRAD"), axes.OfY()));
  g.Set("Out@GRAD", AddAll(terms));
}

template <class F>
constexpr bool kTakesComplex = std::is_same_v<F, AddGrad> || std::is_same_v<F, SubGrad> ||
                               std::is_same_v<F, MulGrad> || std::is_same_v<F, DivGrad>;

template <class F>
OpDef Declare() {
  const auto operand = [](OpDef& def, const char* name, bool read) {
    if (read)
      def.Input(name, "the value in the forward op");
    else
      def.OptionalInput(
          name, "the operand in the forward op; only its shape is used, which is Out's if absent");
  };
  OpDef def(F::kType);
  def.Doc(fmt::format(
              "Gradient: {}, each summed over the dims along which its operand was broadcast. {}",
              F::kFormula, kBroadcastDoc))
      .Apply(DeclareBroadcast)
      .Constraint("C4", "all inputs must have one dtype")
      .Constraint("C5", "Out@GRAD (and Out) must have the broadcast shape of X and Y");
  operand(def, "X", F::kReads.x);
  operand(def, "Y", F::kReads.y);
  if (F::kReads.out) def.Input("Out", "the value in the forward op");
  def.Input("Out@GRAD", "gradient of Out")
      .OptionalOutput("X@GRAD", "gradient of X")
      .OptionalOutput("Y@GRAD", "gradient of Y")
      .Attr<int32_t>("axis", -1, "the value in the forward op")
      .Inplace("Out@GRAD", "X@GRAD")
      .Elementwise()
      .KernelTypeFrom("Out@GRAD")
      .Infer(InferElementwiseGrad);
  if constexpr (kTakesComplex<F>)
    def.Reference(GradReference<F, float>, GradReference<F, double>, GradReference<F, complex64>,
                  GradReference<F, complex128>);
  else
    def.Reference(GradReference<F, float>, GradReference<F, double>);
  if (!F::kReads.x) def.NoGradientTo({"X"});
  if (!F::kReads.y) def.NoGradientTo({"Y"});
  return def;
}

template <class F>
void AddChoice(OpRegistry& ops) {
  ops.Add(Declare<F>().NoGradientTo({"X", "Y"}).Gradient([](GradientContext& g) {
    ChoiceGradient(g, F::kTakesX);
  }));
}

void Register(OpRegistry& ops) {
  ops.Add(Declare<AddGrad>().Fast(LinearFast<1>).Gradient([](GradientContext& g) {
    LinearGradient(g, "elementwise_add");
  }));
  ops.Add(Declare<SubGrad>().Fast(LinearFast<-1>).Gradient([](GradientContext& g) {
    LinearGradient(g, "elementwise_sub");
  }));
  ops.Add(Declare<MulGrad>().Fast(MulFast).Gradient(MulGradGradient));
  ops.Add(Declare<DivGrad>().Fast(DivFast).Gradient(DivGradGradient));
  AddChoice<MaxGrad>(ops);
  AddChoice<MinGrad>(ops);
}

}  // namespace coracle::elementwise_grad_op

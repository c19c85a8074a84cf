#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/kernels/lane_kernel.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/op_version.h>
#include <coracle/operators/rules/same_type.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace coracle::activation_op {

using activation::AttrRow;
using activation::P;

// The data of a row of the family without its formulas. Only the loops below are templates over the
// formulas, so code that uses RowData is compiled once for all rows.
struct RowData {
  const char *type, *formula;
  const char* reads;  // forward variable that the gradient reads: "Out" or "X"
  std::span<const AttrRow> attrs;
  float first_param;
  bool factor_slot, has_curvature, cuts_off, complex;
  OpPrecision precision;
  std::optional<simd::Unary> simd, simd_with_flag;
  const char *flag, *flag_doc;  // the attr that chooses F::WithFlag, if any
  const char* version0;         // the formula of version 0 of the op, if it was another
  float same_from, same_to;
};
template <class F>
RowData DataOf() {
  std::optional<simd::Unary> with_flag;
  if constexpr (F::kFlag != nullptr) {
    using Other = typename F::WithFlag;
    static_assert(F::kFromOut == Other::kFromOut && F::kHasCurvature == Other::kHasCurvature &&
                      F::kCutsOff == Other::kCutsOff &&
                      F::kSimd.has_value() == Other::kSimd.has_value() && Other::kAttrs.empty(),
                  "the two formulas of a row share its declaration");
    with_flag = Other::kSimd;
  }
  return {.type = F::kType,
          .formula = F::kFormula,
          .reads = F::kFromOut ? "Out" : "X",
          .attrs = F::kAttrs,
          .first_param = F::kFirstParam,
          .factor_slot = F::kFactorSlot,
          .has_curvature = F::kHasCurvature,
          .cuts_off = F::kCutsOff,
          .complex = F::kComplex,
          .precision = F::kPrecision,
          .simd = F::kSimd,
          .simd_with_flag = with_flag,
          .flag = F::kFlag,
          .flag_doc = F::kFlagDoc,
          .version0 = F::kVersion0,
          .same_from = F::kSameFrom,
          .same_to = F::kSameTo};
}

// out[i] = f(inputs[..][i]) for n elements.
template <class T>
using Loop = void (*)(const std::array<const T*, 3>& inputs, T* out, int64_t n, const P<T>& p);

template <class F>
struct ValueLoop {
  template <class T>
  static void Run(const std::array<const T*, 3>& inputs, T* out, int64_t n, const P<T>& p) {
    const T* x = inputs[0];
    for (int64_t i = 0; i < n; ++i) out[i] = F::template Value<T>(x[i], p);
  }
};
// dX = dOut f', and 0 where kCutsOff applies. A slope of c / X, which the row gives as
// kSlopeTimesX, overflows for an X next to 0; the quotient dOut / X may not. If c is
// below 1, the quotient may overflow, too, so the product comes first, unless dOut is next to 0.
template <class F>
struct GradLoop {
  template <class T>
  static void Run(const std::array<const T*, 3>& inputs, T* out, int64_t n, const P<T>& p) {
    const T *v = inputs[0], *d = inputs[1];
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (requires { F::kSlopeTimesX; }) {
        const T c = T(F::kSlopeTimesX);
        const bool product_first = F::kSlopeTimesX < 1 && std::abs(d[i]) > 1e-30;
        out[i] = static_cast<T>(product_first ? d[i] * c / v[i] : d[i] / v[i] * c);
        continue;
      }
      const T slope = F::template Slope<T>(v[i], p), product = WrapMul(d[i], slope);
      out[i] = F::kCutsOff && slope == 0 ? T(0) : product;
    }
  }
};
// Gradient of GradLoop with respect to v: DDX dOut d(f')/dv.
template <class F>
struct CurveLoop {
  template <class T>
  static void Run(const std::array<const T*, 3>& inputs, T* out, int64_t n, const P<T>& p) {
    const T *v = inputs[0], *d = inputs[1], *dd = inputs[2];
    for (int64_t i = 0; i < n; ++i) out[i] = dd[i] * d[i] * F::template Curve<T>(v[i], p);
  }
};

template <class T>
P<T> ParamsOf(const PrepareContext& ctx, const RowData& row) {
  P<T> p{static_cast<T>(row.first_param)};
  for (size_t i = 0; i < row.attrs.size(); ++i)
    p[i] = SaturateTo<T>(static_cast<double>(ctx.Attr<float>(row.attrs[i].name)));
  return p;
}

// Elements per task: an element takes at most some tens of operations.
constexpr int64_t kGrain = 16384;

// The element of FactorTensor, whatever its dtype.
template <class T>
T FactorOf(const Workspace& ws, const TensorArg& factor) {
  if (factor.dtype == DTypeOf<T>()) return ws.Data<const T>(factor)[0];
  switch (factor.dtype) {
    case DType::kFloat64:
      return SaturateTo<T>(ws.Data<const double>(factor)[0]);
    case DType::kInt32:
      return SaturateTo<T>(static_cast<double>(ws.Data<const int32_t>(factor)[0]));
    case DType::kInt64:
      return SaturateTo<T>(static_cast<double>(ws.Data<const int64_t>(factor)[0]));
    default:
      return SaturateTo<T>(double{ws.Data<const float>(factor)[0]});
  }
}

// `inputs` are the slots in the order in which the loop takes them. The element of FactorTensor
// (pow) replaces the first attr.
template <class T>
Kernel LoopKernel(const PrepareContext& ctx, const RowData& row,
                  const std::vector<const char*>& inputs, const char* output, Loop<T> loop) {
  std::array<TensorArg, 3> in;
  std::transform(inputs.begin(), inputs.end(), in.begin(),
                 [&](const char* slot) { return ctx.Input(slot); });
  const TensorArg out = ctx.Output(output), factor = ctx.Input("FactorTensor");
  const P<T> attrs = ParamsOf<T>(ctx, row);
  return [=](Workspace& ws) {
    std::array<const T*, 3> data = {};
    for (size_t k = 0; k < in.size(); ++k) {
      if (in[k]) data[k] = ws.Data<const T>(in[k]);
    }
    T* o = ws.Data<T>(out);
    P<T> p = attrs;
    if (factor) p[0] = FactorOf<T>(ws, factor);
    ParallelFor(in[0].numel, kGrain, [&](int64_t begin, int64_t end) {
      std::array<const T*, 3> from = data;
      for (const T*& input : from) {
        if (input) input += begin;
      }
      loop(from, o + begin, end - begin, p);
    });
  };
}

// |X| for complex X: the modulus of each element.
template <class T>
Kernel ComplexAbs(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    RealType<T>* o = ws.Data<RealType<T>>(out);
    ParallelFor(x.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) o[i] = std::abs(in[i]);
    });
  };
}
// dX = dOut X / |X|, 0 at 0.
template <class T>
Kernel ComplexAbsGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    const RealType<T>* d = ws.Data<const RealType<T>>(dout);
    T* o = ws.Data<T>(dx);
    ParallelFor(x.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        o[i] = in[i] == T(0) ? T(0) : d[i] * (in[i] / std::abs(in[i]));
    });
  };
}

simd::Unary SimdOf(const PrepareContext& ctx, const RowData& row) {
  return row.flag && ctx.Attr<bool>(row.flag) ? *row.simd_with_flag : *row.simd;
}
simd::Params SimdParams(const PrepareContext& ctx, const RowData& row) {
  const P<float> p = ParamsOf<float>(ctx, row);
  return {p[0], p[1], p[2]};
}
Kernel ValueFast(const PrepareContext& ctx, const RowData& row) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32) return {};
  const simd::UnaryLoop loop = simd::FindUnary(SimdOf(ctx, row));
  const simd::Params params = SimdParams(ctx, row);
  return LaneKernel{{{simd::FindLanes(SimdOf(ctx, row)), params, x, {}, out}}, [=](Workspace& ws) {
                      const float* in = ws.Data<const float>(x);
                      float* o = ws.Data<float>(out);
                      ParallelFor(x.numel, kGrain, [&](int64_t begin, int64_t end) {
                        loop(in + begin, o + begin, end - begin, params);
                      });
                    }};
}
Kernel GradFast(const PrepareContext& ctx, const RowData& row) {
  const TensorArg v = ctx.Input(row.reads), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  if (v.dtype != DType::kFloat32) return {};
  const simd::GradLoop loop = simd::FindUnaryGrad(SimdOf(ctx, row));
  const simd::Params params = SimdParams(ctx, row);
  return LaneKernel{{{simd::FindGradLanes(SimdOf(ctx, row)), params, v, dout, dx}},
                    [=](Workspace& ws) {
                      const float *in = ws.Data<const float>(v), *d = ws.Data<const float>(dout);
                      float* o = ws.Data<float>(dx);
                      ParallelFor(v.numel, kGrain, [&](int64_t begin, int64_t end) {
                        loop(in + begin, d + begin, o + begin, end - begin, params);
                      });
                    }};
}

// Checks FactorTensor (only pow has this slot).
void CheckFactor(InferContext& ctx, const char* like) {
  if (!ctx.HasInput("FactorTensor")) return;
  const Shape& shape = ctx.InputShape("FactorTensor");
  ctx.Require("C1", !shape.IsKnown() || shape.numel() == 1, shape);
  const DType dtype = ctx.InputDType("FactorTensor");
  ctx.Require("C2",
              dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kInt32 ||
                  dtype == DType::kInt64 || dtype == ctx.InputDType(like),
              "FactorTensor", dtype, like, ctx.InputDType(like));
}

// Refuses the attr of a program that was made for another formula.
void CheckVersion(InferContext& ctx, const RowData& row) {
  if (!row.version0) return;
  const float attr = ctx.Attr<float>(row.attrs[0].name);
  if (attr >= row.same_from && attr <= row.same_to) return;
  ctx.Require("C5", VersionOf(ctx.op()) != 0, row.attrs[0].name, attr);
}

void InferValue(InferContext& ctx, const RowData& row) {
  CheckVersion(ctx, row);
  CheckFactor(ctx, "X");
  VarMeta out = ctx.Input("X");
  out.dtype = RealOf(out.dtype);
  ctx.SetOutput("Out", out);
}

// All inputs and the output have one shape and dtype, except that the other inputs are real for a
// complex X.
void InferAlike(InferContext& ctx, const char* first, std::initializer_list<const char*> others,
                const char* output) {
  CheckFactor(ctx, first);
  const VarMeta& v = ctx.Input(first);
  for (const char* slot : others) {
    ctx.Require("C3", v.shape.CompatibleWith(ctx.InputShape(slot)), first, v.shape, slot,
                ctx.InputShape(slot));
    ctx.Require("C4", RealOf(v.dtype) == ctx.InputDType(slot), first, v.dtype, slot,
                ctx.InputDType(slot));
  }
  ctx.SetOutput(output, v);
}

// Adds pow's exponent tensor to the inputs, if there is one.
SlotList WithFactor(const GradientContext& g, SlotList inputs) {
  for (Slot& slot : g.ForwardInputs({"FactorTensor"})) inputs.push_back(std::move(slot));
  return inputs;
}
AttrList AttrsOf(const GradientContext& g, const RowData& row) {
  AttrList attrs;
  for (const AttrRow& attr : row.attrs) attrs.push_back({attr.name, g.Attr<float>(attr.name)});
  if (row.flag) {
    for (NamedAttr& attr : g.ForwardAttrs({row.flag})) attrs.push_back(std::move(attr));
  }
  return attrs;
}

// Zeros, since the value is piecewise constant.
void ZeroGradient(GradientContext& g) { g.Set("X", ZerosLike(g.In("X"))); }

// For complex X: dX = dOut X / |X|, 0 at 0. Unlike abs_grad, these ops have gradients of
// every order.
void ComplexAbsGradient(GradientContext& g) {
  const Variable x = g.In("X"), out = g.Out("Out"), dout = g.Grad("Out");
  const Variable zeros = Cast(Equal(out, ZerosLike(out)), out.dtype());  // 1 where Out is 0
  g.Set("X", x * Cast(dout / (out + zeros), x.dtype()));
}

void ValueGradient(GradientContext& g, const RowData& row) {
  if (IsComplex(g.MetaOf(g.Input("X")).dtype)) return ComplexAbsGradient(g);
  const std::string v = row.reads == std::string_view("Out") ? g.Output("Out") : g.Input("X");
  g.Append(std::string(row.type) + "_grad",
           WithFactor(g, {{row.reads, {v}}, {"Out@GRAD", {g.OutputGrad("Out")}}}),
           {{"X@GRAD", {g.InputGrad("X")}}}, AttrsOf(g, row));
}

// dX = dOut f'(v):  dOut' = DDX f'(v),  v' = DDX dOut f''(v).
void GradGradient(GradientContext& g, const RowData& row) {
  const std::string type = row.type;
  const std::string v = g.Input(row.reads), ddx = g.OutputGrad("X@GRAD");
  if (IsComplex(g.MetaOf(v).dtype)) {
    throw Error(ErrorCode::kUnimplemented,
                type + "_grad: second derivatives of complex numbers are not provided");
  }
  g.Append(type + "_grad", WithFactor(g, {{row.reads, {v}}, {"Out@GRAD", {ddx}}}),
           {{"X@GRAD", {g.InputGrad("Out@GRAD")}}}, AttrsOf(g, row));
  if (!row.has_curvature) {
    // These rows accept complex X, whose second derivative is not zero.
    if (row.complex && g.NeedsInputGrad(row.reads)) g.Set(row.reads, ZerosLike(g.In(row.reads)));
    return;
  }
  g.Append(type + "_grad_grad",
           WithFactor(g, {{row.reads, {v}}, {"DOut", {g.Input("Out@GRAD")}}, {"DDX", {ddx}}}),
           {{"DV", {g.InputGrad(row.reads)}}}, AttrsOf(g, row));
}

void DeclareAttrs(OpDef& def, const RowData& row) {
  if (row.factor_slot) {
    def.Constraint("C1", "FactorTensor must hold one element")
        .Constraint("C2", "FactorTensor must be float32, float64, int32, int64, or of X's dtype")
        .OptionalInput("FactorTensor", "tensor [1]; replaces attr factor")
        .NoGradientTo({"FactorTensor"});
  }
  for (const AttrRow& attr : row.attrs) def.Attr<float>(attr.name, attr.value, attr.doc);
  if (row.flag) def.Attr<bool>(row.flag, false, row.flag_doc);
}
void DeclareAlike(OpDef& def) {
  def.Constraint("C3", "all inputs must have one shape")
      .Constraint("C4", "all inputs must have one dtype");
}

OpDef DeclareValue(const RowData& row) {
  OpDef def(row.type);
  def.Doc(std::string("Out = ") + row.formula + ", element by element.")
      .Input("X", "tensor")
      .Output("Out", "tensor of X's shape and dtype")
      .Inplace("X", "Out")
      .Elementwise()
      .ComputesIn(row.precision)
      .Infer([row](InferContext& ctx) { InferValue(ctx, row); });
  if (row.version0) {
    def.Constraint("C5", fmt::format("version 0 of the op, which computed {}, is known for {} from "
                                     "{} to {}",
                                     row.version0, row.attrs[0].name, row.same_from, row.same_to));
  }
  if (row.simd) def.Fast([row](const PrepareContext& ctx) { return ValueFast(ctx, row); });
  DeclareAttrs(def, row);
  return def;
}

OpDef DeclareGrad(const RowData& row) {
  const std::string type = row.type;
  OpDef def(type + "_grad");
  def.Doc("Gradient of " + type + ": X@GRAD = Out@GRAD times the derivative of " + type +
          (row.cuts_off
               ? ". Where the derivative is 0, X@GRAD is 0, even if Out@GRAD is not finite."
               : "."))
      .Apply(DeclareAlike)
      .Input(row.reads, "the value in the forward op")
      .Input("Out@GRAD", "gradient of Out")
      .Output("X@GRAD", "gradient of X")
      .Inplace("Out@GRAD", "X@GRAD")
      .Elementwise()
      .Infer([row](InferContext& ctx) { InferAlike(ctx, row.reads, {"Out@GRAD"}, "X@GRAD"); })
      .Gradient([row](GradientContext& g) { GradGradient(g, row); });
  if (row.simd) def.Fast([row](const PrepareContext& ctx) { return GradFast(ctx, row); });
  DeclareAttrs(def, row);
  if (!row.has_curvature && !row.complex) def.NoGradientTo({row.reads});
  return def;
}

OpDef DeclareCurve(const RowData& row) {
  const std::string type = row.type;
  OpDef def(type + "_grad_grad");
  def.Doc("Gradient of " + type + "_grad with respect to its " + row.reads +
          ": DV = DDX * DOut times the derivative of the slope of " + type + " by that value.")
      .Apply(DeclareAlike)
      .Input(row.reads, "the value in the forward op")
      .Input("DOut", "gradient of the forward op's Out")
      .Input("DDX", "gradient of the gradient of X")
      .Output("DV", std::string("gradient of the gradient op's ") + row.reads)
      .Elementwise()
      .Infer([row](InferContext& ctx) {
        InferAlike(ctx, row.reads, {"DOut", "DDX"}, "DV");
      })
      .NoGradient("third derivatives of activations are not provided");
  DeclareAttrs(def, row);
  return def;
}

// The loops of one op, for each element type, with and without the flag.
struct Loops {
  template <class T>
  using Pair = std::array<Loop<T>, 2>;

  template <class T>
  Kernel operator()(const PrepareContext& ctx) const {
    if constexpr (kIsComplex<T>) {
      return output == std::string_view("Out") ? ComplexAbs<T>(ctx) : ComplexAbsGrad<T>(ctx);
    } else {
      return RealKernel<T>(ctx);
    }
  }
  template <class T>
  Kernel RealKernel(const PrepareContext& ctx) const {
    const bool flag = row.flag && ctx.Attr<bool>(row.flag);
    return LoopKernel<T>(ctx, row, inputs, output, std::get<Pair<T>>(loops)[flag ? 1 : 0]);
  }

  RowData row;
  std::vector<const char*> inputs;
  const char* output;
  std::tuple<Pair<float>, Pair<double>, Pair<int32_t>, Pair<int64_t>> loops = {};
};

// Declares the reference kernels that run the loops of F.
template <class F, template <class> class Run, bool kIntegers>
void DeclareLoops(OpDef& def, Loops ops) {
  const auto add = [&]<class T>(T) {
    auto& [plain, with_flag] = std::get<Loops::Pair<T>>(ops.loops);
    plain = Run<F>::template Run<T>;
    if constexpr (F::kFlag != nullptr) with_flag = Run<typename F::WithFlag>::template Run<T>;
  };
  add(float());
  add(double());
  if constexpr (kIntegers) {
    add(int32_t());
    add(int64_t());
    if constexpr (F::kComplex)
      def.Reference<float, double, int32_t, int64_t, complex64, complex128>(ops);
    else
      def.Reference<float, double, int32_t, int64_t>(ops);
  } else {
    def.Reference<float, double>(ops);
  }
}

template <class F>
void AddRow(OpRegistry& ops) {
  const RowData row = DataOf<F>();
  OpDef value = DeclareValue(row);
  DeclareLoops<F, ValueLoop, F::kIntegers>(value, {row, {"X"}, "Out"});
  if constexpr (!F::kHasGradient) {
    ops.Add(std::move(value.Gradient(ZeroGradient)));
  } else {
    ops.Add(std::move(value.Gradient([row](GradientContext& g) { ValueGradient(g, row); })));
    OpDef grad = DeclareGrad(row);
    DeclareLoops<F, GradLoop, F::kIntegers>(grad, {row, {row.reads, "Out@GRAD"}, "X@GRAD"});
    ops.Add(std::move(grad));
  }
  if constexpr (F::kHasGradient && F::kHasCurvature) {
    OpDef curve = DeclareCurve(row);
    DeclareLoops<F, CurveLoop, false>(curve, {row, {row.reads, "DOut", "DDX"}, "DV"});
    ops.Add(std::move(curve));
  }
}

template <class... Fs>
void AddRows(OpRegistry& ops, activation::Rows<Fs...>) {
  (AddRow<Fs>(ops), ...);
}

void Register(OpRegistry& ops) { AddRows(ops, activation::AllRows()); }

}  // namespace coracle::activation_op

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <string>

namespace coracle {
namespace {

using activation::AttrRow;
using activation::P;

// What the gradient reads: the forward output or input.
template <class F>
constexpr const char* kReads = F::kFromOut ? "Out" : "X";

template <class F, class T>
P<T> AttrsOf(const PrepareContext& ctx) {
  P<T> p{static_cast<T>(F::kFirstParam)};
  for (size_t i = 0; i < F::kAttrs.size(); ++i)
    p[i] = SaturateTo<T>(static_cast<double>(ctx.Attr<float>(F::kAttrs[i].name)));
  return p;
}
template <class F>
simd::Params SimdParams(const PrepareContext& ctx) {
  const P<float> p = AttrsOf<F, float>(ctx);
  return {p[0], p[1], p[2]};
}

// The attrs, or the element of FactorTensor (pow) instead of the first.
template <class T>
struct ParamSource {
  template <class F>
  ParamSource(const PrepareContext& ctx, F)
      : attrs(AttrsOf<F, T>(ctx)), factor(ctx.Input("FactorTensor")) {}
  P<T> operator()(Workspace& ws) const {
    P<T> p = attrs;
    if (factor) p[0] = ws.Data<const T>(factor)[0];
    return p;
  }
  P<T> attrs;
  TensorArg factor;
};

// Work for one element is some tens of operations at most.
constexpr int64_t kGrain = 16384;

template <class F, class T>
Kernel ValueKernel(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const ParamSource<T> params(ctx, F());
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    const P<T> p = params(ws);
    ParallelFor(x.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) o[i] = F::template Value<T>(in[i], p);
    });
  };
}

// dX = dOut f'.
template <class F, class T>
Kernel GradKernel(const PrepareContext& ctx) {
  const TensorArg v = ctx.Input(kReads<F>), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const ParamSource<T> params(ctx, F());
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(v), *d = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dx);
    const P<T> p = params(ws);
    ParallelFor(v.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) o[i] = WrapMul(d[i], F::template Slope<T>(in[i], p));
    });
  };
}

// Gradient of GradKernel with respect to v: DDX dOut d(f')/dv.
template <class F, class T>
KernelOf<T> CurveKernel(const PrepareContext& ctx) {
  const TensorArg v = ctx.Input(kReads<F>), dout = ctx.Input("DOut"), ddx = ctx.Input("DDX");
  const TensorArg out = ctx.Output("DV");
  const ParamSource<T> params(ctx, F());
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(v), *d = ws.Data<const T>(dout), *dd = ws.Data<const T>(ddx);
    T* o = ws.Data<T>(out);
    const P<T> p = params(ws);
    ParallelFor(v.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) o[i] = dd[i] * d[i] * F::template Curve<T>(in[i], p);
    });
  };
}

template <class F>
Kernel ValueFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32) return {};
  const simd::UnaryLoop loop = simd::FindUnary(*F::kSimd);
  const simd::Params params = SimdParams<F>(ctx);
  return [=](Workspace& ws) {
    const float* in = ws.Data<const float>(x);
    float* o = ws.Data<float>(out);
    ParallelFor(x.numel, kGrain, [&](int64_t begin, int64_t end) {
      loop(in + begin, o + begin, end - begin, params);
    });
  };
}

template <class F>
Kernel GradFast(const PrepareContext& ctx) {
  const TensorArg v = ctx.Input(kReads<F>), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  if (v.dtype != DType::kFloat32) return {};
  const simd::GradLoop loop = simd::FindUnaryGrad(*F::kSimd);
  const simd::Params params = SimdParams<F>(ctx);
  return [=](Workspace& ws) {
    const float *in = ws.Data<const float>(v), *d = ws.Data<const float>(dout);
    float* o = ws.Data<float>(dx);
    ParallelFor(v.numel, kGrain, [&](int64_t begin, int64_t end) {
      loop(in + begin, d + begin, o + begin, end - begin, params);
    });
  };
}

// What FactorTensor must be (no other row of the family has that slot).
void CheckFactor(InferContext& ctx, const char* like) {
  if (!ctx.HasInput("FactorTensor")) return;
  const Shape& shape = ctx.InputShape("FactorTensor");
  ctx.Require("C1", !shape.IsKnown() || shape.numel() == 1, shape);
  RequireSameDType(ctx, "C2", "FactorTensor", like);
}

void InferValue(InferContext& ctx) {
  CheckFactor(ctx, "X");
  ctx.SetOutput("Out", ctx.Input("X"));
}

// All inputs have one shape and dtype, and so has the output.
void InferAlike(InferContext& ctx, const char* first, std::initializer_list<const char*> others,
                const char* output) {
  CheckFactor(ctx, first);
  const VarMeta& v = ctx.Input(first);
  for (const char* slot : others) {
    ctx.Require("C3", v.shape.CompatibleWith(ctx.InputShape(slot)), first, v.shape, slot,
                ctx.InputShape(slot));
    ctx.Require("C4", v.dtype == ctx.InputDType(slot), first, v.dtype, slot, ctx.InputDType(slot));
  }
  ctx.SetOutput(output, v);
}

template <class F>
void DeclareAttrs(OpDef& def) {
  if constexpr (F::kAttrs.size() > 0) {
    for (const AttrRow& attr : F::kAttrs) def.Attr<float>(attr.name, attr.value, attr.doc);
  }
}

SlotList WithFactor(const GradientContext& g, SlotList inputs) {
  for (Slot& slot : g.ForwardInputs({"FactorTensor"})) inputs.push_back(std::move(slot));
  return inputs;
}

template <class F>
AttrList AttrsOf(const GradientContext& g) {
  AttrList attrs;
  for (size_t i = 0; i < F::kAttrs.size(); ++i)
    attrs.push_back({F::kAttrs[i].name, g.Attr<float>(F::kAttrs[i].name)});
  return attrs;
}

// Zeros: the value is piecewise constant.
void ZeroGradient(GradientContext& g) { g.Set("X", ZerosLike(g.In("X"))); }

template <class F>
void ValueGradient(GradientContext& g, const std::string& type) {
  const std::string v = F::kFromOut ? g.Output("Out") : g.Input("X");
  g.Append(type + "_grad", WithFactor(g, {{kReads<F>, {v}}, {"Out@GRAD", {g.OutputGrad("Out")}}}),
           {{"X@GRAD", {g.InputGrad("X")}}}, AttrsOf<F>(g));
}

// dX = dOut f'(v):  dOut' = DDX f'(v),  v' = DDX dOut f''(v).
template <class F>
void GradGradient(GradientContext& g, const std::string& type) {
  const std::string v = g.Input(kReads<F>), ddx = g.OutputGrad("X@GRAD");
  g.Append(type + "_grad", WithFactor(g, {{kReads<F>, {v}}, {"Out@GRAD", {ddx}}}),
           {{"X@GRAD", {g.InputGrad("Out@GRAD")}}}, AttrsOf<F>(g));
  if constexpr (F::kHasCurvature) {
    g.Append(type + "_grad_grad",
             WithFactor(g, {{kReads<F>, {v}}, {"DOut", {g.Input("Out@GRAD")}}, {"DDX", {ddx}}}),
             {{"DV", {g.InputGrad(kReads<F>)}}}, AttrsOf<F>(g));
  }
}

template <class F, template <class, class> class K>
void DeclareKernels(OpDef& def) {
  const auto make = []<class T>(const PrepareContext& c) { return K<F, T>::Make(c); };
  if constexpr (F::kIntegers)
    def.Reference<float, double, int32_t, int64_t>(make);
  else
    def.Reference<float, double>(make);
}
template <class F, class T>
struct MakeValue {
  static Kernel Make(const PrepareContext& c) { return ValueKernel<F, T>(c); }
};
template <class F, class T>
struct MakeGrad {
  static Kernel Make(const PrepareContext& c) { return GradKernel<F, T>(c); }
};

// pow's exponent as a tensor.
template <class F>
void DeclareFactor(OpDef& def) {
  if constexpr (F::kFactorSlot) {
    def.Constraint("C1", "FactorTensor must hold one element")
        .Constraint("C2", "FactorTensor must have X's dtype")
        .OptionalInput("FactorTensor", "tensor [1]; replaces attr factor")
        .NoGradientTo({"FactorTensor"});
  }
}
void DeclareAlike(OpDef& def) {
  def.Constraint("C3", "all inputs must have one shape")
      .Constraint("C4", "all inputs must have one dtype");
}

template <class F>
OpDef DeclareValue(const std::string& type, const std::string& formula) {
  OpDef def(type);
  def.Doc("Out = " + formula + ", element by element.")
      .Input("X", "tensor")
      .Output("Out", "tensor of X's shape and dtype")
      .Inplace("X", "Out")
      .Elementwise()
      .ComputesIn(F::kPrecision)
      .Apply(DeclareFactor<F>)
      .Apply(DeclareAttrs<F>)
      .Infer(InferValue);
  return def;
}

template <class F>
OpDef DeclareGrad(const std::string& type) {
  OpDef def(type + "_grad");
  def.Doc("Gradient of " + type + ": X@GRAD = Out@GRAD times the derivative of " + type + ".")
      .Apply(DeclareAlike)
      .Input(kReads<F>, "the forward op's")
      .Input("Out@GRAD", "gradient of Out")
      .Output("X@GRAD", "gradient of X")
      .Inplace("Out@GRAD", "X@GRAD")
      .Elementwise()
      .Infer([](InferContext& ctx) { InferAlike(ctx, kReads<F>, {"Out@GRAD"}, "X@GRAD"); })
      .Gradient([type](GradientContext& g) { GradGradient<F>(g, type); })
      .Apply(DeclareFactor<F>)
      .Apply(DeclareAttrs<F>);
  if (!F::kHasCurvature) def.NoGradientTo({kReads<F>});
  return def;
}

template <class F>
void AddCurve(OpRegistry& ops, const std::string& type) {
  OpDef def(type + "_grad_grad");
  def.Doc("Gradient of " + type + "_grad with respect to its " + kReads<F> +
          ": DV = DDX * DOut times the derivative of the slope of " + type + " by that value.")
      .Apply(DeclareAlike)
      .Input(kReads<F>, "the forward op's")
      .Input("DOut", "gradient of the forward op's Out")
      .Input("DDX", "gradient of the gradient of X")
      .Output("DV", std::string("gradient of the gradient op's ") + kReads<F>)
      .Infer([](InferContext& ctx) {
        InferAlike(ctx, kReads<F>, {"DOut", "DDX"}, "DV");
      })
      .NoGradient("third derivatives of activations are not provided")
      .Reference(CurveKernel<F, float>, CurveKernel<F, double>)
      .Apply(DeclareFactor<F>)
      .Apply(DeclareAttrs<F>);
  ops.Add(std::move(def));
}

template <class F>
void AddRow(OpRegistry& ops) {
  const std::string type = F::kType;
  OpDef value = DeclareValue<F>(type, F::kFormula).Apply(DeclareKernels<F, MakeValue>);
  if constexpr (F::kSimd.has_value()) value.Fast(ValueFast<F>);
  if constexpr (!F::kHasGradient) {
    ops.Add(std::move(value.Gradient(ZeroGradient)));
  } else {
    ops.Add(std::move(value.Gradient([type](GradientContext& g) { ValueGradient<F>(g, type); })));
    OpDef grad = DeclareGrad<F>(type).Apply(DeclareKernels<F, MakeGrad>);
    if constexpr (F::kSimd.has_value()) grad.Fast(GradFast<F>);
    ops.Add(std::move(grad));
    if constexpr (F::kHasCurvature) AddCurve<F>(ops, type);
  }
}

// gelu chooses its formula by an attr.
template <template <class, class> class K>
void DeclareGeluKernels(OpDef& def) {
  def.Attr<bool>("approximate", false, "whether the tanh approximation is used")
      .Reference<float, double>([]<class T>(const PrepareContext& c) {
        return c.Attr<bool>("approximate") ? K<activation::GeluTanh, T>::Make(c)
                                           : K<activation::GeluErf, T>::Make(c);
      });
}
template <class F, class T>
struct MakeCurve {
  static Kernel Make(const PrepareContext& c) { return CurveKernel<F, T>(c); }
};

// dX = dOut f'(X) and what follows, with the attr handed on.
void GeluGradient(GradientContext& g) {
  g.Append("gelu_grad", {{"X", {g.Input("X")}}, {"Out@GRAD", {g.OutputGrad("Out")}}},
           {{"X@GRAD", {g.InputGrad("X")}}}, g.ForwardAttrs({"approximate"}));
}
void GeluGradGradient(GradientContext& g) {
  const std::string x = g.Input("X"), ddx = g.OutputGrad("X@GRAD");
  const AttrList attrs = g.ForwardAttrs({"approximate"});
  g.Append("gelu_grad", {{"X", {x}}, {"Out@GRAD", {ddx}}}, {{"X@GRAD", {g.InputGrad("Out@GRAD")}}},
           attrs);
  g.Append("gelu_grad_grad", {{"X", {x}}, {"DOut", {g.Input("Out@GRAD")}}, {"DDX", {ddx}}},
           {{"DV", {g.InputGrad("X")}}}, attrs);
}

void AddGelu(OpRegistry& ops) {
  using activation::GeluErf;
  using activation::GeluTanh;
  ops.Add(DeclareValue<GeluErf>("gelu",
                                "X Phi(X) with the normal distribution Phi, or with "
                                "approximate X / 2 (1 + tanh(sqrt(2 / pi) (X + 0.044715 "
                                "X^3)))")
              .Apply(DeclareGeluKernels<MakeValue>)
              .Gradient(GeluGradient)
              .Fast([](const PrepareContext& c) {
                return c.Attr<bool>("approximate") ? ValueFast<GeluTanh>(c) : ValueFast<GeluErf>(c);
              }));
  ops.Add(DeclareGrad<GeluErf>("gelu")
              .Apply(DeclareGeluKernels<MakeGrad>)
              .Gradient(GeluGradGradient)
              .Fast([](const PrepareContext& c) {
                return c.Attr<bool>("approximate") ? GradFast<GeluTanh>(c) : GradFast<GeluErf>(c);
              }));
  ops.Add(OpDef("gelu_grad_grad")
              .Doc("Gradient of gelu_grad with respect to its X: DV = DDX * DOut times the second "
                   "derivative of gelu.")
              .Apply(DeclareAlike)
              .Input("X", "the forward op's")
              .Input("DOut", "gradient of the forward op's Out")
              .Input("DDX", "gradient of the gradient of X")
              .Output("DV", "gradient of gelu_grad's X")
              .Infer([](InferContext& ctx) {
                InferAlike(ctx, "X", {"DOut", "DDX"}, "DV");
              })
              .NoGradient("third derivatives of activations are not provided")
              .Apply(DeclareGeluKernels<MakeCurve>));
}

template <class... Fs>
void AddRows(OpRegistry& ops, activation::Rows<Fs...>) {
  (AddRow<Fs>(ops), ...);
}

}  // namespace

void RegisterActivation(OpRegistry& ops) {
  AddRows(ops, activation::AllRows());
  AddGelu(ops);
}

}  // namespace coracle

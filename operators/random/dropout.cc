#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/random/drop.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::dropout_op {

// X's dtype if the program declares Mask so, as Paddle's first files do. A newly created variable
// is declared as a float of rank 0.
DType MaskDType(const InferContext& ctx, const VarMeta& x) {
  const VarMeta* declared = ctx.DeclaredOutput("Mask");
  const bool like_x = declared && declared->dtype == x.dtype && declared->shape.rank() > 0 &&
                      declared->shape.CompatibleWith(x.shape);
  return like_x ? x.dtype : DType::kUInt8;
}

void InferForward(InferContext& ctx) {
  if (ctx.HasInput("Seed")) {
    const VarMeta& seed = ctx.Input("Seed");
    ctx.Require("C1",
                (seed.dtype == DType::kInt32 || seed.dtype == DType::kInt64) &&
                    (!seed.shape.IsKnown() || seed.shape.numel() == 1),
                seed);
  }
  const VarMeta& x = ctx.Input("X");
  ctx.SetOutput("Mask", MaskDType(ctx, x), x.shape);
  ctx.SetOutput("Out", x);
}

void InferGrad(InferContext& ctx) {
  if (ctx.HasInput("Mask")) {
    const VarMeta &mask = ctx.Input("Mask"), &dout = ctx.Input("Out@GRAD");
    const bool typed = mask.dtype == DType::kUInt8 || mask.dtype == dout.dtype;
    ctx.Require("C1", typed && mask.shape.CompatibleWith(dout.shape), "Mask", mask, "Out@GRAD",
                dout);
  } else {
    ctx.Require("C2", ctx.Attr<bool>("is_test"), "is_test", ctx.Attr<bool>("is_test"));
  }
  ctx.SetOutput("X@GRAD", ctx.Input("Out@GRAD"));
}

struct Setup {
  double p;
  bool is_test, upscale;
  template <class Context>
  explicit Setup(const Context& ctx)
      : p(std::clamp(static_cast<double>(ctx.template Attr<float>("dropout_prob")), 0.0, 1.0)),
        is_test(ctx.template Attr<bool>("is_test")),
        upscale(ctx.template Attr<std::string>("dropout_implementation") == "upscale_in_train") {}

  // The factor of kept elements.
  double Scale() const {
    if (is_test) return upscale ? 1 : 1 - p;
    return upscale && p < 1 ? 1 / (1 - p) : 1;
  }
};

// The source of the draws: the run's seed and step and the output's name, or, if the op asks for
// it, its own seed, which gives the same mask every time.
struct Source {
  TensorArg seed;
  bool fixed;
  uint64_t value, stream;
  explicit Source(const PrepareContext& ctx)
      : seed(ctx.Input("Seed")),
        fixed(ctx.Attr<bool>("fix_seed")),
        value(static_cast<uint64_t>(ctx.Attr<int32_t>("seed"))),
        stream(ctx.RandomStream("Out")) {}

  Philox For(Workspace& ws) const {
    if (seed && seed.dtype == DType::kInt64)
      return Philox(static_cast<uint64_t>(*ws.Data<const int64_t>(seed)), 0, 0);
    if (seed) return Philox(static_cast<uint64_t>(*ws.Data<const int32_t>(seed)), 0, 0);
    return fixed ? Philox(value, 0, 0) : Philox(ws.seed(), stream, ws.step());
  }
};

// Whether the mask holds the factor of each element as a float.
bool HoldsFactors(const TensorArg& mask) { return mask && mask.dtype != DType::kUInt8; }

template <class T>
Kernel Train(const PrepareContext& ctx, const Setup& s) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), mask = ctx.Output("Mask");
  const Source source(ctx);
  const T scale = static_cast<T>(s.Scale());
  const bool factors = HoldsFactors(mask);
  const TensorArg kept = factors ? ctx.Scratch(DType::kUInt8, x.shape) : mask;
  return [=](Workspace& ws) {
    uint8_t* m = kept ? ws.Data<uint8_t>(kept) : nullptr;
    Drop(source.For(ws), s.p, scale, ws.Data<const T>(x), ws.Data<T>(out), m, x.numel);
    if (!factors) return;
    T* f = ws.Data<T>(mask);
    for (int64_t i = 0; i < x.numel; ++i) f[i] = m[i] ? scale : T(0);
  };
}

template <class T>
Kernel Test(const PrepareContext& ctx, const Setup& s) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), mask = ctx.Output("Mask");
  const T scale = static_cast<T>(s.Scale());
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    for (int64_t i = 0; i < x.numel; ++i) o[i] = in[i] * scale;
    if (HoldsFactors(mask))
      std::fill_n(ws.Data<T>(mask), mask.numel, scale);
    else if (mask)
      std::fill_n(ws.Data<uint8_t>(mask), mask.numel, uint8_t{1});
  };
}

template <class T>
KernelOf<T> Forward(const PrepareContext& ctx) {
  const Setup s(ctx);
  return s.is_test ? Test<T>(ctx, s) : Train<T>(ctx, s);
}

template <class T>
KernelOf<T> Backward(const PrepareContext& ctx) {
  const Setup s(ctx);
  const TensorArg mask = ctx.Input("Mask"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const T scale = static_cast<T>(s.Scale());
  const bool masked = !s.is_test;
  if (masked && HoldsFactors(mask)) {
    return [=](Workspace& ws) {
      const T *m = ws.Data<const T>(mask), *from = ws.Data<const T>(dout);
      T* to = ws.Data<T>(dx);
      for (int64_t i = 0; i < dout.numel; ++i) to[i] = from[i] * m[i];
    };
  }
  return [=](Workspace& ws) {
    const uint8_t* m = masked ? ws.Data<const uint8_t>(mask) : nullptr;
    DropGrad(m, scale, ws.Data<const T>(dout), ws.Data<T>(dx), dout.numel);
  };
}

AttrList AttrsOf(GradientContext& g) {
  return g.ForwardAttrs({"dropout_prob", "is_test", "dropout_implementation"});
}

void ForwardGradient(GradientContext& g) {
  SlotList inputs = {{"Out@GRAD", {g.OutputGrad("Out")}}};
  if (g.HasOutput("Mask")) {
    inputs.push_back({"Mask", {g.Output("Mask")}});
  } else if (!g.Attr<bool>("is_test")) {
    ThrowInvalid("dropout: needs its output Mask to be differentiated, and the op has none",
                 Locate(g.op()));
  }
  g.Append("dropout_grad", inputs, {{"X@GRAD", {g.InputGrad("X")}}}, AttrsOf(g));
}

// The op is linear in Out@GRAD.
void BackwardGradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"Mask"});
  inputs.push_back({"Out@GRAD", {g.OutputGrad("X@GRAD")}});
  g.Set("Out@GRAD", g.Make("dropout_grad", std::move(inputs), AttrsOf(g), "X@GRAD"));
}

void DeclareAttrs(OpDef& def) {
  def.Attr<float>("dropout_prob", 0.5f, "probability that an element becomes 0")
      .Range(0, 1)
      .Attr<bool>("is_test", false, "no element is dropped")
      .Attr<std::string>(
          "dropout_implementation", "downgrade_in_infer",
          "upscale_in_train: kept elements are divided by 1 - dropout_prob in training; "
          "downgrade_in_infer: all are multiplied by 1 - dropout_prob in a test")
      .OneOf({"downgrade_in_infer", "upscale_in_train"});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("dropout")
              .Apply(DeclareAttrs)
              .Doc("Out = X Mask, times 1 / (1 - dropout_prob) with upscale_in_train; Mask is 1 "
                   "with probability 1 - dropout_prob, drawn from the seed, the step and Out's "
                   "name. With is_test Out = X (upscale_in_train) or X (1 - dropout_prob), and "
                   "Mask is 1. If Mask has X's dtype, it holds the factor itself.")
              .Constraint("C1", "Seed must be one int32 or int64")
              .Input("X", "floating-point tensor of any shape")
              .OptionalInput("Seed", "[1]: determines the mask, instead of seed and step")
              .Output("Out", "tensor of X's shape and dtype")
              .IntermediateOutput(
                  "Mask",
                  "uint8 tensor of X's shape: 1 where X was kept; or of X's dtype, if declared so")
              .Attr<bool>("fix_seed", false, "only the attr seed determines the mask")
              .Attr<int32_t>("seed", 0, "used with fix_seed")
              .NoGradientTo({"Seed"})
              .Inplace("X", "Out")
              .Random()
              .Rows(RowRule::kEach)
              .Axes()
              .Infer(InferForward)
              .Gradient(ForwardGradient)
              .Reference(Forward<float>, Forward<double>));
  ops.Add(OpDef("dropout_grad")
              .Apply(DeclareAttrs)
              .Doc("Gradient of dropout: X@GRAD = Out@GRAD Mask, scaled as in the forward op.")
              .Constraint("C1",
                          "Mask must have the gradient's shape, and dtype uint8 or the gradient's")
              .Constraint("C2", "Mask may be absent only with is_test")
              .OptionalInput("Mask", "dropout's Mask")
              .Input("Out@GRAD", "gradient of dropout's Out")
              .Output("X@GRAD", "gradient of dropout's X")
              .NoGradientTo({"Mask"})
              .KernelTypeFrom("Out@GRAD")
              .Inplace("Out@GRAD", "X@GRAD")
              .Elementwise()
              .Infer(InferGrad)
              .Gradient(BackwardGradient)
              .Reference(Backward<float>, Backward<double>));
}

}  // namespace coracle::dropout_op

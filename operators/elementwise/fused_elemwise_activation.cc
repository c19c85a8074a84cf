// A binary and a unary elementwise op in one: fused_elemwise_activation
// and fused_elemwise_add_activation.

#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <cmath>
#include <optional>

namespace coracle::fused_elemwise_activation_op {

enum class Unary { kScale, kRelu, kTanh, kSigmoid, kGelu };

std::optional<Unary> UnaryOf(const std::string& name) {
  if (name == "scale") return Unary::kScale;
  if (name == "relu") return Unary::kRelu;
  if (name == "tanh") return Unary::kTanh;
  if (name == "sigmoid") return Unary::kSigmoid;
  if (name == "gelu") return Unary::kGelu;
  return std::nullopt;
}

bool IsBinary(const std::string& name) {
  return name == "elementwise_add" || name == "elementwise_mul";
}

// The parsed functor_list.
struct Functors {
  Unary unary;
  std::string binary;
  bool unary_outside;  // Out = unary(binary(X, Y)), else binary(X, unary(Y))
};

template <class Context>
std::optional<Functors> FunctorsOf(const Context& ctx) {
  const auto list = ctx.template Attr<std::vector<std::string>>("functor_list");
  if (list.size() != 2) return std::nullopt;
  const bool outside = IsBinary(list[1]);
  const std::string &unary = list[outside ? 0 : 1], &binary = list[outside ? 1 : 0];
  if (!UnaryOf(unary) || !IsBinary(binary)) return std::nullopt;
  return Functors{*UnaryOf(unary), binary, outside};
}

void InferFused(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const Shape& y = ctx.InputShape("Y");
  RequireSameDType(ctx, "C4", "Y", "X");
  const auto functors = FunctorsOf(ctx);
  if (!functors) ctx.Fail("C5", ctx.Attr<std::vector<std::string>>("functor_list").size());
  x.shape = InferBroadcast(ctx, x.shape, y, ctx.Attr<int32_t>("axis"));
  ctx.SetOutput("Out", x);
  if (!functors->unary_outside) x.shape = y;
  ctx.SetOutput("IntermediateOut", x);
}

template <class T>
T Apply(Unary unary, T scale, T v) {
  switch (unary) {
    case Unary::kScale:
      return scale * v;
    case Unary::kRelu:
      return v < 0 ? T(0) : v;
    case Unary::kTanh:
      return std::tanh(v);
    case Unary::kSigmoid:
      return 1 / (1 + std::exp(-v));
    case Unary::kGelu:
      break;
  }
  return activation::GeluTanh::Value<T>(v, {});
}

template <class T>
KernelOf<T> Fused(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const TensorArg inner = ctx.Output("IntermediateOut");
  const Functors f = FunctorsOf(ctx).value();
  const T scale = static_cast<T>(ctx.Attr<float>("scale"));
  const BroadcastNest nest = MakeBroadcastNest(x.shape, y.shape, ctx.Attr<int32_t>("axis"));
  const bool add = f.binary == "elementwise_add";
  return [=](Workspace& ws) {
    const auto unary = [&](T v) { return Apply(f.unary, scale, v); };
    const auto binary = [&](T a, T b) { return add ? a + b : a * b; };
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    T *o = ws.Data<T>(out), *mid = inner ? ws.Data<T>(inner) : nullptr;
    if (!f.unary_outside) {
      for (int64_t i = 0; mid && i < y.numel; ++i) mid[i] = unary(b[i]);
      BroadcastLoop(nest, a, b, o, [&](T v, T w) { return binary(v, unary(w)); });
      return;
    }
    if (mid) BroadcastLoop(nest, a, b, mid, binary);
    BroadcastLoop(nest, a, b, o, [&](T v, T w) { return unary(binary(v, w)); });
  };
}

// Appends the unary function, or its gradient if `d` is given.
Variable UnaryOp(GradientContext& g, Unary unary, const Variable& v) {
  switch (unary) {
    case Unary::kScale:
      return v * static_cast<double>(g.Attr<float>("scale"));
    case Unary::kRelu:
      return g.Make("relu", {{"X", {v.name()}}});
    case Unary::kTanh:
      return g.Make("tanh", {{"X", {v.name()}}});
    case Unary::kSigmoid:
      return Sigmoid(v);
    case Unary::kGelu:
      break;
  }
  return g.Make("gelu", {{"X", {v.name()}}}, {{"approximate", true}});
}
Variable UnaryGrad(GradientContext& g, Unary unary, const Variable& v, const Variable& d) {
  switch (unary) {
    case Unary::kScale:
      return d * static_cast<double>(g.Attr<float>("scale"));
    case Unary::kRelu:
      return g.Make("relu_grad", {{"Out", {UnaryOp(g, unary, v).name()}}, {"Out@GRAD", {d.name()}}},
                    {}, "X@GRAD");
    case Unary::kTanh: {
      const Variable square = Square(UnaryOp(g, unary, v));
      return d * (1.0 - square);
    }
    case Unary::kSigmoid: {
      const Variable s = Sigmoid(v), rest = s - Square(s);
      return d * rest;
    }
    case Unary::kGelu:
      break;
  }
  return g.Make("gelu_grad", {{"X", {v.name()}}, {"Out@GRAD", {d.name()}}}, {{"approximate", true}},
                "X@GRAD");
}

void FusedGradient(GradientContext& g) {
  const Functors f = FunctorsOf(g).value();
  const AttrList axis = g.ForwardAttrs({"axis"});
  const Variable x = g.In("X"), y = g.In("Y");
  Variable dout = g.Grad("Out");
  Variable b = f.unary_outside ? y : UnaryOp(g, f.unary, y);
  const SlotList operands = {{"X", {x.name()}}, {"Y", {b.name()}}};
  if (f.unary_outside) dout = UnaryGrad(g, f.unary, g.Make(f.binary, operands, axis), dout);
  const auto grad = [&](const char* slot) {
    SlotList inputs = operands;
    inputs.push_back({"Out@GRAD", {dout.name()}});
    return g.Make(f.binary + "_grad", std::move(inputs), axis, slot);
  };
  g.Set("X", grad("X@GRAD"));
  const Variable dy = grad("Y@GRAD");
  g.Set("Y", f.unary_outside ? dy : UnaryGrad(g, f.unary, y, dy));
}

OpDef Def(const std::string& type) {
  return OpDef(type)
      .Doc(std::string(
               "Out = unary(binary(X, Y)) for functor_list {unary, binary}, binary(X, unary(Y)) "
               "for {binary, unary}, and IntermediateOut = the result of the inner function. Unary "
               "functions are scale, relu, tanh, sigmoid and gelu (tanh approximation); binary "
               "functions are elementwise_add and elementwise_mul. ") +
           kBroadcastDoc)
      .Apply(DeclareBroadcast)
      .Constraint("C4", "X and Y must have one dtype")
      .Constraint("C5", "functor_list must have one unary and one binary function of these")
      .Input("X", "floating-point tensor")
      .Input("Y", "floating-point tensor")
      .Output("Out", "tensor of the broadcast shape")
      .IntermediateOutput("IntermediateOut", "result of the inner function; it gets no gradient")
      .Attr<int32_t>("axis", -1,
                     "dim of the other operand at which the operand of lower rank begins")
      .Attr<float>("scale", 0.f, "factor of scale")
      .Attr<bool>("save_intermediate_out", false,
                  "ignored: IntermediateOut is computed if it is present")
      .Attr<std::vector<std::string>>("functor_list", "the outer and the inner function")
      .Infer(InferFused)
      .Gradient(FusedGradient)
      .Reference(Fused<float>, Fused<double>);
}

void Register(OpRegistry& ops) {
  ops.Add(Def("fused_elemwise_activation"));
  ops.Add(Def("fused_elemwise_add_activation"));
}

}  // namespace coracle::fused_elemwise_activation_op

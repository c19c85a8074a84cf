// A binary and a unary elementwise op in one: fused_elemwise_activation
// and fused_elemwise_add_activation.

#include <coracle/framework/op/expansion.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace coracle::fused_elemwise_activation_op {

bool IsUnary(const std::string& name) {
  static const std::vector<std::string> types = {"scale", "relu", "tanh", "sigmoid", "gelu"};
  return std::find(types.begin(), types.end(), name) != types.end();
}

bool IsBinary(const std::string& name) {
  return name == "elementwise_add" || name == "elementwise_mul";
}

// The parsed functor_list.
struct Functors {
  std::string unary, binary;
  bool unary_outside;  // Out = unary(binary(X, Y)), else binary(X, unary(Y))
};

template <class Context>
std::optional<Functors> FunctorsOf(const Context& ctx) {
  const auto list = ctx.template Attr<std::vector<std::string>>("functor_list");
  if (list.size() != 2) return std::nullopt;
  const bool outside = IsBinary(list[1]);
  const std::string &unary = list[outside ? 0 : 1], &binary = list[outside ? 1 : 0];
  if (!IsUnary(unary) || !IsBinary(binary)) return std::nullopt;
  return Functors{unary, binary, outside};
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

void ExpandFused(ExpandContext& ctx) {
  const Functors f = FunctorsOf(ctx).value();
  const auto unary = [&](const char* slot, const Variable& x) {
    AttrList attrs;
    if (f.unary == "scale") attrs = {{"scale", ctx.Attr<float>("scale")}};
    if (f.unary == "gelu") attrs = {{"approximate", true}};
    return ctx.Into(slot, f.unary, {{"X", {x.name()}}}, attrs);
  };
  const auto binary = [&](const char* slot, const Variable& x, const Variable& y) {
    return ctx.Into(slot, f.binary, {{"X", {x.name()}}, {"Y", {y.name()}}},
                    {{"axis", ctx.Attr<int32_t>("axis")}});
  };
  const Variable x = ctx.In("X"), y = ctx.In("Y");
  if (f.unary_outside)
    unary("Out", binary("IntermediateOut", x, y));
  else
    binary("Out", x, unary("IntermediateOut", y));
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
      .IntermediateOutput("IntermediateOut", "result of the inner function")
      .Attr<int32_t>("axis", -1,
                     "dim of the other operand at which the operand of lower rank begins")
      .Attr<float>("scale", 0.f, "factor of scale")
      .Attr<bool>("save_intermediate_out", false,
                  "ignored: IntermediateOut is computed if it is present")
      .Attr<std::vector<std::string>>("functor_list", "the outer and the inner function")
      .Rows(RowRule::kEach)
      .Infer(InferFused)
      .Expands({"scale", "relu", "tanh", "sigmoid", "gelu", "elementwise_add", "elementwise_mul"},
               ExpandFused);
}

void Register(OpRegistry& ops) {
  ops.Add(Def("fused_elemwise_activation"));
  ops.Add(Def("fused_elemwise_add_activation"));
}

}  // namespace coracle::fused_elemwise_activation_op

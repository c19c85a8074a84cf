#include <coracle/framework/op/expansion.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <string>

namespace coracle::fusion_squared_mat_sub_op {

void InferSquaredMatSub(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &y = ctx.Input("Y");
  ctx.Require("C1", x.shape.rank() == 2 && y.shape.rank() == 2, x.shape, y.shape);
  ctx.Require("C2", InferContext::Matches(x.shape[1], y.shape[0]), x.shape, y.shape);
  RequireSameDType(ctx, "C3", "Y", "X");
  const Shape out{x.shape[0], y.shape[1]};
  ctx.SetOutput("SquaredX", x);
  ctx.SetOutput("SquaredY", y);
  ctx.SetOutput("SquaredXY", x.dtype, out);
  ctx.SetOutput("Out", x.dtype, out);
}

void ExpandSquaredMatSub(ExpandContext& ctx) {
  const auto square = [&](const char* slot, const std::string& x) {
    return ctx.Into(slot, "square", {{"X", {x}}});
  };
  const auto product = [&](const std::string& x, const std::string& y) {
    return ctx.Make("mul", {{"X", {x}}, {"Y", {y}}});
  };
  const std::string x = ctx.In("X").name(), y = ctx.In("Y").name();
  const Variable squares = product(square("SquaredX", x).name(), square("SquaredY", y).name());
  const Variable difference = square("SquaredXY", product(x, y).name()) - squares;
  ctx.Into("Out", "scale", {{"X", {difference.name()}}}, {{"scale", ctx.Attr<float>("scalar")}});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("fusion_squared_mat_sub")
          .Doc("Out = scalar ((X Y)^2 - X^2 Y^2), with element-wise squares and matrix products.")
          .Constraint("C1", "X and Y must be matrices")
          .Constraint("C2", "the columns of X must be as many as the rows of Y")
          .Constraint("C3", "X and Y must have one dtype")
          .Input("X", "[M, K]")
          .Input("Y", "[K, N]")
          .IntermediateOutput("SquaredX", "X^2")
          .IntermediateOutput("SquaredY", "Y^2")
          .IntermediateOutput("SquaredXY", "(X Y)^2")
          .Output("Out", "[M, N]")
          .Attr<float>("scalar", 1.f, "factor of Out")
          .Rows(RowRule::kEach)
          .Infer(InferSquaredMatSub)
          .Expands({"square", "mul", "elementwise_sub", "scale"}, ExpandSquaredMatSub));
}

}  // namespace coracle::fusion_squared_mat_sub_op

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/control/add_value.h>
#include <coracle/operators/rules/rows.h>

#include <cstring>

namespace coracle::fill_zeros_like_op {

Kernel FillZeros(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.type == VarType::kLoDTensorArray)
    return [=](Workspace& ws) { SetZerosLike(ws.ValueOf(x), &ws.ValueOf(out)); };
  const size_t bytes = static_cast<size_t>(out.nbytes());
  return [=](Workspace& ws) {
    if (bytes > 0) std::memset(ws.Data<char>(out), 0, bytes);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("fill_zeros_like")
              .Doc("Out = zeros of X's shape and dtype; for a tensor array, an array as long as X "
                   "without written elements.")
              .Input("X", "tensor of any dtype, or tensor array")
              .Output("Out", "tensor of X's shape and dtype")
              .Takes(VarType::kLoDTensorArray, {"X"})
              .ShapeOnly()
              .NotDifferentiable("the output does not depend on the values of X")
              .Rows(OfShapeRows, kOfShapeRows)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .Reference(FillZeros));
}

}  // namespace coracle::fill_zeros_like_op

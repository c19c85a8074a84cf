#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>

#include <limits>

namespace coracle::shape_op {

Kernel ShapeOf(const PrepareContext& ctx) {
  const TensorArg in = ctx.Input("Input"), out = ctx.Output("Out");
  for (int64_t dim : in.shape) {
    if (dim > std::numeric_limits<int32_t>::max())
      ctx.Unsupported("a dimension of Input does not fit into int32");
  }
  return [=](Workspace& ws) {
    for (int i = 0; i < in.shape.rank(); ++i)
      ws.Data<int32_t>(out)[i] = static_cast<int32_t>(in.shape[i]);
  };
}

Kernel SizeOfInput(const PrepareContext& ctx) {
  const TensorArg in = ctx.Input("Input"), out = ctx.Output("Out");
  return [=](Workspace& ws) { ws.Data<int64_t>(out)[0] = in.numel; };
}

Kernel IsEmpty(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) { ws.Data<bool>(out)[0] = x.numel == 0; };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("shape")
              .Doc("Out = the dimensions of Input.")
              .Input("Input", "tensor of any dtype")
              .Output("Out", "int32 tensor [rank of Input]")
              .ShapeOnly()
              .NotDifferentiable("the output does not depend on the values of Input")
              .NoLod()
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) {
                ctx.SetOutput("Out", DType::kInt32, {ctx.InputShape("Input").rank()});
              })
              .Reference(ShapeOf));
  ops.Add(OpDef("size")
              .Doc("Out = the number of elements of Input.")
              .Input("Input", "tensor of any dtype")
              .Output("Out", "int64 tensor [1]")
              .ShapeOnly()
              .NotDifferentiable("the output does not depend on the values of Input")
              .Rows(RowRule::kSum, "Input")
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", DType::kInt64, {1}); })
              .Reference(SizeOfInput));
  ops.Add(OpDef("is_empty")
              .Doc("Out = whether X has no elements.")
              .Input("X", "tensor of any dtype")
              .Output("Out", "bool tensor [1]")
              .ShapeOnly()
              .NotDifferentiable("the output is a condition")
              .NoLod()
              .Rows(RowRule::kMixes)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", DType::kBool, {1}); })
              .Reference(IsEmpty));
}

}  // namespace coracle::shape_op

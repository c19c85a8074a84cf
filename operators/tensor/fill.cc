// Ops that create tensors: fill (values of an attr), empty, fill_zeros_like2.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>

namespace coracle::fill_op {

void InferFill(InferContext& ctx) {
  const Shape shape = ToShape(ctx, "C1", ctx.Attr<std::vector<int64_t>>("shape"));
  ctx.Require("C1", shape.IsKnown(), shape);
  const auto given = static_cast<int64_t>(ctx.Attr<std::vector<float>>("value").size());
  ctx.Require("C2", shape.numel() == given, given, shape);
  ctx.SetOutput("Out", DTypeFromAttr(ctx, "C3", "dtype"), shape);
}

template <class T>
KernelOf<T> Fill(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  const auto values = ctx.Attr<std::vector<float>>("value");
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_same_v<T, bool>)
        o[i] = values[i] != 0;
      else
        o[i] = SaturateTo<T>(static_cast<double>(values[i]));
    }
  };
}

Kernel FillZeros(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  const int64_t bytes = out.nbytes();
  return [=](Workspace& ws) { FillZeroBytes(ws.Data<void>(out), bytes); };
}

void DeclareNew(OpDef& def) {
  def.Output("Out", "the new tensor")
      .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kFloat32), "dtype of Out")
      .NotDifferentiable("the output is a constant");
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("fill")
              .Doc("Out = the numbers of attr value, converted to dtype, in the given shape.")
              .Constraint("C1", "shape must have no negative dimension and at most 9 of them")
              .Constraint("C2", "the number of values must match the number of elements of shape")
              .Constraint("C3", "dtype must be the number of a dtype")
              .Apply(DeclareNew)
              .Attr<std::vector<float>>("value", "the elements, row by row")
              .Attr<std::vector<int32_t>>("shape", "shape of Out")
              .KernelTypeFrom("Out")
              .Rows(RowRule::kEach)
              .Infer(InferFill)
              .Reference(Fill<float>, Fill<double>, Fill<float16>, Fill<bfloat16>, Fill<int8_t>,
                         Fill<uint8_t>, Fill<int16_t>, Fill<int32_t>, Fill<int64_t>, Fill<bool>));
  ops.Add(OpDef("empty")
              .Doc("Out = a tensor of the given shape and dtype, with unspecified elements (zeros "
                   "here). The shape comes from ShapeTensor, else ShapeTensorList, else attr "
                   "shape.")
              .Constraint("C1", "no dimension may be negative")
              .Constraint("C2", "the rank must be at most 9")
              .Constraint("C3", "dtype must be the number of a dtype")
              .OptionalInput("ShapeTensor", "int32 or int64 tensor with the shape")
              .OptionalVariadicInput("ShapeTensorList", "one-element tensors, one per dimension")
              .Apply(DeclareNew)
              .Attr<std::vector<int64_t>>("shape", {}, "shape of Out")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) {
                const char* list = ctx.HasInput("ShapeTensor") ? "" : "ShapeTensorList";
                const Shape shape = ReadNewShape(ctx, list, "ShapeTensor", "shape");
                ctx.SetOutput("Out", DTypeFromAttr(ctx, "C3", "dtype"), shape);
              })
              .Reference(FillZeros));
  ops.Add(OpDef("fill_zeros_like2")
              .Doc("Out = zeros of X's shape and the dtype of the attr.")
              .Constraint("C1", "dtype must be the number of a dtype")
              .Input("X", "tensor of any dtype")
              .Apply(DeclareNew)
              .ShapeOnly()
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) {
                VarMeta out = ctx.Input("X");
                out.dtype = DTypeFromAttr(ctx, "C1", "dtype");
                ctx.SetOutput("Out", out);
              })
              .Reference(FillZeros));
}

}  // namespace coracle::fill_op

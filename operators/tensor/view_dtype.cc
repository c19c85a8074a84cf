#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>

namespace coracle::view_dtype_op {

void InferView(InferContext& ctx) {
  VarMeta meta = ctx.Input("X");
  const DType dtype = DTypeFromAttr(ctx, "C1", "dtype");
  ctx.Require("C1", dtype != DType::kString, dtype);
  ctx.Require("C2", SizeOf(dtype) == SizeOf(meta.dtype), meta.dtype, dtype);
  meta.dtype = dtype;
  ctx.SetOutput("Out", meta);
}

Kernel View(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int64_t bytes = x.nbytes();
  if (out.dtype != DType::kBool || x.dtype == DType::kBool)
    return [=](Workspace& ws) { CopyBytes(ws.Data<const void>(x), ws.Data<void>(out), bytes); };
  return [=, failure = ctx.Failure("C3")](Workspace& ws) {
    const auto* from = static_cast<const uint8_t*>(ws.Data<const void>(x));
    if (std::any_of(from, from + bytes, [](uint8_t byte) { return byte > 1; }))
      ThrowInvalid(failure);
    CopyBytes(from, ws.Data<void>(out), bytes);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("view_dtype")
              .Doc("Out = the bits of X's elements, read as elements of another type of the same "
                   "size.")
              .Constraint("C1",
                          "dtype must be the number of an element type (VarType.Type) other "
                          "than string")
              .Constraint("C2", "an element of dtype must have as many bytes as one of X")
              .Constraint("C3", "an element that becomes a bool must be 0 or 1")
              .Input("X", "tensor of any dtype but string")
              .Output("Out", "tensor of X's shape")
              .Attr<int32_t>("dtype", "Out's type: 0 bool, 2 int32, 3 int64, 5 float32, ...")
              .Elementwise()
              .Rows(RowRule::kMoves)
              .NotDifferentiable("bits are no numbers")
              .Infer(InferView)
              .Reference(View));
}

}  // namespace coracle::view_dtype_op

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/tensor/assigned_values.h>

namespace coracle::inline internal {

Tensor AssignedScalars(const std::vector<Scalar>& values, DType dtype) {
  Tensor integers(DType::kInt64, {static_cast<int64_t>(values.size())});
  Tensor reals(DType::kFloat64, integers.shape());
  bool real = false;
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t integer = 0;
    if (const auto* b = std::get_if<bool>(&values[i].value)) integer = *b ? 1 : 0;
    if (const auto* l = std::get_if<int64_t>(&values[i].value)) integer = *l;
    double number = static_cast<double>(integer);
    if (const auto* d = std::get_if<double>(&values[i].value)) {
      number = *d;
      real = true;
    } else if (std::holds_alternative<Complex>(values[i].value)) {
      throw Error(ErrorCode::kUnimplemented, "attr values holds complex numbers");
    }
    integers.span<int64_t>()[i] = integer;
    reals.span<double>()[i] = number;
  }
  return (real ? reals : integers).Cast(dtype);
}

}  // namespace coracle::inline internal

namespace coracle::assign_op {

Kernel Assign(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int64_t bytes = x.nbytes();
  return [=](Workspace& ws) {
    const VarValue& value = ws.ValueOf(x);
    if (std::holds_alternative<Tensor>(value)) {
      CopyBytes(ws.Data<const void>(x), ws.Data<void>(out), bytes);
    } else if (VarValue& target = ws.ValueOf(out); &target != &value) {
      CopyValue(value, &target);
    }
  };
}

void AssignGradient(GradientContext& g) { g.Set("X", g.Grad("Out")); }

void InferAssignValue(InferContext& ctx) {
  const DType dtype = DTypeFromAttr(ctx, "C2", "dtype");
  ctx.Require("C2", HasAssignedValues(dtype), dtype);
  const Shape shape = ToShape(ctx, "C1", ctx.Attr<std::vector<int64_t>>("shape"));
  ctx.Require("C1", shape.IsKnown(), shape);
  const int64_t given = AssignedValues(ctx, dtype).numel();
  ctx.Require("C3", shape.numel() == given, shape.numel(), given);
  ctx.SetOutput("Out", dtype, shape);
}

Kernel AssignValue(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  const Tensor values = AssignedValues(ctx, out.dtype);
  if (values.numel() != out.numel) ctx.Unsupported("the number of values does not match the shape");
  return [=](Workspace& ws) {
    CopyBytes(values.raw(), ws.Data<void>(out), static_cast<int64_t>(values.nbytes()));
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("assign")
              .Doc("Out = X. Out may be X itself.")
              .Input("X", "tensor, tensor array or selected rows of any dtype")
              .Output("Out", "a copy of X")
              .TakesAnyValue()
              .Inplace("X", "Out")
              .Alias("X", "Out")
              .Axes()
              .Rows(RowRule::kMoves)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .Gradient(AssignGradient)
              .Strings()
              .Reference(Assign));
  ops.Add(OpDef("share_data")
              .Doc("Out = X, in the same memory if the program allows it.")
              .Input("X", "tensor or selected rows of any dtype")
              .Output("Out", "X's value")
              .Takes(VarType::kSelectedRows, {"X"})
              .Inplace("X", "Out")
              .Alias("X", "Out")
              .Rows(RowRule::kMoves)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .Gradient(AssignGradient)
              .Strings()
              .Reference(Assign));
  ops.Add(OpDef("memcpy")
              .Doc("Out = X. With several devices, it copies to another one.")
              .Input("X", "tensor of any dtype")
              .Output("Out", "a copy of X")
              .Attr<int32_t>("dst_place_type", "ignored: the kind of the device")
              .Inplace("X", "Out")
              .Alias("X", "Out")
              .Rows(RowRule::kMoves)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .Gradient(AssignGradient)
              .Strings()
              .Reference(Assign));
  OpDef values("assign_value");
  values.Doc("Out = the values of the attr for dtype, in the given shape.")
      .Constraint("C1", "shape must have at most 9 dimensions, none of them negative")
      .Constraint("C2", "dtype must be bool, int32, int64, float32, float64 or string")
      .Constraint("C3", "the number of values must match the shape")
      .Output("Out", "tensor of shape and dtype")
      .Attr<std::vector<int32_t>>("shape", "shape of Out")
      .Attr<int32_t>("dtype", "dtype of Out")
      .NotDifferentiable("the output is a constant")
      .Rows(RowRule::kEach)
      .Infer(InferAssignValue)
      .Strings()
      .Reference(AssignValue);
  AddAssignedValues(values);
  ops.Add(std::move(values));
}

}  // namespace coracle::assign_op

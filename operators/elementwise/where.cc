#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/operators.h>

#include <algorithm>
#include <type_traits>

namespace coracle::where_op {

void InferWhere(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  ctx.Require("C1", ctx.InputDType("Condition") == DType::kBool, ctx.InputDType("Condition"));
  ctx.Require("C2", ctx.InputDType("Y") == out.dtype, out.dtype, ctx.InputDType("Y"));
  for (const char* slot : {"Condition", "Y"}) {
    const Shape& shape = ctx.InputShape(slot);
    ctx.Require("C3", out.shape.CompatibleWith(shape), slot, shape, "X", out.shape);
    for (int i = 0; i < shape.rank(); ++i) out.shape[i] = std::max(out.shape[i], shape[i]);
  }
  ctx.SetOutput("Out", out);
}

template <class T>
Kernel WhereOf(const PrepareContext& ctx) {
  const TensorArg condition = ctx.Input("Condition"), x = ctx.Input("X"), y = ctx.Input("Y");
  const TensorArg out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const bool* c = ws.Data<const bool>(condition);
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    T* o = ws.Data<T>(out);
    ParallelFor(out.numel, 32768, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if constexpr (std::is_integral_v<T>) {
          const T mask = static_cast<T>(T(0) - T(c[i]));  // a loop without branches
          o[i] = static_cast<T>((a[i] & mask) | (b[i] & static_cast<T>(~mask)));
        } else {
          o[i] = c[i] ? a[i] : b[i];
        }
      }
    });
  };
}

// Moves elements, so only their size matters.
Kernel Where(const PrepareContext& ctx) {
  switch (SizeOf(ctx.Input("X").dtype)) {
    case 1:
      return WhereOf<uint8_t>(ctx);
    case 2:
      return WhereOf<uint16_t>(ctx);
    case 4:
      return WhereOf<uint32_t>(ctx);
    case 8:
      return WhereOf<uint64_t>(ctx);
    default:
      return WhereOf<complex128>(ctx);
  }
}

// X@GRAD = where(Condition, Out@GRAD, 0), Y@GRAD = where(Condition, 0, Out@GRAD).
void WhereGradient(GradientContext& g) {
  const Variable condition = g.In("Condition"), dout = g.Grad("Out");
  const Variable zero = g.Named(dout.name() + "@ZERO", ZerosLike(dout));
  g.Set("X", variable_functions::Where(condition, dout, zero));
  g.Set("Y", variable_functions::Where(condition, zero, dout));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("where")
              .Doc("Out = X where Condition holds, else Y, element by element.")
              .Constraint("C1", "Condition must be bool")
              .Constraint("C2", "X and Y must have one dtype")
              .Constraint("C3", "the inputs must have one shape")
              .Input("Condition", "bool tensor")
              .Input("X", "tensor of any dtype")
              .Input("Y", "tensor of X's dtype")
              .Output("Out", "tensor of X's dtype")
              .NoGradientTo({"Condition"})
              .Inplace("X", "Out")
              .Inplace("Y", "Out")
              .LodFrom("X")
              .Elementwise()
              .Infer(InferWhere)
              .Gradient(WhereGradient)
              .Strings()
              .Reference(Where));
}

}  // namespace coracle::where_op

#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/simd.h>

#include <cmath>

namespace coracle {
namespace {

template <class T>
bool AllFinite(std::span<const T> values) {
  bool finite = true;
  if constexpr (!std::is_integral_v<T>) {
    for (T value : values) finite &= std::isfinite(static_cast<Wide<T>>(value));
  }
  return finite;
}

// Of the stored elements.
Kernel RowsAreFinite(const PrepareContext& ctx) {
  const RowsInput x(ctx, "X");
  const TensorArg out = ctx.Output("Out");
  return DispatchDType(ctx.Input("X").dtype, [&]<class T>() -> Kernel {
    return
        [=](Workspace& ws) { ws.Data<bool>(out)[0] = AllFinite(x(ws).value->template span<T>()); };
  });
}

Kernel IsFiniteReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (IsSparse(x)) return RowsAreFinite(ctx);
  return DispatchDType(x.dtype, [&]<class T>() -> Kernel {
    return [=](Workspace& ws) { ws.Data<bool>(out)[0] = AllFinite(ws.Span<const T>(x)); };
  });
}

Kernel IsFiniteFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32 || IsSparse(x)) return {};
  return [=](Workspace& ws) {
    ws.Data<bool>(out)[0] = simd::AllFinite(ws.Data<const float>(x), x.numel);
  };
}

}  // namespace

void RegisterIsfinite(OpRegistry& ops) {
  ops.Add(OpDef("isfinite")
              .Doc("Out = whether no element of X is infinite or a nan (true when X is empty).")
              .Input("X", "tensor or selected rows")
              .Output("Out", "bool tensor [1]")
              .Takes(VarType::kSelectedRows, {"X"})
              .NoGradientTo({"X"})
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", DType::kBool, {1}); })
              .NotDifferentiable("a test is piecewise constant")
              .Reference(IsFiniteReference)
              .Fast(IsFiniteFast));
}

}  // namespace coracle

#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/common/arithmetic.h>
#include <coracle/operators/common/simd.h>

#include <cmath>

namespace coracle {
namespace {

Kernel IsFiniteReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return DispatchDType(x.dtype, [&]<class T>() -> Kernel {
    return [=](Workspace& ws) {
      bool finite = true;
      if constexpr (!std::is_integral_v<T>) {
        for (T value : ws.Span<const T>(x)) finite &= std::isfinite(static_cast<Wide<T>>(value));
      }
      ws.Data<bool>(out)[0] = finite;
    };
  });
}

Kernel IsFiniteFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32) return {};
  return [=](Workspace& ws) {
    ws.Data<bool>(out)[0] = simd::AllFinite(ws.Data<const float>(x), x.numel);
  };
}

}  // namespace

void RegisterIsfinite(OpRegistry& ops) {
  ops.Add(OpDef("isfinite")
              .Doc("Out = whether no element of X is infinite or a nan (true when X is empty).")
              .Input("X", "tensor")
              .Output("Out", "bool tensor [1]")
              .NoGradientTo({"X"})
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", DType::kBool, {1}); })
              .NoGradient("a test is piecewise constant")
              .Reference(IsFiniteReference)
              .Fast(IsFiniteFast));
}

}  // namespace coracle

#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle {
namespace {

void InferLinspace(InferContext& ctx) {
  for (const char* slot : {"Start", "Stop", "Num"}) {
    ctx.Require("C1", InferContext::Matches(NumelOf(ctx.InputShape(slot)), 1), slot,
                ctx.InputShape(slot));
  }
  RequireIndexType(ctx, "C2", "Num");
  const DType dtype = DTypeFromAttr(ctx, "C3", "dtype");
  int64_t count = -1;
  if (const auto num = ctx.Value("Num")) {
    ctx.Require("C4", num->size() == 1 && num->front() > 0, *num);
    count = num->front();
  }
  ctx.SetOutput("Out", dtype, {count});
}

double NumberIn(const Workspace& ws, const TensorArg& arg) {
  return DispatchDType(arg.dtype, [&]<class T>() {
    return static_cast<double>(static_cast<Wide<T>>(ws.Data<const T>(arg)[0]));
  });
}

template <class T>
KernelOf<T> Linspace(const PrepareContext& ctx) {
  const TensorArg start = ctx.Input("Start"), stop = ctx.Input("Stop"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const double first = NumberIn(ws, start), last = NumberIn(ws, stop);
    const int64_t count = out.numel;
    const double step = count > 1 ? (last - first) / static_cast<double>(count - 1) : 0;
    T* o = ws.Data<T>(out);
    // From both ends, so that the last element is Stop.
    for (int64_t i = 0; i < count; ++i) {
      const bool lower = count == 1 || i < count / 2;
      const double value = lower ? first + static_cast<double>(i) * step
                                 : last - static_cast<double>(count - 1 - i) * step;
      o[i] = SaturateTo<T>(value);
    }
  };
}

}  // namespace

void RegisterLinspace(OpRegistry& ops) {
  ops.Add(OpDef("linspace")
              .Doc("Out = Num numbers from Start to Stop, both included, at equal distances; Start "
                   "alone when Num is 1. Integers are truncated.")
              .Constraint("C1", "Start, Stop and Num must hold one element")
              .Constraint("C2", "Num must be int32 or int64")
              .Constraint("C3", "dtype must be the number of a dtype")
              .Constraint("C4", "Num must be positive")
              .Input("Start", "tensor [1]: the first element")
              .Input("Stop", "tensor [1]: the last element")
              .Input("Num", "int32 tensor [1]: the number of elements")
              .Output("Out", "vector [Num]")
              .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kFloat32), "dtype of Out")
              .NotDifferentiable("the shape of the output depends on the inputs")
              .KernelTypeFrom("Out")
              .Infer(InferLinspace)
              .Reference(Linspace<float>, Linspace<double>, Linspace<int32_t>, Linspace<int64_t>));
}

}  // namespace coracle

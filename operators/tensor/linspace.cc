#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/real_input.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace coracle::linspace_op {

void InferLinspace(InferContext& ctx) {
  for (const char* slot : {"Start", "Stop", "Num"}) {
    ctx.Require("C1", InferContext::Matches(NumelOf(ctx.InputShape(slot)), 1), slot,
                ctx.InputShape(slot));
  }
  RequireIndexType(ctx, "C2", "Num");
  RequireReal(ctx, "Start");
  RequireReal(ctx, "Stop");
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

// Computed from both ends, so that the last element is Stop.
double ElementAt(int64_t i, int64_t count, double first, double last) {
  const double step = count > 1 ? (last - first) / static_cast<double>(count - 1) : 0;
  if (count == 1 || i < count / 2) return first + static_cast<double>(i) * step;
  return last - static_cast<double>(count - 1 - i) * step;
}
// Computes an element for integers that doubles cannot represent.
int64_t ElementAt(int64_t i, int64_t count, int64_t first, int64_t last) {
  if (count == 1) return first;
  const __int128 sum =
      static_cast<__int128>(first) * (count - 1 - i) + static_cast<__int128>(last) * i;
  return static_cast<int64_t>(sum / (count - 1));
}

constexpr double kLargestExact = 0x1p53;

template <class T>
KernelOf<T> Linspace(const PrepareContext& ctx) {
  const TensorArg start = ctx.Input("Start"), stop = ctx.Input("Stop"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const double first = NumberIn(ws, start), last = NumberIn(ws, stop);
    const int64_t count = out.numel;
    T* o = ws.Data<T>(out);
    if constexpr (std::is_same_v<T, int64_t>) {
      const bool wide = std::max(std::abs(first), std::abs(last)) >= kLargestExact;
      if (wide && start.dtype == DType::kInt64 && stop.dtype == DType::kInt64) {
        const int64_t begin = ws.Data<const int64_t>(start)[0];
        const int64_t end = ws.Data<const int64_t>(stop)[0];
        for (int64_t i = 0; i < count; ++i) o[i] = ElementAt(i, count, begin, end);
        return;
      }
    }
    for (int64_t i = 0; i < count; ++i) o[i] = SaturateTo<T>(ElementAt(i, count, first, last));
  };
}

void Register(OpRegistry& ops) {
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
              .Rows(RowRule::kEach)
              .Infer(InferLinspace)
              .Reference(Linspace<float>, Linspace<double>, Linspace<int32_t>, Linspace<int64_t>));
}

}  // namespace coracle::linspace_op

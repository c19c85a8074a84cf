#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/rules/dims.h>

#include <type_traits>

namespace coracle {
namespace {

void InferCumsum(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  if (ctx.Attr<bool>("flatten"))
    x.shape = {NumelOf(x.shape)};
  else if (x.shape.rank() > 0)
    ctx.Axis("C1", ctx.Attr<int32_t>("axis"), x.shape.rank());
  ctx.SetOutput("Out", x);
}

// Sums of integers wrap around.
template <class T>
T Plus(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}

template <class T>
KernelOf<T> Cumsum(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.numel == 0) return [](Workspace&) {};
  int axis = 0;
  int64_t outer = 1, n = x.numel, inner = 1;
  if (!ctx.Attr<bool>("flatten") && x.shape.NormalizeAxis(ctx.Attr<int32_t>("axis"), &axis)) {
    outer = x.shape.Product(0, axis);
    n = x.shape[axis];
    inner = x.shape.Product(axis + 1, x.shape.rank());
  }
  const bool exclusive = ctx.Attr<bool>("exclusive"), reverse = ctx.Attr<bool>("reverse");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ParallelFor(outer * inner, 1 + 32768 / n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t first = r / inner * n * inner + r % inner;
        T sum = 0;
        for (int64_t k = 0; k < n; ++k) {
          const int64_t i = first + (reverse ? n - 1 - k : k) * inner;
          const T value = in[i], next = Plus(sum, value);
          o[i] = exclusive ? sum : next;
          sum = next;
        }
      }
    });
  };
}

// The transposed sum runs the other way. A flattened one comes back in X's shape.
void CumsumGradient(GradientContext& g) {
  const bool flatten = g.Attr<bool>("flatten");
  const Variable sum = g.Make("cumsum", {{"X", {g.OutputGrad("Out")}}},
                              {{"axis", flatten ? 0 : g.Attr<int32_t>("axis")},
                               {"flatten", flatten},
                               {"exclusive", g.Attr<bool>("exclusive")},
                               {"reverse", !g.Attr<bool>("reverse")}});
  if (!flatten) return g.Set("X", sum);
  g.Named(g.InputGrad("X") + "@FLAT", sum);
  g.Set("X",
        g.Make("reshape2_grad", {{"X", {g.Input("X")}}, {"Out@GRAD", {sum.name()}}}, {}, "X@GRAD"));
}

}  // namespace

void RegisterCumsum(OpRegistry& ops) {
  ops.Add(OpDef("cumsum")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out[i] = X[0] + ... + X[i] along axis; without X[i] itself under exclusive, "
                   "from the end under reverse, over all of X as one vector under flatten. "
                   "Integers wrap around.")
              .Constraint("C1", "axis must lie in [-rank, rank)")
              .Input("X", "tensor of numbers")
              .Output("Out", "tensor of X's shape, or a vector under flatten")
              .Attr<int32_t>("axis", -1, "the dimension to sum along")
              .Attr<bool>("flatten", false, "take X as one vector")
              .Attr<bool>("exclusive", false, "leave out the element itself")
              .Attr<bool>("reverse", false, "sum from the end")
              .Inplace("X", "Out")
              .Infer(InferCumsum)
              .Gradient(CumsumGradient)
              .Reference(Cumsum<float>, Cumsum<double>, Cumsum<int32_t>, Cumsum<int64_t>));
}

}  // namespace coracle

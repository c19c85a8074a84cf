#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/radix_sort.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/kernels/total_order.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>
#include <numeric>

namespace coracle::argsort_op {

void InferArgsort(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Axis("C1", ctx.Attr<int32_t>("axis"), x.shape.rank());
  ctx.SetOutput("Out", x);
  x.dtype = DType::kInt64;
  ctx.SetOutput("Indices", x);
}

template <class T>
KernelOf<T> Argsort(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), indices = ctx.Output("Indices");
  if (x.numel == 0) return [](Workspace&) {};
  const AxisView l = ViewAxis(x.shape, ctx.Attr<int32_t>("axis"));
  const bool descending = ctx.Attr<bool>("descending");
  const TensorArg scratch = ctx.Scratch(DType::kInt64, {x.numel});
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* values = out ? ws.Data<T>(out) : nullptr;
    int64_t* found = ws.Data<int64_t>(indices);
    int64_t* orders = ws.Data<int64_t>(scratch);
    ParallelFor(l.lines(), 1 + 4096 / l.n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t first = l.Offset(r);
        int64_t* order = orders + r * l.n;
        std::iota(order, order + l.n, int64_t{0});
        std::sort(order, order + l.n, Better<T>{in + first, l.inner, descending});
        for (int64_t j = 0; j < l.n; ++j) {
          const int64_t to = first + j * l.inner;
          if (values) values[to] = in[first + order[j] * l.inner];
          found[to] = order[j];
        }
      }
    });
  };
}

template <class T>
Kernel ArgsortFastOf(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), indices = ctx.Output("Indices");
  if (x.numel == 0) return [](Workspace&) {};
  const AxisView l = ViewAxis(x.shape, ctx.Attr<int32_t>("axis"));
  if (l.n > kLongestSortedLine) return {};
  const bool descending = ctx.Attr<bool>("descending");
  constexpr int64_t kLanes = 4;
  const LineGroups lines(l.outer, l.n, l.inner, kLanes);
  const auto words = static_cast<int64_t>(sizeof(Packed<T>) / sizeof(int64_t));
  const TensorArg scratch = ctx.Scratch(DType::kInt64, {lines.parts, lines.lanes, 2 * words, l.n});
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* values = out ? ws.Data<T>(out) : nullptr;
    int64_t* found = ws.Data<int64_t>(indices);
    auto* memory = static_cast<Packed<T>*>(ws.Data<void>(scratch));
    lines.ForEach([&](int64_t o, int64_t i, int64_t count, int64_t part) {
      const int64_t first = o * l.n * l.inner + i;
      const Packed<T>* sorted[kLanes];
      for (int64_t c = 0; c < count; ++c) {
        Packed<T>* own = memory + (part * lines.lanes + c) * 2 * l.n;
        PackLine(in + first + c, l.n, l.inner, descending, own);
        sorted[c] = SortPacked(own, own + l.n, l.n);
      }
      for (int64_t j = 0; j < l.n; ++j) {
        for (int64_t c = 0; c < count; ++c) {
          const int64_t to = first + j * l.inner + c, place = PlaceOf<T>(sorted[c][j]);
          found[to] = place;
          if (values) values[to] = in[first + place * l.inner + c];
        }
      }
    });
  };
}

Kernel ArgsortFast(const PrepareContext& ctx) {
  switch (ctx.Input("X").dtype) {
    case DType::kFloat32:
      return ArgsortFastOf<float>(ctx);
    case DType::kFloat64:
      return ArgsortFastOf<double>(ctx);
    case DType::kInt32:
      return ArgsortFastOf<int32_t>(ctx);
    case DType::kInt64:
      return ArgsortFastOf<int64_t>(ctx);
    default:
      return {};
  }
}

void InferArgsortGrad(InferContext& ctx) {
  const VarMeta& dout = ctx.Input("Out@GRAD");
  const VarMeta& indices = ctx.Input("Indices");
  ctx.Axis("C1", ctx.Attr<int32_t>("axis"), dout.shape.rank());
  ctx.Require("C2", IsIndexType(indices.dtype) && indices.shape.CompatibleWith(dout.shape),
              "Indices", indices, "Out@GRAD", dout);
  ctx.SetOutput("X@GRAD", dout);
}

// Every gradient goes back to the position of its value.
template <class T>
KernelOf<T> ArgsortGrad(const PrepareContext& ctx) {
  const TensorArg indices = ctx.Input("Indices"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  if (dx.numel == 0) return [](Workspace&) {};
  const AxisView l = ViewAxis(dx.shape, ctx.Attr<int32_t>("axis"));
  const int64_t bytes = dx.nbytes();
  return [=](Workspace& ws) {
    const IndexReader at(ws, indices);
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    FillZeroBytes(to, bytes);
    const int64_t block = l.n * l.inner;
    ParallelFor(l.outer, 1 + 16384 / block, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        for (int64_t r = o * block; r < (o + 1) * block; r += l.inner) {
          for (int64_t c = 0; c < l.inner; ++c) {
            const int64_t place = at[r + c];
            if (place < 0 || place >= l.n)
              ThrowIndexRange("argsort_grad", "Indices", r + c, place, l.n);
            T& target = to[o * block + place * l.inner + c];
            target = T(target + from[r + c]);
          }
        }
      }
    });
  };
}

// Indices are permutations: taking the gradient along them is putting it back along their inverses.
void ArgsortGradGradient(GradientContext& g) {
  const AttrList axis = g.ForwardAttrs({"axis"});
  const Variable inverse = g.Make("argsort", {{"X", {g.Input("Indices")}}}, axis, "Indices");
  g.Set("Out@GRAD", g.Make("argsort_grad",
                           {{"Indices", {inverse.name()}}, {"Out@GRAD", {g.OutputGrad("X@GRAD")}}},
                           axis, "X@GRAD"));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("argsort")
              .Doc("Out = X sorted along axis, and Indices = the positions of its elements in X. "
                   "Equal elements keep their order; a nan counts as the largest.")
              .Constraint("C1", "axis must lie in [-rank, rank)")
              .Input("X", "tensor of rank 1 or more")
              .OptionalOutput("Out", "the sorted tensor")
              .Output("Indices", "int64 tensor of X's shape")
              .Attr<int32_t>("axis", -1, "the dimension to sort")
              .Attr<bool>("descending", false, "the largest element first")
              .Rows(RowRule::kEach)
              .WorksAlong("axis")
              .Infer(InferArgsort)
              .GradientOp({"Indices"})
              .Reference(Argsort<float>, Argsort<double>, Argsort<int32_t>, Argsort<int64_t>)
              .Fast(ArgsortFast));
  ops.Add(OpDef("argsort_grad")
              .Doc("Gradient of argsort: X@GRAD = Out@GRAD put back to Indices along axis.")
              .ConstraintsOf("argsort", {"C1"})
              .Constraint("C2", "Indices must be integers in the shape of Out@GRAD")
              .Input("Indices", "found by the forward op")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("argsort")
              .NoGradientTo({"Indices"})
              .KernelTypeFrom("Out@GRAD")
              .Infer(InferArgsortGrad)
              .Gradient(ArgsortGradGradient)
              .Reference(ArgsortGrad<float>, ArgsortGrad<double>, ArgsortGrad<float16>,
                         ArgsortGrad<bfloat16>));
}

}  // namespace coracle::argsort_op

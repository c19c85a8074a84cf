#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

namespace coracle::cumsum_op {

void InferCumsum(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  if (ctx.Attr<bool>("flatten"))
    x.shape = {NumelOf(x.shape)};
  else if (ctx.HasInput("AxisTensor"))
    ctx.Require("C2",
                IsIndexType(ctx.InputDType("AxisTensor")) &&
                    InferContext::Matches(NumelOf(ctx.InputShape("AxisTensor")), 1),
                ctx.Input("AxisTensor"));
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

// The order of summation in a line: element k is `start` + k `step`.
struct Direction {
  int64_t n, start, step;
  bool exclusive;
};

// Sums kLines lines at once, `apart` from each other, each from its start to its end. The additions
// within a line depend on each other; additions of different lines do not. Floats are summed in
// double, because a partial sum may leave the range of a float and come back.
template <int64_t kLines, class T>
void SumLines(const T* in, T* out, int64_t apart, const Direction& d) {
  using Sum = std::conditional_t<std::is_same_v<T, float>, double, T>;
  Sum sum[kLines] = {};
  in += d.start;
  out += d.start;
  for (int64_t k = 0; k < d.n; ++k, in += d.step, out += d.step) {
    Sum next[kLines];
    for (int64_t c = 0; c < kLines; ++c) next[c] = Plus(sum[c], static_cast<Sum>(in[c * apart]));
    for (int64_t c = 0; c < kLines; ++c) {
      out[c * apart] = static_cast<T>(d.exclusive ? sum[c] : next[c]);
      sum[c] = next[c];
    }
  }
}

// Sums the lines [begin, end) of [outer, n, inner]. Adjacent lines are processed together, so that
// reads and writes are contiguous.
template <class T>
void SumRange(const T* in, T* out, int64_t inner, int64_t begin, int64_t end, const Direction& d) {
  const int64_t n = d.n;
  while (begin < end) {
    const int64_t at = begin / inner * n * inner + begin % inner;
    if (inner == 1) {
      if (end - begin >= 4) {
        SumLines<4>(in + at, out + at, n, d);
        begin += 4;
      } else {
        SumLines<1>(in + at, out + at, n, d);
        ++begin;
      }
      continue;
    }
    const int64_t beside = std::min(end - begin, inner - begin % inner);
    if (beside >= 32) {
      SumLines<32>(in + at, out + at, 1, d);
      begin += 32;
    } else if (beside >= 8) {
      SumLines<8>(in + at, out + at, 1, d);
      begin += 8;
    } else {
      SumLines<1>(in + at, out + at, 1, d);
      ++begin;
    }
  }
}

[[noreturn]] void ThrowAxis(int64_t axis, const Shape& shape) {
  ThrowInvalid("cumsum: axis must lie in [-rank, rank) [cumsum.C1], got axis " +
               std::to_string(axis) + " of a tensor " + shape.ToString());
}

// The lines of a tensor along an axis.
struct Lines {
  Lines(const Shape& shape, int axis)
      : outer(shape.Product(0, axis)),
        n(shape[axis]),
        inner(shape.Product(axis + 1, shape.rank())) {}
  explicit Lines(int64_t numel) : outer(1), n(numel), inner(1) {}
  int64_t outer, n, inner;
};

template <class T>
void Sum(const T* in, T* out, const Lines& lines, bool reverse, bool exclusive) {
  const Direction d{lines.n, reverse ? (lines.n - 1) * lines.inner : 0,
                    reverse ? -lines.inner : lines.inner, exclusive};
  ParallelFor(lines.outer * lines.inner, 1 + 32768 / lines.n,
              [&](int64_t begin, int64_t end) { SumRange(in, out, lines.inner, begin, end, d); });
}

template <class T>
KernelOf<T> Cumsum(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), late = ctx.Input("AxisTensor");
  if (x.numel == 0) return [](Workspace&) {};
  const bool reverse = ctx.Attr<bool>("reverse"), exclusive = ctx.Attr<bool>("exclusive");
  const bool flatten = ctx.Attr<bool>("flatten");
  if (late && !flatten) {
    return [=](Workspace& ws) {
      const int64_t given = IndexReader(ws, late)[0];
      int axis = 0;
      if (!x.shape.NormalizeAxis(given, &axis)) ThrowAxis(given, x.shape);
      Sum(ws.Data<const T>(x), ws.Data<T>(out), Lines(x.shape, axis), reverse, exclusive);
    };
  }
  int axis = 0;
  const bool along = !flatten && x.shape.NormalizeAxis(ctx.Attr<int32_t>("axis"), &axis);
  const Lines lines = along ? Lines(x.shape, axis) : Lines(x.numel);
  return
      [=](Workspace& ws) { Sum(ws.Data<const T>(x), ws.Data<T>(out), lines, reverse, exclusive); };
}

// The transposed sum runs in the other direction. A flattened result gets X's shape back.
void CumsumGradient(GradientContext& g) {
  const bool flatten = g.Attr<bool>("flatten");
  SlotList inputs = g.ForwardInputs({"AxisTensor"});
  inputs.push_back({"X", {g.OutputGrad("Out")}});
  const Variable sum = g.Make("cumsum", std::move(inputs),
                              {{"axis", flatten ? 0 : g.Attr<int32_t>("axis")},
                               {"flatten", flatten},
                               {"exclusive", g.Attr<bool>("exclusive")},
                               {"reverse", !g.Attr<bool>("reverse")}});
  if (!flatten) return g.Set("X", sum);
  g.Named(g.InputGrad("X") + "@FLAT", sum);
  g.Set("X",
        g.Make("reshape2_grad", {{"X", {g.Input("X")}}, {"Out@GRAD", {sum.name()}}}, {}, "X@GRAD"));
}

RowEffect CumsumRows(const RowQuery& query) {
  if (query.op.HasInput("AxisTensor") || query.spec.AttrOf<bool>(query.op, "flatten"))
    return RowRule::kMixes;
  return EachUnlessAlong(query, std::vector{query.spec.AttrOf<int32_t>(query.op, "axis")});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("cumsum")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Out[i] = X[0] + ... + X[i] along axis; without X[i] with exclusive, from the end "
               "with reverse, over all of X as one vector with flatten. Integers wrap around.")
          .Constraint("C1", "axis must lie in [-rank, rank)")
          .Constraint("C2", "AxisTensor must hold one int32 or int64")
          .Input("X", "tensor of numbers")
          .OptionalInput("AxisTensor", "tensor [1]; replaces attr axis; not in Paddle")
          .Output("Out", "tensor of X's shape, or a vector under flatten")
          .Attr<int32_t>("axis", -1, "the dimension to sum along")
          .Attr<bool>("flatten", false, "treat X as one vector")
          .Attr<bool>("exclusive", false, "leave out the element itself")
          .Attr<bool>("reverse", false, "sum from the end")
          .NoGradientTo({"AxisTensor"})
          .Inplace("X", "Out")
          .Rows(CumsumRows,
                "each by itself; mixed if axis names theirs, with flatten, and with AxisTensor")
          .Infer(InferCumsum)
          .Gradient(CumsumGradient)
          .Reference(Cumsum<float>, Cumsum<double>, Cumsum<int32_t>, Cumsum<int64_t>));
}

}  // namespace coracle::cumsum_op

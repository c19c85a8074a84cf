#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/kernels/scalar_input.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/kernels/slice_norms.h>
#include <coracle/operators/kernels/sum_of_squares.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace coracle::clip_by_norm_op {

bool IsFloat(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

void InferClipByNorm(InferContext& ctx) {
  const int32_t axis = ctx.Attr<int32_t>("axis");
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C3", axis < 0 || (axis < x.rank() && ctx.Input("X").type == VarType::kLoDTensor),
              "axis", axis, "X", ctx.Input("X"));
  if (ctx.HasInput("MaxNorm")) {
    const Shape& limits = ctx.InputShape("MaxNorm");
    const int64_t count = limits.IsKnown() ? limits.numel() : -1;
    if (axis < 0 || count == 1)
      RequireScalar(ctx, "C2", "MaxNorm");
    else
      ctx.Require("C2", InferContext::Matches(count, x[axis]) && IsFloat(ctx.InputDType("MaxNorm")),
                  "MaxNorm", ctx.Input("MaxNorm"), "X", x);
  } else {
    ctx.Require("C1", ctx.Attr<float>("max_norm") > 0, ctx.Attr<float>("max_norm"));
  }
  ctx.SetOutput("Out", ctx.Input("X"));
}

ScalarInput MaxNorm(const PrepareContext& ctx) {
  return ScalarInput(ctx.Input("MaxNorm"),
                     ctx.HasInput("MaxNorm") ? 0 : ctx.Attr<float>("max_norm"));
}

// Adds duplicates first.
template <class T>
Kernel ClipRowsByNorm(const PrepareContext& ctx) {
  const RowsInput x(ctx, "X");
  const RowsOutput out(ctx, "Out");
  const RowGrouper grouper(ctx);
  const ScalarInput max_norm = MaxNorm(ctx);
  return [=](Workspace& ws) {
    const std::span<T> merged = MergeRows<T>(ws, x(ws), grouper, out).value.template span<T>();
    const auto n = static_cast<int64_t>(merged.size());
    ScaleDownTo(max_norm(ws), ScaledNormOf(2, merged.data(), n), merged.data(), merged.data(), n,
                [&](double factor) {
                  for (T& v : merged) v = v * static_cast<T>(factor);
                });
  };
}

// One slice along an axis: `runs` runs of `inner` elements, count * inner apart.
struct Slices {
  Slices(const Shape& shape, int axis)
      : count(shape[axis]),
        runs(shape.Product(0, axis)),
        inner(shape.Product(axis + 1, shape.rank())) {}
  // Calls f(offset) for each run of slice k.
  template <class F>
  void ForEachRun(int64_t k, const F& f) const {
    for (int64_t r = 0; r < runs; ++r) f((r * count + k) * inner);
  }
  // out = x times the factor of the slice.
  template <class T>
  void Multiply(const T* x, const double* factors, T* out) const {
    ParallelFor(runs * count, 1 + 32768 / (1 + inner), [&](int64_t begin, int64_t end) {
      for (int64_t run = begin; run < end;) {
        const double* of_run = factors + run % count;
        const int64_t n = std::min(end - run, count - run % count);
        for (int64_t i = 0; inner == 1 && i < n; ++i)
          out[run + i] = x[run + i] * static_cast<T>(of_run[i]);
        for (int64_t i = 0; inner != 1 && i < n; ++i) {
          const T by = static_cast<T>(of_run[i]);
          const int64_t at = (run + i) * inner;
          for (int64_t e = at; e < at + inner; ++e) out[e] = x[e] * by;
        }
        run += n;
      }
    });
  }
  int64_t count, runs, inner;
};

// The limit of each slice.
struct SliceLimits {
  explicit SliceLimits(const PrepareContext& ctx)
      : given(ctx.Input("MaxNorm")), fixed(ctx.Attr<float>("max_norm")) {}
  double operator()(Workspace& ws, int64_t k) const {
    if (!given) return fixed;
    if (given.numel == 1) k = 0;
    return given.dtype == DType::kFloat64 ? ws.Data<const double>(given)[k]
                                          : double{ws.Data<const float>(given)[k]};
  }
  TensorArg given;
  double fixed;
};

// Clips each slice by its own norm and limit.
template <class T>
Kernel ClipSlicesByNorm(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int32_t axis = ctx.Attr<int32_t>("axis");
  const SliceLimits limit(ctx);
  const Slices slices(x.shape, axis);
  bool reduce[Shape::kMaxRank];
  for (int i = 0; i < x.shape.rank(); ++i) reduce[i] = i != axis;
  const ReduceNest nest = MakeReduceNest(x.shape, reduce);
  const TensorArg scratch = ctx.Scratch(DType::kFloat64, {3, slices.count});
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    double *factors = ws.Data<double>(scratch), *units = factors + slices.count;
    double* values = units + slices.count;
    ForEachL2Norm(nest, in, [&](int64_t k, const ScaledNorm& norm) {
      const std::optional<double> factor = FactorFor<T>(limit(ws, k), norm);
      factors[k] = factor.value_or(1);
      units[k] = factor ? 0 : norm.unit;
      values[k] = norm.value;
    });
    slices.Multiply(in, factors, o);
    // The slices whose factor T cannot represent.
    for (int64_t k = 0; k < slices.count; ++k) {
      if (units[k] == 0) continue;
      slices.ForEachRun(k, [&](int64_t at) {
        ScaleDownTo<T>(limit(ws, k), {units[k], values[k]}, o + at, o + at, slices.inner,
                       [](double) {});
      });
    }
  };
}

template <class T>
KernelOf<T> ClipByNormReference(const PrepareContext& ctx) {
  if (IsSparse(ctx.Input("X"))) return ClipRowsByNorm<T>(ctx);
  if (ctx.Attr<int32_t>("axis") >= 0) return ClipSlicesByNorm<T>(ctx);
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const ScalarInput max_norm = MaxNorm(ctx);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ScaleDownTo(max_norm(ws), ScaledNormOf(2, in, x.numel), in, o, x.numel, [&](double factor) {
      const T by = static_cast<T>(factor);
      for (int64_t i = 0; i < x.numel; ++i) o[i] = in[i] * by;
    });
  };
}

Kernel ClipByNormFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32 || IsSparse(x) || ctx.Attr<int32_t>("axis") >= 0) return {};
  const ScalarInput max_norm = MaxNorm(ctx);
  const auto squares = SumOfSquares(ctx, x);
  const simd::UnaryLoop scale = simd::FindUnary(simd::Unary::kScale);
  return [=](Workspace& ws) {
    const float* in = ws.Data<const float>(x);
    float* o = ws.Data<float>(out);
    const ScaledNorm norm = {1, std::sqrt(squares(ws))};
    ScaleDownTo(max_norm(ws), norm, in, o, x.numel, [&](double factor) {
      const simd::Params params = {static_cast<float>(factor), 0, 0};
      if (in == o && params.a == 1.0f) return;
      ParallelFor(x.numel, 65536, [&](int64_t begin, int64_t end) {
        scale(in + begin, o + begin, end - begin, params);
      });
    });
  };
}

RowEffect ClipRows(const RowQuery& query) {
  const bool each = query.spec.AttrOf<int32_t>(query.op, "axis") == query.axis;
  return each ? RowRule::kEach : RowRule::kMixes;
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("clip_by_norm")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Out = X if the Euclidean norm of X is at most max_norm, else X max_norm / norm. "
               "The result is correct for all finite numbers. Duplicates in selected rows are "
               "added up first. With an axis, each slice along it has its own norm and limit.")
          .Constraint("C1", "max_norm must be positive")
          .Constraint("C2",
                      "MaxNorm must be one float32 or float64; with an axis, one for each slice")
          .Constraint("C3", "axis must be less than X's rank; with an axis, X must be dense")
          .Input("X", "floating-point tensor or selected rows")
          .OptionalInput(
              "MaxNorm",
              "tensor [1], or with an axis of X.shape[axis] elements; replaces attr max_norm")
          .Output("Out", "same kind of value as X, with its shape and dtype")
          .Takes(VarType::kSelectedRows, {"X"})
          .Attr<float>("max_norm", 0.0f, "highest norm; required without MaxNorm")
          .Attr<int32_t>("axis", -1,
                         "axis of the slices; -1: all of X is one slice (the only case in Paddle)")
          .KernelTypeFrom("X")
          .Inplace("X", "Out")
          .Rows(ClipRows, "each by itself if axis names them; otherwise they share a norm")
          .Infer(InferClipByNorm)
          .NoGradient("it is applied to gradients, after differentiation")
          .Reference(ClipByNormReference<float>, ClipByNormReference<double>)
          .Fast(ClipByNormFast));
}

}  // namespace coracle::clip_by_norm_op

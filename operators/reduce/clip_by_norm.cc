#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/kernels/sum_of_squares.h>
#include <coracle/operators/update/update.h>

#include <cmath>

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

// Duplicates are added up first.
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

// One slice along an axis: `runs` runs of `inner` elements, `step` apart.
struct Slices {
  Slices(const Shape& shape, int axis)
      : count(shape[axis]),
        runs(shape.Product(0, axis)),
        inner(shape.Product(axis + 1, shape.rank())) {}
  // f(offset, n) for each run of slice k.
  template <class F>
  void ForEachRun(int64_t k, const F& f) const {
    for (int64_t r = 0; r < runs; ++r) f((r * count + k) * inner, inner);
  }
  int64_t count, runs, inner;
};

// Each slice by its own norm and limit.
template <class T>
Kernel ClipSlicesByNorm(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), max_norm = ctx.Input("MaxNorm");
  const auto fixed = static_cast<double>(ctx.Attr<float>("max_norm"));
  const Slices slices(x.shape, ctx.Attr<int32_t>("axis"));
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    const auto limit = [&](int64_t k) {
      if (!max_norm) return fixed;
      if (max_norm.numel == 1) k = 0;
      return max_norm.dtype == DType::kFloat64 ? ws.Data<const double>(max_norm)[k]
                                               : double{ws.Data<const float>(max_norm)[k]};
    };
    const int64_t grain = 1 + 32768 / (1 + slices.runs * slices.inner);
    ParallelFor(slices.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const ScaledNorm norm = ScaledNormOf(2, [&](const auto& f) {
          slices.ForEachRun(k, [&](int64_t at, int64_t n) {
            for (int64_t i = at; i < at + n; ++i) f(static_cast<double>(in[i]));
          });
        });
        slices.ForEachRun(k, [&](int64_t at, int64_t n) {
          ScaleDownTo(limit(k), norm, in + at, o + at, n, [&](double factor) {
            const T by = static_cast<T>(factor);
            for (int64_t i = at; i < at + n; ++i) o[i] = in[i] * by;
          });
        });
      }
    });
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

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("clip_by_norm")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Out = X when the Euclidean norm of X is at most max_norm, else X max_norm / "
               "norm. It is right for all finite numbers. Duplicates in selected rows are added "
               "up first. With an axis, each slice along it has its own norm and limit.")
          .Constraint("C1", "max_norm must be positive")
          .Constraint("C2",
                      "MaxNorm must be one float32 or float64, or with an axis one for each slice")
          .Constraint("C3", "axis must be less than X's rank, and X dense where it is given")
          .Input("X", "floating-point tensor or selected rows")
          .OptionalInput(
              "MaxNorm",
              "tensor [1], or with an axis of X.shape[axis] elements; replaces attr max_norm")
          .Output("Out", "what X is, of its shape and dtype")
          .Takes(VarType::kSelectedRows, {"X"})
          .Attr<float>("max_norm", 0.0f, "highest norm; required without MaxNorm")
          .Attr<int32_t>("axis", -1, "of the slices; -1: all of X is one (Paddle has no other)")
          .KernelTypeFrom("X")
          .Inplace("X", "Out")
          .Infer(InferClipByNorm)
          .NoGradient("it is applied to gradients, after differentiation")
          .Reference(ClipByNormReference<float>, ClipByNormReference<double>)
          .Fast(ClipByNormFast));
}

}  // namespace coracle::clip_by_norm_op

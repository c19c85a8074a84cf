#pragma once
// Shared by the norms, in addition to the loops of norm.h: rules, declarations, slots of gradients.

#include <coracle/framework/op/kernel/half_kernel.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/norm/norm.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// Constraint C3 for a slot with a number for each channel or row: X's dtype, or float32 for a
// 16-bit X, whose range is too small for statistics.
inline void RequireNormDType(const InferContext& ctx, const char* slot) {
  const DType x = ctx.InputDType("X"), given = ctx.InputDType(slot);
  ctx.Require("C3", given == x || (IsHalf(x) && given == DType::kFloat32), slot, given, "X", x);
}
// The dtype of statistics that the op computes.
inline DType StatisticsDType(const InferContext& ctx) {
  const DType x = ctx.InputDType("X");
  return IsHalf(x) ? DType::kFloat32 : x;
}

// Requires the slot, if present, to be a vector of that length (-1: any) with a dtype allowed by
// constraint C3.
inline void RequireNormVector(const InferContext& ctx, std::string_view id, const char* slot,
                              int64_t length) {
  if (!ctx.HasInput(slot)) return;
  const Shape& shape = ctx.InputShape(slot);
  ctx.Require(id, shape.rank() == 1 && InferContext::Matches(shape[0], length), slot, shape,
              "length", length);
  RequireNormDType(ctx, slot);
}
// Sets the gradient of an input to the sum of the terms, if any, in the input's dtype.
inline void SetSum(GradientContext& g, const char* slot, const std::vector<Variable>& terms) {
  if (terms.empty() || !g.HasInput(slot)) return;
  const Variable sum = terms.size() > 1 ? AddAll(terms) : terms.front();
  g.Set(slot, Cast(sum, g.In(slot).dtype()));
}

// Requires the slot, if present, to have X's shape and, by C3, its dtype.
inline void RequireLikeX(const InferContext& ctx, std::string_view id, const char* slot) {
  if (!ctx.HasInput(slot)) return;
  ctx.Require(id, ctx.InputShape(slot).CompatibleWith(ctx.InputShape("X")), slot,
              ctx.InputShape(slot), "X", ctx.InputShape("X"));
  RequireSameDType(ctx, "C3", slot, "X");
}

// The shape of the sum of X and `slot`, by the rule of elementwise_add with axis -1
// (constraint `id`).
inline Shape NormSumShape(const InferContext& ctx, std::string_view id, const char* slot,
                          const Shape& y) {
  const Shape& x = ctx.InputShape("X");
  const auto aligned = AlignShapes(x, y, -1);
  ctx.Require(id, aligned.has_value(), "X", x, slot, y);
  Shape sum;
  for (int i = 0; i < aligned->x.rank(); ++i) {
    const int64_t a = aligned->x[i], b = aligned->y[i];
    ctx.Require(id, a == 1 || b == 1 || InferContext::Matches(a, b), "X", x, slot, y);
    sum.Append(a == 1 ? b : b == 1 ? a : std::max(a, b));
  }
  return sum;
}

template <class T>
T* DataOrNull(Workspace& ws, const TensorArg& arg) {
  return arg ? ws.Data<T>(arg) : nullptr;
}

// The variance of group g, which the forward op stored; again from x where T could not hold it: it
// overflowed, or it is next to 0 and so is epsilon.
template <class T>
double HeldVariance(const NormView& v, const T* x, int64_t g, T stored, double epsilon) {
  constexpr double kLeast = 1e-30;
  const bool too_small = stored < std::numeric_limits<T>::min() && epsilon < kLeast;
  if (!std::isinf(stored) && !too_small) return static_cast<double>(stored);
  NormView one = v;
  one.groups = 1;
  double mean = 0, variance = 0;
  NormMoments(one, x + v.At(g, 0), &mean, &variance);
  return variance;
}

// The slots of `<norm>_grad` with the same names for all norms.
struct NormGradSlots {
  TensorArg x, scale, dy, dx, dscale, dbias;

  // With `halves`, X, Y@GRAD and X@GRAD are accessed in their stored dtype (HalfInput).
  explicit NormGradSlots(const PrepareContext& ctx, bool halves = false)
      : x(halves ? HalfInput(ctx, "X") : ctx.Input("X")),
        scale(ctx.Input("Scale")),
        dy(halves ? HalfInput(ctx, "Y@GRAD") : ctx.Input("Y@GRAD")),
        dx(halves ? HalfOutput(ctx, "X@GRAD") : ctx.Output("X@GRAD")),
        dscale(ctx.Output("Scale@GRAD")),
        dbias(ctx.Output("Bias@GRAD")) {}

  template <class T>
  NormGradArgs<T> Args(Workspace& ws, const double* mean, const double* inv) const {
    NormGradArgs<T> a;
    a.x = ws.Data<const T>(x);
    a.scale = DataOrNull<const T>(ws, scale);
    a.dy = ws.Data<const T>(dy);
    a.mean = mean;
    a.inv = inv;
    a.dx = DataOrNull<T>(ws, dx);
    a.dscale = DataOrNull<T>(ws, dscale);
    a.dbias = DataOrNull<T>(ws, dbias);
    return a;
  }
};

// Adds the slots of `<norm>_grad_grad` that are not inputs of `<norm>_grad`, and declares that
// there are no further derivatives.
inline void DeclareGradGradSlots(OpDef& def, const std::string& norm) {
  def.OptionalInput("X@GRAD@GRAD", "gradient of " + norm + "_grad's X@GRAD")
      .OptionalInput("Scale@GRAD@GRAD", "gradient of its Scale@GRAD")
      .OptionalInput("Bias@GRAD@GRAD", "gradient of its Bias@GRAD")
      .OptionalOutput("X@GRAD", "gradient of X")
      .OptionalOutput("Scale@GRAD", "gradient of Scale")
      .OptionalOutput("Y@GRAD@GRAD", "gradient of Y@GRAD")
      .NoGradient("third derivatives of " + norm + " are not provided");
}

}  // namespace coracle::inline internal

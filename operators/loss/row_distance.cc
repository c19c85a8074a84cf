// cos_sim, smooth_l1_loss, squared_l2_distance: functions of each row of X and its row of Y, where
// Y may have one row for all.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/same_type.h>

#include <cmath>
#include <numeric>

namespace coracle::row_distance_op {

constexpr double kLeastNorm = 1e-4;  // for cos_sim

// Checks C1 and C2; returns the number of rows of Y.
int64_t RequireRows(InferContext& ctx, bool may_be_one) {
  const VarMeta &x = ctx.Input("X"), &y = ctx.Input("Y");
  ctx.Require("C1", x.shape.rank() >= 2, x.shape);
  Shape like = x.shape;
  if (may_be_one && y.shape.rank() > 0 && y.shape[0] == 1) like[0] = 1;
  ctx.Require("C2", y.dtype == x.dtype && y.shape.CompatibleWith(like), "Y", y, "X", x);
  return like[0] == 1 ? 1 : y.shape[0];
}

void SetColumn(InferContext& ctx, const char* slot, int64_t rows) {
  VarMeta column = ctx.Input("X");
  column.shape = {rows, 1};
  ctx.SetOutput(slot, column);
}

// The rows of two inputs.
struct RowPairs {
  TensorArg x, y;
  int64_t rows, width, grain;
  bool one_y;
  explicit RowPairs(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        y(ctx.Input("Y")),
        rows(x.shape[0]),
        width(x.shape.Product(1, x.shape.rank())),
        grain(1 + 16384 / (1 + width)),
        one_y(y.shape[0] == 1) {}

  // Calls visit(row, first element of X's row, first element of Y's row).
  template <class Visit>
  void ForEach(const Visit& visit) const {
    ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) visit(i, i * width, one_y ? 0 : i * width);
    });
  }
};

// --- gradient rules ---

std::vector<int32_t> AllButRows(int rank) {
  std::vector<int32_t> dims(static_cast<size_t>(rank) - 1);
  std::iota(dims.begin(), dims.end(), 1);
  return dims;
}
// Sums of the rows: [N, 1, .., 1] with the rank of v.
Variable RowSum(const Variable& v) { return Sum(v, AllButRows(v.shape().rank()), true); }

// A column [N, 1] with the rank of the operands.
Variable Column(GradientContext& g, const Variable& column) {
  const int rank = g.In("X").shape().rank();
  if (rank == 2) return column;
  std::vector<int32_t> shape(static_cast<size_t>(rank), 1);
  shape[0] = 0;
  return Reshape(column, shape);
}

// Sets the gradient of Y from the gradient of its rows repeated to those of X.
void SetY(GradientContext& g, const Variable& wide) {
  g.Set("Y", g.Make("elementwise_add_grad",
                    {{"X", {g.Input("X")}}, {"Y", {g.Input("Y")}}, {"Out@GRAD", {wide.name()}}}, {},
                    "Y@GRAD"));
}

// --- cos_sim ---

void InferCosSim(InferContext& ctx) {
  const int64_t y_rows = RequireRows(ctx, true);
  SetColumn(ctx, "Out", ctx.InputShape("X")[0]);
  SetColumn(ctx, "XNorm", ctx.InputShape("X")[0]);
  ctx.SetOutput("YNorm", ctx.InputDType("X"), {y_rows, 1});
}

template <class T>
double RowNorm(const T* row, int64_t n) {
  const double norm = NormOf(2, row, n);
  return norm < kLeastNorm ? kLeastNorm : norm;
}

// a . b / (na nb), without overflow of the products.
template <class T>
double Cosine(const T* a, const T* b, int64_t n, double na, double nb) {
  double dot = 0;
  for (int64_t j = 0; j < n; ++j) dot += static_cast<double>(a[j]) * static_cast<double>(b[j]);
  if (std::isfinite(dot) && std::isfinite(na * nb)) return dot / (na * nb);
  dot = 0;
  for (int64_t j = 0; j < n; ++j)
    dot += static_cast<double>(a[j]) / na * (static_cast<double>(b[j]) / nb);
  return dot;
}

template <class T>
KernelOf<T> CosSim(const PrepareContext& ctx) {
  const RowPairs pairs(ctx);
  const TensorArg out = ctx.Output("Out"), xnorm = ctx.Output("XNorm");
  const TensorArg ynorm = ctx.Output("YNorm");
  return [=](Workspace& ws) {
    const T *x = ws.Data<const T>(pairs.x), *y = ws.Data<const T>(pairs.y);
    T* o = ws.Data<T>(out);
    T* x_norms = xnorm ? ws.Data<T>(xnorm) : nullptr;
    T* y_norms = ynorm ? ws.Data<T>(ynorm) : nullptr;
    const double shared = pairs.one_y ? RowNorm(y, pairs.width) : 0;
    if (pairs.one_y && y_norms) y_norms[0] = static_cast<T>(shared);
    pairs.ForEach([&](int64_t row, int64_t at_x, int64_t at_y) {
      const T *a = x + at_x, *b = y + at_y;
      const double na = RowNorm(a, pairs.width);
      const double nb = pairs.one_y ? shared : RowNorm(b, pairs.width);
      o[row] = static_cast<T>(Cosine(a, b, pairs.width, na, nb));
      if (x_norms) x_norms[row] = static_cast<T>(na);
      if (y_norms && !pairs.one_y) y_norms[row] = static_cast<T>(nb);
    });
  };
}

Variable NormOfRows(GradientContext& g, const Variable& v) {
  const Variable norm = g.Make("frobenius_norm", {{"X", {v.name()}}},
                               {{"dim", AllButRows(v.shape().rank())}, {"keep_dim", true}});
  return Max(norm, kLeastNorm);
}

// With x = X / |X|, y = Y / |Y|:  dX = dOut (y - x Out) / |X|, dY likewise.
void CosSimGradient(GradientContext& g) {
  const Variable dout = Column(g, g.Grad("Out"));
  const Variable m = NormOfRows(g, g.In("X")), n = NormOfRows(g, g.In("Y"));
  const Variable x = g.In("X") / m, y = g.In("Y") / n, out = RowSum(x * y);
  g.Set("X", dout * ((y - x * out) / m));
  SetY(g, dout * ((x - y * out) / n));
}

// --- smooth_l1_loss ---

bool IsWeighted(const auto& ctx) {
  return ctx.HasInput("InsideWeight") && ctx.HasInput("OutsideWeight");
}

void InferSmoothL1(InferContext& ctx) {
  RequireRows(ctx, false);
  for (const char* weight : {"InsideWeight", "OutsideWeight"}) {
    if (IsWeighted(ctx)) RequireSameType(ctx, "C3", weight, "X");
  }
  ctx.SetOutput("Diff", ctx.Input("X"));
  SetColumn(ctx, "Out", ctx.InputShape("X")[0]);
}

template <class T>
KernelOf<T> SmoothL1(const PrepareContext& ctx) {
  const RowPairs pairs(ctx);
  const TensorArg diff = ctx.Output("Diff"), out = ctx.Output("Out");
  const bool weighted = IsWeighted(ctx);
  const TensorArg inside = weighted ? ctx.Input("InsideWeight") : pairs.x;
  const TensorArg outside = weighted ? ctx.Input("OutsideWeight") : pairs.x;
  const T sigma = static_cast<T>(ctx.Attr<float>("sigma")), s = sigma * sigma;
  return [=](Workspace& ws) {
    const T *x = ws.Data<const T>(pairs.x), *y = ws.Data<const T>(pairs.y);
    const T *in = ws.Data<const T>(inside), *weight = ws.Data<const T>(outside);
    T* kept = diff ? ws.Data<T>(diff) : nullptr;
    pairs.ForEach([&](int64_t row, int64_t begin, int64_t) {
      double sum = 0;
      for (int64_t i = begin; i < begin + pairs.width; ++i) {
        const T d = weighted ? (x[i] - y[i]) * in[i] : x[i] - y[i], a = std::abs(d);
        const T loss = a * s < T(1) ? d * d * s / 2 : a - T(0.5) / s;
        sum += static_cast<double>(weighted ? loss * weight[i] : loss);
        if (kept) kept[i] = d;
      }
      ws.Data<T>(out)[row] = static_cast<T>(sum);
    });
  };
}

// dX = dOut OutsideWeight min(max(d sigma^2, -1), 1) InsideWeight, dY = -dX.
void SmoothL1Gradient(GradientContext& g) {
  const bool weighted = IsWeighted(g);
  const double sigma = g.Attr<float>("sigma");
  Variable d = g.In("X") - g.In("Y");
  if (weighted) d = d * g.In("InsideWeight");
  const Variable scaled = d * (sigma * sigma);
  Variable slope = g.Make("clip", {{"X", {scaled.name()}}}, {{"min", -1.f}, {"max", 1.f}});
  if (weighted) slope = slope * g.In("InsideWeight") * g.In("OutsideWeight");
  const Variable dx = Column(g, g.Grad("Out")) * slope;
  g.Set("X", dx);
  g.Set("Y", -dx);
}

// --- squared_l2_distance ---

void InferSquaredL2(InferContext& ctx) {
  RequireRows(ctx, true);
  const Shape x = ctx.InputShape("X");
  ctx.SetOutput("sub_result", ctx.InputDType("X"), {x[0], ProductOfDims(x, 1, x.rank())});
  SetColumn(ctx, "Out", x[0]);
}

template <class T>
KernelOf<T> SquaredL2(const PrepareContext& ctx) {
  const RowPairs pairs(ctx);
  const TensorArg sub = ctx.Output("sub_result"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T *x = ws.Data<const T>(pairs.x), *y = ws.Data<const T>(pairs.y);
    T* kept = sub ? ws.Data<T>(sub) : nullptr;
    pairs.ForEach([&](int64_t row, int64_t at_x, int64_t at_y) {
      double sum = 0;
      for (int64_t j = 0; j < pairs.width; ++j) {
        const T d = x[at_x + j] - y[at_y + j];
        sum += static_cast<double>(d) * static_cast<double>(d);
        if (kept) kept[at_x + j] = d;
      }
      ws.Data<T>(out)[row] = static_cast<T>(sum);
    });
  };
}

// dX = 2 dOut (X - Y), dY = -dX.
void SquaredL2Gradient(GradientContext& g) {
  const Variable dout = Column(g, g.Grad("Out"));
  const Variable dx = 2.0 * (dout * (g.In("X") - g.In("Y")));
  g.Set("X", dx);
  SetY(g, -dx);
}

void DeclareRows(OpDef& def) {
  const bool one = def.type() != "smooth_l1_loss";
  def.ComputesIn(OpPrecision::kFloat32)
      .Constraint("C1", "X must have rank 2 or more")
      .Constraint("C2", one ? "Y must have X's dtype and shape, or one row of it"
                            : "Y must have X's dtype and shape")
      .Input("X", "floating-point tensor [N, ...]")
      .Input("Y", one ? "tensor of X's dtype: N rows, or one" : "tensor of X's shape and dtype");
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("cos_sim")
              .Doc("Out[i] = the dot product of the rows i of X and Y (or its only row), divided "
                   "by their Euclidean norms, each at least 0.0001.")
              .Apply(DeclareRows)
              .Output("Out", "tensor [N, 1]")
              .IntermediateOutput("XNorm", "the norms of X's rows [N, 1]")
              .IntermediateOutput("YNorm", "the norms of Y's rows [N, 1] or [1, 1]")
              .Rows(RowRule::kEach)
              .Infer(InferCosSim)
              .Gradient(CosSimGradient)
              .Reference(CosSim<float>, CosSim<double>));
  ops.Add(OpDef("smooth_l1_loss")
              .Doc("With d = (X - Y) InsideWeight and s = sigma^2: Out = the sum over each row of "
                   "OutsideWeight (d^2 s / 2 where |d| < 1 / s, else |d| - 0.5 / s). The weights "
                   "are 1 unless both are given.")
              .Apply(DeclareRows)
              .Constraint("C3", "the weights must have X's shape and dtype")
              .OptionalInput("InsideWeight", "tensor of X's shape and dtype")
              .OptionalInput("OutsideWeight", "tensor of X's shape and dtype")
              .IntermediateOutput("Diff", "d")
              .Output("Out", "tensor [N, 1]")
              .Attr<float>("sigma", 1.f, "sigma^2 is the second derivative near 0")
              .NoGradientTo({"InsideWeight", "OutsideWeight"})
              .NoLod()
              .Rows(RowRule::kEach)
              .Infer(InferSmoothL1)
              .Gradient(SmoothL1Gradient)
              .Reference(SmoothL1<float>, SmoothL1<double>));
  ops.Add(OpDef("squared_l2_distance")
              .Doc("Out[i] = the sum of (X - Y)^2 over the rows i of X and Y (or its only row).")
              .Apply(DeclareRows)
              .IntermediateOutput("sub_result", "X - Y as a matrix of N rows")
              .Output("Out", "tensor [N, 1]")
              .Rows(RowRule::kEach)
              .SoftLabels({"X", "Y"})
              .Infer(InferSquaredL2)
              .Gradient(SquaredL2Gradient)
              .Reference(SquaredL2<float>, SquaredL2<double>));
}

}  // namespace coracle::row_distance_op

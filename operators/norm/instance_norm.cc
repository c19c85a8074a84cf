#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/norm/norm_def.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace coracle::instance_norm_op {

// --- shape rules ---

// -1 if unknown.
struct Sizes {
  int64_t channels, rows;
};

Sizes CheckInputs(const InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() >= 2 && x.rank() <= 5, x.rank());
  int64_t channels = x[1];
  for (const char* slot : {"Scale", "Bias"}) {
    RequireNormVector(ctx, "C2", slot, channels);
    if (channels < 0 && ctx.HasInput(slot)) channels = ctx.InputShape(slot)[0];
  }
  return {channels, MulDims(x[0], channels)};
}

void InferInstanceNorm(InferContext& ctx) {
  const Sizes sizes = CheckInputs(ctx);
  ctx.SetOutput("Y", ctx.Input("X"));
  ctx.SetOutput("SavedMean", StatisticsDType(ctx), {sizes.rows});
  ctx.SetOutput("SavedVariance", StatisticsDType(ctx), {sizes.rows});
}

void InferInstanceNormGrad(InferContext& ctx) {
  const Sizes sizes = CheckInputs(ctx);
  RequireLikeX(ctx, "C4", "Y@GRAD");
  for (const char* slot : {"SavedMean", "SavedVariance"})
    RequireNormVector(ctx, "C5", slot, sizes.rows);
  const auto dtype = [&](const char* slot) {
    return ctx.HasInput(slot) ? ctx.InputDType(slot) : StatisticsDType(ctx);
  };
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Scale@GRAD", dtype("Scale"), {sizes.channels});
  ctx.SetOutput("Bias@GRAD", dtype("Bias"), {sizes.channels});
}

// --- kernels ---

// Each channel of each sample of [batch, channels, inner] is a group.
NormView InstanceView(const Shape& x) {
  NormView v = ChannelView(1, x[0] * x[1], x.Product(2, x.rank()), false);
  v.channels = x[1];
  return v;
}

// Mean and 1 / sqrt(variance + epsilon) of every row, in doubles.
template <class T>
struct Statistics {
  TensorArg x, saved_mean, saved_inv, stats;
  NormView view;
  double epsilon;

  explicit Statistics(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        saved_mean(ctx.Input("SavedMean")),
        saved_inv(ctx.Input("SavedVariance")),
        view(InstanceView(x.shape)),
        epsilon(static_cast<double>(ctx.Attr<float>("epsilon"))) {
    stats = ctx.Scratch(DType::kFloat64, {2 * view.groups});
  }

  // Replaces the variances by inv. REQUIRES: stats hold means, then variances.
  void InvertVariance(Workspace& ws) const {
    double* s = ws.Data<double>(stats) + view.groups;
    for (int64_t r = 0; r < view.groups; ++r) s[r] = 1 / std::sqrt(s[r] + epsilon);
  }

  // Takes them from the slots of a gradient op if present, else computes them.
  const double* Read(Workspace& ws) const {
    double* s = ws.Data<double>(stats);
    const int64_t n = view.groups;
    if (!saved_mean || !saved_inv) {
      NormMoments(view, ws.Data<const T>(x), s, s + n);
      InvertVariance(ws);
      return s;
    }
    for (int64_t r = 0; r < n; ++r) {
      s[r] = static_cast<double>(ws.Data<const T>(saved_mean)[r]);
      s[n + r] = static_cast<double>(ws.Data<const T>(saved_inv)[r]);
    }
    return s;
  }
};

// Writes SavedMean and SavedVariance from mean and 1 / sqrt(variance + epsilon).
struct SavedOutputs {
  TensorArg mean, inv;

  explicit SavedOutputs(const PrepareContext& ctx)
      : mean(ctx.Output("SavedMean")), inv(ctx.Output("SavedVariance")) {}

  template <class T>
  void Write(Workspace& ws, const double* s, int64_t n) const {
    for (int64_t r = 0; r < n; ++r) {
      if (mean) ws.Data<T>(mean)[r] = static_cast<T>(s[r]);
      if (inv) ws.Data<T>(inv)[r] = static_cast<T>(s[n + r]);
    }
  }
};

template <class T>
KernelOf<T> InstanceNormReference(const PrepareContext& ctx) {
  const Statistics<T> stats(ctx);
  const SavedOutputs saved(ctx);
  const TensorArg scale = ctx.Input("Scale"), bias = ctx.Input("Bias"), y = ctx.Output("Y");
  return [=](Workspace& ws) {
    const int64_t n = stats.view.groups;
    const double* s = stats.Read(ws);
    NormApply(stats.view, ws.Data<const T>(stats.x), s, s + n, DataOrNull<const T>(ws, scale),
              DataOrNull<const T>(ws, bias), ws.Data<T>(y));
    saved.Write<T>(ws, s, n);
  };
}

// Element `c` of Scale or Bias.
double ParamAt(const float* values, int64_t c, double absent) {
  return values ? static_cast<double>(values[c]) : absent;
}

// Calls body(rows, first row) for parts of the rows that fit into the cache, so that all steps of a
// part read cached data.
template <class Body>
void ForRowParts(const NormView& v, Body&& body) {
  const int64_t rows = 1 + 16384 / v.size, parts = (v.groups + rows - 1) / rows;
  ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      NormView part = v;
      part.groups = std::min(rows, v.groups - k * rows);
      body(part, k * rows);
    }
  });
}

// Memory for ForRowParts; the memory of a part begins at its first row.
struct PartScratch {
  TensorArg doubles, factors;
  int64_t rows, of_row;

  PartScratch(const PrepareContext& ctx, const NormView& v)
      : rows(v.groups), of_row(ChannelScratch(v) / v.groups) {
    doubles = ctx.Scratch(DType::kFloat64, {ChannelScratch(v)});
    factors = ctx.Scratch(DType::kFloat32, {4 * v.groups});
  }
  double* Sums(Workspace& ws, int64_t first) const {
    return ws.Data<double>(doubles) + first * of_row;
  }
  // mean, p, q and b of ChannelGradApply, from a given row on.
  struct Factors {
    float *mean, *p, *q, *b;
  };
  Factors Of(Workspace& ws, int64_t first) const {
    float* f = ws.Data<float>(factors) + first;
    return {f, f + rows, f + 2 * rows, f + 3 * rows};
  }
};

// The rounding of a mean.
double Rest(float rounded, double mean) { return static_cast<double>(rounded) - mean; }

// Y = Scale inv (X - mean) + Bias, with the loop of the gradient: Scale inv X + (Bias - Scale inv
// mean) would lose digits in a row that is far from zero or constant.
Kernel InstanceNormFast(const PrepareContext& ctx) {
  const Statistics<float> stats(ctx);
  const NormView v = stats.view;
  if (stats.x.dtype != DType::kFloat32 || v.numel() == 0) return {};
  const SavedOutputs saved(ctx);
  const TensorArg scale = ctx.Input("Scale"), bias = ctx.Input("Bias"), y = ctx.Output("Y");
  const PartScratch scratch(ctx, v);
  return [=](Workspace& ws) {
    double *s = ws.Data<double>(stats.stats), *inv = s + v.groups;
    const float* a = DataOrNull<const float>(ws, scale);
    const float* c = DataOrNull<const float>(ws, bias);
    ForRowParts(v, [&](const NormView& part, int64_t first) {
      const float* x = ws.Data<const float>(stats.x) + first * v.size;
      const PartScratch::Factors f = scratch.Of(ws, first);
      ChannelMoments(part, x, scratch.Sums(ws, first), s + first, inv + first);
      for (int64_t i = 0; i < part.groups; ++i) {
        inv[first + i] = 1 / std::sqrt(inv[first + i] + stats.epsilon);
        f.mean[i] = static_cast<float>(s[first + i]);
      }
      const auto factors_of = [&](int64_t i) -> NormFactors {
        const int64_t r = first + i, channel = v.Param(r, 0);
        const double factor = ParamAt(a, channel, 1) * inv[r];
        const double rest = Rest(f.mean[i], s[r]);
        return {0, factor, ParamAt(c, channel, 0) + rest * factor, inv[r]};
      };
      ChannelGrad(part, NormTerms{x, x}, f.mean, factors_of, f.p, f.q, f.b,
                  ws.Data<float>(y) + first * v.size);
    });
    saved.Write<float>(ws, s, v.groups);
  };
}

template <class T>
KernelOf<T> InstanceNormGradReference(const PrepareContext& ctx) {
  const Statistics<T> stats(ctx);
  const NormGradSlots slots(ctx);
  return [=](Workspace& ws) {
    const double* s = stats.Read(ws);
    NormGrad(stats.view, slots.Args<T>(ws, s, s + stats.view.groups));
  };
}

// sums[c] = sum of f(row) over the rows of channel c; does nothing if `sums` is null.
template <class F>
void SumRows(const NormView& v, float* sums, F&& f) {
  for (int64_t c = 0; sums && c < v.channels; ++c) {
    double sum = 0;
    for (int64_t r = c; r < v.groups; r += v.channels) sum += f(r);
    sums[c] = static_cast<float>(sum);
  }
}

// dX = p dY + q (X - mean) + b with p = Scale inv, q = -p inv^2 sum(dY (X - mean)) / size,
// b = -p sum(dY) / size.
Kernel InstanceNormGradFast(const PrepareContext& ctx) {
  const Statistics<float> stats(ctx);
  const NormView v = stats.view;
  if (stats.x.dtype != DType::kFloat32 || v.numel() == 0) return {};
  // The terms of X@GRAD cancel: the reference adds doubles.
  if (v.size <= 2) return {};
  const NormGradSlots slots(ctx);
  const PartScratch scratch(ctx, v);
  const TensorArg totals = ctx.Scratch(DType::kFloat64, {2 * v.groups});
  return [=](Workspace& ws) {
    const double *s = stats.Read(ws), *inv = s + v.groups;
    const NormGradArgs<float> a = slots.Args<float>(ws, s, inv);
    double *sum_dy = ws.Data<double>(totals), *sum_dyx = sum_dy + v.groups;
    const double size = static_cast<double>(v.size);
    ForRowParts(v, [&](const NormView& part, int64_t first) {
      const float *x = a.x + first * v.size, *dy = a.dy + first * v.size;
      const PartScratch::Factors f = scratch.Of(ws, first);
      for (int64_t i = 0; i < part.groups; ++i) f.mean[i] = static_cast<float>(s[first + i]);
      ChannelGradSums(part, x, dy, f.mean, scratch.Sums(ws, first), sum_dy + first,
                      sum_dyx + first);
      for (int64_t i = 0; i < part.groups; ++i)
        sum_dyx[first + i] += OfRest(sum_dy[first + i], Rest(f.mean[i], s[first + i]));
      if (!a.dx) return;
      const auto factors_of = [&](int64_t i) -> NormFactors {
        const int64_t r = first + i;
        const double p = ParamAt(a.scale, v.Param(r, 0), 1) * inv[r];
        const double q = -p * inv[r] * inv[r] * sum_dyx[r] / size;
        return {p, q, -p * sum_dy[r] / size + OfRest(q, Rest(f.mean[i], s[r])), inv[r]};
      };
      ChannelGrad(part, NormTerms{x, dy}, f.mean, factors_of, f.p, f.q, f.b, a.dx + first * v.size);
    });
    SumRows(v, a.dscale, [&](int64_t r) { return sum_dyx[r] * inv[r]; });
    SumRows(v, a.dbias, [&](int64_t r) { return sum_dy[r]; });
  };
}

// --- gradient rule of instance_norm_grad ---

// Building blocks of the rule. For 16-bit floats, it computes in float32.
class Formula {
 public:
  explicit Formula(GradientContext& g)
      : g_(g), dtype_(IsHalf(g.In("X").dtype()) ? DType::kFloat32 : g.In("X").dtype()) {
    for (int axis = 2; axis < g.In("X").shape().rank(); ++axis) row_dims_.push_back(axis);
  }

  Variable Wide(const Variable& a) const { return Cast(a, dtype_); }
  Variable In(const char* slot) const { return Wide(g_.In(slot)); }
  Variable Grad(const char* slot) const { return Wide(g_.Grad(slot)); }

  // The mean of each row; broadcasts to X's shape.
  Variable RowMean(const Variable& a) const {
    if (row_dims_.empty()) return a;
    return g_.Make("reduce_mean", {{"X", {a.name()}}}, {{"dim", row_dims_}, {"keep_dim", true}});
  }
  // 1 / sqrt(variance + epsilon) of each row.
  Variable Inv(const Variable& x) const {
    const Variable variance = RowMean(Square(x - RowMean(x)));
    return Pow(variance + static_cast<double>(g_.Attr<float>("epsilon")), -0.5);
  }
  Variable ChannelSums(const Variable& a) const {
    std::vector<int32_t> dims = row_dims_;
    dims.insert(dims.begin(), 0);
    return Sum(a, dims);
  }
  Variable ByChannel(const char* type, const Variable& a, const Variable& b) const {
    return g_.Make(type, {{"X", {a.name()}}, {"Y", {b.name()}}}, {{"axis", 1}});
  }
  Variable Scaled(const Variable& a) const {
    return g_.HasInput("Scale") ? ByChannel("elementwise_mul", a, In("Scale")) : a;
  }
  // The ops without a bias, and with another scale (none: 1): scale xh and inv P(scale dy).
  Variable Norm(const Variable& x, SlotList scale = {}) const {
    scale.push_back({"X", {x.name()}});
    return g_.Make("instance_norm", std::move(scale), g_.ForwardAttrs({"epsilon"}), "Y");
  }
  Variable NormGrad(const Variable& x, const Variable& dy, SlotList scale = {}) const {
    for (const char* slot : {"SavedMean", "SavedVariance"}) {
      if (g_.HasInput(slot)) scale.push_back({slot, {In(slot).name()}});
    }
    scale.push_back({"X", {x.name()}});
    scale.push_back({"Y@GRAD", {dy.name()}});
    return g_.Make("instance_norm_grad", std::move(scale), g_.ForwardAttrs({"epsilon"}), "X@GRAD");
  }

  // Sets the gradient to the sum of the terms, if any, in the slot's dtype.
  void Set(const char* slot, const std::vector<Variable>& terms) const { SetSum(g_, slot, terms); }

 private:
  GradientContext& g_;
  DType dtype_;
  std::vector<int32_t> row_dims_;
};

// With U, V and W the gradients of X@GRAD, Scale@GRAD and Bias@GRAD, t = inv P(U), g = Scale dY,
// and M the mean over a row (see norm.h for P and xh):
//   dY'    = Scale t + V xh + W
//   Scale' = sum of dY t
//   X'     = inv P(V dY) - inv (inv P(U M(g xh) + g M(U xh)) + xh M(t g))
void InstanceNormGradGradient(GradientContext& g) {
  const Formula f(g);
  const Variable x = f.In("X"), dy = f.In("Y@GRAD");
  std::vector<Variable> x_terms, dy_terms, scale_terms;
  if (g.HasOutputGrad("X@GRAD")) {
    const Variable u = f.Grad("X@GRAD"), t = f.NormGrad(x, u), gy = f.Scaled(dy);
    const Variable xh = f.Norm(x), inv = f.Inv(x);
    const Variable u_part = u * f.RowMean(gy * xh), g_part = gy * f.RowMean(u * xh);
    const Variable across = f.NormGrad(x, u_part + g_part), along = xh * f.RowMean(t * gy);
    x_terms.push_back(-(inv * (across + along)));
    dy_terms.push_back(f.Scaled(t));
    scale_terms.push_back(f.ChannelSums(dy * t));
  }
  if (g.HasOutputGrad("Scale@GRAD")) {
    const SlotList v = {{"Scale", {f.Grad("Scale@GRAD").name()}}};
    dy_terms.push_back(f.Norm(x, v));
    x_terms.push_back(f.NormGrad(x, dy, v));
  }
  if (g.HasOutputGrad("Bias@GRAD"))
    dy_terms.push_back(f.ByChannel("elementwise_add", ZerosLike(dy), f.Grad("Bias@GRAD")));
  f.Set("X", x_terms);
  f.Set("Y@GRAD", dy_terms);
  f.Set("Scale", scale_terms);
}

// --- registration ---

void DeclareNorm(OpDef& def) {
  def.Input("X", "[N, C, ...]")
      .OptionalInput("Scale", "[C]; 1 when absent")
      .OptionalInput("Bias", "[C]; 0 when absent")
      .Attr<float>("epsilon", 1e-5f, "added to the variance")
      .Range(0.0, 1e-3);
}

OpDef ForwardDef() {
  return OpDef("instance_norm")
      .Doc(
          "Y = Scale (X - mean) / sqrt(variance + epsilon) + Bias for each channel of each sample "
          "(a row), mean and biased variance over its other dims.")
      .Constraint("C1", "X must have rank 2 to 5")
      .Constraint("C2", "Scale and Bias must have shape [channels]")
      .Constraint("C3",
                  "all inputs must have X's dtype; scale, bias and statistics may be float32 with "
                  "a 16-bit X")
      .Apply(DeclareNorm)
      .Output("Y", "of X's shape")
      .IntermediateOutput("SavedMean", "[N * C]; rounded as the gradient reads it")
      .IntermediateOutput("SavedVariance", "[N * C], 1 / sqrt(variance + epsilon)")
      .Float32Slots({"Scale", "Bias", "SavedMean", "SavedVariance"})
      .Inplace("X", "Y")
      .Rows(EachBatchRow, kEachBatchRow)
      .Tables({"Bias"})
      .Infer(InferInstanceNorm)
      .GradientOp({"X", "Scale", "Bias", "SavedMean", "SavedVariance"})
      .Reference(InstanceNormReference<float>, InstanceNormReference<double>)
      .Fast(InstanceNormFast);
}

OpDef GradDef() {
  return OpDef("instance_norm_grad")
      .Doc(
          "Gradient of instance_norm. With xh the normalised X, g = Scale Y@GRAD and means over a "
          "row: X@GRAD = inv (g - mean(g) - xh mean(g xh)), Scale@GRAD = sum of Y@GRAD xh over a "
          "channel, Bias@GRAD = sum of Y@GRAD. Only the dtype of Bias is used.")
      .ConstraintsOf("instance_norm", {"C1", "C2", "C3"})
      .Constraint("C4", "Y@GRAD must have X's shape")
      .Constraint("C5", "SavedMean and SavedVariance must have shape [N * C]")
      .Apply(DeclareNorm)
      .OptionalInput("SavedMean", "SavedMean of instance_norm; recomputed if absent")
      .OptionalInput("SavedVariance", "instance_norm's SavedVariance")
      .Input("Y@GRAD", "gradient of Y")
      .OptionalOutput("X@GRAD", "gradient of X")
      .OptionalOutput("Scale@GRAD", "gradient of Scale")
      .OptionalOutput("Bias@GRAD", "gradient of Bias")
      .NoGradientTo({"Bias", "SavedMean", "SavedVariance"})
      .Infer(InferInstanceNormGrad)
      .Gradient(InstanceNormGradGradient)
      .Reference(InstanceNormGradReference<float>, InstanceNormGradReference<double>)
      .Fast(InstanceNormGradFast);
}

void Register(OpRegistry& ops) {
  ops.Add(ForwardDef());
  ops.Add(GradDef());
}

}  // namespace coracle::instance_norm_op

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/window.h>
#include <coracle/operators/norm/norm.h>
#include <coracle/operators/norm/norm_def.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace coracle::group_norm_op {

template <class Context>
int ChannelAxis(const Context& ctx, int rank) {
  return ImageLayoutOf(ctx.template Attr<std::string>("data_layout")).channels_last ? rank - 1 : 1;
}

// Returns the number of channels; -1 if unknown.
int64_t CheckInputs(const InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() >= 2, x.rank());
  int64_t channels = x[ChannelAxis(ctx, x.rank())];
  for (const char* slot : {"Scale", "Bias"}) {
    RequireNormVector(ctx, "C2", slot, channels);
    if (channels < 0 && ctx.HasInput(slot)) channels = ctx.InputShape(slot)[0];
  }
  const int64_t groups = ctx.Attr<int32_t>("groups");
  ctx.Require("C4", groups > 0 && (channels < 0 || groups <= channels), "groups", groups,
              "channels", channels);
  return channels;
}

void InferGroupNorm(InferContext& ctx) {
  CheckInputs(ctx);
  const Shape statistics{ctx.InputShape("X")[0], ctx.Attr<int32_t>("groups")};
  ctx.SetOutput("Y", ctx.Input("X"));
  ctx.SetOutput("Mean", StatisticsDType(ctx), statistics);
  ctx.SetOutput("Variance", StatisticsDType(ctx), statistics);
}

void InferGroupNormGrad(InferContext& ctx) {
  const int64_t channels = CheckInputs(ctx);
  RequireLikeX(ctx, "C5", "Y@GRAD");
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  for (const char* slot : {"Scale", "Bias"}) {
    const DType dtype = ctx.HasInput(slot) ? ctx.InputDType(slot) : StatisticsDType(ctx);
    ctx.SetOutput(GradName(slot), dtype, {channels});
  }
}

// Groups of channels of each sample; the last ones may have fewer channels, or none.
struct Groups {
  int64_t batch, channels, inner, count, size;
  bool channels_last;

  Groups(const PrepareContext& ctx, const Shape& x)
      : batch(x[0]), count(ctx.Attr<int32_t>("groups")) {
    const int axis = ChannelAxis(ctx, x.rank());
    channels = x[axis];
    channels_last = axis != 1;
    inner = channels_last ? x.Product(1, axis) : x.Product(2, x.rank());
    size = (channels + count - 1) / count;
  }
  // Calls f(offset) for the elements of channel c of sample n.
  template <class F>
  void ForChannel(int64_t n, int64_t c, F&& f) const {
    const int64_t step = channels_last ? channels : 1;
    const int64_t first = channels_last ? n * inner * channels + c : (n * channels + c) * inner;
    for (int64_t i = 0; i < inner; ++i) f(first + i * step);
  }
  // Calls f(channel, offset) for the elements of group g of sample n.
  template <class F>
  void ForGroup(int64_t n, int64_t g, F&& f) const {
    for (int64_t c = g * size; c < std::min((g + 1) * size, channels); ++c)
      ForChannel(n, c, [&](int64_t at) { f(c, at); });
  }
  int64_t NumelOf(int64_t g) const {
    return std::max<int64_t>(std::min((g + 1) * size, channels) - g * size, 0) * inner;
  }
  // Calls body(sample, group) for all groups.
  template <class Body>
  void ForEach(Body&& body) const {
    ParallelFor(batch * count, 1 + 16384 / (1 + size * inner), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) body(k / count, k % count);
    });
  }
};

// Mean and biased variance, in two passes; 0 for a group without elements.
struct Moments {
  double mean = 0, variance = 0;
};
template <class T>
Moments MomentsOf(const Groups& groups, const T* x, int64_t n, int64_t g) {
  const double numel = static_cast<double>(std::max<int64_t>(groups.NumelOf(g), 1));
  Moments m;
  groups.ForGroup(n, g, [&](int64_t, int64_t at) { m.mean += static_cast<double>(x[at]); });
  m.mean /= numel;
  groups.ForGroup(n, g, [&](int64_t, int64_t at) {
    const double off = static_cast<double>(x[at]) - m.mean;
    m.variance += off * off;
  });
  m.variance /= numel;
  return m;
}

template <class T>
double At(const T* values, int64_t c, double absent) {
  return values ? static_cast<double>(values[c]) : absent;
}

template <class T>
KernelOf<T> GroupNorm(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), scale = ctx.Input("Scale"), bias = ctx.Input("Bias");
  const TensorArg y = ctx.Output("Y"), mean = ctx.Output("Mean"), variance = ctx.Output("Variance");
  const Groups groups(ctx, x.shape);
  const double epsilon = static_cast<double>(ctx.Attr<float>("epsilon"));
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    const T *a = DataOrNull<const T>(ws, scale), *b = DataOrNull<const T>(ws, bias);
    T *out = ws.Data<T>(y), *m = DataOrNull<T>(ws, mean), *v = DataOrNull<T>(ws, variance);
    groups.ForEach([&](int64_t n, int64_t g) {
      const Moments moments = MomentsOf(groups, in, n, g);
      const double inv = 1 / std::sqrt(moments.variance + epsilon);
      groups.ForGroup(n, g, [&](int64_t c, int64_t at) {
        const double xh = (static_cast<double>(in[at]) - moments.mean) * inv;
        out[at] = static_cast<T>(xh * At(a, c, 1) + At(b, c, 0));
      });
      if (m) m[n * groups.count + g] = static_cast<T>(moments.mean);
      if (v) v[n * groups.count + g] = static_cast<T>(moments.variance);
    });
  };
}

// With xh the normalised X, h = Scale dY and M the mean over a group:
// dX = inv (h - M(h) - xh M(h xh)), dScale = sum of dY xh, dBias = sum of dY.
template <class T>
KernelOf<T> GroupNormGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), scale = ctx.Input("Scale"), dy = ctx.Input("Y@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dscale = ctx.Output("Scale@GRAD");
  const TensorArg dbias = ctx.Output("Bias@GRAD");
  const Groups groups(ctx, x.shape);
  const double epsilon = static_cast<double>(ctx.Attr<float>("epsilon"));
  const TensorArg stats = ctx.Scratch(DType::kFloat64, {CheckedMul(2, groups.batch, groups.count)});
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *a = DataOrNull<const T>(ws, scale);
    const T* go = ws.Data<const T>(dy);
    T *to = DataOrNull<T>(ws, dx), *to_scale = DataOrNull<T>(ws, dscale);
    T* to_bias = DataOrNull<T>(ws, dbias);
    double* means = ws.Data<double>(stats);
    double* invs = means + groups.batch * groups.count;
    groups.ForEach([&](int64_t n, int64_t g) {
      const Moments moments = MomentsOf(groups, in, n, g);
      const double mean = moments.mean, inv = 1 / std::sqrt(moments.variance + epsilon);
      means[n * groups.count + g] = mean;
      invs[n * groups.count + g] = inv;
      if (!to) return;
      const double numel = static_cast<double>(std::max<int64_t>(groups.NumelOf(g), 1));
      double sum = 0, along = 0;
      groups.ForGroup(n, g, [&](int64_t c, int64_t at) {
        const double h = static_cast<double>(go[at]) * At(a, c, 1);
        sum += h;
        along += h * (static_cast<double>(in[at]) - mean) * inv;
      });
      groups.ForGroup(n, g, [&](int64_t c, int64_t at) {
        const double h = static_cast<double>(go[at]) * At(a, c, 1);
        const double xh = (static_cast<double>(in[at]) - mean) * inv;
        to[at] = static_cast<T>(inv * (h - (sum + xh * along) / numel));
      });
    });
    if (!to_scale && !to_bias) return;
    const int64_t grain = 1 + 16384 / (1 + groups.batch * groups.inner);
    ParallelFor(groups.channels, grain, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double sum = 0, along = 0;
        for (int64_t n = 0; n < groups.batch; ++n) {
          const int64_t g = n * groups.count + c / groups.size;
          groups.ForChannel(n, c, [&](int64_t at) {
            const double d = static_cast<double>(go[at]);
            sum += d;
            along += d * (static_cast<double>(in[at]) - means[g]) * invs[g];
          });
        }
        if (to_scale) to_scale[c] = static_cast<T>(along);
        if (to_bias) to_bias[c] = static_cast<T>(sum);
      }
    });
  };
}

// --- gradient rule of group_norm_grad ---

// The variables as [N, groups, elements of a group]. For 16-bit floats, the rule computes
// in float32.
class GroupRows {
 public:
  explicit GroupRows(GradientContext& g)
      : g_(g),
        dtype_(IsHalf(g.In("X").dtype()) ? DType::kFloat32 : g.In("X").dtype()),
        groups_(g.Attr<int32_t>("groups")) {
    const Shape& x = g.In("X").shape();
    const bool even = ChannelAxis(g, x.rank()) == 1 && x[1] > 0 && x[1] % groups_ == 0;
    if (!even) {
      throw Error(ErrorCode::kUnimplemented,
                  "group_norm: second gradients need channels as axis 1, in a known number that "
                  "groups divides",
                  "  " + Locate(g.op()));
    }
    const int64_t size = ProductOfDims(x, 1, x.rank());
    // Reshape infers -1; 0 keeps the dimension of X.
    row_ = size <= 0 || size / groups_ > std::numeric_limits<int32_t>::max()
               ? -1
               : static_cast<int32_t>(size / groups_);
  }

  Variable In(const char* slot) const { return Cast(g_.In(slot), dtype_); }
  Variable Grad(const char* slot) const { return Cast(g_.Grad(slot), dtype_); }
  Variable Rows(const Variable& a) const { return Reshape(a, {0, groups_, row_}); }
  // Back to the shape of X.
  Variable Whole(const Variable& rows) const {
    return g_.Make("reshape_grad", {{"X", {g_.Input("X")}}, {"Out@GRAD", {rows.name()}}}, {},
                   "X@GRAD");
  }
  Variable Mean(const Variable& rows) const {
    return g_.Make("reduce_mean", {{"X", {rows.name()}}},
                   {{"dim", std::vector<int32_t>{2}}, {"keep_dim", true}});
  }
  Variable Inv(const Variable& rows) const {
    const Variable variance = Mean(Square(rows - Mean(rows)));
    return Pow(variance + static_cast<double>(g_.Attr<float>("epsilon")), -0.5);
  }
  Variable ByChannel(const char* type, const Variable& a, const Variable& b) const {
    return g_.Make(type, {{"X", {a.name()}}, {"Y", {b.name()}}}, {{"axis", 1}});
  }
  Variable Scaled(const Variable& a) const {
    return g_.HasInput("Scale") ? ByChannel("elementwise_mul", a, In("Scale")) : a;
  }
  Variable ChannelSums(const Variable& a) const {
    std::vector<int32_t> dims = {0};
    for (int axis = 2; axis < g_.In("X").shape().rank(); ++axis) dims.push_back(axis);
    return Sum(a, dims);
  }
  void Set(const char* slot, const std::vector<Variable>& terms) const { SetSum(g_, slot, terms); }

 private:
  GradientContext& g_;
  DType dtype_;
  int32_t groups_, row_ = -1;
};

// With U, V and W the gradients of X@GRAD, Scale@GRAD and Bias@GRAD, M the mean over a group, P(a)
// = a - M(a) - xh M(a xh), t = inv P(U) and h = Scale dY:
//   dY'    = Scale t + V xh + W
//   Scale' = sum of dY t
//   X'     = inv P(V dY) - inv (inv P(U M(h xh) + h M(U xh)) + xh M(t h))
void GroupNormGradGradient(GradientContext& g) {
  const GroupRows f(g);
  const Variable x = f.Rows(f.In("X")), dy = f.In("Y@GRAD");
  const Variable inv = f.Inv(x), xh = (x - f.Mean(x)) * inv;
  const auto norm_grad = [&](const Variable& a) {
    const Variable along = xh * f.Mean(a * xh);
    return inv * (a - f.Mean(a) - along);
  };
  std::vector<Variable> x_terms, dy_terms, scale_terms;
  if (g.HasOutputGrad("X@GRAD")) {
    const Variable u = f.Rows(f.Grad("X@GRAD")), t = norm_grad(u), h = f.Rows(f.Scaled(dy));
    const Variable u_part = u * f.Mean(h * xh), h_part = h * f.Mean(u * xh);
    const Variable across = norm_grad(u_part + h_part), along = xh * f.Mean(t * h);
    const Variable whole = f.Whole(t);
    x_terms.push_back(f.Whole(-(inv * (across + along))));
    dy_terms.push_back(f.Scaled(whole));
    scale_terms.push_back(f.ChannelSums(dy * whole));
  }
  if (g.HasOutputGrad("Scale@GRAD")) {
    const Variable v = f.Grad("Scale@GRAD");
    dy_terms.push_back(f.ByChannel("elementwise_mul", f.Whole(xh), v));
    x_terms.push_back(f.Whole(norm_grad(f.Rows(f.ByChannel("elementwise_mul", dy, v)))));
  }
  if (g.HasOutputGrad("Bias@GRAD"))
    dy_terms.push_back(f.ByChannel("elementwise_add", ZerosLike(dy), f.Grad("Bias@GRAD")));
  f.Set("X", x_terms);
  f.Set("Y@GRAD", dy_terms);
  f.Set("Scale", scale_terms);
}

// --- float32, vectorised ---

// The parts of X, which are processed one by one while they are in the cache: a group of a sample
// or, if channels come last and every pixel has elements of all groups, a sample.
struct Parts {
  Groups groups;
  int64_t count, channels, in_sample;  // parts; channels of one; parts of a sample
  NormView view;                       // of one part
  TensorArg doubles, floats;

  Parts(const PrepareContext& ctx, const Shape& x) : groups(ctx, x) {
    in_sample = groups.channels_last ? 1 : groups.count;
    channels = groups.channels_last ? groups.channels : groups.size;
    count = groups.batch * in_sample;
    view = ChannelView(1, channels, groups.inner, groups.channels_last);
  }
  // With channels first, all groups must have the same size.
  bool AreAlike() const { return groups.channels_last || groups.channels == channels * in_sample; }
  void MakeScratch(const PrepareContext& ctx) {
    doubles =
        ctx.Scratch(DType::kFloat64, {CheckedMul(count, ChannelScratch(view) + 5 * channels)});
    floats = ctx.Scratch(DType::kFloat32, {CheckedMul(4, count, channels)});
  }
  // The first channel of part k.
  int64_t FirstChannel(int64_t k) const { return k % in_sample * channels; }

  // The memory of one part. Each channel has two pairs of numbers, the exact r and the four factors
  // that ChannelGradApply takes. The loops use `scratch`.
  struct Memory {
    double *moments, *sums, *exact_r, *scratch;
    float *mean, *p, *q, *r;
  };
  Memory Of(Workspace& ws, int64_t k) const {
    const int64_t n = channels;
    double* d = ws.Data<double>(doubles) + k * (ChannelScratch(view) + 5 * n);
    float* f = ws.Data<float>(floats) + k * 4 * n;
    return {d, d + 2 * n, d + 4 * n, d + 5 * n, f, f + n, f + 2 * n, f + 3 * n};
  }
  // Calls body(part). With fewer parts than threads, the loops inside a part use the threads.
  template <class Body>
  void ForEach(Body&& body) const {
    if (count < NumThreads()) {
      for (int64_t k = 0; k < count; ++k) body(k);
      return;
    }
    ParallelFor(count, 1 + 16384 / view.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) body(k);
    });
  }
  // Calls body(group of the part, its first and last channel in the part, its moments).
  template <class Body>
  void ForGroups(const float* x, const Memory& memory, Body&& body) const {
    double *mean = memory.moments, *variance = mean + channels;
    ChannelMoments(view, x, memory.scratch, mean, variance);
    for (int64_t g = 0; g < groups.count / in_sample; ++g) {
      const int64_t first = std::min(g * groups.size, channels);
      const int64_t last = std::min(first + groups.size, channels);
      const double n = static_cast<double>(std::max<int64_t>(last - first, 1));
      Moments m;
      for (int64_t c = first; c < last; ++c) m.mean += mean[c] / n;
      for (int64_t c = first; c < last; ++c) {
        const double off = mean[c] - m.mean;
        m.variance += (variance[c] + off * off) / n;
      }
      body(g, first, last, m);
    }
  }
};

// Y = Scale inv (X - mean) + Bias, with the loop of the gradient, as in instance_norm.
Kernel GroupNormFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), scale = ctx.Input("Scale"), bias = ctx.Input("Bias");
  const TensorArg y = ctx.Output("Y"), mean = ctx.Output("Mean"), variance = ctx.Output("Variance");
  if (x.dtype != DType::kFloat32 || x.numel == 0) return {};
  Parts parts(ctx, x.shape);
  if (!parts.AreAlike()) return {};
  parts.MakeScratch(ctx);
  const double epsilon = static_cast<double>(ctx.Attr<float>("epsilon"));
  return [=](Workspace& ws) {
    const float* a = DataOrNull<const float>(ws, scale);
    const float* b = DataOrNull<const float>(ws, bias);
    float *means = DataOrNull<float>(ws, mean), *variances = DataOrNull<float>(ws, variance);
    parts.ForEach([&](int64_t k) {
      const Parts::Memory memory = parts.Of(ws, k);
      const float* in = ws.Data<const float>(x) + k * parts.view.numel();
      const int64_t base = parts.FirstChannel(k);
      double *factor = memory.sums, *invs = factor + parts.channels;
      parts.ForGroups(in, memory, [&](int64_t g, int64_t first, int64_t last, const Moments& m) {
        const int64_t row = k * (parts.groups.count / parts.in_sample) + g;
        if (means) means[row] = static_cast<float>(m.mean);
        if (variances) variances[row] = static_cast<float>(m.variance);
        const double inv = 1 / std::sqrt(m.variance + epsilon);
        const auto rounded = static_cast<float>(m.mean);
        const double rest = static_cast<double>(rounded) - m.mean;
        for (int64_t c = first; c < last; ++c) {
          factor[c] = At(a, base + c, 1) * inv;
          memory.mean[c] = rounded;
          memory.exact_r[c] = At(b, base + c, 0) + rest * factor[c];
          invs[c] = inv;
        }
      });
      const auto factors_of = [&](int64_t c) -> NormFactors {
        return {0, factor[c], memory.exact_r[c], invs[c]};
      };
      ChannelGrad(parts.view, NormTerms{in, in}, memory.mean, factors_of, memory.p, memory.q,
                  memory.r, ws.Data<float>(y) + k * parts.view.numel());
    });
  };
}

// dX = p dY + q (X - mean) + r with p = Scale inv, q = -inv^3 S(Scale dY (X - mean)) / n and r =
// -inv S(Scale dY) / n, S being the sum over the group's n elements.
Kernel GroupNormGradFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), scale = ctx.Input("Scale"), dy = ctx.Input("Y@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dscale = ctx.Output("Scale@GRAD");
  const TensorArg dbias = ctx.Output("Bias@GRAD");
  if (x.dtype != DType::kFloat32 || x.numel == 0) return {};
  Parts parts(ctx, x.shape);
  if (!parts.AreAlike()) return {};
  parts.MakeScratch(ctx);
  const double epsilon = static_cast<double>(ctx.Attr<float>("epsilon"));
  return [=](Workspace& ws) {
    const float* a = DataOrNull<const float>(ws, scale);
    const int64_t channels = parts.channels;
    parts.ForEach([&](int64_t k) {
      const Parts::Memory memory = parts.Of(ws, k);
      const float* in = ws.Data<const float>(x) + k * parts.view.numel();
      const float* go = ws.Data<const float>(dy) + k * parts.view.numel();
      const int64_t base = parts.FirstChannel(k);
      double *sum = memory.sums, *along = sum + channels;
      // The inverse deviations replace the channels' moments, which are not needed any more.
      double *mean = memory.moments, *inv = mean + channels;
      parts.ForGroups(in, memory, [&](int64_t, int64_t first, int64_t last, const Moments& m) {
        for (int64_t c = first; c < last; ++c) {
          memory.mean[c] = static_cast<float>(m.mean);
          mean[c] = m.mean;
          inv[c] = 1 / std::sqrt(m.variance + epsilon);
        }
      });
      ChannelGradSums(parts.view, in, go, memory.mean, memory.scratch, sum, along);
      for (int64_t first = 0; first < channels; first += parts.groups.size) {
        const int64_t last = std::min(first + parts.groups.size, channels);
        const double n = static_cast<double>((last - first) * parts.groups.inner);
        const double rest = static_cast<double>(memory.mean[first]) - mean[first], i = inv[first];
        double s = 0, t = 0;
        for (int64_t c = first; c < last; ++c) {
          along[c] += OfRest(sum[c], rest);
          s += At(a, base + c, 1) * sum[c];
          t += At(a, base + c, 1) * along[c];
          along[c] *= i;
        }
        const double q = -i * i * i * t / n;
        std::fill(mean + first, mean + last, q);
        std::fill(memory.exact_r + first, memory.exact_r + last, OfRest(q, rest) - i * s / n);
      }
      if (!dx) return;
      const auto factors_of = [&](int64_t c) -> NormFactors {
        return {At(a, base + c, 1) * inv[c], mean[c], memory.exact_r[c], inv[c]};
      };
      ChannelGrad(parts.view, NormTerms{in, go}, memory.mean, factors_of, memory.p, memory.q,
                  memory.r, ws.Data<float>(dx) + k * parts.view.numel());
    });
    for (int64_t c = 0; c < parts.groups.channels; ++c) {
      double s = 0, t = 0;
      for (int64_t k = c / channels; k < parts.count; k += parts.in_sample) {
        const double* sums = parts.Of(ws, k).sums;
        s += sums[c % channels];
        t += sums[channels + c % channels];
      }
      if (dbias) ws.Data<float>(dbias)[c] = static_cast<float>(s);
      if (dscale) ws.Data<float>(dscale)[c] = static_cast<float>(t);
    }
  };
}

void DeclareGroupNorm(OpDef& def) {
  def.Input("X", "[N, C, ...], or [N, ..., C] for NHWC")
      .OptionalInput("Scale", "[C]; 1 when absent")
      .OptionalInput("Bias", "[C]; 0 when absent")
      .Attr<float>("epsilon", 1e-5f, "added to the variance")
      .Range(0.0, 1.0)
      .Attr<int32_t>("groups", "number of groups")
      .Attr<std::string>("data_layout", "NCHW", "channels are axis 1 (NCHW) or the last (NHWC)")
      .OneOf({"NCHW", "NHWC", "AnyLayout"});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("group_norm")
              .Doc("Y = Scale (X - mean) / sqrt(variance + epsilon) + Bias, mean and biased "
                   "variance over each group of ceil(C / groups) channels of each sample; the last "
                   "group may have fewer.")
              .Constraint("C1", "X must have rank 2 or more")
              .Constraint("C2", "Scale and Bias must have shape [channels]")
              .Constraint("C3",
                          "all inputs must have X's dtype; scale, bias and statistics may be "
                          "float32 with a 16-bit X")
              .Constraint("C4", "groups must lie in [1, channels]")
              .Apply(DeclareGroupNorm)
              .Output("Y", "of X's shape")
              .IntermediateOutput("Mean", "[N, groups]")
              .IntermediateOutput("Variance", "[N, groups], without epsilon")
              .ImageLayout("data_layout", {"X", "Y"})
              .Float32Slots({"Scale", "Bias", "Mean", "Variance"})
              .Rows(EachBatchRow, kEachBatchRow)
              .Tables({"Bias"})
              .Infer(InferGroupNorm)
              .GradientOp({"X", "Scale", "Bias"})
              .Reference(GroupNorm<float>, GroupNorm<double>)
              .Fast(GroupNormFast));
  ops.Add(OpDef("group_norm_grad")
              .Doc("Gradient of group_norm. With xh the normalised X, h = Scale Y@GRAD and means "
                   "over a group: X@GRAD = (h - mean(h) - xh mean(h xh)) / sqrt(variance + "
                   "epsilon), Scale@GRAD = sum of Y@GRAD xh over a channel, Bias@GRAD = sum of "
                   "Y@GRAD. Only the dtype of Bias is used.")
              .ConstraintsOf("group_norm", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Y@GRAD must have X's shape")
              .Apply(DeclareGroupNorm)
              .Input("Y@GRAD", "gradient of Y")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("Scale@GRAD", "gradient of Scale")
              .OptionalOutput("Bias@GRAD", "gradient of Bias")
              .ImageLayout("data_layout", {"X", "Y@GRAD", "X@GRAD"})
              .NoGradientTo({"Bias"})
              .Gradient(GroupNormGradGradient)
              .Infer(InferGroupNormGrad)
              .Reference(GroupNormGrad<float>, GroupNormGrad<double>)
              .Fast(GroupNormGradFast));
}

}  // namespace coracle::group_norm_op

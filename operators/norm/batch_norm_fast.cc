// The fast kernels of batch_norm and its fusions: two sweeps over the elements in each direction.

#include <coracle/operators/norm/batch_norm.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <type_traits>

namespace coracle::inline internal {

namespace {

// Y = act(a (X - shift) + b + Z) with shift = the stored mean, a = Scale inv, b = Bias - rest a,
// where `rest` is the rounding error of the stored mean. The gradient recomputes all of these from
// the stored values and X with the same bits.
struct Affine {
  double factor, offset;
  Affine(float scale, float bias, double inv, double rest)
      : factor(static_cast<double>(scale) * static_cast<double>(static_cast<float>(inv))),
        offset(static_cast<double>(bias) - rest * factor) {}
  float a() const { return static_cast<float>(factor); }
  float b() const { return static_cast<float>(offset); }
};

// rests[c] = mean of X - shift[c], if that is noticeable, because the channel's mean is many
// deviations from 0; otherwise 0. `scratch` and `sums` are for ChannelSums; inv is rounded like its
// stored value.
template <class E>
void FindRests(const NormView& v, const E* x, const float* shift, const double* inv,
               double* scratch, double* rests, double* sums) {
  constexpr double kFar = 16;
  const auto is_far = [&](int64_t c) {
    const double distance =
        static_cast<double>(shift[c]) * static_cast<double>(static_cast<float>(inv[c]));
    return std::abs(distance) > kFar;
  };
  bool any = false;
  for (int64_t c = 0; c < v.groups && !any; ++c) any = is_far(c);
  std::fill_n(rests, v.groups, 0.0);
  if (!any) return;
  NormTermsOf<E> terms;
  terms.x = x;
  ChannelSums(v, terms, shift, scratch, rests, sums);
  for (int64_t c = 0; c < v.groups; ++c) {
    const double rest = rests[c] / static_cast<double>(v.size);
    rests[c] = is_far(c) && std::isfinite(rest) ? rest : 0.0;
  }
}

// Whether all images of the op are bfloat16, so that a kernel may access them in their
// stored dtype.
bool HasHalves(const PrepareContext& ctx, std::initializer_list<const char*> inputs,
               std::initializer_list<const char*> outputs) {
  const auto fits = [](const TensorArg& arg) { return arg && arg.dtype == DType::kBFloat16; };
  return std::all_of(
             inputs.begin(), inputs.end(),
             [&](const char* slot) { return !ctx.HasInput(slot) || fits(HalfInput(ctx, slot)); }) &&
         std::all_of(outputs.begin(), outputs.end(), [&](const char* slot) {
           return !ctx.HasOutput(slot) || IsEmptyName(ctx.op().Output(slot)[0]) ||
                  fits(HalfOutput(ctx, slot));
         });
}

// E is the dtype of the images: float or bfloat16.
template <class E>
Kernel Forward(const PrepareContext& ctx, bool fixed, bool relu) {
  constexpr bool kHalves = std::is_same_v<E, bfloat16>;
  const BatchNormForward<float> f(ctx, fixed, kHalves);
  const TensorArg z = kHalves ? HalfInput(ctx, "Z") : ctx.Input("Z");
  if (f.x.numel == 0 || f.identity() || (z && !(z.shape == f.x.shape))) return {};
  const TensorArg sums = ctx.Scratch(DType::kFloat64, {ChannelScratch(f.view)});
  const TensorArg rests = ctx.Scratch(DType::kFloat64, {2 * f.view.groups});
  const TensorArg affine = ctx.Scratch(DType::kFloat32, {3 * f.view.groups});
  return [=](Workspace& ws) {
    const int64_t n = f.view.groups;
    double* s = ws.Data<double>(f.stats);
    double* rest = ws.Data<double>(rests);
    float *a = ws.Data<float>(affine), *b = a + n, *shift = b + n;
    const float *scale = ws.Data<const float>(f.scale), *bias = ws.Data<const float>(f.bias);
    const NormAffineOf<E> all{ws.Data<const E>(f.x), DataOrNull<const E>(ws, z), ws.Data<E>(f.y),
                              relu};
    ForChannelParts(f.view, z ? 3 : 2, [&](const NormView& part, int64_t first) {
      const int64_t end = first + part.groups;
      const NormAffineOf<E> t = all.From(part.At(first, 0));
      if (!f.fixed)
        ChannelMoments(part, t.x, ws.Data<double>(sums) + first, s + first, s + n + first);
      f.InvertVariance(ws, first, end);
      for (int64_t c = first; c < end; ++c) shift[c] = static_cast<float>(s[c]);
      if (f.fixed)
        std::fill(rest + first, rest + end, 0.0);
      else
        FindRests(part, t.x, shift + first, s + 2 * n + first, ws.Data<double>(sums) + first,
                  rest + first, rest + n + first);
      const auto factors_of = [&](int64_t k) -> NormFactors {
        const int64_t c = first + k;
        const double inv = s[2 * n + c];
        const Affine affine(scale[c], bias[c], inv, rest[c]);
        return {0, affine.factor, affine.offset, f.fixed ? 0 : inv};
      };
      for (int64_t c = first; c < end; ++c) {
        const NormFactors exact = factors_of(c - first);
        a[c] = exact.InFloat(exact.q);
        b[c] = static_cast<float>(exact.r);
      }
      ChannelAffine(part, t, shift + first, a + first, b + first, ExactFactors(factors_of));
    });
    f.WriteStatistics(ws, false);
  };
}

// The factors of a channel of `size` elements, with the sums of dY and of dY (X - mean), for X -
// (mean + rest). Without `size`, the statistics are fixed.
NormFactors FactorsOf(float scale, double inv, double sum_dy, double sum_dyx, double rest,
                      int64_t size) {
  const double p = static_cast<double>(scale) * inv, n = static_cast<double>(size);
  if (size == 0) return {p, 0, 0, inv};
  const double q = -p * inv * inv * sum_dyx / n;
  return {p, q, OfRest(q, rest) - p * sum_dy / n, inv};
}

// With dY the gradient of norm(X): dX = p dY + q (X - mean) + r with p = Scale inv, q = -p inv^2
// sum(dY (X - mean)) / n, r = -p sum(dY) / n; q = r = 0 for fixed statistics. With `by_x`, Bias
// comes from the forward op, and the mask is computed from X, so that Y is not read.
template <class E>
Kernel Gradient(const PrepareContext& ctx, bool fixed, bool relu, bool by_x) {
  constexpr bool kHalves = std::is_same_v<E, bfloat16>;
  const BatchNormStatistics<float> stats(ctx, fixed, kHalves);
  const NormView v = stats.view;
  const NormGradSlots slots(ctx, kHalves);
  if (kHalves && !fixed && !(stats.saved_mean && stats.saved_inv)) return {};
  if (v.numel() == 0 || IsIdentityNorm(v, fixed) || !(slots.dy.shape == stats.x.shape)) return {};
  const TensorArg bias =
      by_x && stats.saved_mean && stats.saved_inv ? ctx.Input("Bias") : TensorArg();
  TensorArg y, dz = kHalves ? HalfOutput(ctx, "Z@GRAD") : ctx.Output("Z@GRAD");
  if (relu && !bias) y = kHalves ? HalfInput(ctx, "Y") : ctx.Input("Y");
  if (dz && !(dz.shape == stats.x.shape)) return {};
  const TensorArg chunks = ctx.Scratch(DType::kFloat64, {ChannelScratch(v)});
  const TensorArg totals = ctx.Scratch(DType::kFloat64, {2 * v.groups});
  const TensorArg factors = ctx.Scratch(DType::kFloat32, {6 * v.groups});
  const bool sums = slots.dscale || slots.dbias || dz || (slots.dx && !fixed);
  return [=](Workspace& ws) {
    const int64_t n = v.groups;
    const float* scale = ws.Data<const float>(slots.scale);
    float *dscale = DataOrNull<float>(ws, slots.dscale),
          *dbias = DataOrNull<float>(ws, slots.dbias);
    E* dx = DataOrNull<E>(ws, slots.dx);
    const double* s = stats.Read(ws);
    double* total = ws.Data<double>(totals);
    float *mean = ws.Data<float>(factors), *p = mean + n, *q = p + n, *r = q + n;
    float *a = r + n, *b = a + n;
    const float* biases = DataOrNull<const float>(ws, bias);
    const NormTermsOf<E> all{ws.Data<const E>(slots.x), ws.Data<const E>(slots.dy),
                             DataOrNull<const E>(ws, y), DataOrNull<E>(ws, dz)};
    ForChannelParts(v, 3 + (dz ? 1 : 0), [&](const NormView& part, int64_t first) {
      const int64_t end = first + part.groups, at = part.At(first, 0);
      NormTermsOf<E> t = all.From(at);
      for (int64_t c = first; c < end; ++c) mean[c] = static_cast<float>(s[c]);
      if (biases) {
        std::fill(total + first, total + end, 0.0);
        if (!fixed)
          FindRests(part, t.x, mean + first, s + n + first, ws.Data<double>(chunks) + first,
                    total + first, total + n + first);
        for (int64_t c = first; c < end; ++c) {
          const Affine f(scale[c], biases[c], s[n + c], total[c]);
          a[c] = f.a();
          b[c] = f.b();
        }
        t.a = a + first;
        t.b = b + first;
      }
      if (sums)
        ChannelSums(part, t, mean + first, ws.Data<double>(chunks) + first, total + first,
                    total + n + first);
      const auto rest = [&](int64_t c) { return static_cast<double>(mean[c]) - s[c]; };
      for (int64_t c = first; c < end && sums; ++c) {
        total[n + c] += OfRest(total[c], rest(c));
        if (dbias) dbias[c] = static_cast<float>(total[c]);
        if (dscale) dscale[c] = static_cast<float>(total[n + c] * s[n + c]);
      }
      if (!dx) return;
      if (t.masked) t = {t.x, t.masked};  // the sums have written the masked gradient
      const auto factors_of = [&](int64_t k) {
        const int64_t c = first + k;
        return FactorsOf(scale[c], s[n + c], total[c], total[n + c], rest(c), fixed ? 0 : v.size);
      };
      ChannelGrad(part, t, mean + first, factors_of, p + first, q + first, r + first, dx + at);
    });
  };
}

}  // namespace

Kernel BatchNormFast(const PrepareContext& ctx, bool fixed, bool relu) {
  if (HalfInput(ctx, "X") && HasHalves(ctx, {"X", "Z"}, {"Y"})) {
    if (Kernel kernel = Forward<bfloat16>(ctx, fixed, relu)) return kernel;
  }
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  return Forward<float>(ctx, fixed, relu);
}

Kernel BatchNormGradFast(const PrepareContext& ctx, bool fixed, bool relu, bool by_x) {
  if (HalfInput(ctx, "X") && HasHalves(ctx, {"X", "Y", "Y@GRAD"}, {"X@GRAD", "Z@GRAD"})) {
    if (Kernel kernel = Gradient<bfloat16>(ctx, fixed, relu, by_x)) return kernel;
  }
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  return Gradient<float>(ctx, fixed, relu, by_x);
}

}  // namespace coracle::inline internal

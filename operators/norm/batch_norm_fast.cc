// The fast kernels of batch_norm and its fusions: two sweeps over the elements each way.

#include <coracle/operators/norm/batch_norm.h>

namespace coracle {

namespace {

// Y = act(a X + b + Z) with a = Scale inv, b = Bias - mean a. Of the statistics as they are saved,
// from which the gradient finds the same a and b.
struct Affine {
  float a, b;
  Affine(float scale, float bias, double mean, double inv) {
    const double factor = static_cast<double>(scale) * static_cast<double>(static_cast<float>(inv));
    a = static_cast<float>(factor);
    b = static_cast<float>(static_cast<double>(bias) -
                           static_cast<double>(static_cast<float>(mean)) * factor);
  }
};

}  // namespace

Kernel BatchNormFast(const PrepareContext& ctx, bool fixed, bool relu) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  const BatchNormForward<float> f(ctx, fixed);
  const TensorArg z = ctx.Input("Z");
  if (f.x.numel == 0 || f.identity() || (z && !(z.shape == f.x.shape))) return {};
  const TensorArg sums = ctx.Scratch(DType::kFloat64, {ChannelScratch(f.view)});
  const TensorArg affine = ctx.Scratch(DType::kFloat32, {2 * f.view.groups});
  return [=](Workspace& ws) {
    const int64_t n = f.view.groups;
    double* s = ws.Data<double>(f.stats);
    float* a = ws.Data<float>(affine);
    const float *scale = ws.Data<const float>(f.scale), *bias = ws.Data<const float>(f.bias);
    const NormAffine all{ws.Data<const float>(f.x), DataOrNull<const float>(ws, z),
                         ws.Data<float>(f.y), relu};
    ForChannelParts(f.view, z ? 3 : 2, [&](const NormView& part, int64_t first) {
      const int64_t end = first + part.groups;
      const NormAffine t = all.From(part.At(first, 0));
      if (!f.fixed)
        ChannelMoments(part, t.x, ws.Data<double>(sums) + first, s + first, s + n + first);
      f.InvertVariance(ws, first, end);
      for (int64_t c = first; c < end; ++c) {
        const Affine f_c(scale[c], bias[c], s[c], s[2 * n + c]);
        a[c] = f_c.a;
        a[n + c] = f_c.b;
      }
      ChannelAffine(part, t, a + first, a + n + first);
    });
    f.WriteStatistics(ws);
  };
}

// With dY that of norm(X): dX = p dY + q (X - mean) + r with p = Scale inv,
// q = -p inv^2 sum(dY (X - mean)) / n, r = -p sum(dY) / n; q = r = 0 for fixed statistics.
// The mask is made from X, so that Y is not read, where `by_x` says that Bias is that of the
// forward op.
Kernel BatchNormGradFast(const PrepareContext& ctx, bool fixed, bool relu, bool by_x) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  const BatchNormStatistics<float> stats(ctx, fixed);
  const NormView v = stats.view;
  const NormGradSlots slots(ctx);
  if (v.numel() == 0 || IsIdentityNorm(v, fixed) || !(slots.dy.shape == stats.x.shape)) return {};
  const TensorArg bias =
      by_x && stats.saved_mean && stats.saved_inv ? ctx.Input("Bias") : TensorArg();
  const TensorArg y = relu && !bias ? ctx.Input("Y") : TensorArg(), dz = ctx.Output("Z@GRAD");
  if (dz && !(dz.shape == stats.x.shape)) return {};
  const TensorArg chunks = ctx.Scratch(DType::kFloat64, {ChannelScratch(v)});
  const TensorArg totals = ctx.Scratch(DType::kFloat64, {2 * v.groups});
  const TensorArg factors = ctx.Scratch(DType::kFloat32, {6 * v.groups});
  const bool sums = slots.dscale || slots.dbias || dz || (slots.dx && !fixed);
  return [=](Workspace& ws) {
    const int64_t n = v.groups;
    const NormGradArgs<float> g = slots.Args<float>(ws, nullptr, nullptr);
    const double* s = stats.Read(ws);
    double* total = ws.Data<double>(totals);
    float *mean = ws.Data<float>(factors), *p = mean + n, *q = p + n, *r = q + n;
    float *a = r + n, *b = a + n;
    const float* shift = DataOrNull<const float>(ws, bias);
    const NormTerms all{g.x, g.dy, DataOrNull<const float>(ws, y), DataOrNull<float>(ws, dz)};
    ForChannelParts(v, 3 + (dz ? 1 : 0), [&](const NormView& part, int64_t first) {
      const int64_t end = first + part.groups, at = part.At(first, 0);
      NormTerms t = all.From(at);
      for (int64_t c = first; c < end; ++c) {
        mean[c] = static_cast<float>(s[c]);
        if (!shift) continue;
        const Affine f(g.scale[c], shift[c], s[c], s[n + c]);
        a[c] = f.a;
        b[c] = f.b;
      }
      if (shift) {
        t.a = a + first;
        t.b = b + first;
      }
      if (sums)
        ChannelSums(part, t, mean + first, ws.Data<double>(chunks) + first, total + first,
                    total + n + first);
      for (int64_t c = first; c < end; ++c) {
        const double inv = s[n + c], size = static_cast<double>(v.size);
        if (g.dbias) g.dbias[c] = static_cast<float>(total[c]);
        if (g.dscale) g.dscale[c] = static_cast<float>(total[n + c] * inv);
        const double factor = static_cast<double>(g.scale[c]) * inv;
        p[c] = static_cast<float>(factor);
        q[c] = fixed ? 0.0f : static_cast<float>(-factor * inv * inv * total[n + c] / size);
        r[c] = fixed ? 0.0f : static_cast<float>(-factor * total[c] / size);
      }
      if (!g.dx) return;
      if (t.masked) t = {t.x, t.masked};  // what the sums have written
      ChannelGradApply(part, t, mean + first, p + first, q + first, r + first, g.dx + at);
    });
  };
}

}  // namespace coracle

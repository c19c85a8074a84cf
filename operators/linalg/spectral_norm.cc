#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cmath>

namespace coracle::spectral_norm_op {

void CheckSpectralNorm(InferContext& ctx) {
  const Shape& w = ctx.InputShape("Weight");
  const int32_t dim = ctx.Attr<int32_t>("dim");
  ctx.Require("C1", (dim == 0 || dim == 1) && w.rank() > std::max(dim, 1), "dim", dim, "Weight", w);
  int64_t columns = 1;
  for (int i = 0; i < w.rank(); ++i) {
    if (i != dim) columns = MulDims(columns, w[i]);
  }
  const int64_t u = NumelOf(ctx.InputShape("U")), v = NumelOf(ctx.InputShape("V"));
  ctx.Require("C2", InferContext::Matches(u, w[dim]) && InferContext::Matches(v, columns), "U", u,
              "V", v, "Weight", w);
  for (const char* slot : {"U", "V"}) RequireSameDType(ctx, "C3", slot, "Weight");
}

// Weight as a matrix W of h rows and w columns, with dim first: element (i, j) of W is at
// j / inner * outer_step + i * inner + j % inner.
struct Matrix {
  explicit Matrix(const PrepareContext& ctx) {
    const Shape& shape = ctx.Input("Weight").shape;
    const int dim = ctx.Attr<int32_t>("dim");
    h = shape[dim];
    inner = shape.Product(dim + 1, shape.rank());
    w = inner * shape.Product(0, dim);
    outer_step = h * inner;
  }
  int64_t At(int64_t i, int64_t j) const { return j / inner * outer_step + i * inner + j % inner; }
  int64_t h, w, inner, outer_step;
};

void Normalise(double* x, int64_t n, double epsilon) {
  const double norm = NormOf(2, x, n) + epsilon;
  for (int64_t i = 0; i < n; ++i) x[i] /= norm;
}

// u and v after the power iterations, and sigma = u^T W v.
struct Iterations {
  explicit Iterations(const PrepareContext& ctx)
      : matrix(ctx),
        steps(ctx.Attr<int32_t>("power_iters")),
        epsilon(static_cast<double>(ctx.Attr<float>("eps"))),
        start_u(ctx.Input("U")),
        start_v(ctx.Input("V")),
        u(ctx.Scratch(DType::kFloat64, {matrix.h})),
        v(ctx.Scratch(DType::kFloat64, {matrix.w})) {}

  template <class T>
  double Run(Workspace& ws, const T* weight) const {
    double *a = ws.Data<double>(u), *b = ws.Data<double>(v);
    std::copy_n(ws.Data<const T>(start_u), matrix.h, a);
    std::copy_n(ws.Data<const T>(start_v), matrix.w, b);
    for (int32_t step = 0; step < steps; ++step) {
      CheckTimeLimit("computing a spectral norm");
      std::fill_n(b, matrix.w, 0.0);
      ForEach(weight, [&](int64_t i, int64_t j, double value) { b[j] += value * a[i]; });
      Normalise(b, matrix.w, epsilon);
      std::fill_n(a, matrix.h, 0.0);
      ForEach(weight, [&](int64_t i, int64_t j, double value) { a[i] += value * b[j]; });
      Normalise(a, matrix.h, epsilon);
    }
    double sigma = 0;
    ForEach(weight, [&](int64_t i, int64_t j, double value) { sigma += a[i] * value * b[j]; });
    return sigma;
  }
  template <class T, class F>
  void ForEach(const T* weight, const F& f) const {
    for (int64_t i = 0; i < matrix.h; ++i) {
      for (int64_t j = 0; j < matrix.w; ++j) f(i, j, static_cast<double>(weight[matrix.At(i, j)]));
    }
  }

  Matrix matrix;
  int32_t steps;
  double epsilon;
  TensorArg start_u, start_v, u, v;
};

template <class T>
KernelOf<T> SpectralNorm(const PrepareContext& ctx) {
  const TensorArg weight = ctx.Input("Weight"), out = ctx.Output("Out");
  if (weight.numel == 0) return [](Workspace&) {};
  const Iterations iterations(ctx);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(weight);
    T* o = ws.Data<T>(out);
    const double sigma = iterations.Run(ws, in);
    for (int64_t i = 0; i < weight.numel; ++i)
      o[i] = static_cast<T>(static_cast<double>(in[i]) / sigma);
  };
}

// dWeight = (dOut - sum(dOut Out) u v^T) / sigma.
template <class T>
KernelOf<T> SpectralNormGrad(const PrepareContext& ctx) {
  const TensorArg weight = ctx.Input("Weight"), dout = ctx.Input("Out@GRAD");
  const TensorArg dweight = ctx.Output("Weight@GRAD");
  if (weight.numel == 0) return [](Workspace&) {};
  const Iterations iterations(ctx);
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(weight), *d = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dweight);
    const double sigma = iterations.Run(ws, in);
    const double *u = ws.Data<double>(iterations.u), *v = ws.Data<double>(iterations.v);
    double along = 0;
    for (int64_t i = 0; i < weight.numel; ++i)
      along += static_cast<double>(d[i]) * static_cast<double>(in[i]) / sigma;
    const Matrix& m = iterations.matrix;
    for (int64_t i = 0; i < m.h; ++i) {
      for (int64_t j = 0; j < m.w; ++j) {
        const int64_t at = m.At(i, j);
        o[at] = static_cast<T>((static_cast<double>(d[at]) - along * u[i] * v[j]) / sigma);
      }
    }
  };
}

void DeclareSpectralNorm(OpDef& def) {
  def.Input("Weight", "floating-point tensor")
      .Input("U", "[H]; initial u")
      .Input("V", "[W]; initial v")
      .Attr<int32_t>("dim", 0, "the dim of the rows of W: 0 or 1")
      .Attr<int32_t>("power_iters", 1, "the number of iterations")
      .Range(0, 100000)
      .Attr<float>("eps", 1e-12f, "avoids division by 0")
      .NoGradientTo({"U", "V"});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("spectral_norm")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Out = Weight / sigma. sigma is the largest singular value of Weight, seen as a "
               "matrix W with one row for each index of dim. It is estimated by power_iters steps "
               "of v = W^T u / (|W^T u| + eps), u = W v / (|W v| + eps), starting from U and V, "
               "which are not changed: sigma = u^T W v. The gradient treats u and v as constants.")
          .Constraint("C1", "dim must be 0 or 1, and Weight must have rank 2 or more")
          .Constraint("C2", "U must have an element for each row of W, V for each column")
          .Constraint("C3", "Weight, U and V must have one dtype")
          .Apply(DeclareSpectralNorm)
          .Output("Out", "tensor of Weight's shape and dtype")
          .Rows(RowRule::kEach)
          .Tables({"Weight"})
          .Infer([](InferContext& ctx) {
            CheckSpectralNorm(ctx);
            ctx.SetOutput("Out", ctx.Input("Weight"));
          })
          .GradientOp({"Weight", "U", "V"})
          .Reference(SpectralNorm<float>, SpectralNorm<double>));
  ops.Add(OpDef("spectral_norm_grad")
              .Doc("Gradient of spectral_norm: Weight@GRAD = (Out@GRAD - the sum of Out@GRAD Out "
                   "times u v^T) / sigma.")
              .ConstraintsOf("spectral_norm", {"C1", "C2", "C3"})
              .Apply(DeclareSpectralNorm)
              .Constraint("C4", "Out@GRAD must have Weight's shape and dtype")
              .Input("Out@GRAD", "gradient of Out")
              .Output("Weight@GRAD", "gradient of Weight")
              .Infer([](InferContext& ctx) {
                CheckSpectralNorm(ctx);
                RequireOutGrad(ctx, "C4", ctx.Input("Weight"));
                ctx.SetOutput("Weight@GRAD", ctx.Input("Weight"));
              })
              .NoGradient(
                  "the gradient treats u and v as constants, so a second derivative would be wrong")
              .Reference(SpectralNormGrad<float>, SpectralNormGrad<double>));
}

}  // namespace coracle::spectral_norm_op

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coracle::norm_op {

void InferNorm(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() > 0, x.shape);
  const int axis = ctx.Axis("C1", ctx.Attr<int32_t>("axis"), x.shape.rank());
  ctx.SetOutput("Out", x);
  x.shape[axis] = 1;
  ctx.SetOutput("Norm", x);
}

// The elements of a line, for functions that call each(f) with f(double).
template <class T>
auto ElementsOf(const T* in, const AxisView& view, int64_t at) {
  return [=](const auto& f) {
    for (int64_t i = at; i < at + view.n * view.inner; i += view.inner)
      f(static_cast<double>(in[i]));
  };
}

// sqrt(sum of squares + epsilon). Where the sum is not safe, epsilon changes no digit of it:
// epsilon is 0, or the elements are very large.
template <class T, class Each>
ScaledNorm LengthOf(double epsilon, const Each& each) {
  double squares = epsilon;
  each([&](double v) { squares += v * v; });
  if (IsSafeSumOfSquares<T>(squares)) return {1, std::sqrt(squares)};
  return ScaledNormOf(2, each);
}

template <class T>
KernelOf<T> NormReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), norms = ctx.Output("Norm");
  const AxisView view = ViewAxis(x.shape, ctx.Attr<int32_t>("axis"));
  const auto epsilon = static_cast<double>(ctx.Attr<float>("epsilon"));
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    T* norm = norms ? ws.Data<T>(norms) : nullptr;
    // Lines without elements are not visited.
    if (norm && view.n == 0) std::fill_n(norm, norms.numel, static_cast<T>(std::sqrt(epsilon)));
    ForEachLine(view, [&](int64_t line, int64_t at) {
      const ScaledNorm length = LengthOf<T>(epsilon, ElementsOf(in, view, at));
      if (norm) norm[line] = static_cast<T>(length.product());
      for (int64_t i = at; i < at + view.n * view.inner; i += view.inner)
        o[i] = static_cast<T>(static_cast<double>(in[i]) / length.unit / length.value);
    });
  };
}

// With y = X / Norm:  dX = (dOut - y sum(y dOut)) / Norm + y dNorm.
template <class T>
struct NormGradLines {
  static constexpr int64_t kWidth = 64;

  // `width` lines side by side from `line` on, in the order of memory. Ordinary sums give
  // dX = dOut a - X c.
  void Run(int64_t line, int64_t width) const {
    const int64_t at = view.Offset(line), end = at + view.n * view.inner;
    double squares[kWidth], products[kWidth], a[kWidth], c[kWidth];
    AddUp(at, width, squares, products);
    bool ordinary = true;
    for (int64_t i = 0; i < width; ++i) {
      ordinary &= IsOrdinary(squares[i]) && IsOrdinary(std::abs(products[i])) &&
                  (sizeof(T) < sizeof(double) || std::abs(Extra(line + i)) < 1e200);
      const double norm = std::sqrt(squares[i]);
      a[i] = 1 / norm;
      c[i] = (products[i] / squares[i] - Extra(line + i)) / norm;
    }
    const auto set = [&](int64_t k, double by, double of_x) {
      dx[k] = static_cast<T>(static_cast<double>(dout[k]) * by - static_cast<double>(x[k]) * of_x);
    };
    if (!ordinary) {
      for (int64_t i = 0; i < width; ++i) RunLine(line + i);
    } else if (view.inner == 1) {
      for (int64_t k = at; k < end; ++k) set(k, a[0], c[0]);
    } else {
      for (int64_t row = at; row < end; row += view.inner)
        for (int64_t i = 0; i < width; ++i) set(row + i, a[i], c[i]);
    }
  }

  // The sums of squares, with epsilon, and of products X dOut. A line whose elements lie side by
  // side has several sums, for the compiler to vectorize.
  void AddUp(int64_t at, int64_t width, double* squares, double* products) const {
    constexpr int64_t kSums = 8;
    const int64_t end = at + view.n * view.inner;
    std::fill_n(squares, width, 0.0);
    std::fill_n(products, width, 0.0);
    const auto add = [&](int64_t k, double& square, double& product) {
      const auto v = static_cast<double>(x[k]);
      square += v * v;
      product += v * static_cast<double>(dout[k]);
    };
    if (view.inner == 1) {
      double q[kSums] = {}, p[kSums] = {};
      int64_t k = at;
      for (; k + kSums <= end; k += kSums)
        for (int64_t i = 0; i < kSums; ++i) add(k + i, q[i], p[i]);
      for (; k < end; ++k) add(k, q[0], p[0]);
      squares[0] = std::accumulate(q, q + kSums, 0.0);
      products[0] = std::accumulate(p, p + kSums, 0.0);
    } else {
      for (int64_t row = at; row < end; row += view.inner)
        for (int64_t i = 0; i < width; ++i) add(row + i, squares[i], products[i]);
    }
    for (int64_t i = 0; i < width; ++i) squares[i] += epsilon;
  }

  // Doubles hold all such quotients of sums of floats.
  static bool IsOrdinary(double sum) {
    return sizeof(T) < sizeof(double) || (sum > 1e-60 && sum < 1e60);
  }
  double Extra(int64_t line) const { return dnorm ? static_cast<double>(dnorm[line]) : 0; }

  // Any numbers.
  void RunLine(int64_t line) const {
    const int64_t at = view.Offset(line), end = at + view.n * view.inner;
    const ScaledNorm norm = LengthOf<T>(epsilon, ElementsOf(x, view, at));
    const auto quotient = [&](double v) { return v / norm.unit / norm.value; };
    const auto y = [&](int64_t i) { return quotient(static_cast<double>(x[i])); };
    // The sum of gradients times `by` along y.
    const auto sum = [&](double by) {
      double along = 0;
      for (int64_t i = at; i < end; i += view.inner)
        along += y(i) * (static_cast<double>(dout[i]) * by);
      return along;
    };
    double by = 1, along = sum(by);
    if (!std::isfinite(along)) {
      by = std::ldexp(1, -64);  // it may have overflowed
      along = sum(by);
    }
    for (int64_t i = at; i < end; i += view.inner) {
      const double across = static_cast<double>(dout[i]) * by - y(i) * along;
      dx[i] = static_cast<T>(quotient(across) / by + y(i) * Extra(line));
    }
  }

  AxisView view;
  double epsilon;
  const T *x, *dout, *dnorm;
  T* dx;
};

template <class T>
KernelOf<T> NormGradReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD");
  const TensorArg dnorm = ctx.Input("Norm@GRAD"), dx = ctx.Output("X@GRAD");
  const AxisView view = ViewAxis(x.shape, ctx.Attr<int32_t>("axis"));
  const auto epsilon = static_cast<double>(ctx.Attr<float>("epsilon"));
  return [=](Workspace& ws) {
    if (x.numel == 0) return;
    const NormGradLines<T> lines{view,
                                 epsilon,
                                 ws.Data<const T>(x),
                                 ws.Data<const T>(dout),
                                 dnorm ? ws.Data<const T>(dnorm) : nullptr,
                                 ws.Data<T>(dx)};
    const int64_t most = std::min(lines.kWidth, view.inner);
    const int64_t blocks = (view.inner + most - 1) / most;
    const int64_t grain = 1 + 16384 / (view.n * most);
    ParallelFor(view.outer * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % blocks * most;
        lines.Run(task / blocks * view.inner + first, std::min(most, view.inner - first));
      }
    });
  };
}

void InferNormGrad(InferContext& ctx) {
  const VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() > 0, x.shape);
  Shape norm = x.shape;
  norm[ctx.Axis("C1", ctx.Attr<int32_t>("axis"), x.shape.rank())] = 1;
  for (const char* slot : {"Out", "Out@GRAD"}) RequireSameElements(ctx, "C2", slot, "X");
  for (const char* slot : {"Norm", "Norm@GRAD"}) {
    if (!ctx.HasInput(slot)) continue;
    const VarMeta& given = ctx.Input(slot);
    ctx.Require("C3", given.dtype == x.dtype && norm.CompatibleWith(given.shape), slot, given,
                "the shape of Norm", norm);
  }
  ctx.SetOutput("X@GRAD", x);
}

void NormGradient(GradientContext& g) {
  SlotList inputs = {{"X", {g.Input("X")}}, {"Out@GRAD", {g.OutputGrad("Out")}}};
  if (g.HasOutput("Norm")) inputs.push_back({"Norm", {g.Output("Norm")}});  // Paddle reads it
  if (g.HasOutputGrad("Norm")) inputs.push_back({"Norm@GRAD", {g.OutputGrad("Norm")}});
  g.Append("norm_grad", inputs, {{"X@GRAD", {g.InputGrad("X")}}},
           g.ForwardAttrs({"axis", "epsilon"}));
}

// sqrt(sum of x^2 along axis + epsilon), also where the squares leave the range of x.
Variable LengthAlongAxis(GradientContext& g, const Variable& x) {
  const Variable norm =
      g.Make("p_norm", {{"X", {x.name()}}},
             {{"porder", 2.0f}, {"axis", g.Attr<int32_t>("axis")}, {"keepdim", true}});
  const double root = std::sqrt(static_cast<double>(g.Attr<float>("epsilon")));
  if (root == 0) return norm;
  const Variable larger = Max(norm, root);
  return larger * Sqrt(Square(norm / larger) + Square(root / larger));
}

// With V = the gradient of X@GRAD, D = Out@GRAD, n and y as above, a = sum(y V), s = sum(y D), and
// P(D) = (D - y s) / n, which this op computes:
//   dD = P(V), dNorm@GRAD = a,
//   dX = Norm@GRAD P(V) - (a P(D) + s P(V) + (sum(V D) - a s) / n y) / n.
void NormGradGradient(GradientContext& g) {
  const DType own = g.In("X").dtype(), wide = DType::kFloat64;  // squares of floats stay in range
  const Variable x = Cast(g.In("X"), wide), v = Cast(g.Grad("X@GRAD"), wide);
  const Variable d = Cast(g.In("Out@GRAD"), wide);
  const AttrList attrs = g.ForwardAttrs({"axis", "epsilon"});
  const auto along_axis = [&](const Variable& t) {
    return Sum(t, {g.Attr<int32_t>("axis")}, true);
  };
  const auto across = [&](const Variable& t) {
    return g.Make("norm_grad", {{"X", {x.name()}}, {"Out@GRAD", {t.name()}}}, attrs, "X@GRAD");
  };
  const Variable y = g.Make("norm", {{"X", {x.name()}}}, attrs);
  const Variable n = LengthAlongAxis(g, x);
  const Variable a = along_axis(y * v), s = along_axis(y * d), of_v = across(v);
  g.Set("Out@GRAD", Cast(of_v, own));
  Variable dx = (a * across(d) + s * of_v + (along_axis(v * d) - a * s) / n * y) / n * -1.0;
  if (g.HasInput("Norm@GRAD")) {
    g.Set("Norm@GRAD", Cast(a, own));
    dx = dx + Cast(g.In("Norm@GRAD"), wide) * of_v;
  }
  g.Set("X", Cast(dx, own));
}

void DeclareAttrs(OpDef& def) {
  def.Attr<int32_t>("axis", "the dim whose elements form a vector, negative from the end")
      .Attr<float>("epsilon", 1e-10f, "keeps Norm off 0")
      .NoLod();
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("norm")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = X / Norm, with Norm = sqrt(sum of X^2 along axis + epsilon).")
              .Constraint("C1", "axis must lie in [-rank, rank)")
              .Input("X", "floating-point tensor of rank 1 or more")
              .Output("Out", "tensor of X's shape and dtype")
              .IntermediateOutput("Norm", "tensor of X's shape with 1 for axis")
              .Apply(DeclareAttrs)
              .Rows(RowRule::kEach)
              .WorksAlong("axis")
              .Infer(InferNorm)
              .Gradient(NormGradient)
              .Reference(NormReference<float>, NormReference<double>));
  ops.Add(
      OpDef("norm_grad")
          .Doc("Gradient of norm: X@GRAD = (Out@GRAD - Out times the sum of Out Out@GRAD along "
               "axis) / Norm + Out Norm@GRAD. Out and Norm are made again from X: their dtype "
               "may hold few of their digits.")
          .ConstraintsOf("norm", {"C1"})
          .Constraint("C2", "Out and Out@GRAD must have X's shape and dtype")
          .Constraint("C3", "Norm and Norm@GRAD must have X's dtype, and its shape with 1 for axis")
          .Input("X", "norm's X")
          .OptionalInput("Out", "norm's Out, which is not read")
          .OptionalInput("Norm", "norm's Norm, which is not read")
          .Input("Out@GRAD", "gradient of Out")
          .OptionalInput("Norm@GRAD", "gradient of Norm")
          .Output("X@GRAD", "gradient of X")
          .Apply(DeclareAttrs)
          .NoGradientTo({"Out", "Norm"})
          .Infer(InferNormGrad)
          .Gradient(NormGradGradient)
          .Reference(NormGradReference<float>, NormGradReference<double>));
}

}  // namespace coracle::norm_op

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/reduce.h>
#include <coracle/operators/rules/aligned_dim.h>
#include <coracle/operators/rules/bilinear_gradient.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/promotion.h>

#include <algorithm>

namespace coracle::kron_op {

VarMeta KronOut(InferContext& ctx) {
  const Shape &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  VarMeta out = ctx.Input("X");
  out.dtype = RequirePromotable(ctx, "C1");
  out.shape = {};
  const int rank = std::max(x.rank(), y.rank());
  for (int i = 0; i < rank; ++i)
    out.shape.Append(MulDims(AlignedDim(x, i, rank), AlignedDim(y, i, rank)));
  return out;
}

// Positions in Out: the product of element i of X and j of Y is at offset(i) + offset(j).
struct Places {
  Dims x, y;
};
Places PlacesOf(const PrepareContext& ctx) {
  const Shape &x = ctx.Input("X").shape, &y = ctx.Input("Y").shape;
  Places places;
  const int rank = std::max(x.rank(), y.rank());
  places.x.rank = places.y.rank = rank;
  int64_t step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const int64_t a = AlignedDim(x, i, rank), b = AlignedDim(y, i, rank);
    places.x.size[i] = a;
    places.y.size[i] = b;
    places.y.step[i] = step;
    places.x.step[i] = step * b;
    step *= a * b;
  }
  return places;
}

// Calls f(i, j, position) for all elements i, j of the two operands.
template <class F>
void ForEachPair(const Dims& outer, const Dims& inner, const F& f) {
  const int64_t m = outer.numel(), n = inner.numel();
  if (n == 0) return;
  DimsWalk from(outer, 0);
  for (int64_t i = 0; i < m; ++i, from.Next()) {
    DimsWalk to(inner, 0);
    for (int64_t j = 0; j < n; ++j, to.Next()) f(i, j, from.offset() + to.offset());
  }
}

template <class T>
KernelOf<T> Kron(const PrepareContext& ctx) {
  if (MixesDTypes(ctx)) return PrepareComplex(ctx);
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const Places places = PlacesOf(ctx);
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    T* o = ws.Data<T>(out);
    ForEachPair(places.x, places.y,
                [&](int64_t i, int64_t j, int64_t at) { o[at] = WrapMul(a[i], b[j]); });
  };
}

// dX[i] = sum over j of dOut at (i, j) conj(Y[j]), and likewise for Y.
template <class T>
KernelOf<T> KronGrad(const PrepareContext& ctx) {
  using Acc = std::conditional_t<kIsComplex<T>, complex128, double>;
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dy = ctx.Output("Y@GRAD");
  const Places places = PlacesOf(ctx);
  return [=](Workspace& ws) {
    const T* d = ws.Data<const T>(dout);
    const auto sum = [&](const Dims& own, const Dims& others, const T* other, const TensorArg& to) {
      T* o = ws.Data<T>(to);
      std::fill_n(o, to.numel, T(0));
      Acc total = 0;
      const int64_t last = others.numel() - 1;
      ForEachPair(own, others, [&](int64_t i, int64_t j, int64_t at) {
        const Acc term = static_cast<Acc>(d[at]) * static_cast<Acc>(Conj(other[j]));
        total = (j == 0 ? Acc(0) : total) + term;
        if (j == last) o[i] = static_cast<T>(total);
      });
    };
    if (dx) sum(places.x, places.y, ws.Data<const T>(y), dx);
    if (dy) sum(places.y, places.x, ws.Data<const T>(x), dy);
  };
}

void InferKronGrad(InferContext& ctx) {
  ctx.Require("C1", ctx.InputDType("X") == ctx.InputDType("Y"), "X", ctx.InputDType("X"), "Y",
              ctx.InputDType("Y"));
  RequireOutGrad(ctx, "C2", KronOut(ctx));
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Y@GRAD", ctx.Input("Y"));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("kron")
              .Doc("Out = the Kronecker product of X and Y: the product of each element of X with "
                   "all of Y, as a block. The operand of lower rank gets leading dims of 1; each "
                   "dim of Out is the product of the dims of the operands. Integers wrap around.")
              .Constraint("C1",
                          "X and Y must have one dtype, or one be complex and the other float32, "
                          "float64 or complex")
              .Input("X", "tensor of numbers")
              .Input("Y",
                     "tensor of X's dtype; a real operand of a complex one counts as complex, and "
                     "gets the real part of its gradient")
              .Output("Out", "tensor of the operands' dtype")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", KronOut(ctx)); })
              .Gradient([](GradientContext& g) {
                if (!SetMixedGradient(g, {})) g.AppendGradientOp({"X", "Y"});
              })
              .Reference(Kron<float>, Kron<double>, Kron<int32_t>, Kron<int64_t>, Kron<complex64>,
                         Kron<complex128>));
  ops.Add(
      OpDef("kron_grad")
          .Doc("Gradient of kron: X@GRAD = the sums of the blocks of Out@GRAD times Y, Y@GRAD = "
               "the sum of the blocks times the elements of X; complex operands are conjugated.")
          .ConstraintsOf("kron", {"C1"})
          .Constraint("C2", "Out@GRAD must have Out's shape and dtype")
          .Input("X", "the value in the forward op")
          .Input("Y", "the value in the forward op")
          .Input("Out@GRAD", "gradient of Out")
          .OptionalOutput("X@GRAD", "gradient of X")
          .OptionalOutput("Y@GRAD", "gradient of Y")
          .Infer(InferKronGrad)
          .Gradient([](GradientContext& g) { SetBilinearGradGradient(g, "kron", {}); })
          .Reference(KronGrad<float>, KronGrad<double>, KronGrad<complex64>, KronGrad<complex128>));
}

}  // namespace coracle::kron_op

// Ops on diagonals: diagonal extracts them, trace sums them; diag, diag_v2 and diag_embed build
// matrices from them.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/reduce.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace coracle::diagonal_op {

// The diagonals of the planes of two axes: elements whose index along the second axis is the one
// along the first plus offset.
struct Plane {
  int first = 0, second = 1;
  int64_t offset = 0;
};

// The length of the diagonal of an m by n plane; -1 if unknown.
int64_t DiagonalSize(int64_t m, int64_t n, int64_t offset) {
  if (m < 0 || n < 0) return -1;
  return std::max<int64_t>(0, offset >= 0 ? std::min(m, n - offset) : std::min(m + offset, n));
}

// The shape without the two axes, followed by the length of the diagonal.
Shape DiagonalShape(const Shape& x, const Plane& plane) {
  Shape out;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != plane.first && i != plane.second) out.Append(x[i]);
  }
  out.Append(DiagonalSize(x[plane.first], x[plane.second], plane.offset));
  return out;
}

// The positions of the elements of the diagonals, in the order of DiagonalShape.
struct Places {
  Places(const Shape& x, const Plane& plane) {
    int64_t steps[Shape::kMaxRank] = {};
    for (int64_t i = x.rank() - 1, step = 1; i >= 0; step *= x[static_cast<int>(i--)])
      steps[i] = step;
    for (int i = 0; i < x.rank(); ++i) {
      if (i != plane.first && i != plane.second) Append(x[i], steps[i]);
    }
    const int64_t size = DiagonalSize(x[plane.first], x[plane.second], plane.offset);
    Append(size, steps[plane.first] + steps[plane.second]);
    if (size > 0)
      start = plane.offset >= 0 ? plane.offset * steps[plane.second]
                                : -plane.offset * steps[plane.first];
  }
  void Append(int64_t size, int64_t step) {
    dims.size[dims.rank] = size;
    dims.step[dims.rank++] = step;
  }
  // Calls f(k, position of element k).
  template <class F>
  void ForEach(const F& f) const {
    const int64_t n = dims.numel();
    DimsWalk at(dims, 0);
    for (int64_t k = 0; k < n; ++k, at.Next()) f(k, start + at.offset());
  }
  Dims dims;
  int64_t start = 0;
};

template <class Context>
Plane PlaneOf(const Context& ctx, int rank, const char* first, const char* second) {
  Plane plane;
  const Shape any(std::vector<int64_t>(static_cast<size_t>(rank), 1));
  any.NormalizeAxis(ctx.template Attr<int32_t>(first), &plane.first);
  any.NormalizeAxis(ctx.template Attr<int32_t>(second), &plane.second);
  plane.offset = ctx.template Attr<int32_t>("offset");
  return plane;
}
template <class Context>
Plane PlaneOf(const Context& ctx, int rank) {
  return PlaneOf(ctx, rank, "axis1", "axis2");
}

// The names of trace's axis attrs: old files have only dim1 and dim2.
struct AxisNames {
  const char *first, *second;
};
template <class Context>
AxisNames TraceAxes(const Context& ctx) {
  const bool unset =
      ctx.template Attr<int32_t>("axis1") == 0 && ctx.template Attr<int32_t>("axis2") == 1;
  return unset ? AxisNames{"dim1", "dim2"} : AxisNames{"axis1", "axis2"};
}
// The offset of trace counts along the later axis.
template <class Context>
Plane TracePlane(const Context& ctx, int rank) {
  const AxisNames names = TraceAxes(ctx);
  Plane plane = PlaneOf(ctx, rank, names.first, names.second);
  if (plane.first > plane.second) std::swap(plane.first, plane.second);
  return plane;
}
AttrList AttrsOf(const Plane& plane) {
  return {{"offset", static_cast<int32_t>(plane.offset)},
          {"axis1", static_cast<int32_t>(plane.first)},
          {"axis2", static_cast<int32_t>(plane.second)}};
}

// --- shape rules ---

void CheckPlane(const InferContext& ctx, int rank, const char* first, const char* second) {
  ctx.Require("C1", rank >= 2, "rank", rank);
  const int a = ctx.Axis("C2", ctx.Attr<int32_t>(first), rank);
  const int b = ctx.Axis("C2", ctx.Attr<int32_t>(second), rank);
  ctx.Require("C3", a != b, a, b);
}

VarMeta DiagonalOut(InferContext& ctx) {
  VarMeta x = ctx.Input("Input");
  CheckPlane(ctx, x.shape.rank(), "axis1", "axis2");
  x.shape = DiagonalShape(x.shape, PlaneOf(ctx, x.shape.rank()));
  return x;
}

void InferTrace(InferContext& ctx) {
  VarMeta out = ctx.Input("Input");
  const Shape x = out.shape;
  const AxisNames names = TraceAxes(ctx);
  CheckPlane(ctx, x.rank(), names.first, names.second);
  const Plane plane = TracePlane(ctx, x.rank());
  out.shape = {};
  for (int i = 0; i < x.rank(); ++i) {
    if (i != plane.first && i != plane.second) out.shape.Append(x[i]);
  }
  if (out.shape.rank() == 0) out.shape.Append(1);
  ctx.SetOutput("Out", out);
}

Shape SquareOf(const InferContext& ctx, int64_t n) {
  const int64_t offset = ctx.Attr<int32_t>("offset"), size = AddDims(n, std::abs(offset));
  return {size, size};
}

void InferDiag(InferContext& ctx) {
  VarMeta x = ctx.Input("Diagonal");
  ctx.Require("C1", x.shape.rank() == 1, x.shape);
  x.shape = {x.shape[0], x.shape[0]};
  ctx.SetOutput("Out", x);
}

void InferDiagV2(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 1 || x.shape.rank() == 2, x.shape);
  const Plane plane{0, 1, ctx.Attr<int32_t>("offset")};
  x.shape = x.shape.rank() == 1 ? SquareOf(ctx, x.shape[0]) : DiagonalShape(x.shape, plane);
  ctx.SetOutput("Out", x);
}

void InferDiagEmbed(InferContext& ctx) {
  VarMeta x = ctx.Input("Input");
  const int rank = x.shape.rank() + 1;
  ctx.Require("C1", rank >= 2 && rank <= Shape::kMaxRank, "rank", rank);
  CheckPlane(ctx, rank, "dim1", "dim2");
  const Plane plane = PlaneOf(ctx, rank, "dim1", "dim2");
  const Shape square = SquareOf(ctx, x.shape[rank - 2]);
  Shape out;
  for (int i = 0, from = 0; i < rank; ++i)
    out.Append(i == plane.first || i == plane.second ? square[0] : x.shape[from++]);
  x.shape = out;
  ctx.SetOutput("Out", x);
}

// --- kernels ---

template <class T>
Kernel TakeDiagonal(const TensorArg& x, const TensorArg& out, const Plane& plane) {
  const Places places(x.shape, plane);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    places.ForEach([&](int64_t k, int64_t at) { o[k] = in[at]; });
  };
}

// Sets `out` to x on its diagonals and to `padding` elsewhere.
template <class T>
Kernel PutDiagonal(const TensorArg& x, const TensorArg& out, const Plane& plane, T padding) {
  const Places places(out.shape, plane);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    std::fill_n(o, out.numel, padding);
    places.ForEach([&](int64_t k, int64_t at) { o[at] = in[k]; });
  };
}

template <class T>
KernelOf<T> Diagonal(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("Input");
  return TakeDiagonal<T>(x, ctx.Output("Out"), PlaneOf(ctx, x.shape.rank()));
}

template <class T>
KernelOf<T> DiagonalGrad(const PrepareContext& ctx) {
  const TensorArg dx = ctx.Output("Input@GRAD");
  return PutDiagonal<T>(ctx.Input("Out@GRAD"), dx, PlaneOf(ctx, dx.shape.rank()), T(0));
}

template <class T>
KernelOf<T> Trace(const PrepareContext& ctx) {
  using Sum = std::conditional_t<std::is_floating_point_v<T>, double,
                                 std::conditional_t<kIsComplex<T>, complex128, T>>;
  const TensorArg x = ctx.Input("Input"), out = ctx.Output("Out");
  const Places places(x.shape, TracePlane(ctx, x.shape.rank()));
  const int64_t n = places.dims.size[places.dims.rank - 1];
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    std::fill_n(o, out.numel, T(0));
    Sum sum = 0;
    places.ForEach([&](int64_t k, int64_t at) {
      sum = WrapAdd(k % n == 0 ? Sum(0) : sum, static_cast<Sum>(in[at]));
      if ((k + 1) % n == 0) o[k / n] = static_cast<T>(sum);
    });
  };
}

template <class T>
KernelOf<T> Diag(const PrepareContext& ctx) {
  return PutDiagonal<T>(ctx.Input("Diagonal"), ctx.Output("Out"), {}, T(0));
}

template <class T>
KernelOf<T> DiagV2(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const Plane plane{0, 1, ctx.Attr<int32_t>("offset")};
  if (x.shape.rank() == 2) return TakeDiagonal<T>(x, out, plane);
  return PutDiagonal<T>(x, out, plane,
                        SaturateTo<T>(static_cast<double>(ctx.Attr<float>("padding_value"))));
}

template <class T>
KernelOf<T> DiagEmbed(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  return PutDiagonal<T>(ctx.Input("Input"), out, PlaneOf(ctx, out.shape.rank(), "dim1", "dim2"),
                        T(0));
}

// --- gradients ---

Variable Taken(GradientContext& g, const std::string& x, const Plane& plane) {
  return g.Make("diagonal", {{"Input", {x}}}, AttrsOf(plane));
}
Variable Put(GradientContext& g, const std::string& like, const Variable& diagonal,
             const Plane& plane) {
  return g.Make("diagonal_grad", {{"Input", {like}}, {"Out@GRAD", {diagonal.name()}}},
                AttrsOf(plane), "Input@GRAD");
}

void DiagonalGradGradient(GradientContext& g) {
  const int rank = g.MetaOf(g.Input("Input")).shape.rank();
  g.Set("Out@GRAD", Taken(g, g.OutputGrad("Input@GRAD"), PlaneOf(g, rank)));
}

// The gradient of a trace goes to all elements of its diagonal.
void TraceGradient(GradientContext& g) {
  const std::string x = g.Input("Input");
  const int rank = g.MetaOf(x).shape.rank();
  const Plane plane = TracePlane(g, rank);
  const Variable zeros = ZerosLike(Taken(g, x, plane));
  const Variable dout = g.Grad("Out");
  Variable column = dout;
  if (rank != 2)
    column = g.Make("unsqueeze2", {{"X", {dout.name()}}}, {{"axes", std::vector<int32_t>{-1}}});
  g.Set("Input", Put(g, x, zeros + column, plane));
}

void DiagGradient(GradientContext& g) { g.Set("Diagonal", Taken(g, g.OutputGrad("Out"), {})); }

void DiagV2Gradient(GradientContext& g) {
  const std::string x = g.Input("X");
  const Plane plane{0, 1, g.Attr<int32_t>("offset")};
  g.Set("X", g.MetaOf(x).shape.rank() == 1 ? Taken(g, g.OutputGrad("Out"), plane)
                                           : Put(g, x, g.Grad("Out"), plane));
}

void DiagEmbedGradient(GradientContext& g) {
  const int rank = g.MetaOf(g.Input("Input")).shape.rank() + 1;
  g.Set("Input", Taken(g, g.OutputGrad("Out"), PlaneOf(g, rank, "dim1", "dim2")));
}

// --- declarations ---

void DeclarePlane(OpDef& def) {
  def.Constraint("C1", "Input must have rank 2 or more")
      .Constraint("C2", "axis1 and axis2 must lie in [-rank, rank)")
      .Constraint("C3", "axis1 and axis2 must differ")
      .Attr<int32_t>("offset", 0, "which diagonal; 0: the main one, > 0: above it")
      .Attr<int32_t>("axis1", 0, "the dim of the rows")
      .Attr<int32_t>("axis2", 1, "the dim of the columns");
}

struct RowAttrs {
  template <class T>
  T Attr(const char* name) const {
    return query.spec.AttrOf<T>(query.op, name);
  }
  const RowQuery& query;
};

RowEffect PlaneRows(const RowQuery& query) {
  if (query.rank == 0) return RowRule::kMixes;
  const RowAttrs attrs{query};
  const bool trace = query.spec.FindAttr("dim1") != nullptr;
  const Plane plane = trace ? TracePlane(attrs, query.rank) : PlaneOf(attrs, query.rank);
  const bool inside = query.axis == plane.first || query.axis == plane.second;
  return inside ? RowRule::kMixes : RowRule::kEach;
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("diagonal")
          .Doc("Out = the diagonals of the planes of axis1 and axis2, as its last dim: elements "
               "whose index along axis2 is the one along axis1 plus offset.")
          .Apply(DeclarePlane)
          .Input("Input", "tensor of numbers or bool")
          .Output("Out", "tensor without the two dims and with the diagonals as the last dim")
          .NoLod()
          .Rows(PlaneRows, "each by itself, unless they are in the plane")
          .Infer([](InferContext& ctx) { ctx.SetOutput("Out", DiagonalOut(ctx)); })
          .GradientOp({"Input"})
          .Reference(Diagonal<float>, Diagonal<double>, Diagonal<int32_t>, Diagonal<int64_t>,
                     Diagonal<bool>, Diagonal<complex64>, Diagonal<complex128>));
  ops.Add(OpDef("diagonal_grad")
              .Doc("Gradient of diagonal: Input@GRAD = Out@GRAD on the diagonals, else 0.")
              .Apply(DeclarePlane)
              .Constraint("C4", "Out@GRAD must have Out's shape and dtype")
              .Input("Input", "the value in the forward op; only its shape is used")
              .Input("Out@GRAD", "gradient of Out")
              .Output("Input@GRAD", "gradient of Input")
              .NoGradientTo({"Input"})
              .Infer([](InferContext& ctx) {
                RequireOutGrad(ctx, "C4", DiagonalOut(ctx));
                ctx.SetOutput("Input@GRAD", ctx.Input("Input"));
              })
              .Gradient(DiagonalGradGradient)
              .Reference(DiagonalGrad<float>, DiagonalGrad<double>, DiagonalGrad<complex64>,
                         DiagonalGrad<complex128>));
  ops.Add(
      OpDef("trace")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Out = the sums of the diagonals of the planes of axis1 and axis2; 0 for an empty "
               "one. offset counts along the later of the two axes. Integers wrap around.")
          .Apply(DeclarePlane)
          .Attr<int32_t>("dim1", 0, "old name of axis1, used where axis1 and axis2 are 0 and 1")
          .Attr<int32_t>("dim2", 1, "old name of axis2")
          .Input("Input", "tensor of numbers")
          .Output("Out", "tensor without the two dims; [1] if no dim is left")
          .NoLod()
          .Rows(PlaneRows, "each by itself, unless they are in the plane")
          .Infer(InferTrace)
          .Gradient(TraceGradient)
          .Reference(Trace<float>, Trace<double>, Trace<int32_t>, Trace<int64_t>, Trace<complex64>,
                     Trace<complex128>));
  ops.Add(OpDef("diag")
              .Doc("Out = the square matrix with the diagonal Diagonal, and 0 elsewhere.")
              .Constraint("C1", "Diagonal must have rank 1")
              .Input("Diagonal", "[N]")
              .Output("Out", "[N, N]")
              .Rows(RowRule::kMixes)
              .Infer(InferDiag)
              .Gradient(DiagGradient)
              .Reference(Diag<float>, Diag<double>, Diag<int32_t>, Diag<int64_t>));
  ops.Add(OpDef("diag_v2")
              .Doc("For a vector X, Out = the square matrix with the diagonal X at offset, and "
                   "padding_value elsewhere. For a matrix X, Out = its diagonal at offset.")
              .Constraint("C1", "X must have rank 1 or 2")
              .Input("X", "vector or matrix of numbers")
              .Output("Out", "matrix or vector")
              .Attr<int32_t>("offset", 0, "which diagonal; 0: the main one, > 0: above it")
              .Attr<float>("padding_value", 0.0f, "value outside of the diagonal")
              .Rows(RowRule::kMixes)
              .Infer(InferDiagV2)
              .Gradient(DiagV2Gradient)
              .Reference(DiagV2<float>, DiagV2<double>, DiagV2<int32_t>, DiagV2<int64_t>));
  ops.Add(
      OpDef("diag_embed")
          .Doc("Out = a square matrix for each vector of the last dim of Input, with the vector as "
               "its diagonal at offset and 0 elsewhere. The matrices are in the dims dim1 (rows) "
               "and dim2 (columns) of Out.")
          .Constraint("C1", "Input must have rank 1 to 8")
          .Constraint("C2", "dim1 and dim2 must lie in [-rank, rank) of Out")
          .Constraint("C3", "dim1 and dim2 must differ")
          .Input("Input", "tensor of numbers")
          .Output("Out", "tensor with one dim more")
          .Attr<int32_t>("offset", 0, "which diagonal; 0: the main one, > 0: above it")
          .Attr<int32_t>("dim1", -2, "the dim of the rows")
          .Attr<int32_t>("dim2", -1, "the dim of the columns")
          .Rows(RowRule::kEach)
          .Infer(InferDiagEmbed)
          .Gradient(DiagEmbedGradient)
          .Reference(DiagEmbed<float>, DiagEmbed<double>, DiagEmbed<int32_t>, DiagEmbed<int64_t>));
}

}  // namespace coracle::diagonal_op

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/op_shapes.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/matmul/matrices.h>
#include <coracle/operators/rules/bilinear_gradient.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/promotion.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>

namespace coracle::inline internal {

extern template Gemm<complex64> MakeBatchGemm(const GemmSpec&, const GemmBatch&, KernelMode);
extern template Gemm<complex128> MakeBatchGemm(const GemmSpec&, const GemmBatch&, KernelMode);

}  // namespace coracle::inline internal

namespace coracle::matmul_op {

// The two ops differ in the names of their attrs, in alpha, and in their treatment of vectors.
struct Version {
  const char *type, *transpose_x, *transpose_y;
  bool has_alpha, turns_vectors;
};
constexpr Version kMatmul = {"matmul", "transpose_X", "transpose_Y", true, true};
constexpr Version kMatmulV2 = {"matmul_v2", "trans_x", "trans_y", false, false};

struct Flags {
  bool x, y;
  float alpha;
  int32_t heads;
  bool turns_vectors;
};
template <class Context>
Flags FlagsOf(const Context& ctx, const Version& v) {
  return {ctx.template Attr<bool>(v.transpose_x), ctx.template Attr<bool>(v.transpose_y),
          v.has_alpha ? ctx.template Attr<float>("alpha") : 1.0f,
          v.has_alpha ? ctx.template Attr<int32_t>("head_number") : 1, v.turns_vectors};
}

// A vector is one row (X) or one column (Y); the other way round if transposition applies
// to vectors.
Matrices MatricesOf(const Shape& shape, bool is_x, const Flags& flags) {
  const bool transpose = is_x ? flags.x : flags.y;
  const bool turns = shape.rank() == 1 && transpose && flags.turns_vectors;
  return coracle::MatricesOf(shape, is_x != turns, transpose);
}

// The number of columns of the product. With several heads, Y is split by columns if its rows match
// the columns of one head of X, and by rows if they match all columns of X.
int64_t ProductColumns(const InferContext& ctx, const Flags& flags, const Matrices& a,
                       const Matrices& b) {
  const int64_t heads = flags.heads;
  const auto divides = [&](int64_t n) { return n < 0 || n % heads == 0; };
  const bool one_size = InferContext::Matches(a.cols, b.rows);
  const bool shares_rows = heads > 1 && divides(a.cols) && a.cols / heads == b.rows;
  ctx.Require("C2", one_size || shares_rows, a.cols, b.rows);
  if (heads == 1) return b.cols;
  ctx.Require("C6", divides(a.cols) && (one_size || divides(b.cols)), "head_number", heads, "X",
              a.cols, "Y", b.cols);
  if (a.cols < 0 || b.rows < 0) return -1;
  return one_size ? MulDims(heads, b.cols) : b.cols;
}

// Checks the operands and returns Out's shape.
Shape ProductShape(const InferContext& ctx, const Flags& flags) {
  const Shape &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  ctx.Require("C1", x.rank() >= 1 && y.rank() >= 1, x.rank(), y.rank());
  const Matrices a = MatricesOf(x, true, flags), b = MatricesOf(y, false, flags);
  const int64_t columns = ProductColumns(ctx, flags, a, b);
  const int rank = std::max(a.batch.rank(), b.batch.rank());
  auto aligned = AlignShapes(a.batch, b.batch, -1);
  if (!aligned) throw InternalError("matmul: batches do not align");
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int64_t p = aligned->x[i], q = aligned->y[i];
    ctx.Require("C3", p == 1 || q == 1 || InferContext::Matches(p, q), p, q);
    out.Append(p == 1 ? q : q == 1 ? p : std::max(p, q));
  }
  // For a vector, the dim of 1 is omitted.
  if (x.rank() > 1 || a.rows != 1) out.Append(a.rows);
  if (y.rank() > 1 || columns != 1) out.Append(columns);
  if (out.rank() == 0) out.Append(1);
  return out;
}

// The nest over the batch: steps of X, Y and Out.
struct Product {
  int64_t m, n, k;
  bool tx, ty;
  float alpha;
  int64_t heads, y_rows;
  int rank;
  int64_t dims[Shape::kMaxRank];
  int64_t x_step[Shape::kMaxRank], y_step[Shape::kMaxRank], out_step[Shape::kMaxRank];
};
Product ProductOf(const Shape& x, const Shape& y, const Flags& flags) {
  const Matrices a = MatricesOf(x, true, flags), b = MatricesOf(y, false, flags);
  Product p{a.rows, b.cols, a.cols, a.transposed, b.transposed, flags.alpha, flags.heads,
            b.rows, 0,      {},     {},           {},           {}};
  const BroadcastNest nest = MakeBroadcastNest(a.batch, b.batch, -1);
  if (nest.numel == 1) return p;
  // If one Y is used for all X, their rows form one matrix.
  if (nest.rank == 1 && nest.y_repeats() && !a.transposed) {
    p.m *= nest.dims[0];
    return p;
  }
  p.rank = nest.rank;
  int64_t step = 1;
  for (int i = nest.rank - 1; i >= 0; --i) {
    p.dims[i] = nest.dims[i];
    p.x_step[i] = nest.x_step[i];
    p.y_step[i] = nest.y_step[i];
    p.out_step[i] = step;
    step *= nest.dims[i];
  }
  return p;
}

// Computes element by element: integers, and products of several heads. Head h multiplies columns
// [h k, (h + 1) k) of X by the same rows of Y, or by columns [h n, (h + 1) n) of Y, and computes n
// columns of Out.
template <class T>
class PlainProduct {
 public:
  explicit PlainProduct(const Product& p) : p_(p), k_(p.k / p.heads) {
    splits_rows_ = p.heads == 1 || p.y_rows == p.k;
    n_ = splits_rows_ ? p.n : p.n / p.heads;
    for (int i = 0; i < p.rank; ++i) batches_ *= p.dims[i];
  }
  void operator()(const T* x, const T* y, T* out) const {
    const int64_t work = 1 + p_.heads * n_ * k_;
    ParallelFor(batches_ * p_.m, 1 + 32768 / work, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t rest = row / p_.m, at_x = 0, at_y = 0;
        for (int i = p_.rank - 1; i >= 0; --i) {
          at_x += rest % p_.dims[i] * p_.x_step[i];
          at_y += rest % p_.dims[i] * p_.y_step[i];
          rest /= p_.dims[i];
        }
        Row(x + at_x * p_.m * p_.k, y + at_y * p_.y_rows * p_.n, row % p_.m,
            out + row * p_.heads * n_);
      }
    });
  }

 private:
  using Sum = std::conditional_t<std::is_integral_v<T>, T,
                                 std::conditional_t<kIsComplex<T>, complex128, double>>;

  void Row(const T* x, const T* y, int64_t i, T* out) const {
    for (int64_t h = 0; h < p_.heads; ++h) {
      for (int64_t j = 0; j < n_; ++j) {
        Sum sum = 0;
        for (int64_t r = 0; r < k_; ++r) {
          const int64_t c = h * k_ + r;
          const int64_t y_row = splits_rows_ ? c : r, y_column = splits_rows_ ? j : h * n_ + j;
          const T a = x[p_.tx ? c * p_.m + i : i * p_.k + c];
          const T b = y[p_.ty ? y_column * p_.y_rows + y_row : y_row * p_.n + y_column];
          sum = WrapAdd<Sum>(sum, WrapMul<Sum>(a, b));
        }
        out[h * n_ + j] = p_.alpha == 1 ? static_cast<T>(sum) : Scaled(sum);
      }
    }
  }
  T Scaled(Sum sum) const {
    if constexpr (kIsComplex<T>)
      return static_cast<T>(static_cast<double>(p_.alpha) * sum);
    else
      return SaturateTo<T>(static_cast<double>(p_.alpha) * static_cast<double>(sum));
  }

  Product p_;
  int64_t k_, n_ = 0, batches_ = 1;
  bool splits_rows_ = true;
};

template <class T>
Kernel PlainMatmul(const Product& p, const TensorArg& x, const TensorArg& y, const TensorArg& out) {
  return [=, product = PlainProduct<T>(p)](Workspace& ws) {
    product(ws.Data<const T>(x), ws.Data<const T>(y), ws.Data<T>(out));
  };
}

template <class T>
Gemm<T> Batched(const Product& p, const GemmSpec& spec, const int64_t* a, const int64_t* b,
                const int64_t* c, KernelMode mode) {
  GemmBatch batch;
  batch.rank = p.rank;
  std::copy_n(p.dims, p.rank, batch.dims);
  std::copy_n(a, p.rank, batch.a_step);
  std::copy_n(b, p.rank, batch.b_step);
  std::copy_n(c, p.rank, batch.c_step);
  return MakeBatchGemm<T>(spec, batch, mode);
}

template <class T>
Kernel Matmul(const PrepareContext& ctx, const Version& v, KernelMode mode) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  if (MixesDTypes(ctx)) return PrepareComplex(ctx);
  const Product p = ProductOf(x.shape, y.shape, FlagsOf(ctx, v));
  if constexpr (std::is_integral_v<T>) {
    return PlainMatmul<T>(p, x, y, out);
  } else {
    if (p.heads > 1) {
      if constexpr (std::is_same_v<T, bfloat16>)
        return {};
      else
        return PlainMatmul<T>(p, x, y, out);
    }
    const auto gemm = Batched<T>(
        p,
        {.m = p.m, .n = p.n, .k = p.k, .transpose_a = p.tx, .transpose_b = p.ty, .alpha = p.alpha},
        p.x_step, p.y_step, p.out_step, mode);
    if (!gemm) return {};
    return [=](Workspace& ws) { gemm(ws.Data<const T>(x), ws.Data<const T>(y), ws.Data<T>(out)); };
  }
}

// Conjugates complex elements in scratch memory; returns real ones in place.
template <class T>
class Conjugated {
 public:
  Conjugated(const PrepareContext& ctx, const TensorArg& from, bool wanted) : from_(from) {
    if (kIsComplex<T> && wanted) to_ = ctx.Scratch(from.dtype, from.shape);
  }
  const T* operator()(Workspace& ws) const {
    const T* from = ws.Data<const T>(from_);
    if (!to_) return from;
    T* to = ws.Data<T>(to_);
    std::transform(from, from + from_.numel, to, Conj<T>);
    return to;
  }

 private:
  TensorArg from_, to_;
};

// With A = op(X), B = op(Y), G = dOut: dA = alpha G B^T, dB = alpha A^T G, with the conjugates of A
// and B; for a transposed operand, the factors are exchanged and transposed.
template <class T>
Kernel MatmulGrad(const PrepareContext& ctx, const Version& v, KernelMode mode) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dy = ctx.Output("Y@GRAD");
  const Product p = ProductOf(x.shape, y.shape, FlagsOf(ctx, v));
  GemmSpec sx{.m = p.m, .n = p.k, .k = p.n, .transpose_b = !p.ty, .alpha = p.alpha};
  GemmSpec sy{.m = p.k, .n = p.n, .k = p.m, .transpose_a = !p.tx, .alpha = p.alpha};
  if (p.tx)
    sx = {.m = p.k, .n = p.m, .k = p.n, .transpose_a = p.ty, .transpose_b = true, .alpha = p.alpha};
  if (p.ty)
    sy = {.m = p.n, .n = p.k, .k = p.m, .transpose_a = true, .transpose_b = p.tx, .alpha = p.alpha};
  const int64_t *first_x = p.tx ? p.y_step : p.out_step, *second_x = p.tx ? p.out_step : p.y_step;
  const int64_t *first_y = p.ty ? p.out_step : p.x_step, *second_y = p.ty ? p.x_step : p.out_step;
  const auto to_x = Batched<T>(p, sx, first_x, second_x, p.x_step, mode);
  const auto to_y = Batched<T>(p, sy, first_y, second_y, p.y_step, mode);
  if ((dx && !to_x) || (dy && !to_y)) return {};
  const Conjugated<T> conj_x(ctx, x, static_cast<bool>(dy)), conj_y(ctx, y, static_cast<bool>(dx));
  return [=, tx = p.tx, ty = p.ty](Workspace& ws) {
    const T *a = conj_x(ws), *b = conj_y(ws), *g = ws.Data<const T>(dout);
    if (dx && dx.numel > 0) to_x(tx ? b : g, tx ? g : b, ws.Data<T>(dx));
    if (dy && dy.numel > 0) to_y(ty ? g : a, ty ? a : g, ws.Data<T>(dy));
  };
}

void InferMatmulGrad(InferContext& ctx, const Version& v) {
  const Shape out = ProductShape(ctx, FlagsOf(ctx, v));
  ctx.Require("C5", out.CompatibleWith(ctx.InputShape("Out@GRAD")), ctx.InputShape("Out@GRAD"),
              out);
  RequireSameDType(ctx, "C4", "X", "Y");
  RequireSameDType(ctx, "C4", "Out@GRAD", "X");
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Y@GRAD", ctx.Input("Y"));
}

AttrList AttrsOf(const GradientContext& g, const Version& v) {
  const Flags flags = FlagsOf(g, v);
  AttrList attrs = {{v.transpose_x, flags.x}, {v.transpose_y, flags.y}};
  if (v.has_alpha) attrs.push_back({"alpha", flags.alpha});
  return attrs;
}

void MatmulGradient(GradientContext& g, const Version& v) {
  if (FlagsOf(g, v).heads > 1) {
    throw Error(ErrorCode::kUnimplemented,
                "matmul: no gradient is implemented for head_number above 1",
                "  " + Locate(g.op()));
  }
  if (SetMixedGradient(g, AttrsOf(g, v))) return;
  g.Append(std::string(v.type) + "_grad",
           {{"X", {g.Input("X")}}, {"Y", {g.Input("Y")}}, {"Out@GRAD", {g.OutputGrad("Out")}}},
           {{"X@GRAD", {g.InputGrad("X")}}, {"Y@GRAD", {g.InputGrad("Y")}}}, AttrsOf(g, v));
}

void MatmulGradGradient(GradientContext& g, const Version& v) {
  SetBilinearGradGradient(g, v.type, AttrsOf(g, v));
}

std::string RulesOf(const Version& v) {
  return std::string(
             "Dims before the last two are a batch and broadcast. A vector X counts as one row, a "
             "vector Y as one column, and Out lacks that dim; two vectors give [1]. ") +
         (v.turns_vectors
              ? "With transposition, a vector X counts as one column and a vector Y as one row, "
                "whose size is a dim of Out unless it is 1. With head_number h above 1, the "
                "columns of X are split into h blocks. If Y has as many rows as X has columns, "
                "they are split too, and Out is the products of the blocks side by side. Otherwise "
                "Y must have as many rows as a block of X has columns, and its columns are split."
              : "Transposition has no effect on a vector.");
}

void DeclareProduct(OpDef& def) {
  def.Constraint("C1", "X and Y must have rank 1 or more")
      .Constraint("C2", "the columns of X must equal the rows of Y in number (after transposition)")
      .Constraint("C3", "batch dims of X and Y must be equal or 1");
}

void DeclareAttrs(OpDef& def, const Version& v, std::optional<double> most_heads) {
  def.Attr<bool>(v.transpose_x, false, "whether to exchange the last two dims of X first")
      .Attr<bool>(v.transpose_y, false, "whether to exchange the last two dims of Y first");
  if (!v.has_alpha) return;
  def.Attr<float>("alpha", 1.0f, "factor of the product")
      .Attr<int32_t>("head_number", 1, "number of heads into which columns are split")
      .Range(1, most_heads);
}

template <class... Ts, class K>
void DeclareKernels(OpDef& def, K kernel) {
  def.Reference<Ts...>([kernel]<class T>(const PrepareContext& c) {
       return kernel.template operator()<T>(c, KernelMode::kReference);
     })
      .Fast([kernel](const PrepareContext& c) {
        const DType dtype = c.Input("X").dtype;
        if (dtype == DType::kFloat32)
          return kernel.template operator()<float>(c, KernelMode::kAuto);
        if (dtype == DType::kBFloat16)
          return kernel.template operator()<bfloat16>(c, KernelMode::kAuto);
        return Kernel();
      });
}

// The number of matrix products: the product of the leading dims, which are broadcast.
double ProductsIn(const Shape& x, const Shape& y) {
  double products = 1;
  for (int back = 3; back <= std::max(x.rank(), y.rank()); ++back) {
    const auto dim = [back](const Shape& shape) {
      const int axis = shape.rank() - back;
      return axis < 0 ? 1 : Elements(shape, axis, axis + 1);
    };
    products *= dim(x) == 1 ? dim(y) : dim(x);
  }
  return products;
}

double MatmulMultiplyAdds(const OpShapes& op, bool transposed) {
  const Shape *x = op.In("X"), *y = op.In("Y");
  if (!x || !y || x->rank() < 1 || y->rank() < 1) return 0;
  const int n = transposed ? y->rank() - 2 : y->rank() - 1;
  const double columns = y->rank() < 2 ? 1 : Elements(*y, n, n + 1);
  return ProductsIn(*x, *y) * Elements(*x, std::max(0, x->rank() - 2), x->rank()) * columns;
}

void AddVersion(OpRegistry& ops, const Version& v) {
  OpDef forward(v.type);
  forward.Doc(std::string("Out = ") + (v.has_alpha ? "alpha X Y. " : "X Y. ") + RulesOf(v))
      .Apply(DeclareProduct)
      .Constraint("C4",
                  "X and Y must have one dtype, or one be complex and the other float32, float64 "
                  "or complex")
      .Input("X", "tensor of floats, int32, int64 or complex numbers; integers wrap around")
      .Input("Y",
             "tensor of X's dtype; a real operand of a complex one counts as complex, and gets the "
             "real part of its gradient")
      .Output("Out", "the product")
      .Rows(RowRule::kEach)
      .Infer([v](InferContext& ctx) {
        const Shape out = ProductShape(ctx, FlagsOf(ctx, v));
        VarMeta meta = ctx.Input("X");
        meta.dtype = RequirePromotable(ctx, "C4");
        meta.shape = out;
        ctx.SetOutput("Out", meta);
      })
      .MultiplyAdds({"X", "Y"},
                    [attr = v.transpose_y](const OpShapes& op) {
                      return MatmulMultiplyAdds(op, op.Attr<bool>(attr));
                    })
      .Gradient([v](GradientContext& g) { MatmulGradient(g, v); })
      .ComputesIn(OpPrecision::kLow);
  if (v.has_alpha) {
    forward.Constraint(
        "C6", "head_number must divide the columns of X, and the columns of Y if they are split");
  }
  DeclareAttrs(forward, v, std::nullopt);
  DeclareKernels<float, double, int32_t, int64_t, complex64, complex128>(
      forward,
      [v]<class T>(const PrepareContext& c, KernelMode mode) { return Matmul<T>(c, v, mode); });
  ops.Add(std::move(forward));
  OpDef grad(std::string(v.type) + "_grad");
  grad.Doc(std::string("Gradient of ") + v.type +
           ": with A and B the transposed operands, A@GRAD = Out@GRAD B^T and B@GRAD = A^T "
           "Out@GRAD (complex A and B conjugated), summed over the batch dims along which the "
           "operand was broadcast. " +
           RulesOf(v))
      .Apply(DeclareProduct)
      .Constraint("C4", "all inputs must have one dtype")
      .Constraint("C5", "Out@GRAD must have the shape of the product")
      .Input("X", "the value in the forward op")
      .Input("Y", "the value in the forward op")
      .Input("Out@GRAD", "gradient of Out")
      .OptionalOutput("X@GRAD", "gradient of X")
      .OptionalOutput("Y@GRAD", "gradient of Y")
      .Infer([v](InferContext& ctx) { InferMatmulGrad(ctx, v); })
      .Gradient([v](GradientContext& g) { MatmulGradGradient(g, v); });
  DeclareAttrs(grad, v, 1);
  DeclareKernels<float, double, complex64, complex128>(
      grad,
      [v]<class T>(const PrepareContext& c, KernelMode mode) { return MatmulGrad<T>(c, v, mode); });
  ops.Add(std::move(grad));
}

void Register(OpRegistry& ops) {
  AddVersion(ops, kMatmul);
  AddVersion(ops, kMatmulV2);
}

}  // namespace coracle::matmul_op

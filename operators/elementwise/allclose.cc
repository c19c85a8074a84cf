// Comparisons of whole tensors: allclose and equal_all.

#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/same_type.h>

#include <cmath>

namespace coracle::allclose_op {

// ---- allclose ----

void CheckTolerance(InferContext& ctx, const char* slot, const char* attr) {
  if (ctx.HasInput(slot)) {
    const VarMeta& given = ctx.Input(slot);
    const bool one = InferContext::Matches(NumelOf(given.shape), 1);
    ctx.Require("C3", one && given.dtype == DType::kFloat64, slot, given);
    return;
  }
  double unused = 0;
  const auto text = ctx.Attr<std::string>(attr);
  ctx.Require("C4", ParseDouble(text, &unused), attr, Quote(text));
}

void InferAllclose(InferContext& ctx) {
  const VarMeta &x = ctx.Input("Input"), &y = ctx.Input("Other");
  ctx.Require("C1", x.shape.CompatibleWith(y.shape), x.shape, y.shape);
  RequireSameDType(ctx, "C2", "Other", "Input");
  CheckTolerance(ctx, "Rtol", "rtol");
  CheckTolerance(ctx, "Atol", "atol");
  ctx.SetOutput("Out", DType::kBool, {1});
}

// A tolerance from the tensor, else from the attr.
class Tolerance {
 public:
  Tolerance(const PrepareContext& ctx, const char* slot, const char* attr)
      : tensor_(ctx.Input(slot)) {
    if (!tensor_ && !ParseDouble(ctx.Attr<std::string>(attr), &value_))
      ctx.Unsupported("a tolerance is not a number");
  }
  double operator()(const Workspace& ws) const {
    return tensor_ ? ws.Data<const double>(tensor_)[0] : value_;
  }

 private:
  TensorArg tensor_;
  double value_ = 0;
};

template <class T>
KernelOf<T> Allclose(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("Input"), y = ctx.Input("Other"), out = ctx.Output("Out");
  const Tolerance rtol(ctx, "Rtol", "rtol"), atol(ctx, "Atol", "atol");
  const bool equal_nan = ctx.Attr<bool>("equal_nan");
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    const double relative = rtol(ws), absolute = atol(ws);
    constexpr double kSlack = 1e-15;  // allows for rounding of the bound
    bool close = true;
    for (int64_t i = 0; i < x.numel && close; ++i) {
      const double p = static_cast<double>(a[i]), q = static_cast<double>(b[i]);
      if (std::isnan(p) || std::isnan(q)) close = equal_nan && std::isnan(p) && std::isnan(q);
      // The tolerance of an infinity is infinite, but it is close only to an equal infinity.
      else if (p != q)
        close = std::isfinite(p) && std::isfinite(q) &&
                std::fabs(p - q) <= absolute + relative * std::fabs(q) + kSlack;
    }
    ws.Data<bool>(out)[0] = close;
  };
}

// ---- equal_all ----

void InferEqualAll(InferContext& ctx) {
  const Shape &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  ctx.Require("C1", x.rank() == y.rank(), x, y);
  RequireSameDType(ctx, "C2", "Y", "X");
  ctx.SetOutput("Out", DType::kBool, {1});
}

template <class T>
bool IsEqual(T a, T b) {
  if (a == b) return true;  // infinities too, whose difference is a nan
  if constexpr (std::is_floating_point_v<T>)
    return std::fabs(static_cast<double>(a) - static_cast<double>(b)) < 1e-8;
  return false;
}

template <class T>
KernelOf<T> EqualAll(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const bool same_shape = x.shape == y.shape;
  return [=](Workspace& ws) {
    bool equal = same_shape;
    for (int64_t i = 0; i < x.numel && equal; ++i)
      equal = IsEqual(ws.Data<const T>(x)[i], ws.Data<const T>(y)[i]);
    ws.Data<bool>(out)[0] = equal;
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("allclose")
              .Doc("Out = whether all elements a of Input and b of Other are equal or satisfy |a - "
                   "b| <= atol + rtol |b|. An infinity is close only to an equal infinity. A nan "
                   "is not close to anything; with equal_nan it is close to another nan.")
              .Constraint("C1", "Input and Other must have one shape")
              .Constraint("C2", "Input and Other must have one dtype")
              .Constraint("C3", "Rtol and Atol must hold one float64")
              .Constraint("C4", "rtol and atol must be numbers")
              .Input("Input", "floating-point tensor")
              .Input("Other", "tensor of Input's shape and dtype")
              .OptionalInput("Rtol", "float64 tensor [1]; replaces attr rtol")
              .OptionalInput("Atol", "float64 tensor [1]; replaces attr atol")
              .Output("Out", "bool tensor [1]")
              .Attr<std::string>("rtol", "1e-5", "relative tolerance, as text")
              .Attr<std::string>("atol", "1e-8", "absolute tolerance, as text")
              .Attr<bool>("equal_nan", false, "whether nans are equal")
              .NotDifferentiable("a comparison is constant almost everywhere")
              .Rows(RowRule::kMixes)
              .Infer(InferAllclose)
              .Reference(Allclose<float>, Allclose<double>));
  ops.Add(OpDef("equal_all")
              .Doc("Out = whether X and Y have one shape and equal elements; floats count as equal "
                   "if they differ by less than 1e-8.")
              .Constraint("C1", "X and Y must have one rank")
              .Constraint("C2", "X and Y must have one dtype")
              .Input("X", "tensor")
              .Input("Y", "tensor of X's rank and dtype")
              .Output("Out", "bool tensor [1]")
              .NotDifferentiable("a comparison is constant almost everywhere")
              .Rows(RowRule::kMixes)
              .Infer(InferEqualAll)
              .Reference(EqualAll<float>, EqualAll<double>, EqualAll<int32_t>, EqualAll<int64_t>,
                         EqualAll<bool>));
}

}  // namespace coracle::allclose_op

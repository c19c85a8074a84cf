#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/rules/output_grad.h>
#include <fmt/format.h>

namespace coracle::clip_op {

void InferClip(InferContext& ctx) {
  for (const char* slot : {"Min", "Max"}) {
    if (!ctx.HasInput(slot)) continue;
    ctx.Require("C2",
                InferContext::Matches(
                    ctx.InputShape(slot).IsKnown() ? ctx.InputShape(slot).numel() : -1, 1),
                slot, ctx.InputShape(slot));
    const DType x = ctx.InputDType("X"), bound = ctx.InputDType(slot);
    ctx.Require("C3", bound == x || (IsHalf(x) && bound == DType::kFloat32), slot, bound, "X", x);
  }
  if (!ctx.HasInput("Min") && !ctx.HasInput("Max")) {
    const float min = ctx.Attr<float>("min"), max = ctx.Attr<float>("max");
    ctx.Require("C1", min <= max, "min", min, "max", max);
    ctx.Require("C4", ctx.Input("X").type == VarType::kLoDTensor || (min <= 0 && max >= 0), "min",
                min, "max", max);
  }
  ctx.SetOutput("Out", ctx.Input("X"));
}

// A bound from a one-element input, else from an attr.
template <class T>
class Bound {
 public:
  Bound(const PrepareContext& ctx, const char* slot, const char* attr)
      : arg_(ctx.Input(slot)),
        value_(arg_ ? T{} : SaturateTo<T>(static_cast<double>(ctx.Attr<float>(attr)))) {}
  T operator()(Workspace& ws) const { return arg_ ? ws.Data<const T>(arg_)[0] : value_; }

 private:
  TensorArg arg_;
  T value_;
};

// Duplicates are added first. Rows that are not stored are zero and stay zero.
template <class T>
Kernel ClipRows(const PrepareContext& ctx) {
  const RowsInput x(ctx, "X");
  const RowsOutput out(ctx, "Out");
  const RowGrouper grouper(ctx);
  const Bound<T> min(ctx, "Min", "min"), max(ctx, "Max", "max");
  return [=](Workspace& ws) {
    const T lo = min(ws), hi = max(ws);
    if (!(lo <= 0 && hi >= 0)) {
      ThrowInvalid(fmt::format("clip: 0 must lie in [min, max] if X is selected rows, got [{}, {}]",
                               lo, hi));
    }
    for (T& v : MergeRows<T>(ws, x(ws), grouper, out).value.template span<T>())
      v = v < lo ? lo : hi < v ? hi : v;
  };
}

// A nan stays nan: both comparisons are false.
template <class T>
KernelOf<T> ClipReference(const PrepareContext& ctx) {
  if (IsSparse(ctx.Input("X"))) return ClipRows<T>(ctx);
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const Bound<T> min(ctx, "Min", "min"), max(ctx, "Max", "max");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    const T lo = min(ws), hi = max(ws);
    for (int64_t i = 0; i < x.numel; ++i) o[i] = in[i] < lo ? lo : hi < in[i] ? hi : in[i];
  };
}

// dX = dOut where min <= X <= max, else 0.
template <class T>
KernelOf<T> ClipGradReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const Bound<T> min(ctx, "Min", "min"), max(ctx, "Max", "max");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    const T* g = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dx);
    const T lo = min(ws), hi = max(ws);
    for (int64_t i = 0; i < x.numel; ++i) o[i] = in[i] < lo || hi < in[i] ? T(0) : g[i];
  };
}

// The gate is not a smooth function of X, so only dOut gets a gradient.
void ClipGradGradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"X", "Min", "Max"});
  inputs.push_back({"Out@GRAD", {g.OutputGrad("X@GRAD")}});
  g.Set("Out@GRAD",
        g.Make("clip_grad", std::move(inputs), g.ForwardAttrs({"min", "max"}), "X@GRAD"));
}

void DeclareBounds(OpDef& def) {
  def.OptionalInput("Min", "tensor [1]; replaces attr min")
      .OptionalInput("Max", "tensor [1]; replaces attr max")
      .Attr<float>("min", "lower bound")
      .Attr<float>("max", "upper bound");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("clip")
          .Doc("Out = min(max(X, min), max), element by element; for integers the attrs are "
               "truncated. Duplicates in selected rows are added up first.")
          .Constraint("C1", "min must not exceed max")
          .Constraint("C2", "Min and Max must hold one element")
          .Constraint("C3", "Min and Max must have X's dtype; they may be float32 with a 16-bit X")
          .Constraint("C4", "0 must lie in [min, max] if X is selected rows")
          .Input("X", "tensor of floats, int32 or int64, or selected rows, of any shape")
          .Output("Out", "same kind of value as X, with its shape and dtype")
          .Apply(DeclareBounds)
          .Takes(VarType::kSelectedRows, {"X"})
          .NoGradientTo({"Min", "Max"})
          .Inplace("X", "Out")
          .Elementwise()
          .Infer(InferClip)
          .GradientOp({"X", "Min", "Max"})
          .Reference(ClipReference<float>, ClipReference<double>, ClipReference<int32_t>,
                     ClipReference<int64_t>));
  ops.Add(OpDef("clip_grad")
              .Doc("Gradient of clip: X@GRAD = Out@GRAD where min <= X <= max, else 0.")
              .ConstraintsOf("clip", {"C1", "C2", "C3"})
              .Constraint("C4",
                          "Out@GRAD must have X's shape and dtype; if X is selected rows, 0 must "
                          "lie in [min, max]")
              .Input("X", "clip's X")
              .Input("Out@GRAD", "gradient of clip's Out")
              .Output("X@GRAD", "gradient of clip's X")
              .Apply(DeclareBounds)
              .NoGradientTo({"X", "Min", "Max"})
              .Inplace("Out@GRAD", "X@GRAD")
              .Elementwise()
              .Infer([](InferContext& ctx) {
                InferClip(ctx);
                RequireOutGrad(ctx, "C4", ctx.Input("X"));
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
              })
              .Gradient(ClipGradGradient)
              .Reference(ClipGradReference<float>, ClipGradReference<double>));
}

}  // namespace coracle::clip_op

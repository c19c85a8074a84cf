#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::square_error_cost_op {

constexpr int64_t kGrain = 32768;

void InferForward(InferContext& ctx) {
  RequireSameType(ctx, "C1", "Y", "X");
  ctx.SetOutput("Out", ctx.Input("X"));
}

void InferGrad(InferContext& ctx) {
  RequireSameType(ctx, "C1", "Y", "X");
  RequireSameType(ctx, "C2", "Out@GRAD", "X");
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Y@GRAD", ctx.Input("X"));
}

template <class T>
KernelOf<T> Forward(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    T* o = ws.Data<T>(out);
    ParallelFor(x.numel, kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) o[i] = (a[i] - b[i]) * (a[i] - b[i]);
    });
  };
}

template <class T>
KernelOf<T> Backward(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dy = ctx.Output("Y@GRAD");
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y), *g = ws.Data<const T>(dout);
    T* ga = dx ? ws.Data<T>(dx) : nullptr;
    T* gb = dy ? ws.Data<T>(dy) : nullptr;
    ParallelFor(x.numel, kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T d = T(2) * g[i] * (a[i] - b[i]);
        if (ga) ga[i] = d;
        if (gb) gb[i] = -d;
      }
    });
  };
}

// dX = -dY = 2 g (x - y). With u, v = d(dX), d(dY) and w = u - v: g' = 2 (x - y) w, and
// x' = -y' = 2 g w: the same op with other inputs.
void BackwardGradient(GradientContext& g) {
  const bool has_u = g.HasOutputGrad("X@GRAD"), has_v = g.HasOutputGrad("Y@GRAD");
  const Variable w = !has_v   ? g.Grad("X@GRAD")
                     : !has_u ? -g.Grad("Y@GRAD")
                              : g.Grad("X@GRAD") - g.Grad("Y@GRAD");
  g.Set("Out@GRAD", 2.0 * (g.In("X") - g.In("Y")) * w);
  const Variable dx = 2.0 * g.In("Out@GRAD") * w;
  g.Set("X", dx);
  g.Set("Y", -dx);
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("square_error_cost")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = (X - Y)^2, element by element.")
              .Constraint("C1", "Y must have X's shape and dtype")
              .Input("X", "floating-point tensor of any shape")
              .Input("Y", "tensor of X's shape and dtype")
              .Output("Out", "tensor of X's shape and dtype")
              .Inplace("X", "Out")
              .Elementwise()
              .SoftLabels({"X", "Y"})
              .Infer(InferForward)
              .GradientOp({"X", "Y"})
              .Reference(Forward<float>, Forward<double>));
  ops.Add(OpDef("square_error_cost_grad")
              .Doc("Gradient of square_error_cost: X@GRAD = 2 Out@GRAD (X - Y), Y@GRAD = -X@GRAD.")
              .Constraint("C1", "Y must have X's shape and dtype")
              .Constraint("C2", "Out@GRAD must have X's shape and dtype")
              .Input("X", "square_error_cost's X")
              .Input("Y", "square_error_cost's Y")
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("Y@GRAD", "gradient of Y")
              .Elementwise()
              .Infer(InferGrad)
              .Gradient(BackwardGradient)
              .Reference(Backward<float>, Backward<double>));
}

}  // namespace coracle::square_error_cost_op

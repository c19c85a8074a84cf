#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/rules/bilinear_gradient.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::fsp_op {

VarMeta FspOut(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const Shape x = out.shape, &y = ctx.InputShape("Y");
  ctx.Require("C1", x.rank() == 4 && y.rank() == 4, x, y);
  for (int i : {0, 2, 3}) ctx.Require("C2", InferContext::Matches(x[i], y[i]), x, y);
  RequireSameDType(ctx, "C3", "Y", "X");
  out.shape = {std::max(x[0], y[0]), x[1], y[1]};
  return out;
}

// The product of two matrices [channels, pixels] for each image; m is the number of rows of
// the first.
struct Images {
  int64_t count, x, y, pixels;
  double scale;
  GemmBatch batch;

  explicit Images(const PrepareContext& ctx) {
    const Shape &a = ctx.Input("X").shape, &b = ctx.Input("Y").shape;
    count = a[0];
    x = a[1];
    y = b[1];
    pixels = a.Product(2, 4);
    scale = pixels > 0 ? 1.0 / static_cast<double>(pixels) : 0;
    batch = {1, {count}, {1}, {1}, {1}};
  }
};

template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Fsp(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const Images i(ctx);
  if (out.numel == 0) return [](Workspace&) {};
  const auto gemm = MakeBatchGemm<T>(
      {.m = i.x, .n = i.y, .k = i.pixels, .transpose_b = true, .alpha = i.scale}, i.batch, mode);
  if (!gemm) return {};
  return [=](Workspace& ws) { gemm(ws.Data<const T>(x), ws.Data<const T>(y), ws.Data<T>(out)); };
}

// dX = dOut Y / pixels, dY = dOut^T X / pixels.
template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> FspGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dy = ctx.Output("Y@GRAD");
  const Images i(ctx);
  const auto to_x =
      MakeBatchGemm<T>({.m = i.x, .n = i.pixels, .k = i.y, .alpha = i.scale}, i.batch, mode);
  const auto to_y = MakeBatchGemm<T>(
      {.m = i.y, .n = i.pixels, .k = i.x, .transpose_a = true, .alpha = i.scale}, i.batch, mode);
  if (!to_x || !to_y) return {};
  return [=](Workspace& ws) {
    const T* d = ws.Data<const T>(dout);
    if (dx && dx.numel > 0) to_x(d, ws.Data<const T>(y), ws.Data<T>(dx));
    if (dy && dy.numel > 0) to_y(d, ws.Data<const T>(x), ws.Data<T>(dy));
  };
}

Kernel FspFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  return Fsp<float, KernelMode::kAuto>(ctx);
}
Kernel FspGradFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  return FspGrad<float, KernelMode::kAuto>(ctx);
}

void DeclareFsp(OpDef& def) { def.Input("X", "[N, C, H, W]").Input("Y", "[N, D, H, W]"); }

void Register(OpRegistry& ops) {
  ops.Add(OpDef("fsp")
              .Doc("Out[n, c, d] = the mean of X[n, c] Y[n, d] over all pixels: the flow of the "
                   "solution procedure between two feature maps.")
              .Constraint("C1", "X and Y must have rank 4")
              .Constraint("C2", "X and Y must have the same number of images of one size")
              .Constraint("C3", "X and Y must have one dtype")
              .Apply(DeclareFsp)
              .Output("Out", "[N, C, D]")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", FspOut(ctx)); })
              .GradientOp({"X", "Y"})
              .Reference(Fsp<float>, Fsp<double>)
              .Fast(FspFast));
  ops.Add(OpDef("fsp_grad")
              .Doc("Gradient of fsp: X@GRAD[n, c] = the sum over d of Out@GRAD[n, c, d] Y[n, d] / "
                   "the number of pixels, and likewise for Y.")
              .ConstraintsOf("fsp", {"C1", "C2", "C3"})
              .Apply(DeclareFsp)
              .Constraint("C4", "Out@GRAD must have Out's shape and dtype")
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("Y@GRAD", "gradient of Y")
              .Infer([](InferContext& ctx) {
                RequireOutGrad(ctx, "C4", FspOut(ctx));
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
                ctx.SetOutput("Y@GRAD", ctx.Input("Y"));
              })
              .Gradient([](GradientContext& g) { SetBilinearGradGradient(g, "fsp", {}); })
              .Reference(FspGrad<float>, FspGrad<double>)
              .Fast(FspGradFast));
}

}  // namespace coracle::fsp_op

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::addmm_op {

void InferAddmm(InferContext& ctx) {
  const Shape &input = ctx.InputShape("Input"), &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  ctx.Require("C1", input.rank() == 2 && x.rank() == 2 && y.rank() == 2, input, x, y);
  ctx.Require("C2", InferContext::Matches(x[1], y[0]), x, y);
  VarMeta out = ctx.Input("X");
  out.shape = {x[0], y[1]};
  for (int i = 0; i < 2; ++i)
    ctx.Require("C3", input[i] == 1 || InferContext::Matches(input[i], out.shape[i]), input, out);
  RequireSameDType(ctx, "C4", "Input", "X");
  RequireSameDType(ctx, "C4", "Y", "X");
  ctx.SetOutput("Out", out);
}

// Out starts as Input, and the product is added to Beta times it. With Beta 0, Input is not read.
template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Addmm(const PrepareContext& ctx) {
  const TensorArg input = ctx.Input("Input"), x = ctx.Input("X"), y = ctx.Input("Y");
  const TensorArg out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const float alpha = ctx.Attr<float>("Alpha"), beta = ctx.Attr<float>("Beta");
  const auto gemm = MakeGemm<T>(
      {.m = x.shape[0], .n = y.shape[1], .k = x.shape[1], .alpha = alpha, .beta = beta}, mode);
  if (!gemm) return {};
  const BroadcastNest nest = MakeBroadcastNest(out.shape, input.shape, -1);
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    if (beta != 0)
      BroadcastLoop(nest, o, ws.Data<const T>(input), o, [](T, T from) { return from; });
    gemm(ws.Data<const T>(x), ws.Data<const T>(y), o);
  };
}

Kernel AddmmFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  return Addmm<float, KernelMode::kAuto>(ctx);
}

// dX = Alpha dOut Y^T, dY = Alpha X^T dOut, dInput = Beta dOut, summed where Input was broadcast.
void AddmmGradient(GradientContext& g) {
  const std::string dout = g.OutputGrad("Out");
  const float alpha = g.Attr<float>("Alpha");
  g.Set("X", g.Make("matmul", {{"X", {dout}}, {"Y", {g.Input("Y")}}},
                    {{"transpose_Y", true}, {"alpha", alpha}}));
  g.Set("Y", g.Make("matmul", {{"X", {g.Input("X")}}, {"Y", {dout}}},
                    {{"transpose_X", true}, {"alpha", alpha}}));
  const Variable scaled = g.Grad("Out") * static_cast<double>(g.Attr<float>("Beta"));
  g.Set("Input", g.Make("elementwise_add_grad",
                        {{"Y", {g.Input("Input")}}, {"Out@GRAD", {scaled.name()}}}, {}, "Y@GRAD"));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("addmm")
              .Doc("Out = Beta Input + Alpha X Y, with the product of the matrices X and Y.")
              .Constraint("C1", "Input, X and Y must have rank 2")
              .Constraint("C2", "the columns of X must equal the rows of Y in number")
              .Constraint("C3", "the dims of Input must be the dims of the product or 1")
              .Constraint("C4", "Input, X and Y must have one dtype")
              .Input("Input", "[M, N]; a dim of 1 repeats")
              .Input("X", "[M, K]")
              .Input("Y", "[K, N]")
              .Output("Out", "[M, N]")
              .Attr<float>("Alpha", 1.0f, "factor of the product")
              .Attr<float>("Beta", 1.0f, "factor of Input")
              .KernelTypeFrom("X")
              .Rows(RowRule::kEach)
              .Infer(InferAddmm)
              .Gradient(AddmmGradient)
              .Reference(Addmm<float>, Addmm<double>)
              .Fast(AddmmFast));
}

}  // namespace coracle::addmm_op

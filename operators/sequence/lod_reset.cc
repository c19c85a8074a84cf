// lod_reset: the same tensor with other sequences.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/output_grad.h>

#include <utility>

namespace coracle::lod_reset_op {

void InferReset(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  ctx.Require("C1", out.shape.rank() >= 1, out);
  const bool given = !ctx.Attr<std::vector<int32_t>>("target_lod").empty();
  ctx.Require("C2", ctx.HasInput("Y") || given, "target_lod", "[]");
  out.lod_level = ctx.Attr<bool>("append") ? out.lod_level + 1 : 1;
  if (ctx.HasInput("Y")) out.lod_level = std::max(out.lod_level, ctx.Input("Y").lod_level);
  ctx.SetOutput("Out", out);
}

Kernel Reset(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const std::string name = ctx.op().Output("Out")[0];
  const std::string not_integers = ctx.Failure("C3");
  const auto target = ctx.Attr<std::vector<int32_t>>("target_lod");
  const bool append = ctx.Attr<bool>("append");
  const int64_t bytes = x.nbytes();
  return [=](Workspace& ws) {
    // CheckLod needs a tensor of that shape, but not its elements.
    Tensor reset = Tensor::View(x.dtype, x.shape, nullptr);
    if (y && !ws.LodOf(y).empty()) {
      reset.lod() = ws.LodOf(y);
    } else {
      if (append) reset.lod() = ws.LodOf(x);
      std::vector<uint64_t>& level = reset.lod().emplace_back(target.begin(), target.end());
      if (y) {
        if (!IsIndexType(y.dtype))
          ThrowInvalid(not_integers + ", got " + std::string(ToString(y.dtype)));
        const IndexReader offsets(ws, y);
        level.clear();
        for (int64_t i = 0; i < y.numel; ++i) level.push_back(static_cast<uint64_t>(offsets[i]));
      }
    }
    CheckLod(name, reset);
    CopyBytes(ws.Data<const void>(x), ws.Data<void>(out), bytes);
    ws.OutputLod(out) = std::move(reset.lod());
  };
}

void InferResetGrad(InferContext& ctx) {
  RequireOutGrad(ctx, "C1", ctx.Input("X"));
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

Kernel ResetGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const int64_t bytes = dx.nbytes();
  return [=](Workspace& ws) { CopyBytes(ws.Data<const void>(dout), ws.Data<void>(dx), bytes); };
}

// The gradient of the gradient is the same copy, with the LoD of Out@GRAD.
void ResetGradGradient(GradientContext& g) {
  g.Append("lod_reset_grad", {{"X", {g.Input("Out@GRAD")}}, {"Out@GRAD", {g.OutputGrad("X@GRAD")}}},
           {{"X@GRAD", {g.InputGrad("Out@GRAD")}}});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("lod_reset")
              .Doc("Out = X with another LoD: the LoD of Y, or one level with the offsets in a Y "
                   "without LoD, or with target_lod. With append, that level is added after the "
                   "levels of X; append has no effect if Y has LoD.")
              .Constraint("C1", "X must have rows")
              .Constraint("C2", "Y or target_lod must be given")
              .Constraint("C3", "a Y without LoD must hold int32 or int64 offsets")
              .Input("X", "tensor of any dtype")
              .OptionalInput("Y", "tensor with LoD, or int32 or int64 offsets")
              .Output("Out", "tensor of X's type")
              .Attr<std::vector<int32_t>>("target_lod", {}, "offsets, used without Y")
              .Attr<bool>("append", false, "keep the levels of X before the new one")
              .NoGradientTo({"Y"})
              .MakesLod()
              .Inplace("X", "Out")
              .Alias("X", "Out")
              .Rows(RowRule::kEach)
              .Infer(InferReset)
              .GradientOp({"X"})
              .Reference(Reset));
  ops.Add(OpDef("lod_reset_grad")
              .Doc("Gradient of lod_reset: X@GRAD = Out@GRAD with X's LoD.")
              .Constraint("C1", "Out@GRAD must have X's shape and dtype")
              .Input("X", "the value in the forward op; only its LoD is used")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("lod_reset")
              .NoGradientTo({"X"})
              .Inplace("Out@GRAD", "X@GRAD")
              .Alias("Out@GRAD", "X@GRAD")
              .Infer(InferResetGrad)
              .Gradient(ResetGradGradient)
              .Reference(ResetGrad));
}

}  // namespace coracle::lod_reset_op

// select_input, select_output: choose one of several variables by its index.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/control/add_value.h>
#include <coracle/operators/kernels/scalar_input.h>
#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace coracle::select_op {

void RequireMask(const InferContext& ctx) {
  const VarMeta& mask = ctx.Input("Mask");
  const bool one = !mask.shape.IsKnown() || mask.shape.numel() == 1;
  ctx.Require("C1", IsIndexType(mask.dtype) && one, mask);
}

size_t Choice(size_t mask, size_t count, const char* op) {
  if (mask < count) return mask;
  throw Error(ErrorCode::kOutOfRange,
              fmt::format("{}: Mask is {}, outside [0, {})", op, mask, count));
}

bool SameType(const VarMeta& a, const VarMeta& b) {
  return a.type == b.type && a.dtype == b.dtype && a.shape == b.shape;
}

void CopyElements(const Tensor& from, Tensor* to) {
  if (!from.empty() && from.raw() != to->raw()) std::memcpy(to->raw(), from.raw(), from.nbytes());
}

// --- select_input ---

void InferSelectInput(InferContext& ctx) {
  RequireMask(ctx);
  VarMeta meta = ctx.Input("X", 0);
  for (size_t i = 1; i < ctx.NumInputs("X"); ++i) {
    const VarMeta& other = ctx.Input("X", i);
    ctx.Require("C2", other.type == meta.type && other.dtype == meta.dtype, meta, other);
    if (SameType(meta, other)) continue;
    if (other.shape.rank() != meta.shape.rank()) meta.shape = Shape{-1};
    for (int d = 0; d < meta.shape.rank(); ++d) {
      if (other.shape.rank() > d && other.shape[d] != meta.shape[d]) meta.shape[d] = -1;
    }
  }
  ctx.SetOutput("Out", meta);
}

Kernel SelectInput(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X");
  const TensorArg out = ctx.Output("Out");
  const IndexArg mask(ctx, "Mask");
  return [=](Workspace& ws) {
    const VarValue& x = ws.ValueOf(xs[Choice(mask(ws), xs.size(), "select_input")]);
    if (const auto* tensor = std::get_if<Tensor>(&x)) {
      Tensor& result = ResizeOutput(ws, out, tensor->dtype(), tensor->shape());
      CopyElements(*tensor, &result);
      ws.OutputLod(out) = tensor->lod();
    } else {
      CopyValue(x, &ws.ValueOf(out));
    }
  };
}

void SelectInputGradient(GradientContext& g) {
  g.Append("select_input_grad",
           {{"X", g.Inputs("X")}, {"Mask", {g.Input("Mask")}}, {"Out@GRAD", {g.OutputGrad("Out")}}},
           {{"X@GRAD", g.InputGrads("X")}});
}

void InferSelectInputGrad(InferContext& ctx) {
  RequireMask(ctx);
  const size_t grads = ctx.NumOutputs("X@GRAD");
  ctx.Require("C2", grads <= ctx.NumInputs("X"), grads, ctx.NumInputs("X"));
  for (size_t i = 0; i < grads; ++i) ctx.SetOutput("X@GRAD", ctx.Input("X", i), i);
}

Kernel SelectInputGrad(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X"), grads = ctx.Outputs("X@GRAD");
  const TensorArg out_grad = ctx.Input("Out@GRAD");
  const IndexArg mask(ctx, "Mask");
  return [=](Workspace& ws) {
    const size_t chosen = Choice(mask(ws), xs.size(), "select_input_grad");
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i]) continue;
      VarValue& grad = ws.ValueOf(grads[i]);
      SetZerosLike(ws.ValueOf(xs[i]), &grad);
      if (i == chosen) AddValue(ws.ValueOf(out_grad), &grad);
    }
  };
}

void SelectInputGradGradient(GradientContext& g) {
  g.Append("select_input", {{"X", g.OutputGrads("X@GRAD")}, {"Mask", {g.Input("Mask")}}},
           {{"Out", {g.InputGrad("Out@GRAD")}}});
}

// --- select_output ---

void InferSelectOutput(InferContext& ctx) {
  RequireMask(ctx);
  for (size_t i = 0; i < ctx.NumOutputs("Out"); ++i) ctx.SetOutput("Out", ctx.Input("X"), i);
}

Kernel SelectOutput(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X");
  const std::vector<TensorArg> outs = ctx.Outputs("Out");
  const IndexArg mask(ctx, "Mask");
  return [=](Workspace& ws) {
    const size_t chosen = Choice(mask(ws), outs.size(), "select_output");
    for (size_t i = 0; i < outs.size(); ++i) {
      if (!outs[i]) continue;
      VarValue& out = ws.ValueOf(outs[i]);
      if (i == chosen)
        CopyElements(std::get<Tensor>(ws.ValueOf(x)), &std::get<Tensor>(out));
      else
        SetZerosLike(ws.ValueOf(x), &out);
    }
  };
}

void SelectOutputGradient(GradientContext& g) {
  g.Append("select_input", {{"X", g.OutputGrads("Out")}, {"Mask", {g.Input("Mask")}}},
           {{"Out", {g.InputGrad("X")}}});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("select_input")
              .Doc("Out = X[Mask]. A run fails if Mask is not an index of X.")
              .Constraint("C1", "Mask must hold one int32 or int64")
              .Constraint("C2", "all X must be of one kind and dtype")
              .VariadicInput("X", "tensors or tensor arrays")
              .Input("Mask", "int32 or int64 tensor of one element: the index")
              .Output("Out", "copy of the chosen X")
              .Takes(VarType::kLoDTensorArray, {"X"})
              .NoGradientTo({"Mask"})
              .RunTimeShape()
              .MakesLod()
              .Rows(RowRule::kEach)
              .Infer(InferSelectInput)
              .Gradient(SelectInputGradient)
              .Strings()
              .Reference(SelectInput));
  ops.Add(OpDef("select_input_grad")
              .Doc("X@GRAD[Mask] = Out@GRAD, the others are zero.")
              .Constraint("C1", "Mask must hold one int32 or int64")
              .Constraint("C2", "X@GRAD must not have more variables than X")
              .VariadicInput("X", "as forward")
              .Input("Mask", "as forward")
              .Input("Out@GRAD", "gradient of Out")
              .OptionalVariadicOutput("X@GRAD", "gradients of X")
              .Takes(VarType::kLoDTensorArray, {"X", "Out@GRAD"})
              .NoGradientTo({"X", "Mask"})
              .Infer(InferSelectInputGrad)
              .Gradient(SelectInputGradGradient)
              .Reference(SelectInputGrad));
  ops.Add(OpDef("select_output")
              .Doc("Out[Mask] = X; the others are zeros of X's type. A run fails if Mask is not an "
                   "index of Out.")
              .Constraint("C1", "Mask must hold one int32 or int64")
              .Input("X", "tensor")
              .Input("Mask", "int32 or int64 tensor of one element: the index")
              .VariadicOutput("Out", "tensors of X's type")
              .NoGradientTo({"Mask"})
              .Rows(RowRule::kEach)
              .Infer(InferSelectOutput)
              .Gradient(SelectOutputGradient)
              .Strings()
              .Reference(SelectOutput));
}

}  // namespace coracle::select_op

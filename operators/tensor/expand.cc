// Older forms of expand_v2 and tile, and broadcasts to the shape of another tensor.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/tensor/repeat.h>

#include <algorithm>

namespace coracle::expand_op {

Kernel Tiled(const PrepareContext& ctx) { return TileKernel(ctx.Input("X"), ctx.Output("Out")); }

// ---- expand ----

void InferExpand(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const int rank = x.shape.rank();
  const bool tensor = ctx.HasInput("ExpandTimes");  // takes precedence over the list
  const IntList times = ReadIntList(ctx, tensor ? "" : "expand_times_tensor", "ExpandTimes",
                                    "expand_times", static_cast<size_t>(rank));
  ctx.Require("C1", times.values.size() == static_cast<size_t>(rank), times.values.size(), rank);
  for (int i = 0; i < rank; ++i) {
    const int64_t repeat = times.values[static_cast<size_t>(i)];
    ctx.Require("C2", repeat > 0 || (repeat == -1 && !times.known), repeat);
    x.shape[i] = MulDims(x.shape[i], repeat);
  }
  ctx.SetOutput("Out", x);
}

// Uses the gradient of tile, with one number for each dimension.
void ExpandGradient(GradientContext& g) {
  SlotList inputs = {{"X", {g.Input("X")}}, {"Out@GRAD", {g.OutputGrad("Out")}}};
  if (g.HasInput("ExpandTimes"))
    inputs.push_back({"RepeatTimes", {g.Input("ExpandTimes")}});
  else if (g.HasInput("expand_times_tensor"))
    inputs.push_back({"repeat_times_tensor", g.Inputs("expand_times_tensor")});
  g.Append("tile_grad", std::move(inputs), {{"X@GRAD", {g.InputGrad("X")}}},
           {{"repeat_times", g.Attr<std::vector<int32_t>>("expand_times")}});
}

// ---- expand_as ----

// Whether `whole` can consist of copies of `part` along each axis.
bool Divides(const Shape& part, const Shape& whole) {
  if (part.rank() != whole.rank()) return false;
  for (int i = 0; i < part.rank(); ++i) {
    if (part[i] < 0 || whole[i] < 0 || (part[i] == 0 && whole[i] == 0)) continue;
    if (part[i] == 0 || whole[i] == 0 || whole[i] % part[i] != 0) return false;
  }
  return true;
}

void InferExpandAs(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const Shape& target = ctx.InputShape("target_tensor");
  ctx.Require("C1", Divides(x.shape, target), x.shape, target);
  x.shape = target;
  ctx.SetOutput("Out", x);
}

void InferExpandAsGrad(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &dout = ctx.Input("Out@GRAD");
  ctx.Require("C1", Divides(x.shape, dout.shape), x.shape, dout.shape);
  ctx.Require("C2", x.dtype == dout.dtype, x.dtype, dout.dtype);
  ctx.SetOutput("X@GRAD", x);
}

template <class T>
KernelOf<T> ExpandAsGrad(const PrepareContext& ctx) {
  return TileGradKernel<T>(ctx.Input("Out@GRAD"), ctx.Output("X@GRAD"));
}

void ExpandAsGradGradient(GradientContext& g) {
  g.Set("Out@GRAD", g.Make("expand_as", {{"X", {g.OutputGrad("X@GRAD")}},
                                         {"target_tensor", {g.Input("Out@GRAD")}}}));
}

// ---- expand_as_v2, broadcast_tensors ----

void InferExpandAsV2(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const Shape target = ctx.HasInput("Y")
                           ? ctx.InputShape("Y")
                           : ToShape(ctx, "C3", ctx.Attr<std::vector<int64_t>>("target_shape"));
  const int lead = target.rank() - x.shape.rank();
  ctx.Require("C1", lead >= 0, target.rank(), x.shape.rank());
  for (int i = 0; i < target.rank(); ++i) {
    const int64_t dim = i < lead ? 1 : x.shape[i - lead];
    ctx.Require("C2", target[i] >= 0 || (target[i] == -1 && !ctx.exact()), target[i]);
    ctx.Require("C2", dim == 1 || InferContext::Matches(dim, target[i]), dim, target[i]);
  }
  x.shape = target;
  ctx.SetOutput("Out", x);
}

Kernel ExpandAsV2(const PrepareContext& ctx) {
  return BroadcastKernel(ctx.Input("X"), ctx.Output("Out"));
}

// The sum of dout to the shape of x: the gradient of x in a broadcasting sum.
Variable SumTo(GradientContext& g, const Variable& x, const Variable& dout) {
  return g.Make("elementwise_add_grad", {{"Y", {x.name()}}, {"Out@GRAD", {dout.name()}}},
                {{"axis", int32_t{-1}}}, "Y@GRAD");
}

void ExpandAsV2Gradient(GradientContext& g) { g.Set("X", SumTo(g, g.In("X"), g.Grad("Out"))); }

// The common dim of a and b; -1 if it is unknown, -2 if there is none.
int64_t CommonDim(int64_t a, int64_t b) {
  if (a == 1 || a == b) return b;
  if (b == 1) return a;
  if (a < 0 || b < 0) return std::max(a, b);
  return -2;
}

void InferBroadcastTensors(InferContext& ctx) {
  const size_t count = ctx.NumInputs("X");
  ctx.Require("C1", ctx.NumOutputs("Out") == count, ctx.NumOutputs("Out"), count);
  int rank = 0;
  for (size_t k = 0; k < count; ++k) rank = std::max(rank, ctx.InputShape("X", k).rank());
  Shape common(std::vector<int64_t>(static_cast<size_t>(rank), 1));
  for (size_t k = 0; k < count; ++k) {
    const Shape& x = ctx.InputShape("X", k);
    for (int i = 0; i < x.rank(); ++i) {
      int64_t& dim = common[rank - x.rank() + i];
      const int64_t both = CommonDim(dim, x[i]);
      ctx.Require("C2", both > -2, x, "others", common);
      dim = both;
    }
  }
  for (size_t k = 0; k < count; ++k) {
    VarMeta out = ctx.Input("X", k);
    out.shape = common;
    ctx.SetOutput("Out", out, k);
  }
}

Kernel BroadcastTensors(const PrepareContext& ctx) {
  std::vector<Kernel> copies;
  for (size_t k = 0; k < ctx.NumInputs("X"); ++k) {
    if (const TensorArg out = ctx.Output("Out", k))
      copies.push_back(BroadcastKernel(ctx.Input("X", k), out));
  }
  return [=](Workspace& ws) {
    for (const Kernel& copy : copies) copy(ws);
  };
}

void BroadcastTensorsGradient(GradientContext& g) {
  const size_t count = std::min(g.Inputs("X").size(), g.Outputs("Out").size());
  for (size_t k = 0; k < count; ++k) {
    if (g.NeedsInputGrad("X", k)) g.Set("X", SumTo(g, g.In("X", k), g.Grad("Out", k)), k);
  }
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("expand")
              .Doc("Out = X repeated along each dimension. The numbers come from ExpandTimes, else "
                   "expand_times_tensor, else attr expand_times.")
              .Constraint("C1", "there must be one number for each dimension of X")
              .Constraint("C2", "repeats must be positive")
              .Input("X", "tensor of any dtype")
              .OptionalInput("ExpandTimes", "int32 or int64 tensor; replaces attr expand_times")
              .OptionalVariadicInput("expand_times_tensor",
                                     "one-element tensors; replace attr expand_times")
              .Output("Out", "the repeated tensor")
              .Attr<std::vector<int32_t>>("expand_times", {}, "one number for each dimension")
              .NoGradientTo({"ExpandTimes", "expand_times_tensor"})
              .Rows(RowRule::kEach)
              .Infer(InferExpand)
              .Gradient(ExpandGradient)
              .Strings()
              .Reference(Tiled));
  ops.Add(OpDef("expand_as")
              .Doc("Out = X repeated along each dimension up to the shape of target_tensor.")
              .Constraint("C1",
                          "target_tensor must have X's rank, and its dimensions be multiples of "
                          "X's")
              .Input("X", "tensor of any dtype")
              .Input("target_tensor", "tensor of any dtype, for its shape only")
              .Output("Out", "the repeated tensor")
              .NoGradientTo({"target_tensor"})
              .Rows(RowRule::kEach)
              .Infer(InferExpandAs)
              .GradientOp({"X"})
              .Strings()
              .Reference(Tiled));
  ops.Add(OpDef("expand_as_grad")
              .Doc("Gradient of expand_as: X@GRAD = sum of Out@GRAD over the copies of each "
                   "element.")
              .Constraint("C1", "the dimensions of Out@GRAD must be multiples of X's")
              .Constraint("C2", "Out@GRAD must have X's dtype")
              .Input("X", "only its shape is used")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .NoGradientTo({"X"})
              .KernelTypeFrom("Out@GRAD")
              .Infer(InferExpandAsGrad)
              .Gradient(ExpandAsGradGradient)
              .Reference(ExpandAsGrad<float>, ExpandAsGrad<double>, ExpandAsGrad<float16>,
                         ExpandAsGrad<bfloat16>, ExpandAsGrad<complex64>,
                         ExpandAsGrad<complex128>));
  ops.Add(OpDef("expand_as_v2")
              .Doc("Out = X broadcast to the shape of Y, or else to target_shape.")
              .Constraint("C1", "target_shape must have at least X's rank")
              .Constraint("C2", "a dimension of X must be 1 or that of target_shape")
              .Constraint("C3", "the rank must be at most 9")
              .Input("X", "tensor of any dtype")
              .OptionalInput("Y", "tensor of any dtype, for its shape only; replaces target_shape")
              .Output("Out", "the broadcast tensor")
              .NoGradientTo({"Y"})
              .Attr<std::vector<int32_t>>("target_shape", {}, "shape of Out")
              .Rows(RowRule::kEach)
              .Infer(InferExpandAsV2)
              .Gradient(ExpandAsV2Gradient)
              .Strings()
              .Reference(ExpandAsV2));
  ops.Add(OpDef("broadcast_tensors")
              .Doc("Out[i] = X[i] broadcast to the common shape of all inputs, aligned at their "
                   "last dimensions.")
              .Constraint("C1", "there must be one output for each input")
              .Constraint("C2", "aligned dimensions must be equal or 1")
              .VariadicInput("X", "tensors of any dtype")
              .VariadicOutput("Out", "the broadcast tensors")
              .Rows(RowRule::kEach)
              .Infer(InferBroadcastTensors)
              .Gradient(BroadcastTensorsGradient)
              .Strings()
              .Reference(BroadcastTensors));
}

}  // namespace coracle::expand_op

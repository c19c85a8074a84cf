#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>

namespace coracle::transpose_op {

using Axes = std::vector<int32_t>;

void RequirePermutation(const InferContext& ctx, const Axes& axes, int rank) {
  ctx.Require("C1", static_cast<int>(axes.size()) == rank, axes.size(), rank);
  std::vector<bool> seen(axes.size(), false);
  for (int32_t axis : axes) {
    const bool fresh = axis >= 0 && axis < rank && !seen[static_cast<size_t>(axis)];
    ctx.Require("C1", fresh, axis);
    seen[static_cast<size_t>(axis)] = true;
  }
}

void InferTranspose(InferContext& ctx) {
  const VarMeta x = ctx.Input("X");
  const Axes axes = ctx.Attr<Axes>("axis");
  RequirePermutation(ctx, axes, x.shape.rank());
  VarMeta out = x;
  for (int i = 0; i < x.shape.rank(); ++i) out.shape[i] = x.shape[axes[static_cast<size_t>(i)]];
  ctx.SetOutput("Out", out);
  if (!ctx.HasOutput("XShape")) return;
  Shape kept = {0};
  for (int64_t dim : x.shape) kept.Append(dim);
  ctx.SetOutput("XShape", x.dtype, kept);
}

void InferTransposeGrad(InferContext& ctx) {
  const VarMeta dout = ctx.Input("Out@GRAD");
  const Axes axes = ctx.Attr<Axes>("axis");
  RequirePermutation(ctx, axes, dout.shape.rank());
  VarMeta dx = dout;
  for (int i = 0; i < dx.shape.rank(); ++i) dx.shape[axes[static_cast<size_t>(i)]] = dout.shape[i];
  ctx.SetOutput("X@GRAD", dx);
}

// Axis i of `to` is axis from_axis_of_to[i] of `from`. The copy runs in the order of the target, so
// that writes are contiguous.
Kernel Permute(const TensorArg& from, const TensorArg& to, const Axes& from_axis_of_to) {
  if (to.numel == 0) return [](Workspace&) {};
  const std::vector<int64_t> strides = ContiguousStrides(from.shape.ToVector());
  std::vector<int64_t> from_strides;
  for (int32_t axis : from_axis_of_to) from_strides.push_back(strides[static_cast<size_t>(axis)]);
  const std::vector<int64_t> dims = to.shape.ToVector();
  const StridedCopy copy(SizeOf(from.dtype), dims, from_strides, ContiguousStrides(dims));
  return [=](Workspace& ws) { copy(ws.Data<const void>(from), ws.Data<void>(to)); };
}

Kernel Transpose(const PrepareContext& ctx) {
  return Permute(ctx.Input("X"), ctx.Output("Out"), ctx.Attr<Axes>("axis"));
}

Kernel TransposeGrad(const PrepareContext& ctx) {
  const Axes axes = ctx.Attr<Axes>("axis");
  Axes inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i)
    inverse[static_cast<size_t>(axes[i])] = static_cast<int32_t>(i);
  return Permute(ctx.Input("Out@GRAD"), ctx.Output("X@GRAD"), inverse);
}

void TransposeGradient(GradientContext& g) {
  SlotList inputs;
  if (g.HasOutput("XShape")) inputs.push_back({"XShape", {g.Output("XShape")}});
  inputs.push_back({"Out@GRAD", {g.OutputGrad("Out")}});
  g.Append(g.op().type() + "_grad", inputs, {{"X@GRAD", {g.InputGrad("X")}}},
           g.ForwardAttrs({"axis"}));
}

void TransposeGradGradient(GradientContext& g) {
  g.Set("Out@GRAD",
        g.Make("transpose", {{"X", {g.OutputGrad("X@GRAD")}}}, g.ForwardAttrs({"axis"})));
}

void DeclareAxis(OpDef& def) {
  def.Attr<Axes>("axis", "dimension i of Out is dimension axis[i] of X")
      .Attr<std::string>("data_format", "AnyLayout", "ignored");
}

void AddPair(OpRegistry& ops, const std::string& type) {
  OpDef def(type);
  def.Doc("Out = X with its dimensions permuted: Out.shape[i] = X.shape[axis[i]].")
      .Constraint("C1", "axis must name every dimension of X once")
      .Input("X", "tensor of any dtype")
      .Output("Out", "the permuted tensor");
  if (type == "transpose2") {
    def.EachImage()
        .IntermediateOutput("XShape", "[0] and the dims of X, no elements: for the gradient")
        .Attr<bool>("keeps_lod", false,
                    "whether Out has X's LoD; set where images change their layout");
  }
  def.NoLod().Rows(RowRule::kMoves).Infer(InferTranspose);
  def.Gradient(TransposeGradient).Strings().Reference(Transpose);
  ops.Add(std::move(def.Apply(DeclareAxis)));
  OpDef grad(type + "_grad");
  grad.Doc("Gradient of " + type + ": X@GRAD = Out@GRAD under the inverse permutation.")
      .Constraint("C1", "axis must name every dimension of X once")
      .OptionalInput("XShape", "not read")
      .Input("Out@GRAD", "gradient of Out")
      .Output("X@GRAD", "gradient of X")
      .NoGradientTo({"XShape"})
      .NoLod()
      .Infer(InferTransposeGrad)
      .Gradient(TransposeGradGradient)
      .Reference(TransposeGrad)
      .KernelTypeFrom("Out@GRAD");
  ops.Add(std::move(grad.Apply(DeclareAxis)));
}

void Register(OpRegistry& ops) {
  AddPair(ops, "transpose");
  AddPair(ops, "transpose2");
}

}  // namespace coracle::transpose_op

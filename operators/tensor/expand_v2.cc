#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/tensor/repeat.h>

#include <algorithm>

namespace coracle::expand_v2_op {

size_t DeclaredRank(const InferContext& ctx) {
  const VarMeta* declared = ctx.DeclaredOutput("Out");
  return static_cast<size_t>(
      std::max({1, ctx.InputShape("X").rank(), declared ? declared->shape.rank() : 0}));
}

VarMeta ExpandOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const IntList wanted =
      ReadIntList(ctx, "expand_shapes_tensor", "Shape", "shape", DeclaredRank(ctx));
  Shape out = ToShape(ctx, "C4", wanted.values);
  const int lead = out.rank() - x.shape.rank();
  ctx.Require("C1", lead >= 0, out.rank(), x.shape.rank());
  for (int i = 0; i < out.rank(); ++i) {
    const int64_t dim = i < lead ? 1 : x.shape[i - lead];
    if (out[i] == -1 && wanted.known) {
      ctx.Require("C2", i >= lead, "-1 at", i, "of shape", out);
      out[i] = dim;
    }
    ctx.Require("C2", out[i] >= -1, out[i]);
    ctx.Require("C3", dim == 1 || InferContext::Matches(dim, out[i]), dim, out[i]);
  }
  x.shape = out;
  return x;
}

void InferExpand(InferContext& ctx) { ctx.SetOutput("Out", ExpandOut(ctx)); }

Kernel Expand(const PrepareContext& ctx) {
  return BroadcastKernel(ctx.Input("X"), ctx.Output("Out"));
}

template <class T>
KernelOf<T> ExpandGrad(const PrepareContext& ctx) {
  return BroadcastGradKernel<T>(ctx.Input("Out@GRAD"), ctx.Output("X@GRAD"));
}

// ---- tile ----

VarMeta TileOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const IntList times =
      ReadIntList(ctx, "repeat_times_tensor", "RepeatTimes", "repeat_times", DeclaredRank(ctx));
  const int count = ToShape(ctx, "C2", times.values).rank();
  const int rank = std::max(count, x.shape.rank());
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int from = i - (rank - x.shape.rank()), of = i - (rank - count);
    const int64_t repeat = of < 0 ? 1 : times.values[static_cast<size_t>(of)];
    ctx.Require("C1", repeat > 0 || (repeat == -1 && !times.known), repeat);
    out.Append(MulDims(from < 0 ? 1 : x.shape[from], repeat));
  }
  x.shape = out;
  return x;
}

void InferTile(InferContext& ctx) { ctx.SetOutput("Out", TileOut(ctx)); }

Kernel Tile(const PrepareContext& ctx) { return TileKernel(ctx.Input("X"), ctx.Output("Out")); }

template <class T>
KernelOf<T> TileGrad(const PrepareContext& ctx) {
  return TileGradKernel<T>(ctx.Input("Out@GRAD"), ctx.Output("X@GRAD"));
}

// The slots and the attr that give the shape of Out.
struct Spelling {
  const char *list, *tensor, *attr;
};
constexpr Spelling kExpand = {"expand_shapes_tensor", "Shape", "shape"};
constexpr Spelling kTile = {"repeat_times_tensor", "RepeatTimes", "repeat_times"};

void DeclareShape(OpDef& def, const Spelling& names) {
  const std::string attr = names.attr;
  def.OptionalInput(names.tensor, "int32 or int64 tensor; replaces attr " + attr)
      .OptionalVariadicInput(names.list, "one-element tensors; replace attr " + attr)
      .Attr<std::vector<int32_t>>(attr, {}, "one number for each dimension of Out")
      .NoGradientTo({names.tensor, names.list});
}

// Both ops are linear, so the gradient of the gradient is the op itself.
GradientFn Repeat(const std::string& type, const Spelling& names) {
  return [type, names](GradientContext& g) {
    SlotList inputs = g.ForwardInputs({names.tensor, names.list});
    inputs.push_back({"X", {g.OutputGrad("X@GRAD")}});
    g.Set("Out@GRAD", g.Make(type, std::move(inputs), g.ForwardAttrs({names.attr})));
  };
}

OpDef GradDef(const std::string& type, const Spelling& names,
              std::vector<std::string> constraints) {
  OpDef def(type + "_grad");
  def.Doc("Gradient of " + type + ": X@GRAD = sum of Out@GRAD over the copies of each element.")
      .ConstraintsOf(type, std::move(constraints))
      .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
      .Input("X", "only its shape is used")
      .Input("Out@GRAD", "gradient of Out")
      .Output("X@GRAD", "gradient of X")
      .NoGradientTo({"X"})
      .KernelTypeFrom("Out@GRAD")
      .Infer([](InferContext& ctx) {
        const bool tile = ctx.op().type() == "tile_grad";
        RequireOutGrad(ctx, "C5", tile ? TileOut(ctx) : ExpandOut(ctx));
        ctx.SetOutput("X@GRAD", ctx.Input("X"));
      })
      .Gradient(Repeat(type, names))
      .Apply(DeclareShape, names);
  return def;
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("expand_v2")
              .Doc("Out = X broadcast to a shape: from expand_shapes_tensor, else Shape, else attr "
                   "shape; -1 keeps X's dimension.")
              .Constraint("C1", "shape must have at least X's rank")
              .Constraint("C2",
                          "the numbers of shape must be -1 (which keeps a dimension that X must "
                          "have) or not negative")
              .Constraint("C3", "a dimension of X must be 1 or that of shape")
              .Constraint("C4", "the rank must be at most 9")
              .Input("X", "tensor of any dtype")
              .Output("Out", "the broadcast tensor")
              .Apply(DeclareShape, kExpand)
              .Rows(RowRule::kEach)
              .Infer(InferExpand)
              .GradientOp({"X", "Shape", "expand_shapes_tensor"})
              .Strings()
              .Reference(Expand));
  ops.Add(GradDef("expand_v2", kExpand, {"C1", "C2", "C3", "C4"})
              .Reference(ExpandGrad<float>, ExpandGrad<double>, ExpandGrad<float16>,
                         ExpandGrad<bfloat16>, ExpandGrad<complex64>, ExpandGrad<complex128>));
  ops.Add(OpDef("tile")
              .Doc("Out = X repeated along each dimension: the numbers come from "
                   "repeat_times_tensor, else RepeatTimes, else attr repeat_times; if they and X's "
                   "shape differ in length, the shorter one gets leading ones.")
              .Constraint("C1", "repeats must be positive")
              .Constraint("C2", "the rank must be at most 9")
              .Input("X", "tensor of any dtype")
              .Output("Out", "the repeated tensor")
              .Apply(DeclareShape, kTile)
              .Rows(RowRule::kEach)
              .Infer(InferTile)
              .GradientOp({"X", "RepeatTimes", "repeat_times_tensor"})
              .Strings()
              .Reference(Tile));
  ops.Add(GradDef("tile", kTile, {"C1", "C2"})
              .Reference(TileGrad<float>, TileGrad<double>, TileGrad<float16>, TileGrad<bfloat16>,
                         TileGrad<complex64>, TileGrad<complex128>));
}

}  // namespace coracle::expand_v2_op

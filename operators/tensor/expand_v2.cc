#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/tensor/strided_sum.h>

#include <algorithm>

namespace coracle {
namespace {

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

// Strides of X for every axis of Out: 0 where X is repeated.
Kernel Expand(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const std::vector<int64_t> own = ContiguousStrides(x.shape.ToVector());
  const int lead = out.shape.rank() - x.shape.rank();
  std::vector<int64_t> strides;
  for (int i = 0; i < out.shape.rank(); ++i) {
    const bool repeated = i < lead || x.shape[i - lead] == 1;
    strides.push_back(repeated ? 0 : own[static_cast<size_t>(i - lead)]);
  }
  const std::vector<int64_t> dims = out.shape.ToVector();
  const StridedCopy copy(SizeOf(x.dtype), dims, strides, ContiguousStrides(dims));
  return [=](Workspace& ws) { copy(ws.Data<const void>(x), ws.Data<void>(out)); };
}

template <class T>
Kernel SumInto(const TensorArg& dout, const TensorArg& dx, std::vector<SumAxis> kept,
               std::vector<SumAxis> summed) {
  const StridedSum sum(std::move(kept), std::move(summed));
  return [=](Workspace& ws) { sum(ws.Data<const T>(dout), ws.Data<T>(dx)); };
}

// Nothing to sum: X@GRAD is zero, whether it has elements or not.
Kernel ZeroFill(const TensorArg& dx) {
  const int64_t bytes = dx.nbytes();
  return [=](Workspace& ws) { FillZeroBytes(ws.Data<void>(dx), bytes); };
}

template <class T>
KernelOf<T> ExpandGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  if (dout.numel == 0) return ZeroFill(dx);
  const std::vector<int64_t> strides = ContiguousStrides(dout.shape.ToVector());
  const int lead = dout.shape.rank() - dx.shape.rank();
  std::vector<SumAxis> kept, summed;
  for (int i = 0; i < dout.shape.rank(); ++i) {
    const SumAxis axis{dout.shape[i], strides[static_cast<size_t>(i)]};
    (i < lead || dx.shape[i - lead] == 1 ? summed : kept).push_back(axis);
  }
  return SumInto<T>(dout, dx, std::move(kept), std::move(summed));
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

// Out as [repeat, dim] pairs of axes, one for each of its dimensions.
struct TileAxes {
  std::vector<int64_t> dims, x_strides, out_strides;
};

TileAxes PairAxes(const Shape& x, const Shape& out) {
  const std::vector<int64_t> x_strides = ContiguousStrides(x.ToVector());
  const std::vector<int64_t> out_strides = ContiguousStrides(out.ToVector());
  TileAxes axes;
  for (int i = 0; i < out.rank(); ++i) {
    const int from = i - (out.rank() - x.rank());
    const int64_t dim = from < 0 ? 1 : x[from], stride = out_strides[static_cast<size_t>(i)];
    axes.dims.insert(axes.dims.end(), {out[i] / dim, dim});
    axes.x_strides.insert(axes.x_strides.end(),
                          {0, from < 0 ? 0 : x_strides[static_cast<size_t>(from)]});
    axes.out_strides.insert(axes.out_strides.end(), {stride * dim, stride});
  }
  return axes;
}

Kernel Tile(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const TileAxes axes = PairAxes(x.shape, out.shape);
  const StridedCopy copy(SizeOf(x.dtype), axes.dims, axes.x_strides, axes.out_strides);
  return [=](Workspace& ws) { copy(ws.Data<const void>(x), ws.Data<void>(out)); };
}

template <class T>
KernelOf<T> TileGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  if (dout.numel == 0) return ZeroFill(dx);
  const TileAxes axes = PairAxes(dx.shape, dout.shape);
  std::vector<SumAxis> kept, summed;
  for (size_t i = 0; i < axes.dims.size(); ++i)
    (i % 2 == 0 ? summed : kept).push_back({axes.dims[i], axes.out_strides[i]});
  return SumInto<T>(dout, dx, std::move(kept), std::move(summed));
}

// The slots and the attr that tell the shape of Out.
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
      .Input("X", "for its shape only")
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

}  // namespace

void RegisterExpandV2(OpRegistry& ops) {
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
              .Infer(InferExpand)
              .GradientOp({"X", "Shape", "expand_shapes_tensor"})
              .Reference(Expand));
  ops.Add(GradDef("expand_v2", kExpand, {"C1", "C2", "C3", "C4"})
              .Reference(ExpandGrad<float>, ExpandGrad<double>, ExpandGrad<float16>,
                         ExpandGrad<bfloat16>));
  ops.Add(OpDef("tile")
              .Doc("Out = X repeated along each dimension: the numbers come from "
                   "repeat_times_tensor, else RepeatTimes, else attr repeat_times; the shorter of "
                   "them and X's shape gets leading ones.")
              .Constraint("C1", "repeats must be positive")
              .Constraint("C2", "the rank must be at most 9")
              .Input("X", "tensor of any dtype")
              .Output("Out", "the repeated tensor")
              .Apply(DeclareShape, kTile)
              .Infer(InferTile)
              .GradientOp({"X", "RepeatTimes", "repeat_times_tensor"})
              .Reference(Tile));
  ops.Add(GradDef("tile", kTile, {"C1", "C2"})
              .Reference(TileGrad<float>, TileGrad<double>, TileGrad<float16>, TileGrad<bfloat16>));
}

}  // namespace coracle

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/tensor/axis_split.h>

#include <algorithm>
#include <utility>

namespace coracle::concat_op {

// The axis from AxisTensor, else the attr; nullopt if it is not known yet.
std::optional<int> ReadAxis(const InferContext& ctx, int rank) {
  if (ctx.HasInput("AxisTensor")) {
    const auto value = ctx.Value("AxisTensor");
    if (!value) return std::nullopt;
    ctx.Require("C1", value->size() == 1, "AxisTensor", *value);
    return ctx.Axis("C1", value->front(), rank);
  }
  return ctx.Axis("C1", ctx.Attr<int32_t>("axis"), rank);
}

VarMeta ConcatOut(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const int rank = out.shape.rank();
  const std::optional<int> axis = ReadAxis(ctx, rank);
  for (size_t i = 1; i < ctx.NumInputs("X"); ++i) {
    const Shape& x = ctx.InputShape("X", i);
    ctx.Require("C2", x.rank() == rank, out.shape, x);
    ctx.Require("C3", ctx.InputDType("X", i) == out.dtype, out.dtype, ctx.InputDType("X", i));
    for (int d = 0; axis && d < rank; ++d) {
      if (d == *axis) {
        out.shape[d] = AddDims(out.shape[d], x[d]);
        continue;
      }
      ctx.Require("C2", InferContext::Matches(out.shape[d], x[d]), out.shape[d], x[d]);
      if (out.shape[d] < 0) out.shape[d] = x[d];
    }
  }
  if (!axis) out.shape = Shape(std::vector<int64_t>(static_cast<size_t>(rank), -1));
  return out;
}

void InferConcat(InferContext& ctx) { ctx.SetOutput("Out", ConcatOut(ctx)); }

// The split of `whole` into `parts` along `axis`; throws if they do not match.
AxisSplit MakeAxisSplit(const std::vector<TensorArg>& parts, const TensorArg& whole, int64_t axis) {
  int at = 0;
  int64_t sum = 0;
  bool fits = whole.shape.NormalizeAxis(axis, &at);
  std::vector<int64_t> widths;
  for (const TensorArg& part : parts) {
    fits = fits && part.shape.rank() == whole.shape.rank();
    if (!fits) break;
    sum += part.shape[at];
    widths.push_back(
        whole.numel == 0 ? 0 : part.shape[at] * whole.shape.Product(at + 1, whole.shape.rank()));
  }
  if (!fits || sum != whole.shape[at])
    ThrowInvalid("the axis does not match the inferred shapes of the pieces");
  return AxisSplit(SizeOf(whole.dtype), whole.numel == 0 ? 0 : whole.shape.Product(0, at), widths);
}

// Calls body(ws, split, axis): with a split made once if the axis is an attr, otherwise with the
// split for the value of AxisTensor in this run.
template <class Body>
Kernel WithAxisSplit(const PrepareContext& ctx, const std::vector<TensorArg>& parts,
                     const TensorArg& whole, Body body) {
  const TensorArg axis = ctx.Input("AxisTensor");
  if (!axis) {
    const int64_t at = ctx.Attr<int32_t>("axis");
    const AxisSplit split = MakeAxisSplit(parts, whole, at);
    return [=](Workspace& ws) { body(ws, split, at); };
  }
  if (axis.numel != 1 || !IsIndexType(axis.dtype))
    ctx.Unsupported("AxisTensor must hold one int32 or int64");
  return [=](Workspace& ws) {
    const int64_t at = IndexReader(ws, axis)[0];
    body(ws, MakeAxisSplit(parts, whole, at), at);
  };
}

// The sequences of all parts, one after the other; none if a part has none.
LoD JoinedLod(Workspace& ws, const std::vector<TensorArg>& parts, const RunConstraint& one_depth) {
  const bool all = std::none_of(parts.begin(), parts.end(),
                                [&](const TensorArg& part) { return ws.LodOf(part).empty(); });
  if (!all) return {};
  LoD joined = ws.LodOf(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    const LoD& lod = ws.LodOf(parts[i]);
    one_depth.Require(lod.size() == joined.size(), "levels", joined.size(), "levels", lod.size());
    for (size_t k = 0; k < lod.size(); ++k) {
      const uint64_t before = joined[k].back();
      for (size_t s = 1; s < lod[k].size(); ++s) joined[k].push_back(before + lod[k][s]);
    }
  }
  return joined;
}

Kernel Concat(const PrepareContext& ctx) {
  const std::vector<TensorArg> parts = ctx.Inputs("X");
  const TensorArg whole = ctx.Output("Out");
  const RunConstraint one_depth(ctx, "C4");
  return WithAxisSplit(ctx, parts, whole, [=](Workspace& ws, const AxisSplit& split, int64_t axis) {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].numel > 0) split.Join(i, ws.Data<const void>(parts[i]), ws.Data<void>(whole));
    }
    const bool rows = axis == 0 || axis == -whole.shape.rank();
    LoD lod = rows ? JoinedLod(ws, parts, one_depth) : ws.LodOf(parts[0]);
    if (lod != ws.LodOf(whole)) ws.OutputLod(whole) = std::move(lod);
  });
}

// Copies piece i, which has the shape of shapes[i], to parts[i], if present.
Kernel Cut(const PrepareContext& ctx, const TensorArg& whole, const std::vector<TensorArg>& shapes,
           const std::vector<TensorArg>& parts) {
  return WithAxisSplit(ctx, shapes, whole, [=](Workspace& ws, const AxisSplit& split, int64_t) {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] && parts[i].numel > 0)
        split.Cut(i, ws.Data<const void>(whole), ws.Data<void>(parts[i]));
    }
  });
}

Kernel ConcatGrad(const PrepareContext& ctx) {
  return Cut(ctx, ctx.Input("Out@GRAD"), ctx.Inputs("X"), ctx.Outputs("X@GRAD"));
}

void InferConcatGrad(InferContext& ctx) {
  RequireOutGrad(ctx, "C4", ConcatOut(ctx));
  ctx.Require("C5", ctx.NumOutputs("X@GRAD") <= ctx.NumInputs("X"), ctx.NumOutputs("X@GRAD"),
              ctx.NumInputs("X"));
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) ctx.SetOutput("X@GRAD", ctx.Input("X", i), i);
}

SlotList WithAxisTensor(const GradientContext& g, SlotList slots) {
  for (Slot& slot : g.ForwardInputs({"AxisTensor"})) slots.push_back(std::move(slot));
  return slots;
}

void ConcatGradGradient(GradientContext& g) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < g.Inputs("X").size(); ++i) {
    parts.push_back(g.HasOutputGrad("X@GRAD", i) ? g.OutputGrad("X@GRAD", i)
                                                 : ZerosLike(g.In("X", i)).name());
  }
  g.Set("Out@GRAD", g.Make("concat", WithAxisTensor(g, {{"X", parts}}), g.ForwardAttrs({"axis"})));
}

// ---- split ----

// Sizes of the pieces of a dimension; -1 if unknown.
std::vector<int64_t> SplitSizes(const InferContext& ctx, int64_t dim) {
  const int64_t count = static_cast<int64_t>(ctx.NumOutputs("Out")), num = ctx.Attr<int32_t>("num");
  if (num > 0) {
    ctx.Require("C2", num == count, "num", num, "outputs", count);
    ctx.Require("C3", dim < 0 || dim % num == 0, dim, num);
    return std::vector<int64_t>(static_cast<size_t>(num), dim < 0 ? -1 : dim / num);
  }
  IntList sections = ReadIntList(ctx, "SectionsTensorList", "", "sections");
  const int64_t given = static_cast<int64_t>(sections.values.size());
  ctx.Require("C2", given == count, "sections", given, "outputs", count);
  if (!sections.known) return std::vector<int64_t>(sections.values.size(), -1);
  int64_t sum = 0, *open = nullptr;
  for (int64_t& size : sections.values) {
    ctx.Require("C4", size >= -1, size);
    ctx.Require("C4", size >= 0 || !open, sections.values);
    if (size < 0)
      open = &size;
    else
      sum = AddDims(sum, size);
  }
  ctx.Require("C4", dim < 0 || sum == dim || (open && sum < dim), sum, dim);
  if (open && dim >= 0) *open = dim - sum;
  return sections.values;
}

void InferSplit(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const std::optional<int> axis = ReadAxis(ctx, x.shape.rank());
  if (!axis) {
    x.shape = Shape(std::vector<int64_t>(static_cast<size_t>(x.shape.rank()), -1));
    for (size_t i = 0; i < ctx.NumOutputs("Out"); ++i) ctx.SetOutput("Out", x, i);
    return;
  }
  const std::vector<int64_t> sizes = SplitSizes(ctx, x.shape[*axis]);
  for (size_t i = 0; i < sizes.size(); ++i) {
    x.shape[*axis] = sizes[i];
    ctx.SetOutput("Out", x, i);
  }
}

Kernel Split(const PrepareContext& ctx) {
  const std::vector<TensorArg> outs = ctx.Outputs("Out");
  for (const TensorArg& out : outs) {
    if (!out) ctx.Unsupported("every output must have a name");
  }
  return Cut(ctx, ctx.Input("X"), outs, outs);
}

void SplitGradient(GradientContext& g) {
  g.Append("concat", WithAxisTensor(g, {{"X", g.OutputGrads("Out")}}),
           {{"Out", {g.InputGrad("X")}}}, g.ForwardAttrs({"axis"}));
}

// ---- stack and unstack ----

void InferStack(InferContext& ctx) {
  VarMeta y = ctx.Input("X");
  const int rank = y.shape.rank();
  for (size_t i = 1; i < ctx.NumInputs("X"); ++i) {
    const Shape& x = ctx.InputShape("X", i);
    ctx.Require("C2", y.shape.CompatibleWith(x), y.shape, x);
    ctx.Require("C3", ctx.InputDType("X", i) == y.dtype, y.dtype, ctx.InputDType("X", i));
    for (int d = 0; d < rank; ++d) y.shape[d] = std::max(y.shape[d], x[d]);
  }
  const int axis = ctx.Axis("C1", ctx.Attr<int32_t>("axis"), rank + 1);
  std::vector<int64_t> dims = y.shape.ToVector();
  dims.insert(dims.begin() + axis, static_cast<int64_t>(ctx.NumInputs("X")));
  y.shape = ToShape(ctx, "C4", dims);
  ctx.SetOutput("Y", y);
}

// unstack has outputs Y and their number as an attr, unbind has outputs Out.
template <class Context>
bool IsUnbind(const Context& ctx) {
  return ctx.op().type() == "unbind";
}

void InferUnstack(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() > 0, x.shape);
  const int axis = ctx.Axis("C1", ctx.Attr<int32_t>("axis"), x.shape.rank());
  const char* slot = IsUnbind(ctx) ? "Out" : "Y";
  const auto count = static_cast<int64_t>(ctx.NumOutputs(slot));
  const int64_t num = IsUnbind(ctx) ? count : ctx.Attr<int32_t>("num");
  ctx.Require("C2", num == count && InferContext::Matches(x.shape[axis], num), num, x.shape[axis],
              count);
  std::vector<int64_t> dims = x.shape.ToVector();
  dims.erase(dims.begin() + axis);
  x.shape = Shape(dims);
  for (size_t i = 0; i < ctx.NumOutputs(slot); ++i) ctx.SetOutput(slot, x, i);
}

// `whole` has one dimension more than its `count` pieces, at attr axis.
AxisSplit StackSplit(const PrepareContext& ctx, const TensorArg& whole, size_t count) {
  int axis = 0;
  whole.shape.NormalizeAxis(ctx.Attr<int32_t>("axis"), &axis);
  if (whole.numel == 0) return AxisSplit(SizeOf(whole.dtype), 0, std::vector<int64_t>(count, 0));
  return AxisSplit(SizeOf(whole.dtype), whole.shape.Product(0, axis),
                   std::vector<int64_t>(count, whole.shape.Product(axis + 1, whole.shape.rank())));
}

Kernel Stack(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X");
  const TensorArg y = ctx.Output("Y");
  const AxisSplit split = StackSplit(ctx, y, xs.size());
  return [=](Workspace& ws) {
    for (size_t i = 0; i < xs.size() && y.numel > 0; ++i)
      split.Join(i, ws.Data<const void>(xs[i]), ws.Data<void>(y));
  };
}

Kernel Unstack(const PrepareContext& ctx) {
  const std::vector<TensorArg> ys = ctx.Outputs(IsUnbind(ctx) ? "Out" : "Y");
  const TensorArg x = ctx.Input("X");
  const AxisSplit split = StackSplit(ctx, x, ys.size());
  return [=](Workspace& ws) {
    for (size_t i = 0; i < ys.size() && x.numel > 0; ++i) {
      if (ys[i]) split.Cut(i, ws.Data<const void>(x), ws.Data<void>(ys[i]));
    }
  };
}

void StackGradient(GradientContext& g) {
  g.Append(
      "unstack", {{"X", {g.OutputGrad("Y")}}}, {{"Y", g.InputGrads("X")}},
      {{"axis", g.Attr<int32_t>("axis")}, {"num", static_cast<int32_t>(g.Inputs("X").size())}});
}

void UnbindGradient(GradientContext& g) {
  g.Append("stack", {{"X", g.OutputGrads("Out")}}, {{"Y", {g.InputGrad("X")}}},
           g.ForwardAttrs({"axis"}));
}

// An unnamed output of unstack, which the gradient of stack may have, has the gradient zero.
void UnstackGradient(GradientContext& g) {
  const size_t num = g.Outputs("Y").size();
  size_t named = 0;
  while (named < num && g.Output("Y", named).empty()) ++named;
  std::string zero;
  std::vector<std::string> grads;
  for (size_t i = 0; i < num; ++i) {
    const bool has_name = !g.Output("Y", i).empty();
    if (!has_name && zero.empty()) zero = ZerosLike(g.Out("Y", named)).name();
    grads.push_back(has_name ? g.OutputGrad("Y", i) : zero);
  }
  g.Append("stack", {{"X", grads}}, {{"Y", {g.InputGrad("X")}}}, g.ForwardAttrs({"axis"}));
}

void DeclareAxis(OpDef& def) {
  def.OptionalInput("AxisTensor", "int32 or int64 tensor [1]; replaces attr axis")
      .Attr<int32_t>("axis", 0, "the axis")
      .NoGradientTo({"AxisTensor"});
}

void RegisterStack(OpRegistry& ops) {
  ops.Add(OpDef("stack")
              .Doc("Y = the inputs stacked along a new dimension.")
              .Constraint("C1", "axis must lie in [-rank - 1, rank]")
              .Constraint("C2", "the inputs must have one shape")
              .Constraint("C3", "the inputs must have one dtype")
              .Constraint("C4", "the rank of Y must be at most 9")
              .VariadicInput("X", "tensors of any dtype")
              .Output("Y", "the stacked tensor")
              .Attr<int32_t>("axis", 0, "index of the new dimension in Y")
              .Rows(RowRule::kEach)
              .Infer(InferStack)
              .Gradient(StackGradient)
              .Strings()
              .Reference(Stack));
  ops.Add(OpDef("unstack")
              .Doc("Y[i] = slice i of X along axis, without that dimension.")
              .Constraint("C1", "X must have a dimension, and axis lie in [-rank, rank)")
              .Constraint("C2", "num must be the dimension and the number of outputs")
              .Input("X", "tensor of any dtype")
              // (The gradient of stack may need only some of them.)
              .OptionalVariadicOutput("Y", "the slices; @EMPTY@ for an unwanted one")
              .Attr<int32_t>("axis", 0, "the axis")
              .Attr<int32_t>("num", "number of slices")
              .NoLod()
              .Rows(RowRule::kEach)
              .WorksAlong("axis")
              .Infer(InferUnstack)
              .Gradient(UnstackGradient)
              .Strings()
              .Reference(Unstack));
  ops.Add(OpDef("unbind")
              .Doc("Out[i] = slice i of X along axis, without that dimension (Paddle's tests "
                   "expect it with size 1, but its kernel drops it).")
              .Constraint("C1", "X must have a dimension, and axis lie in [-rank, rank)")
              .Constraint("C2", "there must be one output for each slice")
              .Input("X", "tensor of any dtype")
              .VariadicOutput("Out", "the slices")
              .Attr<int32_t>("axis", 0, "the axis")
              .NoLod()
              .Rows(RowRule::kEach)
              .WorksAlong("axis")
              .Infer(InferUnstack)
              .Gradient(UnbindGradient)
              .Strings()
              .Reference(Unstack));
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("concat")
          .Doc("Out = the inputs concatenated along axis. With axis 0, if all inputs have LoD, Out "
               "has their sequences.")
          .Constraint("C1", "axis must lie in [-rank, rank)")
          .Constraint("C2", "the inputs must have one rank and agree in every other dimension")
          .Constraint("C3", "the inputs must have one dtype")
          .Constraint(
              "C4", "inputs with LoD must have the same number of levels to be joined along axis 0")
          .VariadicInput("X", "tensors of any dtype")
          .Output("Out", "the joined tensor")
          .Apply(DeclareAxis)
          .LodUnlessAxis("axis")
          .MakesLod()
          .Rows(RowRule::kEach)
          .Axes("axis")
          .Infer(InferConcat)
          .GradientOp({"X", "AxisTensor"})
          .Strings()
          .Reference(Concat));
  ops.Add(OpDef("concat_grad")
              .Doc("Gradient of concat: X@GRAD[i] = its part of Out@GRAD.")
              .ConstraintsOf("concat", {"C1", "C2", "C3"})
              .Constraint("C4", "Out@GRAD must have Out's shape and dtype")
              .Constraint("C5", "there must not be more X@GRAD than X")
              .VariadicInput("X", "inputs of concat; only their shapes are used")
              .Input("Out@GRAD", "gradient of Out")
              .OptionalVariadicOutput("X@GRAD", "gradients of the inputs")
              .Apply(DeclareAxis)
              .NoGradientTo({"X"})
              .Infer(InferConcatGrad)
              .Gradient(ConcatGradGradient)
              .Reference(ConcatGrad));
  ops.Add(
      OpDef("split")
          .Doc("Out = X cut along axis into num equal parts, or into parts of the given sections.")
          .Constraint("C1", "axis must lie in [-rank, rank)")
          .Constraint("C2", "num, or the number of sections, must be the number of outputs")
          .Constraint("C3", "num must divide the dimension")
          .Constraint("C4",
                      "the sections must not be negative (except one that may be -1) and must add "
                      "up to the dimension")
          .Input("X", "tensor of any dtype")
          .OptionalVariadicInput("SectionsTensorList", "one-element tensors; replace attr sections")
          .VariadicOutput("Out", "the parts")
          .Apply(DeclareAxis)
          .Attr<std::vector<int32_t>>("sections", {}, "sizes of the parts")
          .Attr<int32_t>("num", 0, "number of equal parts; 0: use sections")
          .Range(0, {})
          .NoGradientTo({"SectionsTensorList"})
          .LodUnlessAxis("axis")
          .Rows(RowRule::kEach)
          .Axes("axis")
          .Infer(InferSplit)
          .Gradient(SplitGradient)
          .Strings()
          .Reference(Split));
  RegisterStack(ops);
}

}  // namespace coracle::concat_op

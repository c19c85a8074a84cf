// Ops that change the shape of a tensor but not its elements: reshape, squeeze, unsqueeze, flatten.
// Each is a row of a table; they share kernel and gradient.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>

namespace coracle::reshape_op {

void SetShapes(InferContext& ctx, const Shape& out) {
  const VarMeta x = ctx.Input("X");
  if (ctx.HasOutput("XShape")) {
    Shape shape = {0};
    for (int64_t dim : x.shape) shape.Append(dim);
    ctx.SetOutput("XShape", x.dtype, shape);
  }
  VarMeta meta = x;
  meta.shape = out;
  ctx.SetOutput("Out", meta);
}

// Rank of a result whose shape comes from a tensor of unknown length: the declared rank.
size_t DeclaredRank(const InferContext& ctx) {
  const VarMeta* declared = ctx.DeclaredOutput("Out");
  return declared && declared->shape.rank() > 0 ? static_cast<size_t>(declared->shape.rank()) : 1;
}

// Whether a 0 is a dimension without elements.
bool KeepsZeros(const InferContext& ctx) { return ctx.Attr<bool>("allow_zero"); }

// Dimensions copied from X (0 in the list) cancel on both sides, so that [-1, 3, 4] to [0, -1]
// is [-1, 12].
void InferReshape(InferContext& ctx) {
  const Shape x = ctx.InputShape("X");
  const IntList wanted = ReadIntList(ctx, "ShapeTensor", "Shape", "shape", DeclaredRank(ctx));
  Shape out = ToShape(ctx, "C5", wanted.values);
  if (!wanted.known) return SetShapes(ctx, out);  // a -1 here may mean "infer" or "not known yet"
  int infer_at = -1;
  std::vector<bool> copied(static_cast<size_t>(x.rank()), false);
  int64_t given = 1;
  for (int i = 0; i < out.rank(); ++i) {
    ctx.Require("C3", out[i] >= -1, out[i]);
    if (out[i] == -1) {
      ctx.Require("C1", infer_at < 0, wanted.values);
      infer_at = i;
    } else if (out[i] == 0 && !KeepsZeros(ctx)) {
      ctx.Require("C2", i < x.rank(), i, x.rank());
      copied[static_cast<size_t>(i)] = true;
      out[i] = x[i];
    } else {
      given = MulDims(given, out[i]);
    }
  }
  int64_t rest = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (!copied[static_cast<size_t>(i)]) rest = MulDims(rest, x[i]);
  }
  if (infer_at >= 0 && rest >= 0) {
    ctx.Require("C4", given > 0 && rest % given == 0, rest, given);
    out[infer_at] = rest / given;
  }
  const int64_t before = NumelOf(x), after = NumelOf(out);
  ctx.Require("C6", InferContext::Matches(before, after), after, before);
  SetShapes(ctx, out);
}

// Axes from attr or tensor, each normalised to [0, rank).
std::vector<bool> ReadAxes(const InferContext& ctx, int rank) {
  std::vector<bool> chosen(static_cast<size_t>(rank), false);
  for (int32_t axis : ctx.Attr<std::vector<int32_t>>("axes"))
    chosen[static_cast<size_t>(ctx.Axis("C1", axis, rank))] = true;
  return chosen;
}

void InferSqueeze(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  const std::vector<bool> chosen = ReadAxes(ctx, x.rank());
  const bool all = ctx.Attr<std::vector<int32_t>>("axes").empty();
  Shape out;
  for (int i = 0; i < x.rank(); ++i) {
    const bool drop = (all || chosen[static_cast<size_t>(i)]) &&
                      // A listed dimension that is still unknown must be 1.
                      (x[i] == 1 || (!all && x[i] < 0));
    if (!drop) out.Append(x[i]);
  }
  SetShapes(ctx, out);
}

void InferUnsqueeze(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  const IntList axes = ReadIntList(ctx, ctx.op().type() == "unsqueeze2" ? "AxesTensorList" : "",
                                   ctx.op().type() == "unsqueeze2" ? "AxesTensor" : "", "axes");
  const size_t rank = static_cast<size_t>(x.rank()) + axes.values.size();
  ctx.Require("C2", rank <= Shape::kMaxRank, rank, Shape::kMaxRank);
  if (!axes.known) return SetShapes(ctx, Shape(std::vector<int64_t>(rank, -1)));
  // Axes are inserted one after the other: each refers to the shape at that time.
  std::vector<int64_t> dims = x.ToVector();
  for (int64_t axis : axes.values) {
    const int at = ctx.Axis("C1", axis, static_cast<int>(dims.size()) + 1);
    dims.insert(dims.begin() + at, 1);
  }
  SetShapes(ctx, Shape(dims));
}

void InferFlatten(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  const int64_t axis = ctx.Attr<int32_t>("axis");
  ctx.Require("C1", axis >= 0 && axis <= x.rank(), axis, x.rank());
  const int cut = static_cast<int>(axis);
  SetShapes(ctx, {ProductOfDims(x, 0, cut), ProductOfDims(x, cut, x.rank())});
}

void InferFlattenRange(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  if (x.rank() == 0) return SetShapes(ctx, {1});
  const int start = ctx.Axis("C1", ctx.Attr<int32_t>("start_axis"), x.rank());
  const int stop = ctx.Axis("C1", ctx.Attr<int32_t>("stop_axis"), x.rank());
  ctx.Require("C2", start <= stop, start, stop);
  Shape out;
  for (int i = 0; i < start; ++i) out.Append(x[i]);
  out.Append(ProductOfDims(x, start, stop + 1));
  for (int i = stop + 1; i < x.rank(); ++i) out.Append(x[i]);
  SetShapes(ctx, out);
}

Kernel CopyAll(const TensorArg& from, const TensorArg& to) {
  const int64_t bytes = from.nbytes();
  return [=](Workspace& ws) { CopyBytes(ws.Data<const void>(from), ws.Data<void>(to), bytes); };
}

Kernel Reshape(const PrepareContext& ctx) { return CopyAll(ctx.Input("X"), ctx.Output("Out")); }

Kernel ReshapeGrad(const PrepareContext& ctx) {
  return CopyAll(ctx.Input("Out@GRAD"), ctx.Output("X@GRAD"));
}

// X@GRAD has the shape of X, from XShape ([0] + X's dims) or, in files without it, from X.
void InferReshapeGrad(InferContext& ctx) {
  VarMeta meta = ctx.Input("Out@GRAD");
  if (ctx.HasInput("XShape")) {
    const Shape& kept = ctx.InputShape("XShape");
    ctx.Require("C1", kept.rank() > 0, kept);
    meta.shape = Shape(std::span<const int64_t>(kept.begin() + 1, kept.end()));
  } else {
    ctx.Require("C2", ctx.HasInput("X"), "neither, Out@GRAD", meta);
    meta.shape = ctx.InputShape("X");
  }
  ctx.Require("C3", InferContext::Matches(NumelOf(meta.shape), NumelOf(ctx.InputShape("Out@GRAD"))),
              NumelOf(ctx.InputShape("Out@GRAD")), NumelOf(meta.shape));
  ctx.SetOutput("X@GRAD", meta);
}

void ReshapeGradient(GradientContext& g) {
  const bool has_shape = g.HasOutput("XShape");
  g.Append(g.op().type() + "_grad",
           {has_shape ? Slot{"XShape", {g.Output("XShape")}} : Slot{"X", {g.Input("X")}},
            {"Out@GRAD", {g.OutputGrad("Out")}}},
           {{"X@GRAD", {g.InputGrad("X")}}});
}

// The gradient of a reshape is a reshape, and so is its own gradient: back to the shape
// of Out@GRAD.
void ReshapeGradGradient(GradientContext& g) {
  g.Append(g.op().type(), {{"X", {g.Input("Out@GRAD")}}, {"Out@GRAD", {g.OutputGrad("X@GRAD")}}},
           {{"X@GRAD", {g.InputGrad("Out@GRAD")}}});
}

void AddFamily(OpRegistry& ops, OpDef def) {
  const std::string type = def.type();
  def.Rows(RowRule::kMoves).Inplace("X", "Out").Alias("X", "Out");
  def.Gradient(ReshapeGradient).Strings().Reference(Reshape);
  ops.Add(std::move(def));
  ops.Add(OpDef(type + "_grad")
              .Doc("Gradient of " + type + ": X@GRAD = Out@GRAD in the shape of X.")
              .Constraint("C1", "XShape must be [0] and the dims of X")
              .Constraint("C2", "XShape or X must be given for the shape of X")
              .Constraint("C3", "Out@GRAD must have the number of elements of X")
              .OptionalInput("XShape", "gives the shape of X; no elements are read")
              .OptionalInput("X", "gives the shape of X if XShape is absent; no elements are read")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .NoGradientTo({"XShape", "X"})
              .Inplace("Out@GRAD", "X@GRAD")
              .Alias("Out@GRAD", "X@GRAD")
              .Infer(InferReshapeGrad)
              .Gradient(ReshapeGradGradient)
              .Reference(ReshapeGrad));
}

OpDef Base(const char* type, const std::string& doc) {
  OpDef def(type);
  def.Doc(doc).Input("X", "tensor of any dtype");
  return def;
}

OpDef ReshapeDef(const char* type) {
  OpDef def = Base(type,
                   "Out = X in another shape: from ShapeTensor, else Shape, else attr shape. A 0 "
                   "copies that dimension of X (with allow_zero, Out has no elements), one -1 is "
                   "inferred.");
  def.Constraint("C1", "at most one dimension may be -1")
      .Constraint("C2", "a 0 must copy a dimension that X has")
      .Constraint("C3", "a dimension must be -1, 0 or positive")
      .Constraint("C4",
                  "to infer -1, the product of the other dimensions must be positive, and the "
                  "number of elements of X a multiple of it")
      .Constraint("C5", "the rank must be at most 9")
      .Constraint("C6", "Out must have the number of elements of X")
      .OptionalInput("Shape", "int32 or int64 tensor with the shape")
      .OptionalVariadicInput("ShapeTensor", "one-element tensors, one per dimension")
      .Attr<std::vector<int32_t>>("shape", {}, "the shape")
      .Attr<bool>("allow_zero", false, "a 0 is a dimension of 0; not in Paddle")
      .NoGradientTo({"Shape", "ShapeTensor"})
      .Infer(InferReshape);
  return def;
}

OpDef SqueezeDef(const char* type) {
  OpDef def = Base(type,
                   "Out = X without the dimensions of size 1 in axes (without all of size 1 if "
                   "axes is empty). A listed dimension of another size is kept.");
  def.Constraint("C1", "axes must lie in [-rank, rank)")
      .Attr<std::vector<int32_t>>("axes", {}, "dimensions to drop")
      .Infer(InferSqueeze);
  return def;
}

OpDef UnsqueezeDef(const char* type) {
  OpDef def =
      Base(type, "Out = X with dimensions of size 1 inserted at axes, one after the other.");
  def.Constraint("C1", "axes must lie in [-rank - 1, rank] of the shape so far")
      .Constraint("C2", "the rank of Out must be at most 9");
  if (def.type() == "unsqueeze2") {
    def.OptionalInput("AxesTensor", "int32 or int64 tensor; replaces attr axes")
        .OptionalVariadicInput("AxesTensorList", "one-element tensors; replace attr axes")
        .NoGradientTo({"AxesTensor", "AxesTensorList"});
  }
  def.Attr<std::vector<int32_t>>("axes", {}, "positions of the new dimensions")
      .Infer(InferUnsqueeze);
  return def;
}

OpDef FlattenDef(const char* type) {
  OpDef def = Base(type,
                   "Out = X as a matrix: dims before axis become the rows, the others the "
                   "columns.");
  def.Constraint("C1", "axis must lie in [0, rank of X]")
      .Attr<int32_t>("axis", 1, "first dimension of the columns")
      .Range(0, {})
      .Infer(InferFlatten);
  return def;
}

OpDef FlattenRangeDef(const char* type) {
  OpDef def = Base(type, "Out = X with dims start_axis to stop_axis merged into one.");
  def.Constraint("C1", "start_axis and stop_axis must lie in [-rank, rank)")
      .Constraint("C2", "start_axis must not come after stop_axis")
      .Attr<int32_t>("start_axis", 1, "first dimension to merge")
      .Attr<int32_t>("stop_axis", 1, "last dimension to merge")
      .Infer(InferFlattenRange);
  return def;
}

void DeclareOut(OpDef& def) { def.Output("Out", "tensor of X's dtype and elements"); }

void DeclareXShape(OpDef& def) {
  def.IntermediateOutput("XShape",
                         "0 followed by the dims of X, without elements; for the gradient")
      .Apply(DeclareOut);
}

void Register(OpRegistry& ops) {
  AddFamily(ops, ReshapeDef("reshape").Apply(DeclareOut));
  AddFamily(ops, ReshapeDef("reshape2").Apply(DeclareXShape));
  AddFamily(ops, SqueezeDef("squeeze").Apply(DeclareOut));
  AddFamily(ops, SqueezeDef("squeeze2").Apply(DeclareXShape));
  AddFamily(ops, UnsqueezeDef("unsqueeze").Apply(DeclareOut));
  AddFamily(ops, UnsqueezeDef("unsqueeze2").Apply(DeclareXShape));
  AddFamily(ops, FlattenDef("flatten").Apply(DeclareOut));
  AddFamily(ops, FlattenDef("flatten2").Apply(DeclareXShape));
  AddFamily(ops, FlattenRangeDef("flatten_contiguous_range").Apply(DeclareXShape));
}

}  // namespace coracle::reshape_op

// flip, reverse and roll: permutations along axes.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace coracle::flip_op {

// The axes of flip and roll, which old files call dims.
template <class List, class Context>
List AxesOf(const Context& ctx) {
  const List axes = ctx.template Attr<List>("axis");
  return axes.empty() && ctx.op().type() != "reverse" ? ctx.template Attr<List>("dims") : axes;
}

// ---- flip, reverse ----

using Ints = std::vector<int32_t>;

void InferFlip(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  const Ints axes = AxesOf<Ints>(ctx);
  if (x.type == VarType::kLoDTensorArray) {
    ctx.Require("C2", axes == Ints{0}, axes);
  } else {
    std::vector<int> seen;
    for (int32_t axis : axes) {
      seen.push_back(ctx.Axis("C1", axis, x.shape.rank()));
      ctx.Require("C1", std::count(seen.begin(), seen.end(), seen.back()) == 1, "twice", axis);
    }
  }
  ctx.SetOutput("Out", x);
}

// The entries in reverse order. `out` may be the same array.
void ReverseArray(const VarValue& x, VarValue* out) {
  const TensorArray from = std::get<TensorArray>(x);
  if (!std::holds_alternative<TensorArray>(*out)) *out = TensorArray();
  auto& to = std::get<TensorArray>(*out);
  to.clear();
  to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    if (!from.IsWritten(i)) continue;
    to.Write(from.size() - 1 - i, from[i].dtype(), from[i].shape()).CopyFrom(from[i]);
  }
}

Kernel Flip(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.type == VarType::kLoDTensorArray)
    return [=](Workspace& ws) { ReverseArray(ws.ValueOf(x), &ws.ValueOf(out)); };
  if (out.numel == 0) return [](Workspace&) {};
  const std::vector<int64_t> dims = x.shape.ToVector();
  const std::vector<int64_t> strides = ContiguousStrides(dims);
  std::vector<int64_t> flipped = strides;
  int64_t offset = 0;
  for (int32_t given : AxesOf<Ints>(ctx)) {
    int axis = 0;
    x.shape.NormalizeAxis(given, &axis);
    const auto i = static_cast<size_t>(axis);
    flipped[i] = -strides[i];
    offset += (dims[i] - 1) * strides[i];
  }
  offset *= static_cast<int64_t>(SizeOf(x.dtype));
  const StridedCopy copy(SizeOf(x.dtype), dims, flipped, strides);
  return [=](Workspace& ws) { copy(ws.Data<const char>(x) + offset, ws.Data<void>(out)); };
}

void FlipGradient(GradientContext& g) {
  g.Set("X", g.Make(g.op().type(), {{"X", {g.OutputGrad("Out")}}}, g.ForwardAttrs(g.op().type())));
}

// ---- roll ----

using Longs = std::vector<int64_t>;

void InferRoll(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  const Longs axes = AxesOf<Longs>(ctx), shifts = ctx.Attr<Longs>("shifts");
  const size_t wanted = std::max<size_t>(axes.size(), 1);
  ctx.Require("C1", shifts.size() == wanted, shifts.size(), wanted);
  for (int64_t axis : axes) ctx.Axis("C2", axis, x.shape.rank());
  for (int64_t shift : shifts)
    ctx.Require("C3", shift != std::numeric_limits<int64_t>::min(), shift);
  ctx.SetOutput("Out", x);
}

// One of the blocks that a roll moves: it cuts the tensor in two along each rolled axis.
struct Block {
  int64_t from = 0, to = 0;  // in elements
  Longs dims;
};

// Moves element i of the axis to (i + shift) mod its size.
std::vector<Block> CutAxis(const std::vector<Block>& blocks, size_t axis, int64_t stride,
                           int64_t shift) {
  std::vector<Block> halves;
  for (const Block& block : blocks) {
    const int64_t dim = block.dims[axis];
    Block first = block, second = block;
    first.dims[axis] = dim - shift;
    first.to += shift * stride;
    second.dims[axis] = shift;
    second.from += (dim - shift) * stride;
    halves.push_back(std::move(first));
    halves.push_back(std::move(second));
  }
  return halves;
}

// The sum of the shifts of each axis, in [0, dim). Without axes the tensor is one axis.
std::pair<Longs, Longs> DimsAndShifts(const PrepareContext& ctx, const Shape& x) {
  const Longs axes = AxesOf<Longs>(ctx), shifts = ctx.Attr<Longs>("shifts");
  const Longs dims = axes.empty() ? Longs{x.numel()} : x.ToVector();
  Longs total(dims.size(), 0);
  for (size_t i = 0; i < shifts.size(); ++i) {
    int axis = 0;
    if (!axes.empty()) x.NormalizeAxis(axes[i], &axis);
    const auto at = static_cast<size_t>(axis);
    total[at] = (total[at] + shifts[i] % dims[at] + dims[at]) % dims[at];
  }
  return {dims, total};
}

Kernel Roll(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const auto [dims, shifts] = DimsAndShifts(ctx, x.shape);
  const Longs strides = ContiguousStrides(dims);
  std::vector<Block> blocks = {{0, 0, dims}};
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (shifts[axis] != 0) blocks = CutAxis(blocks, axis, strides[axis], shifts[axis]);
  }
  const auto size = static_cast<int64_t>(SizeOf(x.dtype));
  struct Move {
    int64_t from, to;  // in bytes
    StridedCopy copy;
  };
  std::vector<Move> moves;
  for (const Block& block : blocks) {
    moves.push_back({block.from * size, block.to * size,
                     StridedCopy(SizeOf(x.dtype), block.dims, strides, strides)});
  }
  return [=](Workspace& ws) {
    for (const Move& move : moves)
      move.copy(ws.Data<const char>(x) + move.from, ws.Data<char>(out) + move.to);
  };
}

void RollGradient(GradientContext& g) {
  Longs back = g.Attr<Longs>("shifts");
  for (int64_t& shift : back) shift = -shift;
  AttrList attrs = g.ForwardAttrs({"axis", "dims"});
  attrs.push_back({"shifts", back});
  g.Set("X", g.Make("roll", {{"X", {g.OutputGrad("Out")}}}, std::move(attrs)));
}

RowEffect FlipRows(const RowQuery& query) {
  const auto axes = query.spec.AttrOf<Ints>(query.op, "axis");
  return EachUnlessAlong(query, axes.empty() ? query.spec.AttrOf<Ints>(query.op, "dims") : axes);
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("flip")
              .Doc("Out = X in reverse order along each of the axes.")
              .Constraint("C1", "axis must be distinct axes of X")
              .Input("X", "tensor of any dtype")
              .Output("Out", "tensor of X's shape and dtype")
              .Attr<Ints>("axis", {}, "the axes to reverse")
              .Attr<Ints>("dims", {}, "the axes in old files, used if axis is empty")
              .Rows(FlipRows, "each by itself, unless their axis is reversed")
              .Infer(InferFlip)
              .Gradient(FlipGradient)
              .Strings()
              .Reference(Flip));
  ops.Add(OpDef("reverse")
              .Doc("Out = X in reverse order along each of the axes; for a tensor array, its "
                   "entries in reverse order.")
              .Constraint("C1", "axis must be distinct axes of X")
              .Constraint("C2", "axis must be {0} for a tensor array")
              .Input("X", "tensor of any dtype, or tensor array")
              .Output("Out", "tensor of X's shape and dtype")
              .Attr<Ints>("axis", "the axes to reverse")
              .Takes(VarType::kLoDTensorArray, {"X"})
              .Rows(RowRule::kEach)
              .WorksAlong("axis")
              .Infer(InferFlip)
              .Gradient(FlipGradient)
              .Strings()
              .Reference(Flip));
  ops.Add(OpDef("roll")
              .Doc("Out = X with element i of each of the axes moved to (i + shift) modulo the "
                   "size of the axis. Without axes X is rolled as if it were a vector.")
              .Constraint("C1", "there must be one shift for each axis, or one shift without axes")
              .Constraint("C2", "axis must be axes of X")
              .Constraint("C3", "a shift must be over -2^63")
              .Input("X", "tensor of any dtype")
              .Output("Out", "tensor of X's shape and dtype")
              .Attr<Longs>("shifts", {}, "how far to move, for each axis; may be negative")
              .Attr<Longs>("axis", {}, "the axes")
              .Attr<Longs>("dims", {}, "the axes in old files, used if axis is empty")
              .Rows(RowRule::kMixes)
              .Infer(InferRoll)
              .Gradient(RollGradient)
              .Strings()
              .Reference(Roll));
}

}  // namespace coracle::flip_op

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>

namespace coracle::meshgrid_op {

void InferMeshgrid(InferContext& ctx) {
  const size_t count = ctx.NumInputs("X");
  ctx.Require("C1", count >= 2 && count <= Shape::kMaxRank, count);
  ctx.Require("C2", ctx.NumOutputs("Out") == count, ctx.NumOutputs("Out"), count);
  Shape grid;
  for (size_t k = 0; k < count; ++k) {
    const Shape& x = ctx.InputShape("X", k);
    ctx.Require("C3", x.rank() <= 1, x);
    grid.Append(x.rank() == 0 ? 1 : x[0]);
  }
  for (size_t k = 0; k < count; ++k) {
    VarMeta out = ctx.Input("X", k);
    out.shape = grid;
    ctx.SetOutput("Out", out, k);
  }
}

Kernel Meshgrid(const PrepareContext& ctx) {
  struct Item {
    TensorArg x, out;
    StridedCopy copy;
  };
  std::vector<Item> items;
  for (size_t k = 0; k < ctx.NumInputs("X"); ++k) {
    const TensorArg x = ctx.Input("X", k), out = ctx.Output("Out", k);
    if (!out || out.numel == 0) continue;
    const std::vector<int64_t> dims = out.shape.ToVector();
    std::vector<int64_t> strides(dims.size(), 0);
    strides[k] = 1;
    items.push_back({x, out, StridedCopy(SizeOf(x.dtype), dims, strides, ContiguousStrides(dims))});
  }
  return [=](Workspace& ws) {
    for (const Item& item : items) item.copy(ws.Data<const void>(item.x), ws.Data<void>(item.out));
  };
}

// dX[k] = the sum of dOut[k] over all other axes.
void MeshgridGradient(GradientContext& g) {
  const auto count = static_cast<int32_t>(g.Inputs("X").size());
  for (int32_t k = 0; k < count; ++k) {
    const auto at = static_cast<size_t>(k);
    if (!g.NeedsInputGrad("X", at) || at >= g.Outputs("Out").size()) continue;
    std::vector<int32_t> others;
    for (int32_t axis = 0; axis < count; ++axis) {
      if (axis != k) others.push_back(axis);
    }
    const Variable sum = Sum(g.Grad("Out", at), others);
    g.Set("X", g.In("X", at).shape().rank() == 0 ? Reshape(sum, {}) : sum, at);
  }
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("meshgrid")
              .Doc("Out[k] = a tensor with one axis for each input, X[k] along axis k and repeated "
                   "along all others.")
              .Constraint("C1", "there must be 2 to 9 inputs")
              .Constraint("C2", "there must be as many outputs as inputs")
              .Constraint("C3", "every input must be a vector or one element")
              .VariadicInput("X", "vectors of any dtype")
              .VariadicOutput("Out", "the grids")
              .Rows(RowRule::kEach)
              .Infer(InferMeshgrid)
              .Gradient(MeshgridGradient)
              .Reference(Meshgrid));
}

}  // namespace coracle::meshgrid_op

#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

namespace coracle {
namespace {

constexpr int64_t kFixedColumns = 3;  // item, layer, parent

void InferTdmChild(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const VarMeta& info = ctx.Input("TreeInfo");
  const int64_t children = ctx.Attr<int32_t>("child_nums");
  ctx.Require("C1", IsIndexType(out.dtype), out);
  ctx.Require("C2",
              IsIndexType(info.dtype) && info.shape.rank() == 2 && children >= 1 &&
                  InferContext::Matches(info.shape[1], kFixedColumns + children),
              "TreeInfo", info, "child_nums", children);
  const DType dtype = DTypeFromAttr(ctx, "C3", "dtype");
  ctx.Require("C3", IsIndexType(dtype), dtype);
  std::vector<int64_t> dims = out.shape.ToVector();
  dims.push_back(children);
  out.shape = ToShape(ctx, "C4", dims);
  out.dtype = dtype;
  ctx.SetOutput("Child", out);
  ctx.SetOutput("LeafMask", out);
}

// Writes `value` as element i of an int32 or int64 tensor.
void Write(void* to, DType dtype, int64_t i, int64_t value) {
  if (dtype == DType::kInt64)
    static_cast<int64_t*>(to)[i] = value;
  else
    static_cast<int32_t*>(to)[i] = static_cast<int32_t>(value);
}

Kernel TdmChild(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), info = ctx.Input("TreeInfo");
  const TensorArg child = ctx.Output("Child"), mask = ctx.Output("LeafMask");
  const int64_t children = ctx.Attr<int32_t>("child_nums");
  const int64_t nodes = info.shape[0], columns = info.shape[1];
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader ids(ws, x), tree(ws, info);
    void *to = ws.Data<void>(child), *to_mask = ws.Data<void>(mask);
    for (int64_t i = 0; i < x.numel; ++i) {
      const int64_t node = ids[i];
      if (node < 0 || node >= nodes) ThrowIndexRange(name, "X", i, node, nodes);
      const int64_t first = node * columns + kFixedColumns;
      const bool has_children = node != 0 && tree[first] != 0;
      for (int64_t c = 0; c < children; ++c) {
        const int64_t id = has_children ? tree[first + c] : 0;
        if (id < 0 || id >= nodes) ThrowIndexRange(name, "TreeInfo", first + c, id, nodes);
        const bool leaf = has_children && tree[id * columns] != 0;
        Write(to, child.dtype, i * children + c, id);
        Write(to_mask, mask.dtype, i * children + c, leaf ? 1 : 0);
      }
    }
  };
}

}  // namespace

void RegisterTdmChild(OpRegistry& ops) {
  ops.Add(
      OpDef("tdm_child")
          .Doc("Child = the children of each node of X in a tree, and LeafMask = 1 for those "
               "that are items, else 0. Zeros for the node 0 and for nodes whose first child is "
               "0. A node without a row of TreeInfo is an error.")
          .Constraint("C1", "X must be int32 or int64")
          .Constraint("C2",
                      "TreeInfo must be an int32 or int64 matrix of 3 + child_nums columns, "
                      "child_nums being positive")
          .Constraint("C3", "dtype must be int32 or int64")
          .Constraint("C4", "the rank of Child must be at most 9")
          .Input("X", "nodes")
          .Input("TreeInfo",
                 "a row for each node: its item (0: none), layer and parent, then its children")
          .Output("Child", "tensor of X's dims and child_nums")
          .Output("LeafMask", "tensor of Child's shape")
          .Attr<int32_t>("child_nums", "children of a node")
          .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kInt32), "of the outputs")
          .NotDifferentiable("integers have no gradient")
          .Infer(InferTdmChild)
          .Reference(TdmChild));
}

}  // namespace coracle

// gather_tree: computes the whole paths of a beam search from the ids and parents of each step.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::gather_tree_op {

void InferGather(InferContext& ctx) {
  const VarMeta& ids = ctx.Input("Ids");
  ctx.Require("C1", ids.shape.rank() == 3, ids);
  RequireSameType(ctx, "C2", "Parents", "Ids");
  ctx.SetOutput("Out", ids);
}

template <class T>
KernelOf<T> GatherTree(const PrepareContext& ctx) {
  const TensorArg ids = ctx.Input("Ids"), parents = ctx.Input("Parents"), out = ctx.Output("Out");
  const int64_t steps = ids.shape[0], batch = ids.shape[1], beams = ids.shape[2];
  return [=](Workspace& ws) {
    const T *id = ws.Data<const T>(ids), *parent = ws.Data<const T>(parents);
    T* o = ws.Data<T>(out);
    for (int64_t line = 0; line < batch * beams; ++line) {
      int64_t beam = line % beams;
      for (int64_t t = steps - 1; t >= 0; --t) {
        const int64_t at = t * batch * beams + line, from = at - line % beams + beam;
        o[at] = id[from];
        beam = static_cast<int64_t>(parent[from]);
        // The parents of the first step are not used.
        if (t > 0 && (beam < 0 || beam >= beams))
          ThrowIndexRange("gather_tree", "Parents", from, beam, beams);
      }
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("gather_tree")
              .Doc("Out[t][b][k] = Ids[t][b][p(t)]. At the last step p = k; before it, p(t) = "
                   "Parents[t + 1][b][p(t + 1)].")
              .Constraint("C1", "Ids must be [steps, batch, beams]")
              .Constraint("C2", "Parents must have the shape and dtype of Ids")
              .Input("Ids", "int32 or int64 tensor [steps, batch, beams]")
              .Input("Parents", "tensor like Ids: beams of the previous step")
              .Output("Out", "tensor like Ids")
              .NoLod()
              .NotDifferentiable("works on integers")
              .Rows(RowRule::kMixes)
              .Infer(InferGather)
              .Reference(GatherTree<int32_t>, GatherTree<int64_t>));
}

}  // namespace coracle::gather_tree_op

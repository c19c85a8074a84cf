#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/elementwise/fused_group.h>

namespace coracle::fused_elementwise_op {

bool TakesElementwise(const OpSpec& spec) { return spec.elementwise; }

void Register(OpRegistry& ops) {
  // The declarations of a registry live as long as the registry.
  const OpRegistry* all = &ops;
  ops.Add(
      OpDef("fused_elementwise")
          .Doc("Runs the elementwise ops of a block in one sweep: the variables `arguments` of the "
               "block get the values of X, and Out gets the values of its variables `results`. The "
               "tensors are cut into pieces that fit into the cache, and all ops run on one piece "
               "before the next, so that X is read once, Out is written once, and intermediate "
               "results never leave the cache. If all ops have float32 formulas (LaneKernel), no "
               "operand is broadcast within a run of elements and runs are long, the ops run "
               "together on a few vectors at a time, with intermediate results in registers. "
               "Broadcast operands are cut along the dims that they have. A group that cannot be "
               "cut runs op by op. The pass fuse_elementwise makes these ops.")
          .Apply(DeclareGroup, "be elementwise")
          .Inplace("X", "Out")
          .Rows(RowRule::kEach)
          .Infer([all](InferContext& ctx) { InferGroup(ctx, *all, TakesElementwise); })
          .Reference([all](const PrepareContext& ctx) {
            return PrepareFused(ctx, *all, KernelMode::kReference);
          })
          .Fast([all](const PrepareContext& ctx) {
            return PrepareFused(ctx, *all, KernelMode::kAuto);
          }));
}

}  // namespace coracle::fused_elementwise_op

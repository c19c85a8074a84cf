#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/elementwise/fused_group.h>

namespace coracle::fused_elementwise_op {

bool TakesElementwise(const OpSpec& spec, const OpDesc&) { return spec.elementwise; }

void Register(OpRegistry& ops) {
  // A registry's declarations live as long as it does.
  const OpRegistry* all = &ops;
  ops.Add(
      OpDef("fused_elementwise")
          .Doc(
              "Runs the elementwise ops of a block in one sweep: its variables `arguments` get the "
              "values of X, and Out those of its variables `results`. The tensors are cut into "
              "pieces that fit into the cache; all ops run on one piece before the next, so that X "
              "is read and Out is written once, and what the ops pass to each other never leaves "
              "the cache. Where all ops tell formulas of float32 (LaneKernel), no operand is "
              "stretched within a run of elements and runs are long, the ops do not run one after "
              "the other, but all of them on some vectors at a time, which they pass on in "
              "registers. Operands that are stretched are cut along the dims that they have. A "
              "group that cannot be cut runs op by op. The pass fuse_elementwise makes these ops.")
          .Apply(DeclareGroup, "be elementwise")
          .Inplace("X", "Out")
          .Infer([all](InferContext& ctx) { InferGroup(ctx, *all, TakesElementwise); })
          .Reference([all](const PrepareContext& ctx) {
            return PrepareFused(ctx, *all, KernelMode::kReference);
          })
          .Fast([all](const PrepareContext& ctx) {
            return PrepareFused(ctx, *all, KernelMode::kAuto);
          }));
}

}  // namespace coracle::fused_elementwise_op

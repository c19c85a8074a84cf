#include <coracle/executor/planner/constant_folding.h>

namespace coracle::inline internal {
namespace {

// Larger results are computed in each run, because a plan keeps its constants as long as it lives,
// and each plan has its own.
constexpr int64_t kMaxFoldedElements = 65536;

}  // namespace

bool IsFoldable(const OpSpec& def) {
  // An op that makes its LoD from inputs' LoDs (lod_axis) has no LoD that differs from run to run.
  return def.kind == OpKind::kCompute && !def.random && !def.side_effect && !def.run_time_shape &&
         (!def.makes_lod || !def.lod_axis.empty());
}

bool IsFoldableOutput(const BlockDesc& block, const std::string& name, const VarMeta& meta) {
  const VarDesc* var = block.FindVarRecursive(name);
  return meta.type == VarType::kLoDTensor && !(var && var->persistable()) &&
         meta.shape.numel() <= kMaxFoldedElements;
}

std::optional<VarValues> RunNow(const PlanDraft& draft, const OpDesc& op, const OpSpec& def,
                                const MetaTable& metas) {
  const auto only_shape = [&](const std::string& name) {
    return def.shape_only && metas.Find(name)->type == VarType::kLoDTensor;
  };
  if (op.AnyInput(
          [&](const std::string& name) { return !only_shape(name) && !draft.IsConstant(name); }))
    return std::nullopt;
  VarValues env;
  op.ForEachInput([&](const std::string& name) {
    const VarMeta& meta = *metas.Find(name);
    // An op that reads only the shape must not cause a packed parameter to be unpacked.
    const bool skip = only_shape(name) && draft.persistables.IsFrozen(draft.values.Current(name));
    if (const Tensor* constant = skip ? nullptr : draft.Constant(name))
      env[name] = constant->Clone();  // an in-place op must not change the constant
    else
      env[name] = Tensor::View(meta.dtype, meta.shape, nullptr);
  });
  InterpretOp(op, draft.context.ops, env, {.kernels = draft.context.kernels});
  return env;
}

}  // namespace coracle::inline internal

#include <coracle/passes/freeze.h>

namespace coracle::inline internal {
namespace {

void RedirectStatistic(OpDesc& norm, const char* in, const char* out) {
  if (norm.Input(in).size() != 1 || norm.Output(out) != norm.Input(in)) return;
  BlockDesc& block = *norm.block();
  const VarDesc* statistic = block.FindVarRecursive(norm.Input(in)[0]);
  if (!statistic || !statistic->persistable()) return;
  const VarMeta meta = statistic->meta();
  const std::string name = block.program().FreeName(statistic->name() + "@UNCHANGED");
  block.Var(name).SetMeta(meta);
  norm.SetOutput(out, {name});
}

// Quantizations with a fixed scale write the scale and its state back. quantize_linear is one
// unless it says otherwise, the others only if they say so.
void RedirectFixedScales(OpDesc& op) {
  const std::string& type = op.type();
  const bool linear = type == "quantize_linear";
  const bool fixed = type == "dequantize_linear" || op.GetAttr<bool>("is_test", linear);
  const bool quantizes = linear || type == "dequantize_linear" ||
                         type.starts_with("fake_quantize_") ||
                         type.starts_with("fake_channel_wise_quantize_");
  if (!quantizes || !fixed) return;
  const char* scale = op.HasInput("InScale") ? "InScale" : "Scale";
  RedirectStatistic(op, scale, "OutScale");
  RedirectStatistic(op, "InScales", "OutScales");
  RedirectStatistic(op, "InAccum", "OutAccum");
  RedirectStatistic(op, "InState", "OutState");
}

const Tensor* OwnTensor(const VarValue* held) {
  const auto* tensor = held ? std::get_if<Tensor>(held) : nullptr;
  return tensor && tensor->version() != 0 && tensor->lod().empty() ? tensor : nullptr;
}

}  // namespace

void* PlaceOfFrozen(const Tensor& frozen) {
  const bool alone = frozen.version() != 0 && frozen.memory().use_count() == 1;
  return alone ? const_cast<void*>(frozen.raw()) : nullptr;
}

bool HasFixedStatistics(const OpDesc& batch_norm) {
  return batch_norm.GetAttr<bool>("use_global_stats", false) ||
         (batch_norm.GetAttr<bool>("is_test", false) &&
          !batch_norm.GetAttr<bool>("trainable_statistics", false));
}

FrozenValues Freeze(ProgramDesc& program, const Scope& scope,
                    const std::unordered_set<std::string>& feeds) {
  std::unordered_set<std::string> written = feeds;
  program.ForEachOp([&](OpDesc& op) {
    if (op.type() == "batch_norm" && HasFixedStatistics(op)) {
      RedirectStatistic(op, "Mean", "MeanOut");
      RedirectStatistic(op, "Variance", "VarianceOut");
    }
    RedirectFixedScales(op);
    op.ForEachOutput([&](const std::string& name) { written.insert(name); });
  });
  FrozenValues frozen;
  const BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    if (!var.persistable() || var.type() != VarType::kLoDTensor || written.count(var.name()))
      continue;
    if (const Tensor* value = OwnTensor(scope.Find(var.name()))) frozen.emplace(var.name(), *value);
  }
  return frozen;
}

}  // namespace coracle::inline internal

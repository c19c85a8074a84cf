#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/exchange_states.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/role.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/freeze.h>
#include <fmt/format.h>

#include <map>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;

// How forward ops use a persistable variable.
struct StateUse {
  bool written = false;          // by the rank's rows or draws
  bool carried = false;          // a step reads the value of the step before
  bool statistic = true;         // only updates of running statistics use it
  const OpDesc* last = nullptr;  // the last op of the root block that writes it
};

class StateUses {
 public:
  StateUses(const ProgramDesc& main, const OpRegistry& ops, const PartValues& parts)
      : ops_(ops), parts_(parts) {
    main.Root().ForEachOp([&](const OpDesc& outer) {
      if (IsForward(outer)) ForEachOpRunBy(outer, [&](const OpDesc& op) { Note(op, outer); });
    });
  }

  const std::map<std::string, StateUse>& uses() const { return uses_; }

 private:
  // `outer` is the op itself, or the op of the root block that runs its block.
  void Note(const OpDesc& op, const OpDesc& outer) {
    const OpSpec* spec = ops_.Find(op.type());
    if (!spec || op.HasSubBlock()) return;  // the ops of its block are noted instead
    op.ForEachInput([&](const std::string& name) {
      if (!IsPersistable(op, name)) return;
      StateUse& use = uses_[name];
      use.carried |= !use.written;
      bool updates = false;
      op.ForEachOutput([&](const std::string& out, const std::string& slot) {
        updates |= out == name && RuleOf(op, *spec, slot) == RowRule::kStatistic;
      });
      use.statistic &= updates;
    });
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      const RowRule rule = RuleOf(op, *spec, slot);
      if (!IsPersistable(op, name) || rule == RowRule::kSame || IsSame(name)) return;
      StateUse& use = uses_[name];
      // A block may not run, and some ops keep elements of their outputs.
      use.carried |= !use.written && (&op != &outer || Contains(spec->keeps_outputs, slot));
      use.written = true;
      use.statistic &= rule == RowRule::kStatistic;
      use.last = &outer;
    });
  }

  static bool IsPersistable(const OpDesc& op, const std::string& name) {
    const VarDesc* var = op.block()->FindVarRecursive(name);
    return var && var->persistable();
  }
  // Without reads that only a loss or metric lets rewrite.
  bool IsSame(const std::string& name) const {
    const Part& part = parts_.Of(name);
    return part.kind == PartKind::kSame && !part.drawn && parts_.ReadsOf(name).empty();
  }
  static RowRule RuleOf(const OpDesc& op, const OpSpec& spec, const std::string& slot) {
    return RowEffectOf({op, spec, slot}).rule;
  }

  const OpRegistry& ops_;
  const PartValues& parts_;
  std::map<std::string, StateUse> uses_;
};

// Whether the ranks' values have a mean, and a step depends on it.
bool HasMean(const VarDesc* var, const StateUse& use) {
  return var && var->type() == VarType::kLoDTensor && IsFloating(var->dtype()) &&
         var->shape().IsKnown() && use.carried;
}

// 16-bit floats are averaged as float32.
void Average(const Writer& w, BlockDesc& root, const VarDesc& state,
             const AllReduceOptions& options) {
  const DType kept = state.dtype();
  const DType dtype = kept == DType::kFloat64 ? kept : DType::kFloat32;
  const Variable sum = Cast(w.Var(state.name()), dtype);
  ScaleInPlace(w, sum.name(), ShareOfRows(w, root, options.share, options.nranks, dtype));
  SumInPlace(w, {sum.name()}, options.ring_id);
  if (dtype != kept) w.Into(state.name(), "cast", {{"X", {sum.name()}}}, CastAttrs(dtype, kept));
}

// The op of the root block that alone moves the centers; nullptr if another op writes them.
OpDesc* CenterLossOf(BlockDesc& root, const VarDesc& centers) {
  const Names only{centers.name()};
  const auto writers = root.Uses(centers.name()).writers;
  const bool is_float = centers.dtype() == DType::kFloat32 || centers.dtype() == DType::kFloat64;
  if (writers.size() != 1 || !is_float || centers.shape().rank() != 2) return nullptr;
  OpDesc* op = writers[0];
  return op->Output("CentersOut") == only && op->Input("Centers") == only ? op : nullptr;
}

// centers[c] += rate * (sum of SampleCenterDiff over the rows of class c) / (1 + number of these
// rows), as in the kernel of center_loss, over the rows of all ranks.
void MoveCenters(const Writer& w, const OpDesc& op, const Variable& diff, const VarDesc& centers,
                 const AllReduceOptions& options) {
  const DType dtype = centers.dtype();
  const auto classes = static_cast<int32_t>(centers.shape()[0]);
  const Variable ids = Reshape(w.Var(op.Input("Label").at(0)), {-1});
  const Variable one_hot = w.Make("one_hot_v2", {{"X", {ids.name()}}}, {{"depth", classes}});
  Variable of_class = Cast(one_hot, dtype);
  if (!options.share.empty())  // rows that do not count are left out
    of_class = Scale(of_class, Sign(Cast(w.Var(options.share), dtype)));
  const Variable rows = Sum(of_class, {0});
  const Variable sums =
      w.Make("matmul_v2", {{"X", {of_class.name()}}, {"Y", {diff.name()}}}, {{"trans_x", true}});
  SumInPlace(w, {rows.name(), sums.name()}, options.ring_id);
  const Variable means = sums / Reshape(rows + 1.0, {classes, 1});
  const Variable moves = means * w.Var(op.Input("CenterUpdateRate").at(0));
  w.Into(centers.name(), "elementwise_add", {{"X", {centers.name()}}, {"Y", {moves.name()}}});
}

bool MoveCenters(ProgramDesc& main, const VarDesc& centers, const AllReduceOptions& options,
                 OpInserter* inserter) {
  BlockDesc& root = main.Root();
  OpDesc* op = CenterLossOf(root, centers);
  if (!op) return false;
  if (!op->HasOutput("SampleCenterDiff")) {
    const std::string name = main.UniqueName("state_diff");
    DeclareDense(root, name, centers.dtype(), {-1, centers.shape()[1]});
    op->SetOutput("SampleCenterDiff", {name});
  }
  op->SetAttr("need_update", false);
  inserter->After(*op, kForward, [&](const Writer& w) {
    MoveCenters(w, *op, w.Var(op->Output("SampleCenterDiff").at(0)), centers, options);
  });
  return true;
}

// Rows that do not count are not in the statistics of all ranks.
void ShareStatistics(ProgramDesc& main, const std::string& share, const OpRegistry& ops) {
  if (share.empty()) return;
  main.ForEachOp([&](OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    if (!spec || !spec->FindInput("Share") || op.HasInput("Share")) return;
    if (HasFixedStatistics(op)) return;
    if (op.block() != &main.Root()) {
      Refuse(op, op.type() +
                     " in a block would count the rows of ranks that have none; take it "
                     "out of the block, or use batch_norm");
    }
    DeclareShareUnlessThere(main.Root(), share, DType::kFloat32);
    op.SetInput("Share", {share});
  });
}

}  // namespace

void ExchangeStates(ProgramDesc& main, const PartValues& parts, const AllReduceOptions& options,
                    OpInserter* inserter, AllReduceReport* report) {
  const OpRegistry& ops = OpsOf(options);
  const StateUses states(main, ops, parts);
  ShareStatistics(main, options.share, ops);
  for (const auto& [name, use] : states.uses()) {
    if (!use.written) continue;
    const VarDesc* state = main.Root().FindVar(name);
    if (!HasMean(state, use)) {
      report->own.push_back(name);
    } else if (use.statistic) {
      report->local.push_back(name);
    } else {
      if (!options.share.empty())
        DeclareShareUnlessThere(main.Root(), options.share, DType::kFloat32);
      if (MoveCenters(main, *state, options, inserter)) continue;
      inserter->After(*use.last, kForward,
                      [&](const Writer& w) { Average(w, main.Root(), *state, options); });
      report->averaged.push_back(name);
    }
  }
}

AllReduceReport InsertStateExchanges(ProgramDesc& program, const AllReduceOptions& options) {
  const EditGuard guard(program);
  AllReduceReport report;
  const OpRegistry& ops = OpsOf(options);
  const PartValues parts(program, ops);
  OpInserter inserter(program, ops);
  ExchangeStates(program, parts, options, &inserter, &report);
  inserter.Apply();
  return report;
}

}  // namespace coracle::inline internal

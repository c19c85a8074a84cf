#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/shard_state.h>
#include <coracle/operators/operators.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;
using UseCounts = std::unordered_map<std::string, int>;

bool Uses(const OpDesc& op, const std::string& name) { return op.Reads(name) || op.Writes(name); }

// The number of ops of all blocks that use each variable. Ops that run a block only list the uses
// of its ops.
UseCounts CountUses(const ProgramDesc& main) {
  UseCounts counts;
  main.ForEachOp([&](const OpDesc& op) {
    if (op.HasSubBlock()) return;
    std::set<std::string> names;
    const auto note = [&](const std::string& name) { names.insert(name); };
    op.ForEachInput(note);
    op.ForEachOutput(note);
    for (const std::string& name : names) ++counts[name];
  });
  return counts;
}

bool IsFilledByConstant(const std::string& state, const ProgramDesc& startup) {
  int users = 0;
  startup.ForEachOp([&](const OpDesc& op) { users += Uses(op, state) ? 1 : 0; });
  const VarUses uses = startup.Root().Uses(state);
  return users == 1 && uses.writers.size() == 1 && IsConstant(*uses.writers[0]);
}

std::string OneInput(const OpDesc& op, const char* slot) {
  const Names& args = op.Input(slot);
  return args.size() == 1 ? args[0] : std::string();
}

// Whether the op updates a parameter element by element.
bool IsElementwiseUpdate(const OpDesc& op, const OpRegistry& ops) {
  const OpSpec* spec = ops.Find(op.type());
  return spec && spec->FindOutput("ParamOut") &&
         RowEffectOf({op, *spec, "ParamOut"}).rule == RowRule::kEach && !spec->random &&
         OneInput(op, "MasterParam").empty();
}

// Fills in the states: inputs of the parameter's shape. Returns whether they can be divided, and
// all other inputs are single numbers.
bool FindStates(const ProgramDesc& main, const ProgramDesc& startup, const UseCounts& uses,
                ShardedUpdate* update) {
  const OpDesc& op = *update->op;
  const Shape& shape = op.block()->FindVarRecursive(update->param)->shape();
  bool all = true;
  op.ForEachInput([&](const std::string& name) {
    const VarDesc* var = op.block()->FindVarRecursive(name);
    if (!var || name == update->param || name == update->gradient) return;
    if (!(var->shape() == shape)) {
      all &= var->shape().IsKnown() && var->shape().numel() == 1;
      return;
    }
    all &= var->persistable() && main.Root().FindVar(name) == var && op.Writes(name) &&
           uses.at(name) == 1 && IsFilledByConstant(name, startup);
    update->states.push_back(name);
  });
  return all && !update->states.empty();
}

int64_t ShardSize(const Shape& shape, int nranks) { return (shape.numel() + nranks - 1) / nranks; }

// Declares a variable for a part in the block.
std::string MakeShard(BlockDesc& block, const VarDesc& whole, int nranks) {
  const std::string name = block.program().UniqueName(whole.name() + "@SHARD");
  return DeclareDense(block, name, whole.dtype(), {ShardSize(whole.shape(), nranks)}).name();
}

AttrList ShardAttrs(const AllReduceOptions& options) {
  return {{"nranks", int32_t{options.nranks}}, {"ring_id", int32_t{options.ring_id}}};
}

void Rename(OpDesc& op, const std::string& from, const std::string& to) {
  op.RenameInput(from, to);
  op.RenameOutput(from, to);
}

// The update reads and writes parts of parameter and gradient; then the ranks gather the parameter.
void DivideUpdate(const ShardedUpdate& update, const AllReduceOptions& options,
                  OpInserter* inserter) {
  OpDesc& op = *update.op;
  BlockDesc& block = *op.block();
  const VarDesc& param = VarOf(block, update.param);
  const std::string param_part = MakeShard(block, param, options.nranks);
  const std::string gradient_part = MakeShard(block, VarOf(block, update.gradient), options.nranks);
  inserter->Before(op, kOptimize, [&](const Writer& w) {
    const std::string& summed = update.summed.empty() ? update.gradient : update.summed;
    w.Into(gradient_part, "c_flat_shard", {{"X", {summed}}}, ShardAttrs(options));
    w.Into(param_part, "c_flat_shard", {{"X", {update.param}}}, ShardAttrs(options));
  });
  inserter->After(op, kOptimize, [&](const Writer& w) {
    AttrList attrs = ShardAttrs(options);
    attrs.push_back({"shape", param.shape().ToVector()});
    w.Into(update.param, "c_flat_allgather", {{"X", {param_part}}}, attrs);
  });
  Rename(op, update.param, param_part);
  Rename(op, update.gradient, gradient_part);
}

// Replaces the state by a part of it, in both programs.
ShardedState DivideState(ProgramDesc& main, ProgramDesc& startup, const std::string& state,
                         OpDesc& update, int nranks) {
  const VarDesc& whole = VarOf(main.Root(), state);
  const ShardedState sharded = {state, MakeShard(main.Root(), whole, nranks), whole.shape()};
  VarDesc& part = *main.Root().FindVar(sharded.shard);
  part.SetPersistable(true);
  Rename(update, state, sharded.shard);
  VarDesc& made = startup.Root().Var(sharded.shard);
  made.SetMeta(part.meta());
  made.SetPersistable(true);
  OpDesc& fill = *startup.Root().Uses(state).writers[0];
  fill.SetOutput("Out", {sharded.shard});
  fill.SetAttr("shape", part.shape().ToVector());
  startup.Root().RemoveVar(state);
  main.Root().RemoveVar(state);
  return sharded;
}

}  // namespace

std::vector<ShardedUpdate> FindShardedUpdates(ProgramDesc& main, const ProgramDesc& startup,
                                              const AllReduceOptions& options) {
  const OpRegistry& ops = OpsOf(options);
  const UseCounts uses = CountUses(main);
  std::vector<ShardedUpdate> updates;
  main.ForEachOp([&](OpDesc& op) {
    if (!IsElementwiseUpdate(op, ops)) return;
    ShardedUpdate update{&op, OneInput(op, "Param"), OneInput(op, "Grad"), {}};
    const VarDesc* param = op.block()->FindVarRecursive(update.param);
    const VarDesc* gradient = op.block()->FindVarRecursive(update.gradient);
    if (!param || !gradient || !op.Writes(update.param)) return;
    if (gradient->type() != VarType::kLoDTensor || !(gradient->shape() == param->shape())) return;
    if (!param->shape().IsKnown() || param->shape().numel() < options.shard_least) return;
    if (FindStates(main, startup, uses, &update)) updates.push_back(std::move(update));
  });
  return updates;
}

std::vector<ParameterGradient> TakeScattered(const ProgramDesc& main,
                                             const std::vector<ShardedUpdate>& updates,
                                             std::vector<ParameterGradient>* gradients) {
  const BlockDesc& root = main.Root();
  const UseCounts uses = CountUses(main);
  std::vector<ParameterGradient> scattered;
  std::erase_if(*gradients, [&](const ParameterGradient& gradient) {
    const auto at = std::find_if(updates.begin(), updates.end(), [&](const auto& update) {
      return update.gradient == gradient.name && update.op->block() == &root;
    });
    if (gradient.once || at == updates.end()) return false;
    int in_backward = 0;
    for (size_t i = 0; i <= gradient.complete; ++i) {
      const OpDesc& op = root.op(i);
      in_backward += !op.HasSubBlock() && Uses(op, gradient.name) ? 1 : 0;
    }
    if (uses.at(gradient.name) != in_backward + 1) return false;
    scattered.push_back(gradient);
    return true;
  });
  return scattered;
}

void ScatterBucket(ProgramDesc& main, const OpenBucket& bucket, const AllReduceOptions& options,
                   std::vector<ShardedUpdate>* updates, OpInserter* inserter) {
  const Names& gradients = bucket.bucket.gradients;
  Names sums;
  for (const std::string& gradient : gradients) {
    const std::string& sum = sums.emplace_back(main.UniqueName(gradient + "@SCATTERED"));
    main.Root().Var(sum).SetMeta(VarOf(main.Root(), gradient).meta());
    main.Root().Var(sum).SetStopGradient(true);
  }
  const OpDesc* first = nullptr;
  for (ShardedUpdate& update : *updates) {
    const auto at = std::find(gradients.begin(), gradients.end(), update.gradient);
    if (at == gradients.end()) continue;
    update.summed = sums[static_cast<size_t>(at - gradients.begin())];
    if (!first) first = update.op;
  }
  inserter->After(main.Root().op(bucket.complete), kBackward, [&](const Writer& w) {
    w.Append("c_flat_reducescatter", {{"X", gradients}}, {{"Out", sums}}, ShardAttrs(options));
  });
  inserter->Before(*first, kOptimize, [&](const Writer& w) {
    ExchangeInPlace(w, "c_sync_comm_stream", sums, options.ring_id);
  });
}

std::vector<ShardedState> RewriteUpdates(ProgramDesc& main, ProgramDesc& startup,
                                         const std::vector<ShardedUpdate>& updates,
                                         const AllReduceOptions& options, OpInserter* inserter) {
  std::vector<ShardedState> states;
  for (const ShardedUpdate& update : updates) {
    DivideUpdate(update, options, inserter);
    for (const std::string& state : update.states)
      states.push_back(DivideState(main, startup, state, *update.op, options.nranks));
  }
  return states;
}

}  // namespace coracle::inline internal

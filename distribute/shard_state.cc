#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/shard_state.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace coracle {
namespace {

// Element i of what they write depends on elements i of Param, Grad and states, and on scalars.
constexpr std::string_view kElementwiseUpdates[] = {
    "adadelta", "adagrad", "adam",     "adamax",           "adamw",  "decayed_adagrad",
    "ftrl",     "lion",    "momentum", "proximal_adagrad", "rmsprop"};

bool WritesName(const OpDesc& op, const std::string& name) {
  return op.AnyOutput([&](const std::string& out) { return out == name; });
}

void Rename(OpDesc& op, const std::string& from, const std::string& to) {
  op.RenameInput(from, to);
  op.RenameOutput(from, to);
}

}  // namespace

void StateSharder::FindUpdates() {
  // Ops that run a block list what its ops use.
  main_.ForEachOp([&](const OpDesc& op) {
    if (op.HasSubBlock()) return;
    std::set<std::string> names;
    const auto note = [&](const std::string& name) { names.insert(name); };
    op.ForEachInput(note);
    op.ForEachOutput(note);
    for (const std::string& name : names) ++uses_[name];
  });
  main_.ForEachOp([&](OpDesc& op) {
    Update update{.op = &op, .param = {}, .gradient = {}, .states = {}};
    if (MayShard(op, &update)) updates_.push_back(std::move(update));
  });
}

bool StateSharder::MayShard(const OpDesc& op, Update* update) const {
  if (std::find(std::begin(kElementwiseUpdates), std::end(kElementwiseUpdates), op.type()) ==
      std::end(kElementwiseUpdates))
    return false;
  const auto one = [&](const char* slot) {
    const std::vector<std::string>& args = op.Input(slot);
    return args.size() == 1 ? args[0] : std::string();
  };
  if (!one("MasterParam").empty()) return false;
  update->param = one("Param");
  update->gradient = one("Grad");
  const VarDesc* param = op.block()->FindVarRecursive(update->param);
  const VarDesc* gradient = op.block()->FindVarRecursive(update->gradient);
  if (!param || !gradient || !WritesName(op, update->param)) return false;
  if (gradient->type() != VarType::kLoDTensor || !(gradient->shape() == param->shape()))
    return false;
  if (!param->shape().IsKnown() || param->shape().numel() < options_.shard_least) return false;
  bool all = true;
  op.ForEachInput([&](const std::string& name) {
    const VarDesc* var = op.block()->FindVarRecursive(name);
    if (!var || name == update->param || name == update->gradient) return;
    if (!(var->shape() == param->shape())) {
      all &= var->shape().IsKnown() && var->shape().numel() == 1;
      return;
    }
    all &= var->persistable() && main_.Root().FindVar(name) == var && WritesName(op, name) &&
           uses_.at(name) == 1 && IsFilled(name);
    update->states.push_back(name);
  });
  return all && !update->states.empty();
}

bool StateSharder::IsFilled(const std::string& state) const {
  const auto is = [&](const std::string& name) { return name == state; };
  int users = 0;
  std::as_const(startup_).ForEachOp(
      [&](const OpDesc& op) { users += op.AnyInput(is) || op.AnyOutput(is) ? 1 : 0; });
  const VarUses uses = std::as_const(startup_).Root().Uses(state);
  if (users != 1 || uses.writers.size() != 1) return false;
  const OpDesc& fill = *uses.writers[0];
  // Without tensors that say its shape.
  return fill.type() == "fill_constant" && !fill.AnyInput([](const std::string&) { return true; });
}

bool StateSharder::ReadsPartOnly(const std::string& gradient, size_t from) {
  const auto at = std::find_if(updates_.begin(), updates_.end(), [&](const Update& update) {
    return update.gradient == gradient && update.op->block() == &main_.Root();
  });
  if (at == updates_.end()) return false;
  const auto is = [&](const std::string& name) { return name == gradient; };
  int before = 0;
  for (size_t i = 0; i < from; ++i) {
    const OpDesc& op = main_.Root().op(i);
    if (op.HasSubBlock()) continue;
    before += op.AnyInput(is) || op.AnyOutput(is) ? 1 : 0;
  }
  return uses_.at(gradient) == before + 1;
}

int64_t StateSharder::ShardSize(const Shape& shape) const {
  return (shape.numel() + options_.nranks - 1) / options_.nranks;
}

std::string StateSharder::MakeShard(BlockDesc& block, const VarDesc& whole) {
  const std::string name = main_.UniqueName(whole.name() + "@SHARD");
  VarDesc& var = block.Var(name);
  var.SetMeta({VarType::kLoDTensor, whole.dtype(), {ShardSize(whole.shape())}, 0});
  var.SetStopGradient(true);
  return name;
}

OpDesc StateSharder::ShardOp(const std::string& type, const std::vector<std::string>& x,
                             const std::vector<std::string>& out) const {
  return MakeOp(type, {{"X", x}}, {{"Out", out}},
                {{"nranks", int32_t{options_.nranks}}, {"ring_id", int32_t{options_.ring_id}}},
                kOptimize);
}

void StateSharder::Scatter(const std::vector<std::string>& gradients, const OpDesc& complete,
                           OpInserter* main) {
  std::vector<std::string> sums;
  for (const std::string& gradient : gradients) {
    const VarDesc& var = VarOf(main_.Root(), gradient);
    const std::string& sum = sums.emplace_back(main_.UniqueName(gradient + "@SCATTERED"));
    main_.Root().Var(sum).SetMeta(var.meta());
    main_.Root().Var(sum).SetStopGradient(true);
  }
  const OpDesc* first = nullptr;  // updates_ stand in the order of the program
  for (Update& update : updates_) {
    const auto at = std::find(gradients.begin(), gradients.end(), update.gradient);
    if (at == gradients.end()) continue;
    update.summed = sums[static_cast<size_t>(at - gradients.begin())];
    if (!first) first = update.op;
  }
  OpDesc scatter = ShardOp("c_flat_reducescatter", gradients, sums);
  scatter.SetAttr(kOpRoleAttr, int32_t{kBackward});
  main->Behind(complete, std::move(scatter));
  main->Before(*first, Collective("c_sync_comm_stream", sums, options_.ring_id, kOptimize));
}

std::vector<ShardedState> StateSharder::Rewrite(OpInserter& main) {
  std::vector<ShardedState> sharded;
  for (Update& update : updates_) {
    OpDesc& op = *update.op;
    const VarDesc& param = VarOf(*op.block(), update.param);
    const std::string param_part = MakeShard(*op.block(), param);
    const std::string gradient_part = MakeShard(*op.block(), VarOf(*op.block(), update.gradient));
    main.Before(op,
                ShardOp("c_flat_shard", {update.summed.empty() ? update.gradient : update.summed},
                        {gradient_part}));
    main.Before(op, ShardOp("c_flat_shard", {update.param}, {param_part}));
    OpDesc gather = ShardOp("c_flat_allgather", {param_part}, {update.param});
    gather.SetAttr("shape", param.shape().ToVector());
    main.Behind(op, std::move(gather));
    Rename(op, update.param, param_part);
    Rename(op, update.gradient, gradient_part);
    for (const std::string& state : update.states) {
      const VarDesc& whole = VarOf(main_.Root(), state);
      const std::string part = MakeShard(main_.Root(), whole);
      sharded.push_back({state, part, whole.shape()});
      main_.Root().FindVar(part)->SetPersistable(true);
      Rename(op, state, part);
      VarDesc& made = startup_.Root().Var(part);
      made.SetMeta(VarOf(main_.Root(), part).meta());
      made.SetPersistable(true);
      OpDesc& fill = *startup_.Root().Uses(state).writers[0];
      fill.SetOutput("Out", {part});
      fill.SetAttr("shape", std::vector<int64_t>{ShardSize(whole.shape())});
      startup_.Root().RemoveVar(state);
      main_.Root().RemoveVar(state);
    }
  }
  return sharded;
}

void StateSharder::NameUses() {
  std::set<BlockDesc*> blocks;
  for (Update& update : updates_) blocks.insert(update.op->block());
  for (BlockDesc* block : blocks) NameUsesOf(*block);
}

void JoinShards(const Ranks& ranks, const std::vector<ShardedState>& states, Scope& scope) {
  for (const ShardedState& state : states) {
    const Tensor& part = scope.Get(state.shard);
    Tensor whole = Tensor::Zeros(part.dtype(), state.shape);
    std::vector<int64_t> counts;
    for (int r = 0; r < ranks.size(); ++r) {
      const int64_t begin = std::min(r * part.numel(), whole.numel());
      counts.push_back(std::min(part.numel(), whole.numel() - begin));
    }
    if (auto communicator = ranks.communicator()) {
      communicator->Run(
          {Exchange::Kind::kAllGather, part.dtype(), counts, part.raw(), whole.raw()});
    } else {
      std::memcpy(whole.raw(), part.raw(), static_cast<size_t>(whole.nbytes()));
    }
    if (ranks.first()) scope.Set(state.name, std::move(whole));
  }
}

void DivideStates(const Ranks& ranks, const std::vector<ShardedState>& states, Scope& scope) {
  for (const ShardedState& state : states) {
    if (!scope.Has(state.name)) continue;
    const Tensor& whole = scope.Get(state.name);
    const int64_t size = (whole.numel() + ranks.size() - 1) / ranks.size();
    const int64_t begin = std::min(ranks.rank() * size, whole.numel());
    const auto bytes = static_cast<int64_t>(SizeOf(whole.dtype()));
    Tensor part = Tensor::Zeros(whole.dtype(), {size});
    std::memcpy(part.raw(), static_cast<const char*>(whole.raw()) + begin * bytes,
                static_cast<size_t>(std::min(size, whole.numel() - begin) * bytes));
    scope.Set(state.shard, std::move(part));
    scope.Erase(state.name);
  }
}

}  // namespace coracle

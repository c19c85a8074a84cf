#include <coracle/distribute/exchange_ops.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/block_use.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/passes/freeze.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace coracle {

bool HasRole(const OpDesc& op, int role) { return (RoleOf(op) & role) != 0; }

OpDesc MakeOp(const std::string& type, SlotList inputs, SlotList outputs, AttrList attrs,
              int role) {
  attrs.push_back({kOpRoleAttr, int32_t{role}});
  return OpDesc(type, std::move(inputs), std::move(outputs), std::move(attrs));
}

OpDesc Collective(const std::string& type, const std::vector<std::string>& names, int ring_id,
                  int role) {
  return MakeOp(type, {{"X", names}}, {{"Out", names}}, {{"ring_id", int32_t{ring_id}}}, role);
}

OpDesc SumOf(const std::vector<std::string>& names, int ring_id, int role) {
  return Collective(names.size() > 1 ? "c_coalesced_allreduce_sum" : "c_allreduce_sum", names,
                    ring_id, role);
}

int64_t BytesOf(const VarDesc& var) {
  return var.shape().IsKnown() ? static_cast<int64_t>(ByteSize(var.dtype(), var.shape())) : 0;
}

int64_t BucketLimit(double bucket_mb) {
  if (!(bucket_mb >= 0) || std::isinf(bucket_mb))
    ThrowInvalid(fmt::format("distribute: buckets of {} MB; 0 or more are needed", bucket_mb));
  return static_cast<int64_t>(std::min(bucket_mb * 1e6, 1e18));
}

void RequireRanksToBe(int nranks) {
  if (nranks < 1) ThrowInvalid(fmt::format("distribute: {} ranks; at least 1 is needed", nranks));
}

void RequireNoExchanges(const ProgramDesc& main) {
  main.ForEachOp([](const OpDesc& op) {
    static const std::set<std::string> others = {"c_coalesced_allreduce_sum", "allreduce",
                                                 "ncclAllReduce", "ncclReduce"};
    const bool sums = op.type().starts_with("c_allreduce") || op.type().starts_with("c_reduce_");
    if (!sums && !others.contains(op.type())) return;
    ThrowInvalid("distribute: the program exchanges gradients already", "  " + Locate(op));
  });
}

std::vector<std::string> ParameterGradients(const ProgramDesc& main) {
  std::vector<std::string> gradients;
  std::unordered_set<std::string> known;
  main.Root().ForEachOp([&](const OpDesc& op) {
    if (!HasRole(op, kBackward)) return;
    const auto marked = op.GetAttr<std::vector<std::string>>(kOpRoleVarAttr, {});
    for (size_t k = 1; k < marked.size(); k += 2) {
      if (known.insert(marked[k]).second) gradients.push_back(marked[k]);
    }
  });
  if (gradients.empty()) {
    ThrowInvalid(
        "distribute: the program has no gradients of parameters (op_role_var of backward "
        "ops names none); append backward and an optimizer first");
  }
  return gradients;
}

std::vector<const OpDesc*> LossGradients(const ProgramDesc& main) {
  std::vector<const OpDesc*> ops;
  main.Root().ForEachOp([&](const OpDesc& op) {
    if (HasRole(op, kBackward) && HasRole(op, kLoss) && op.type() == "fill_constant")
      ops.push_back(&op);
  });
  if (ops.empty()) {
    ThrowInvalid(
        "distribute: no op begins the gradient of a loss (a fill_constant whose op_role is "
        "Backward and Loss)");
  }
  return ops;
}

void DeclareShare(BlockDesc& root, const std::string& name, DType dtype) {
  if (const VarDesc* var = root.FindVar(name)) {
    if (var->dtype() == dtype && var->shape() == Shape{1}) return;
    ThrowInvalid(fmt::format("distribute: the share {} must be {}[1], it is {}", Quote(name),
                             ToString(dtype), var->meta().ToString()));
  }
  VarDesc& var = root.Var(name);
  var.SetMeta({VarType::kLoDTensor, dtype, {1}, 0});
  var.SetStopGradient(true);
  var.SetNeedCheckFeed(true);
}

void BroadcastParameters(const ProgramDesc& main, const ProgramDesc& startup, int ring_id,
                         OpInserter* inserter) {
  const std::vector<std::string> parameters = main.Parameters();
  const std::set<std::string> wanted(parameters.begin(), parameters.end());
  std::unordered_map<std::string, const OpDesc*> last;
  startup.Root().ForEachOp([&](const OpDesc& op) {
    op.ForEachOutput([&](const std::string& name) {
      if (wanted.count(name)) last[name] = &op;
    });
  });
  for (const std::string& name : parameters) {
    auto it = last.find(name);
    if (it == last.end()) continue;
    OpDesc broadcast = Collective("c_broadcast", {name}, ring_id, kForward);
    broadcast.SetAttr("root", int32_t{0});
    inserter->Behind(*it->second, broadcast);
  }
}

std::vector<std::string> LocalVariables(const ProgramDesc& main) {
  std::set<std::string> local;
  main.Root().ForEachOp([&](const OpDesc& op) {
    if (HasRole(op, kOptimize | kLRSched | kBackward) || op.type() == "sync_batch_norm" ||
        HasFixedStatistics(op))
      return;
    op.ForEachOutput([&](const std::string& name) {
      const VarDesc* var = main.Root().FindVarRecursive(name);
      if (var && var->persistable()) local.insert(name);
    });
  });
  return {local.begin(), local.end()};
}

void NameUsesOf(BlockDesc& block) {
  if (!block.parent()) return;
  block.program().ForEachOp([&](OpDesc& op) {
    const std::vector<int> blocks = op.SubBlocks();
    if (std::find(blocks.begin(), blocks.end(), block.idx()) == blocks.end()) return;
    op.SetInput("Input", OuterReads(block));
    op.SetOutput("Out", OuterWrites(block));
  });
  NameUsesOf(*block.parent());
}

void Insert(OpInserter& inserter, ProgramDesc& program, const OpRegistry& ops) {
  for (OpDesc* op : inserter.Apply(program)) InferOp(*op->block(), *op, ops);
}

}  // namespace coracle

#include <coracle/distribute/exchange_ops.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/block_use.h>
#include <coracle/framework/op/infer_context.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
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

std::vector<std::string> OutputNames(const OpDesc& op) {
  std::vector<std::string> names;
  ForEachPosition(op.outputs(), [&](const std::string& name) { names.push_back(name); });
  return names;
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

const VarDesc& VarOf(const BlockDesc& block, const std::string& name) {
  if (const VarDesc* var = block.FindVarRecursive(name)) return *var;
  throw Error(ErrorCode::kNotFound,
              fmt::format("distribute: block {} has no var {}", block.idx(), Quote(name)));
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

std::vector<std::string> GradientsOfRows(const OpDesc& op) {
  std::vector<std::string> grads;
  const auto add = [&](const char* slot) {
    const std::vector<std::string>& args = op.Output(slot);
    grads.insert(grads.end(), args.begin(), args.end());
  };
  if (op.type() == "cvm_grad") add("X@GRAD");
  if (op.type() == "data_norm_grad") {
    for (const char* slot : {"BatchSize@GRAD", "BatchSum@GRAD", "BatchSquareSum@GRAD"}) add(slot);
  }
  std::erase(grads, kEmptyVarName);
  return grads;
}

bool AreMeansOfRows(const OpDesc& op) {
  return op.type() == "data_norm_grad" && op.GetAttr<int32_t>("slot_dim", -1) > 0;
}

namespace {

void RequireFed(const VarDesc& share, const BlockDesc& root) {
  if (share.persistable()) {
    ThrowInvalid(fmt::format("distribute: the share {} must be fed, and is persistable",
                             Quote(share.name())));
  }
  for (const OpDesc* writer : root.Uses(share.name()).writers) {
    if (writer->type() == "feed") continue;
    ThrowInvalid(fmt::format("distribute: the share {} must be fed, and {} writes it",
                             Quote(share.name()), writer->type()),
                 "  " + Locate(*writer));
  }
}

}  // namespace

void DeclareShare(BlockDesc& root, const std::string& name, DType dtype) {
  if (const VarDesc* var = root.FindVar(name)) {
    RequireFed(*var, root);
    if (var->dtype() == dtype && var->shape() == Shape{1}) return;
    ThrowInvalid(fmt::format("distribute: the share {} must be {}[1], it is {}", Quote(name),
                             ToString(dtype), var->meta().ToString()));
  }
  VarDesc& var = root.Var(name);
  var.SetMeta({VarType::kLoDTensor, dtype, {1}, 0});
  var.SetStopGradient(true);
  var.SetNeedCheckFeed(true);
}

namespace {

// A fill_constant that no tensor tells the shape or the value: the same on all ranks.
bool IsConstant(const OpDesc& op) {
  return op.type() == "fill_constant" && !op.AnyInput([](const std::string&) { return true; });
}

struct Filled {
  const OpDesc* last = nullptr;  // of the root block that writes it
  bool constant = true;
};

// What the startup program writes, in the order of the names.
std::map<std::string, Filled> FilledBy(const ProgramDesc& startup) {
  std::map<std::string, Filled> filled;
  startup.Root().ForEachOp([&](const OpDesc& outer) {
    const auto note = [&](const OpDesc& op) {
      op.ForEachOutput([&](const std::string& name) {
        Filled& var = filled[name];
        var.last = &outer;
        var.constant &= &op == &outer && IsConstant(op);
      });
    };
    note(outer);
    for (const BlockDesc* block : startup.BlocksRunBy(outer)) block->ForEachOp(note);
  });
  return filled;
}

}  // namespace

std::vector<std::string> BroadcastParameters(const ProgramDesc& main, const ProgramDesc& startup,
                                             int ring_id, OpInserter* inserter) {
  std::vector<std::string> names;
  for (const auto& [name, filled] : FilledBy(startup)) {
    const VarDesc* in_main = main.Root().FindVar(name);
    const VarDesc* var = startup.Root().FindVar(name);
    if (!var) var = in_main;
    if (!var || var->type() != VarType::kLoDTensor) continue;
    if (!var->persistable() && !(in_main && in_main->persistable())) continue;
    if (filled.constant && !(in_main && in_main->is_parameter())) continue;
    OpDesc broadcast = Collective("c_broadcast", {name}, ring_id, kForward);
    broadcast.SetAttr("root", int32_t{0});
    inserter->Behind(*filled.last, broadcast);
    names.push_back(name);
  }
  return names;
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

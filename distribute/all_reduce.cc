#include <coracle/distribute/all_reduce.h>
#include <coracle/distribute/op_inserter.h>
#include <coracle/distribute/rank_values.h>
#include <coracle/distribute/shard_state.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace coracle {
namespace {

bool HasRole(const OpDesc& op, int role) { return (RoleOf(op) & role) != 0; }

// A gradient of parameters, as the root block has it.
struct Gradient {
  std::string name;
  size_t complete = 0;  // the last op of backward that writes or reads it
  // Where gradients are accumulated: their sum, and the op whose block runs once for an update.
  std::string sum = {};
  const OpDesc* once = nullptr;

  const std::string& exchanged() const { return sum.empty() ? name : sum; }
};

class Inserter {
 public:
  Inserter(ProgramDesc& main, ProgramDesc& startup, const AllReduceOptions& options)
      : main_(main),
        startup_(startup),
        options_(options),
        ops_(options.ops ? *options.ops : DefaultOps()),
        root_(main.Root()),
        sharder_(main, startup, options) {}

  AllReduceReport Run() {
    Check();
    FindGradients();
    FindSums();
    if (options_.shard_state) FindShards();
    ScaleLoss();
    ExchangeGradients();
    AgreeOnFlags();
    BroadcastParameters();
    if (options_.sync_batch_norm) SyncBatchNorms();
    FindLocal();
    report_.states = sharder_.Rewrite(inserter_);
    Finish();
    return std::move(report_);
  }

 private:
  void Check() const {
    if (options_.nranks < 1)
      ThrowInvalid(fmt::format("distribute: {} ranks; at least 1 is needed", options_.nranks));
    if (!(options_.bucket_mb >= 0) || std::isinf(options_.bucket_mb)) {
      ThrowInvalid(
          fmt::format("distribute: buckets of {} MB; 0 or more are needed", options_.bucket_mb));
    }
    main_.ForEachOp([](const OpDesc& op) {
      if (!op.type().starts_with("c_allreduce") && op.type() != "c_coalesced_allreduce_sum") return;
      ThrowInvalid("distribute: the program exchanges gradients already", "  " + Locate(op));
    });
  }

  // --- what to exchange ---

  void FindGradients() {
    std::unordered_map<std::string, size_t> known;
    for (size_t i = 0; i < root_.NumOps(); ++i) {
      const OpDesc& op = root_.op(i);
      if (!HasRole(op, kBackward)) continue;
      const auto marked = op.GetAttr<std::vector<std::string>>(kOpRoleVarAttr, {});
      for (size_t k = 1; k < marked.size(); k += 2) {
        if (known.emplace(marked[k], gradients_.size()).second) gradients_.push_back({marked[k]});
      }
      const auto note = [&](const std::string& name) {
        if (auto it = known.find(name); it != known.end()) gradients_[it->second].complete = i;
      };
      op.ForEachOutput(note);
      op.ForEachInput(note);
      for (const BlockDesc* block : main_.BlocksRunBy(op)) {
        block->ForEachOp([&](const OpDesc& inner) { inner.ForEachInput(note); });
      }
    }
    if (gradients_.empty()) {
      ThrowInvalid(
          "distribute: the program has no gradients of parameters (op_role_var of backward "
          "ops names none); append backward and an optimizer first");
    }
    std::stable_sort(gradients_.begin(), gradients_.end(),
                     [](const Gradient& a, const Gradient& b) { return a.complete < b.complete; });
  }

  // sum: X = (S, gradient), Out = S, which is persistable.
  static const std::string* SumOf(const OpDesc& op, const std::string& gradient) {
    if (op.type() != "sum" || !HasRole(op, kOptimize) || op.Output("Out").size() != 1)
      return nullptr;
    const std::string& out = op.Output("Out")[0];
    const VarDesc* var = op.block()->FindVarRecursive(out);
    return var && var->persistable() && op.Reads(out) && op.Reads(gradient) ? &out : nullptr;
  }

  void FindSums() {
    for (Gradient& gradient : gradients_) {
      for (const OpDesc* reader : std::as_const(root_).Uses(gradient.name).readers) {
        const std::string* sum = SumOf(*reader, gradient.name);
        if (!sum) continue;
        gradient.sum = *sum;
        gradient.once = BlockReader(*sum);
        if (gradient.once) break;
        ThrowInvalid(fmt::format("distribute: no conditional block reads {}, the sum of {}",
                                 Quote(*sum), Quote(gradient.name)),
                     "  " + Locate(*reader));
      }
    }
  }
  const OpDesc* BlockReader(const std::string& sum) const {
    for (const OpDesc* op : std::as_const(root_).SubBlockOps()) {
      for (const BlockDesc* block : main_.BlocksRunBy(*op)) {
        const VarUses uses = block->Uses(sum);
        if (!uses.readers.empty() || !uses.writers.empty()) return op;
      }
    }
    return nullptr;
  }

  void FindShards() {
    sharder_.FindUpdates();
    std::erase_if(gradients_, [&](const Gradient& gradient) {
      if (gradient.once || !sharder_.ReadsPartOnly(gradient.name, gradient.complete + 1))
        return false;
      exchanged_.insert(gradient.name);
      report_.scattered.push_back(gradient.name);
      return true;
    });
  }

  // --- the loss ---

  void ScaleLoss() {
    bool any = false;
    root_.ForEachOp([&](const OpDesc& op) {
      if (!HasRole(op, kBackward) || !HasRole(op, kLoss) || op.type() != "fill_constant") return;
      any = true;
      const std::string& grad = op.Output("Out").at(0);
      const DType dtype = root_.FindVarRecursive(grad)->dtype();
      const std::string factor = options_.share.empty() ? ConstantBehind(op, dtype) : Share(dtype);
      Behind(op, MakeOp("scale", {{"X", {grad}}, {"ScaleTensor", {factor}}}, {{"Out", {grad}}}, {},
                        kBackward | kLoss));
    });
    if (any) return;
    ThrowInvalid(
        "distribute: no op begins the gradient of a loss (a fill_constant whose op_role is "
        "Backward and Loss)");
  }
  std::string Share(DType dtype) {
    if (const VarDesc* var = root_.FindVar(options_.share)) {
      if (var->dtype() == dtype && var->shape() == Shape{1}) return options_.share;
      ThrowInvalid(fmt::format("distribute: the share {} must be {}[1], it is {}",
                               Quote(options_.share), ToString(dtype), var->meta().ToString()));
    }
    VarDesc& var = root_.Var(options_.share);
    var.SetMeta({VarType::kLoDTensor, dtype, {1}, 0});
    var.SetStopGradient(true);
    var.SetNeedCheckFeed(true);
    return options_.share;
  }
  std::string ConstantBehind(const OpDesc& op, DType dtype) {
    const std::string name = main_.UniqueName("rank_share");
    VarDesc& var = root_.Var(name);
    var.SetMeta({VarType::kLoDTensor, dtype, {1}, 0});
    var.SetStopGradient(true);
    Behind(op, MakeOp("fill_constant", {}, {{"Out", {name}}},
                      FillAttrs({1}, dtype, 1.0 / options_.nranks), kBackward | kLoss));
    return name;
  }

  // --- exchanges ---

  static OpDesc MakeOp(const std::string& type, SlotList inputs, SlotList outputs, AttrList attrs,
                       int role) {
    attrs.push_back({kOpRoleAttr, int32_t{role}});
    return OpDesc(type, std::move(inputs), std::move(outputs), std::move(attrs));
  }
  OpDesc Collective(const std::string& type, const std::vector<std::string>& names,
                    int role) const {
    return MakeOp(type, {{"X", names}}, {{"Out", names}}, {{"ring_id", int32_t{options_.ring_id}}},
                  role);
  }
  void Behind(const OpDesc& op, OpDesc added) { inserter_.Behind(op, std::move(added)); }

  bool IsSparse(const std::string& name) const {
    return root_.FindVarRecursive(name)->type() == VarType::kSelectedRows;
  }
  int64_t BytesOf(const std::string& name) const {
    const VarDesc& var = *root_.FindVarRecursive(name);
    if (!var.shape().IsKnown()) return 0;
    return static_cast<int64_t>(ByteSize(var.dtype(), var.shape()));
  }

  struct Bucket {
    GradientBucket what;
    DType dtype = DType::kFloat32;
    size_t complete = 0;
    const OpDesc* once = nullptr;
  };

  std::vector<Bucket> MakeBuckets() const {
    const auto limit = static_cast<int64_t>(std::min(options_.bucket_mb * 1e6, 1e18));
    std::vector<Bucket> full, open;
    for (const Gradient& gradient : gradients_) {
      const std::string& name = gradient.exchanged();
      const DType dtype = root_.FindVarRecursive(name)->dtype();
      if (IsSparse(name)) {
        full.push_back({{{name}, -1}, dtype, gradient.complete, gradient.once});
        continue;
      }
      auto at = std::find_if(open.begin(), open.end(), [&](const Bucket& bucket) {
        return bucket.dtype == dtype && bucket.once == gradient.once;
      });
      if (at == open.end()) at = open.insert(open.end(), {{{}, 0}, dtype, 0, gradient.once});
      at->what.gradients.push_back(name);
      at->what.bytes += BytesOf(name);
      at->complete = gradient.complete;
      if (at->what.bytes < limit) continue;
      full.push_back(std::move(*at));
      open.erase(at);
    }
    full.insert(full.end(), open.begin(), open.end());
    std::stable_sort(full.begin(), full.end(),
                     [](const Bucket& a, const Bucket& b) { return a.complete < b.complete; });
    return full;
  }

  void ExchangeGradients() {
    for (const Bucket& bucket : MakeBuckets()) {
      const std::vector<std::string>& names = bucket.what.gradients;
      exchanged_.insert(names.begin(), names.end());
      const OpDesc exchange = Collective(
          names.size() > 1 ? "c_coalesced_allreduce_sum" : "c_allreduce_sum", names, kBackward);
      if (bucket.once) {
        ExchangeInBlock(*bucket.once, exchange, bucket);
      } else {
        Behind(root_.op(bucket.complete), exchange);
        if (bucket.what.bytes >= 0) WaitFor(names, root_, bucket.complete + 1);
      }
      report_.buckets.push_back(bucket.what);
    }
  }

  // Before the first op of the block (or of a block that it runs) that uses one of them.
  void ExchangeInBlock(const OpDesc& once, const OpDesc& exchange, const Bucket& bucket) {
    const std::vector<const BlockDesc*> blocks = main_.BlocksRunBy(once);
    const BlockDesc& block = *blocks.front();
    OpDesc update = exchange;
    update.SetAttr(kOpRoleAttr, int32_t{kOptimize});
    if (const OpDesc* first = FirstUse(block, bucket.what.gradients, 0))
      inserter_.Before(*first, update);
  }
  void WaitFor(const std::vector<std::string>& names, const BlockDesc& block, size_t from) {
    const OpDesc* first = FirstUse(block, names, from);
    const OpDesc wait = Collective("c_sync_comm_stream", names, kOptimize);
    if (first)
      inserter_.Before(*first, wait);
    else
      inserter_.AtEnd(block, wait);
  }
  const OpDesc* FirstUse(const BlockDesc& block, const std::vector<std::string>& names,
                         size_t from) const {
    const std::set<std::string> wanted(names.begin(), names.end());
    const auto uses = [&](const OpDesc& op) {
      const auto is_wanted = [&](const std::string& name) { return wanted.count(name) > 0; };
      return op.AnyInput(is_wanted) || op.AnyOutput(is_wanted);
    };
    for (size_t i = from; i < block.NumOps(); ++i) {
      const OpDesc& op = block.op(i);
      bool any = uses(op);
      for (const BlockDesc* inner : main_.BlocksRunBy(op))
        inner->ForEachOp([&](const OpDesc& user) { any |= uses(user); });
      if (any) return &op;
    }
    return nullptr;
  }

  // --- the rest of the step ---

  void AgreeOnFlags() {
    for (const RankFlag& flag : FindRankFlags(main_, exchanged_)) {
      const OpDesc agree = Collective(flag.reduction, {flag.name}, kOptimize);
      if (flag.behind)
        inserter_.Behind(*flag.place, agree);
      else
        inserter_.Before(*flag.place, agree);
    }
  }

  void BroadcastParameters() {
    const std::vector<std::string> parameters = main_.Parameters();
    const std::set<std::string> wanted(parameters.begin(), parameters.end());
    std::unordered_map<std::string, const OpDesc*> last;
    startup_.Root().ForEachOp([&](const OpDesc& op) {
      op.ForEachOutput([&](const std::string& name) {
        if (wanted.count(name)) last[name] = &op;
      });
    });
    for (const std::string& name : parameters) {
      auto it = last.find(name);
      if (it == last.end()) continue;
      OpDesc broadcast = Collective("c_broadcast", {name}, kForward);
      broadcast.SetAttr("root", int32_t{0});
      startup_inserter_.Behind(*it->second, broadcast);
    }
  }

  // Those whose statistics are the batch's; a pass that fuses batch_norm has not run yet.
  void SyncBatchNorms() {
    main_.ForEachOp([&](OpDesc& op) {
      if (!op.type().starts_with("batch_norm")) return;
      const bool fixed =
          op.GetAttr<bool>("use_global_stats", false) ||
          (op.GetAttr<bool>("is_test", false) && !op.GetAttr<bool>("trainable_statistics", false));
      if (fixed) return;
      if (op.block() != &root_ || op.type() == "batch_norm_grad_grad") {
        ThrowInvalid(fmt::format("distribute: {}{} cannot take the statistics of all ranks; leave "
                                 "out sync_batch_norm",
                                 op.type(), op.block() == &root_ ? "" : " within a block"),
                     "  " + Locate(op));
      }
      op.SetType("sync_" + op.type());
      if (!options_.share.empty()) op.SetInput("Share", {options_.share});
    });
  }

  void FindLocal() {
    std::set<std::string> local;
    root_.ForEachOp([&](const OpDesc& op) {
      if (HasRole(op, kOptimize | kLRSched | kBackward) || op.type() == "sync_batch_norm") return;
      op.ForEachOutput([&](const std::string& name) {
        const VarDesc* var = root_.FindVarRecursive(name);
        if (var && var->persistable()) local.insert(name);
      });
    });
    report_.local.assign(local.begin(), local.end());
  }

  void Finish() {
    for (auto* inserter : {&inserter_, &startup_inserter_}) {
      ProgramDesc& program = inserter == &inserter_ ? main_ : startup_;
      for (OpDesc* op : inserter->Apply(program)) InferOp(*op->block(), *op, ops_);
    }
  }

  ProgramDesc& main_;
  ProgramDesc& startup_;
  const AllReduceOptions& options_;
  const OpRegistry& ops_;
  BlockDesc& root_;
  std::vector<Gradient> gradients_;
  std::set<std::string> exchanged_;
  StateSharder sharder_;
  OpInserter inserter_, startup_inserter_;
  AllReduceReport report_;
};

}  // namespace

AllReduceReport InsertAllReduce(ProgramDesc& main, ProgramDesc& startup,
                                const AllReduceOptions& options) {
  ProgramDesc new_main = main, new_startup = startup;
  AllReduceReport report = Inserter(new_main, new_startup, options).Run();
  main = std::move(new_main);
  startup = std::move(new_startup);
  return report;
}

}  // namespace coracle

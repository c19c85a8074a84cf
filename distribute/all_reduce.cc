#include <coracle/distribute/all_reduce.h>
#include <coracle/distribute/error_clips.h>
#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/exchange_states.h>
#include <coracle/distribute/gradients.h>
#include <coracle/distribute/largest_values.h>
#include <coracle/distribute/rank_values.h>
#include <coracle/distribute/shard_state.h>
#include <coracle/distribute/whole_values.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/check/block_use.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/freeze.h>
#include <fmt/format.h>

#include <set>

namespace coracle {
namespace {

// Whether the op joins what the ranks have for the same rows or parameters, as model parallel
// programs and programs with exchanged gradients do. Copies of rank 0 (c_broadcast) and ops that
// divide or gather rows (c_allgather) do not; their effect on rows is declared.
bool JoinsRanks(const OpSpec& spec) {
  if (!spec.side_effect || spec.takes_any_value) return false;
  switch (spec.rows.effect.rule) {
    case RowRule::kSame:
      return !spec.FindAttr("root");
    case RowRule::kMixes:
      return !spec.inplace.empty();
    case RowRule::kEach:
      return spec.FindAttr("ring_id") != nullptr;
    default:
      return false;
  }
}

// Refuses a program with ops that sum or compare values of the ranks.
void RequireNoExchanges(const ProgramDesc& main, const OpRegistry& ops) {
  main.ForEachOp([&](const OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    if (spec && JoinsRanks(*spec)) Refuse(op, "the program exchanges values between ranks already");
  });
}

// --- the loss ---

// An input of a program that is fed, but has no input with an open dimension; else nullptr.
const VarDesc* FixedInput(const BlockDesc& root, const std::string& share) {
  const VarDesc* found = nullptr;
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    const VarUses uses = root.Uses(var.name());
    const bool is_fed =
        uses.writers.empty() || (uses.writers.size() == 1 && IsFeed(*uses.writers[0]));
    if (!is_fed || var.persistable() || uses.readers.empty() || var.name() == share) continue;
    if (var.shape().rank() == 0 || !var.shape().IsKnown()) return nullptr;
    if (!found) found = &var;
  }
  return found;
}

std::string LossOf(const OpDesc& loss_gradient) {
  const std::string& grad = loss_gradient.Output("Out").at(0);
  return grad.substr(0, grad.rfind(kGradSuffix));
}

std::vector<std::string> LossesOf(const ProgramDesc& main) {
  std::vector<std::string> losses;
  for (const OpDesc* op : LossGradients(main)) losses.push_back(LossOf(*op));
  return losses;
}

// Multiplies the gradient of each loss by the weight of the rank's part. Returns whether all losses
// combine by known rules.
bool ScaleLosses(ProgramDesc& main, const PartValues& parts, const AllReduceOptions& options,
                 WholeWriter* writer, OpInserter* inserter) {
  bool known = true;
  const std::vector<const OpDesc*> gradients = LossGradients(main);
  if (gradients.empty()) {
    Refuse(
        "no op begins the gradient of a loss (a fill_constant whose op_role is Backward and Loss)");
  }
  for (const OpDesc* op : gradients) {
    const std::string& grad = op->Output("Out").at(0);
    const DType dtype = VarOf(main.Root(), grad).dtype();
    if (!options.share.empty()) DeclareShare(main.Root(), options.share, dtype);
    const std::string loss = LossOf(*op);
    const Part part = writer->SettleOrThrow(loss);
    known &= parts.Of(loss).kind != PartKind::kUnknown;
    const VarDesc* fixed = FixedInput(main.Root(), options.share);
    if (part.kind == PartKind::kSame && fixed) {
      Refuse(
          fmt::format("input {} is {}, and ranks divide the batch: its first dimension must be -1",
                      Quote(fixed->name()), fixed->meta().ToString()));
    }
    inserter->After(*op, kBackward | kLoss, [&](const Writer& w) {
      if (const auto factor = writer->Factor(w, part, dtype)) ScaleInPlace(w, grad, *factor);
    });
  }
  return known;
}

// A part without elements may give a nan although the batch does not: checks look at the loss of
// the whole batch.
void CheckWholeLoss(ProgramDesc& main, const PartValues& parts, WholeWriter* writer) {
  main.Root().ForEachOp([&](OpDesc& op) {
    if (!ChecksFinite(op) || !HasRole(op, kOptimize) || op.Input("X").size() != 1) return;
    const std::string loss = op.Input("X")[0];
    if (!parts.Of(loss).IsNumber()) return;
    const Part part = writer->Settle(loss);
    if (part.IsNumber() && !part.MeanOfRows()) op.SetInput("X", {writer->WholeOf(loss, part)});
  });
}

// Some gradients are sums over the rows, whatever gradient arrives (the statistics of data_norm).
// They become 0 on ranks whose rows do not count.
void LeaveOutUncountedRows(ProgramDesc& main, const AllReduceOptions& options,
                           const OpRegistry& ops, const WholeWriter& writer, OpInserter* inserter) {
  main.ForEachOp([&](const OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    if (!spec || !IsBackward(op) || !spec->type.ends_with("_grad")) return;
    op.ForEachOutput([&](const std::string& grad, const std::string& slot) {
      const RowRule rule = RowEffectOf({op, *spec, slot}).rule;
      const bool mixes = rule == RowRule::kMixes && spec->rows.fn;
      if (!mixes && rule != RowRule::kSum) return;
      if (mixes || (op.block() != &main.Root() && !options.share.empty())) {
        Refuse(op, fmt::format("the ranks cannot add {}, which {} makes from the rows of a rank{}; "
                               "train on one rank, or without the op",
                               Quote(grad), op.type(), mixes ? "" : ", in a block"));
      }
      inserter->After(op, kBackward, [&](const Writer& w) {
        if (const auto counts = writer.Counts(w, VarOf(*op.block(), grad).dtype()))
          ScaleInPlace(w, grad, *counts);
      });
    });
  });
}

// --- the rest of the step ---

// Updates with noise: ranks draw different numbers, unless the op has a seed.
void DrawTheSameInUpdates(ProgramDesc& main, const OpRegistry& ops) {
  const auto seed = static_cast<int32_t>(main.random_seed % INT32_MAX);
  main.ForEachOp([&](OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    if (!spec || !spec->random || !spec->FindAttr("seed") || !spec->FindOutput("ParamOut")) return;
    if (op.GetAttr<int32_t>("seed", 0) == 0) op.SetAttr("seed", seed != 0 ? seed : int32_t{1});
  });
}

// The ops with statistics of the batch; no pass that fuses them has run yet.
void SyncBatchNorms(ProgramDesc& main, const OpRegistry& ops) {
  main.ForEachOp([&](OpDesc& op) {
    const std::string synced = "sync_" + op.type();
    const std::string forward = op.type().substr(0, op.type().find("_grad"));
    const OpSpec* spec = ops.Find(forward);
    const bool keeps_statistics =
        spec && spec->FindOutput("MeanOut") && spec->FindOutput("VarianceOut");
    if (!keeps_statistics || forward.starts_with("sync_") || HasFixedStatistics(op)) return;
    if (op.block() != &main.Root() || !ops.Find(synced)) {
      Refuse(op, fmt::format("{}{} cannot use the statistics of all ranks; leave out "
                             "sync_batch_norm",
                             op.type(), op.block() == &main.Root() ? "" : " in a block"));
    }
    op.SetType(synced);
  });
}

// Renews the inputs and outputs of the ops that run the block, and of the ops that run those.
void NameUsesOf(BlockDesc& block) {
  if (!block.parent()) return;
  block.program().ForEachOp([&](OpDesc& op) {
    if (!Contains(op.SubBlocks(), block.idx())) return;
    op.SetInput("Input", OuterReads(block));
    op.SetOutput("Out", OuterWrites(block));
  });
  NameUsesOf(*block.parent());
}

// Once ops are inserted, the ops that run blocks with divided updates list what these use now.
void NameUsesOfUpdates(const std::vector<ShardedUpdate>& updates) {
  std::set<BlockDesc*> blocks;
  for (const ShardedUpdate& update : updates) blocks.insert(update.op->block());
  for (BlockDesc* block : blocks) NameUsesOf(*block);
}

AllReduceReport Rewrite(ProgramDesc& main, ProgramDesc& startup, const AllReduceOptions& options,
                        const OpRegistry& ops) {
  AgreeOnLargest(main, options);
  AllReduceReport report;
  std::vector<ParameterGradient> summed = FindGradients(main, ops), scattered;
  std::vector<ShardedUpdate> updates;
  if (options.shard_state) {
    updates = FindShardedUpdates(main, startup, options);
    scattered = TakeScattered(main, updates, &summed);
  }
  const PartValues parts(main, ops);
  OpInserter inserter(main, ops), startup_inserter(startup, ops);
  WholeWriter writer(main, parts, options, &inserter);
  const bool known = ScaleLosses(main, parts, options, &writer, &inserter);
  report.whole = writer.WholeOfWanted(LossesOf(main), &report.unknown);
  ClipAsOneRank(main, parts, writer, options, !known, &inserter);
  LeaveOutUncountedRows(main, options, ops, writer, &inserter);
  for (const OpenBucket& bucket : MakeBuckets(main, summed, options.bucket_mb)) {
    SumBucket(main, bucket, options.ring_id, &inserter);
    report.buckets.push_back(bucket.bucket);
  }
  for (const OpenBucket& bucket : MakeBuckets(main, scattered, options.bucket_mb)) {
    ScatterBucket(main, bucket, options, &updates, &inserter);
    report.scattered.push_back(bucket.bucket);
  }
  CheckWholeLoss(main, parts, &writer);
  std::set<std::string> exchanged;
  for (const auto& gradient : summed) exchanged.insert(gradient.exchanged());
  for (const auto& gradient : scattered) exchanged.insert(gradient.name);
  AgreeOnFlags(main, exchanged, options.ring_id, &inserter);
  DrawTheSameInUpdates(main, ops);
  report.broadcast = BroadcastParameters(main, startup, options.ring_id, &startup_inserter);
  if (options.sync_batch_norm) SyncBatchNorms(main, ops);
  ExchangeStates(main, parts, options, &inserter, &report);
  report.states = RewriteUpdates(main, startup, updates, options, &inserter);
  inserter.Apply();
  NameUsesOfUpdates(updates);
  startup_inserter.Apply();
  return report;
}

}  // namespace

AllReduceReport InsertAllReduce(ProgramDesc& main, ProgramDesc& startup,
                                const AllReduceOptions& options) {
  const OpRegistry& ops = OpsOf(options);
  if (options.nranks < 1) Refuse(fmt::format("{} ranks; at least 1 is needed", options.nranks));
  RequireNoExchanges(main, ops);
  VerifyOrThrow(main, ops, {.infer_shapes = false});
  VerifyOrThrow(startup, ops, {.infer_shapes = false});
  ProgramDesc new_main = main, new_startup = startup;
  AllReduceReport report = Rewrite(new_main, new_startup, options, ops);
  main = std::move(new_main);
  startup = std::move(new_startup);
  return report;
}

}  // namespace coracle

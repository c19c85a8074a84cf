#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/forward_states.h>
#include <coracle/distribute/local_sgd.h>
#include <coracle/distribute/rank_values.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/operators/control/conditional_block.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

namespace coracle {
namespace {

class LocalSgd {
 public:
  LocalSgd(ProgramDesc& main, ProgramDesc& startup, const LocalSgdOptions& options)
      : main_(main),
        startup_(startup),
        options_(options),
        ops_(options.ops ? *options.ops : DefaultOps()) {}

  LocalSgdReport Run() {
    Check();
    FindUpdateBlock();
    FindAveraged();
    FindStates();
    MakeStates();
    if (!options_.share.empty()) WeighRows();
    AverageEveryKSteps();
    Average(DeclareIn(report_.average));
    report_.broadcast = BroadcastParameters(main_, startup_, options_.ring_id, &startup_inserter_);
    Insert(inserter_, main_, ops_);
    Insert(startup_inserter_, startup_, ops_);
    return std::move(report_);
  }

 private:
  void Check() const {
    RequireRanksToBe(options_.nranks);
    if (options_.steps < 1 || options_.steps > std::numeric_limits<int32_t>::max())
      ThrowInvalid(
          fmt::format("distribute: local SGD of {} steps; 1 or more are needed", options_.steps));
    RequireNoExchanges(main_);
    main_.ForEachOp([](const OpDesc& op) {
      if (!op.type().starts_with("sync_batch_norm")) return;
      ThrowInvalid(
          "distribute: local SGD: the statistics of sync_batch_norm are of ranks whose "
          "parameters differ; use batch_norm",
          "  " + Locate(op));
    });
    RequireNoDecisions();
  }

  // Whether there is an update is decided by what is known of all ranks, which here are on their
  // own: flags of the loss, as they are agreed on elsewhere, and those of the gradients.
  void RequireNoDecisions() const {
    const std::vector<std::string> gradients = ParameterGradients(main_);
    const std::vector<RankFlag> flags = FindRankFlags(main_, {gradients.begin(), gradients.end()});
    if (!flags.empty()) RefuseDecision(*flags[0].place, flags[0].name);
    main_.ForEachOp([](const OpDesc& op) {
      if (!HasRole(op, kOptimize)) return;
      if (op.HasOutput("FoundInfinite")) RefuseDecision(op, op.Output("FoundInfinite")[0]);
      if (op.type().starts_with("isfinite")) RefuseDecision(op, op.Output("Out")[0]);
    });
  }
  [[noreturn]] static void RefuseDecision(const OpDesc& op, const std::string& flag) {
    Refuse(op, fmt::format("{} decides whether there is an update, and ranks would decide "
                           "differently; leave out loss scaling and the check of the loss",
                           Quote(flag)));
  }

  // --- what is averaged, and where ---

  void FindUpdateBlock() {
    main_.ForEachOp([&](OpDesc& op) {
      if (!HasRole(op, kOptimize) || !op.HasInput("Param")) return;
      if (!update_block_) update_block_ = op.block();
      if (op.HasInput("MasterParam"))
        Refuse(op, "master parameters would not be the averaged ones");
      if (op.block() != update_block_) Refuse(op, "updates are in several blocks");
    });
    if (update_block_) return;
    ThrowInvalid("distribute: local SGD: no op updates a parameter; append an optimizer first");
  }
  [[noreturn]] static void Refuse(const OpDesc& op, const std::string& reason) {
    ThrowInvalid("distribute: local SGD: " + reason, "  " + Locate(op));
  }

  // What ops of the update write. Left out: what does not depend on gradients but on the number of
  // updates (powers of beta, which stand beside a larger parameter), sums of gradients, which begin
  // anew, and what clips count, which no update reads.
  void FindAveraged() {
    std::set<std::string> averaged, anew;
    const auto visit = [&](const OpDesc& op) {
      if (!HasRole(op, kOptimize)) return;
      const std::vector<std::string>& param = op.Input("Param");
      const VarDesc* of = param.empty() ? nullptr : op.block()->FindVarRecursive(param[0]);
      op.ForEachOutput([&](const std::string& name) {
        const VarDesc* var = op.block()->FindVarRecursive(name);
        if (!var || !var->persistable() || !IsFloating(var->dtype())) return;
        if (name.starts_with("gradient_clip.")) return;
        if (of && var->shape() == Shape{1} && !(of->shape() == Shape{1})) return;
        if (op.type() == "fill_constant")
          anew.insert(name);
        else if (averaged.insert(name).second)
          RequireAverageable(op, *var);
      });
    };
    main_.ForEachOp(visit);
    for (const std::string& name : averaged) {
      if (!anew.count(name)) averaged_.push_back(name);
    }
  }
  // Of forward ops: averaged with the parameters, but for 16-bit floats, which stay each rank's
  // own.
  void FindStates() {
    ForwardStates found = FindForwardStates(main_, ops_);
    report_.local = std::move(found.statistics);
    report_.own = std::move(found.own);
    for (const auto& [name, last] : found.states) {
      const DType dtype = DTypeOf(name);
      const bool half = dtype != DType::kFloat32 && dtype != DType::kFloat64;
      if (std::find(averaged_.begin(), averaged_.end(), name) != averaged_.end()) continue;
      (half ? report_.own : report_.averaged).push_back(name);
      if (!half) averaged_.push_back(name);
    }
  }
  void RequireAverageable(const OpDesc& op, const VarDesc& var) const {
    if (var.dtype() != DType::kFloat32 && var.dtype() != DType::kFloat64)
      Refuse(op, fmt::format("the average of {}, {}, would lose digits", Quote(var.name()),
                             ToString(var.dtype())));
    if (!main_.Root().FindVar(var.name()) || !var.shape().IsKnown())
      Refuse(op, fmt::format("{} is not a variable of the program's first block with a known shape",
                             Quote(var.name())));
  }

  // --- the states of the rewriting ---

  std::string MakeState(const std::string& prefix, DType dtype) {
    const std::string name = main_.FreeName(prefix);
    for (ProgramDesc* program : {&main_, &startup_}) {
      VarDesc& var = program->Root().Var(name);
      var.SetMeta({VarType::kLoDTensor, dtype, {1}, 0});
      var.SetPersistable(true);
      var.SetStopGradient(true);
    }
    startup_inserter_.AtEnd(startup_.Root(), MakeOp("fill_constant", {}, {{"Out", {name}}},
                                                    FillAttrs({1}, dtype, 0), kForward));
    report_.added.push_back(name);
    return name;
  }
  void MakeStates() {
    report_.counter = MakeState("@LOCAL_STEPS@", DType::kInt64);
    rows_ = options_.share.empty() ? "" : MakeState("@LOCAL_ROWS@", DType::kFloat64);
  }

  // In every run: the share is added up, and a loss of rows that do not count has no gradient.
  void WeighRows() {
    BlockDesc& root = main_.Root();
    const std::vector<const OpDesc*> losses = LossGradients(main_);
    for (const OpDesc* op : losses) {
      const std::string& grad = op->Output("Out").at(0);
      const DType dtype = VarOf(root, grad).dtype();
      DeclareShare(root, options_.share, dtype);
      const std::string counts = NewVar(root, "rank_has_rows", dtype);
      inserter_.Behind(*op, MakeOp("sign", {{"X", {options_.share}}}, {{"Out", {counts}}}, {},
                                   kBackward | kLoss));
      inserter_.Behind(*op, MakeOp("scale", {{"X", {grad}}, {"ScaleTensor", {counts}}},
                                   {{"Out", {grad}}}, {}, kBackward | kLoss));
    }
    const DType dtype = VarOf(root, options_.share).dtype();
    const std::string exact = NewVar(root, "rank_rows", DType::kFloat64);
    inserter_.Behind(*losses[0], MakeOp("cast", {{"X", {options_.share}}}, {{"Out", {exact}}},
                                        CastAttrs(dtype, DType::kFloat64), kOptimize));
    inserter_.Behind(*losses[0],
                     MakeOp("sum", {{"X", {rows_, exact}}}, {{"Out", {rows_}}}, {}, kOptimize));
  }
  std::string NewVar(BlockDesc& block, const std::string& prefix, DType dtype) {
    const std::string name = block.program().UniqueName(prefix);
    VarDesc& var = block.Var(name);
    var.SetMeta({VarType::kLoDTensor, dtype, {1}, 0});
    var.SetStopGradient(true);
    return name;
  }

  // --- the average ---

  void AverageEveryKSteps() {
    BlockDesc& block = main_.AppendBlock(*update_block_);
    Average(block);
    BlockDesc& outer = *update_block_;
    Writer w(outer, ops_, {.role = kOptimize, .stop_gradient = true});
    w.Into(report_.counter, "increment", {{"X", {report_.counter}}}, {{"step", 1.0f}});
    const Variable k =
        w.Named("local_steps", FillConstant(w, DType::kInt64, static_cast<double>(options_.steps)));
    const Variable due = w.Named("average_due", GreaterEqual(w.Var(report_.counter), k));
    OpDesc run = ConditionalBlockOp(block, due.name());
    run.SetAttr(kOpRoleAttr, int32_t{kOptimize});
    outer.AppendOp(run);
    NameUsesOf(outer);
  }

  // The root block of a program that has the variables which are averaged.
  BlockDesc& DeclareIn(ProgramDesc& program) {
    std::vector<std::string> names = averaged_;
    names.insert(names.end(), report_.added.begin(), report_.added.end());
    for (const std::string& name : names) program.Root().AppendVar(VarOf(main_.Root(), name));
    return program.Root();
  }

  // x = sum over ranks of rows x / sum over ranks of rows: divided at the end, so that what is the
  // same on all ranks stays the same but for one rounding, without a bias.
  void Average(BlockDesc& block) {
    Writer w(block, ops_, {.role = kOptimize, .stop_gradient = true});
    const auto append = [&](const OpDesc& op) {
      OpDesc& added = block.AppendOp(op);
      InferOp(block, added, ops_);
    };
    Variable all;  // the rows of all ranks
    Variable own;
    if (rows_.empty()) {
      all = w.Named("ranks", FillConstant(w, DType::kFloat64, options_.nranks));
    } else {
      own = w.Var(rows_);
      all = w.Named("rows_of_all", w.Make("assign", {{"X", {rows_}}}));
      append(Collective("c_allreduce_sum", {all.name()}, options_.ring_id, kOptimize));
    }
    const std::vector<GradientBucket> buckets = Buckets();
    for (const GradientBucket& bucket : buckets) {
      const std::vector<std::string>& names = bucket.gradients;
      const Variable factor = own ? Cast(own, DTypeOf(names[0])) : Variable();
      for (const std::string& name : names) {
        if (own) w.Into(name, "scale", {{"X", {name}}, {"ScaleTensor", {factor.name()}}});
      }
      append(SumOf(names, options_.ring_id, kOptimize));
    }
    for (const GradientBucket& bucket : buckets) {
      const std::vector<std::string>& names = bucket.gradients;
      append(Collective("c_sync_comm_stream", names, options_.ring_id, kOptimize));
      const Variable divisor = Cast(all, DTypeOf(names[0]));
      for (const std::string& name : names)
        w.Into(name, "elementwise_div", {{"X", {name}}, {"Y", {divisor.name()}}});
    }
    for (const std::string& name : report_.added)
      w.Into(name, "fill_constant", {}, FillAttrs({1}, DTypeOf(name), 0));
    report_.buckets = buckets;
  }
  DType DTypeOf(const std::string& name) const { return VarOf(main_.Root(), name).dtype(); }

  std::vector<GradientBucket> Buckets() const {
    const int64_t limit = BucketLimit(options_.bucket_mb);
    std::vector<GradientBucket> full;
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      bool open = false;
      for (const std::string& name : averaged_) {
        const VarDesc& var = VarOf(main_.Root(), name);
        if (var.dtype() != dtype) continue;
        if (!open) full.emplace_back();
        full.back().gradients.push_back(name);
        full.back().bytes += BytesOf(var);
        open = full.back().bytes < limit;
      }
    }
    return full;
  }

  ProgramDesc& main_;
  ProgramDesc& startup_;
  const LocalSgdOptions& options_;
  const OpRegistry& ops_;
  BlockDesc* update_block_ = nullptr;
  std::vector<std::string> averaged_;
  std::string rows_;  // the sum of the shares since the last average; "": all ranks weigh the same
  OpInserter inserter_, startup_inserter_;
  LocalSgdReport report_;
};

}  // namespace

LocalSgdReport InsertLocalSgd(ProgramDesc& main, ProgramDesc& startup,
                              const LocalSgdOptions& options) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  VerifyOrThrow(main, ops, {.infer_shapes = false});
  VerifyOrThrow(startup, ops, {.infer_shapes = false});
  ProgramDesc new_main = main, new_startup = startup;
  LocalSgdReport report = LocalSgd(new_main, new_startup, options).Run();
  main = std::move(new_main);
  startup = std::move(new_startup);
  return report;
}

}  // namespace coracle

#include <coracle/distribute/all_reduce.h>
#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/exchange_states.h>
#include <coracle/distribute/rank_values.h>
#include <coracle/distribute/sequence_lengths.h>
#include <coracle/distribute/shard_state.h>
#include <coracle/distribute/whole_writer.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/freeze.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace coracle {
namespace {

// A gradient of parameters, as the root block has it.
struct Gradient {
  std::string name;
  size_t complete = 0;  // the last op of backward that writes or reads it
  // Where gradients are accumulated: their sum, and the op whose block runs once for an update.
  std::string sum = {};
  const OpDesc* once = nullptr;

  const std::string& exchanged() const { return sum.empty() ? name : sum; }
};

WholeValueOptions WholeOptions(const AllReduceOptions& options) {
  return {options.nranks, options.share, options.ring_id, options.ops};
}

class Inserter {
 public:
  Inserter(ProgramDesc& main, ProgramDesc& startup, const AllReduceOptions& options)
      : main_(main),
        startup_(startup),
        options_(options),
        ops_(options.ops ? *options.ops : DefaultOps()),
        root_(main.Root()),
        parts_(main, ops_),
        whole_options_(WholeOptions(options)),
        writer_(main, parts_, whole_options_, &inserter_),
        sharder_(main, startup, options) {}

  AllReduceReport Run() {
    FindGradients();
    FindSums();
    if (options_.shard_state) FindShards();
    ScaleLoss();
    ClipAsOneRank();
    LeaveOutRowsThatDoNotCount();
    ExchangeGradients();
    CheckWholeLoss();
    AgreeOnFlags();
    DrawTheSameInUpdates();
    report_.broadcast = BroadcastParameters(main_, startup_, options_.ring_id, &startup_inserter_);
    if (options_.sync_batch_norm) SyncBatchNorms();
    ExchangeStates(main_, options_, &inserter_, &report_);
    report_.states = sharder_.Rewrite(inserter_);
    Insert(inserter_, main_, ops_);
    sharder_.NameUses();
    Insert(startup_inserter_, startup_, ops_);
    return std::move(report_);
  }

 private:
  // --- what to exchange ---

  void FindGradients() {
    std::unordered_map<std::string, size_t> known;
    for (const std::string& name : ParameterGradients(main_)) {
      known.emplace(name, gradients_.size());
      gradients_.push_back({name});
    }
    for (size_t i = 0; i < root_.NumOps(); ++i) {
      const OpDesc& op = root_.op(i);
      if (!HasRole(op, kBackward)) continue;
      const auto note = [&](const std::string& name) {
        if (auto it = known.find(name); it != known.end()) gradients_[it->second].complete = i;
      };
      op.ForEachOutput(note);
      op.ForEachInput(note);
      for (const BlockDesc* block : main_.BlocksRunBy(op)) {
        block->ForEachOp([&](const OpDesc& inner) { inner.ForEachInput(note); });
      }
    }
    std::stable_sort(gradients_.begin(), gradients_.end(),
                     [](const Gradient& a, const Gradient& b) { return a.complete < b.complete; });
  }

  // sum: X = (S, gradient), Out = S, which is persistable.
  static const std::string* AccumulatedBy(const OpDesc& op, const std::string& gradient) {
    if (op.type() != "sum" || !HasRole(op, kOptimize) || op.Output("Out").size() != 1)
      return nullptr;
    const std::string& out = op.Output("Out")[0];
    const VarDesc* var = op.block()->FindVarRecursive(out);
    return var && var->persistable() && op.Reads(out) && op.Reads(gradient) ? &out : nullptr;
  }

  // What the update reads a gradient as: one of 16 bits is added up in float32.
  std::string InFloat(const std::string& gradient) const {
    for (const OpDesc* reader : std::as_const(root_).Uses(gradient).readers) {
      if (reader->type() == "cast" && HasRole(*reader, kOptimize)) return reader->Output("Out")[0];
    }
    return gradient;
  }
  std::vector<const OpDesc*> ReadersOf(const std::string& gradient) const {
    const auto uses = std::as_const(root_).Uses(InFloat(gradient));
    return {uses.readers.begin(), uses.readers.end()};
  }

  void FindSums() {
    for (Gradient& gradient : gradients_) {
      for (const OpDesc* reader : ReadersOf(gradient.name)) {
        const std::string* sum = AccumulatedBy(*reader, InFloat(gradient.name));
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
      scattered_.push_back(gradient);
      return true;
    });
  }

  // --- the loss ---

  // Whether something is fed, and nothing with an open dimension.
  bool HasFixedInputs() const {
    bool found = false;
    for (size_t i = 0; i < root_.NumVars(); ++i) {
      const VarDesc& var = root_.var(i);
      const auto& uses = root_.Uses(var.name());
      const bool is_fed = uses.writers.empty() ||
                          (uses.writers.size() == 1 && (*uses.writers.begin())->type() == "feed");
      if (!is_fed || var.persistable() || uses.readers.empty() || var.name() == options_.share)
        continue;
      if (var.shape().rank() == 0 || !var.shape().IsKnown()) return false;
      found = true;
    }
    return found;
  }

  void ScaleLoss() {
    for (const OpDesc* op : LossGradients(main_)) {
      const std::string& grad = op->Output("Out").at(0);
      const DType dtype = VarOf(root_, grad).dtype();
      if (!options_.share.empty()) DeclareShare(root_, options_.share, dtype);
      const std::string loss = grad.substr(0, grad.rfind(kGradSuffix));
      const PartValue part = writer_.Settle(loss);
      if (const std::string line = WholeWriter::Complaint(loss, part); !line.empty())
        report_.unknown.push_back(line);
      if (part.kind == PartKind::kSame && HasFixedInputs())
        report_.unknown.push_back(
            fmt::format("{} depends on no input whose first dimension is open (-1), so that all "
                        "ranks are taken to read the same rows",
                        Quote(loss)));
      settled_ &= part.kind != PartKind::kUnknown;
      const std::string factor = writer_.Factor(part, dtype, *op, kBackward | kLoss);
      if (factor.empty()) continue;
      inserter_.Behind(*op, MakeOp("scale", {{"X", {grad}}, {"ScaleTensor", {factor}}},
                                   {{"Out", {grad}}}, {}, kBackward | kLoss));
    }
    WholeValues values = writer_.WholeOf(options_.wanted);
    for (std::string& line : values.unknown) {
      if (std::find(report_.unknown.begin(), report_.unknown.end(), line) == report_.unknown.end())
        report_.unknown.push_back(std::move(line));
    }
    report_.whole = std::move(values.of);
  }

  // --- error clips ---

  // Of a gradient, in place; no op of the model that is computed again.
  static bool IsErrorClip(const OpDesc& op) {
    return (op.type() == "clip" || op.type() == "clip_by_norm") && HasRole(op, kBackward) &&
           !op.HasAttr(kRecomputedFromAttr) && op.Input("X") == op.Output("Out");
  }

  // The variable whose gradient a clip changes, through what divides it by the scale of the loss.
  std::string VariableOf(std::string grad) const {
    for (int steps = 0; steps < 3 && grad.find(kGradSuffix) == grad.npos; ++steps) {
      const auto writers = std::as_const(root_).Uses(grad).writers;
      if (writers.empty() || writers[0]->Input("X").size() != 1) break;
      grad = writers[0]->Input("X")[0];
    }
    return grad.substr(0, grad.find(kGradSuffix));
  }

  // In backward a rank has the gradients of its own rows. A clip by value takes each element by
  // itself, and a clip of each row has the whole row: both stay as they are. For a norm of all rows
  // the ranks add up their squares. Of a variable without rows a rank has the gradient times the
  // weight of its part. That is all of it for a sum; the ranks add up other parts before the clip.
  // Behind backward, gradients are those of the whole batch.
  void ClipAsOneRank() {
    main_.ForEachOp([&](OpDesc& op) {
      if (!IsErrorClip(op)) return;
      const std::string& grad = op.Input("X").at(0);
      const VarDesc* clipped = op.block()->FindVarRecursive(grad);
      const std::string name = VariableOf(grad);
      const VarDesc* var = op.block()->FindVarRecursive(name);
      const bool by_norm = op.type() == "clip_by_norm", is_open = var && !var->shape().IsKnown();
      const PartValue& part = parts_.Of(name);
      const PartKind kind = part.kind;
      if (op.block() != &root_) {
        if (by_norm || !is_open) WarnOfClip(grad, "within a block");
      } else if (!clipped || clipped->type() != VarType::kLoDTensor) {
        WarnOfClip(grad, "of selected rows");
      } else if (kind == PartKind::kRows || (kind == PartKind::kUnknown && is_open)) {
        const int32_t axis = by_norm ? op.GetAttr<int32_t>("axis", -1) : -1;
        const bool of_each_row = kind == PartKind::kRows && axis == part.place.axis;
        if (by_norm && axis < 0) ClipByNormOfAll(op, *clipped);
        if (axis >= 0 && !of_each_row)
          WarnOfClip(grad, "of slices along an axis that is not that of the rows");
      } else if (kind == PartKind::kSame || kind == PartKind::kMean) {
        ClipSum(op, *clipped, part);
      } else if (kind != PartKind::kSum || !settled_) {
        WarnOfClip(grad, "of what has no rows");
      }
    });
  }
  void WarnOfClip(const std::string& grad, const char* why) {
    report_.unknown.push_back(
        fmt::format("the error clip of {}, {}, takes the rank's part of it for the whole, which "
                    "may clip another gradient than one rank does",
                    Quote(grad), why));
  }

  // The ops that make the limits of a clip: its variables' constants, after what counts its work.
  static bool MakesLimit(const OpDesc& op) { return op.type() == "fill_constant"; }

  // Each rank clips the sum over the ranks and goes on with its share of that. What counts the
  // clip's work sees it as well.
  void ClipSum(const OpDesc& op, const VarDesc& grad, const PartValue& part) {
    const OpDesc *first = &op, *last = &op;
    for (size_t i = 1; i + 1 < root_.NumOps(); ++i) {
      if (&root_.op(i) != &op || root_.op(i + 1).type() != "clip_statistics") continue;
      size_t before = i - 1;
      while (before > 0 && MakesLimit(root_.op(before))) --before;
      first = &root_.op(before);
      last = &root_.op(i + 1);
    }
    inserter_.Before(*first, SumOf({grad.name()}, options_.ring_id, kBackward));
    const std::string share = writer_.Factor(part, grad.dtype(), *last, kBackward);
    inserter_.Behind(*last, MakeOp("scale", {{"X", {grad.name()}}, {"ScaleTensor", {share}}},
                                   {{"Out", {grad.name()}}}, {}, kBackward));
  }

  // Inserts an op that makes a float64 variable.
  std::string MakeDouble(const OpDesc& before, const std::string& type, SlotList inputs,
                         AttrList attrs = {}, int64_t numel = 1) {
    const std::string name = main_.UniqueName("error_clip_" + type);
    VarDesc& out = root_.Var(name);
    out.SetMeta({VarType::kLoDTensor, DType::kFloat64, {numel}, 0});
    out.SetStopGradient(true);
    inserter_.Before(before, MakeOp(type, std::move(inputs), {{"Out", {name}}}, std::move(attrs),
                                    RoleOf(before)));
    return name;
  }
  std::string MakeConstant(const OpDesc& before, double value) {
    return MakeDouble(before, "fill_constant", {}, FillAttrs({1}, DType::kFloat64, value));
  }

  // scale by max_norm / max(norm, max_norm), where norm is that of all ranks, in float64.
  void ClipByNormOfAll(OpDesc& op, const VarDesc& var) {
    const bool is_double = var.dtype() == DType::kFloat64;
    const int32_t exponent = is_double && !IsSmallLimit(op) ? kClipExponent : 0;
    const std::string part =
        MakeDouble(op, "total_norm", {{"X", {var.name()}}}, {{"exponent", exponent}});
    const std::string parts = MakeDouble(
        op, "c_allgather", {{"X", {part}}},
        {{"ring_id", int32_t{options_.ring_id}}, {"nranks", static_cast<int32_t>(options_.nranks)}},
        options_.nranks);
    const std::string norm = MakeDouble(op, "total_norm", {{"X", {parts}}});
    std::string limit;
    if (op.HasInput("MaxNorm")) {
      limit = op.Input("MaxNorm")[0];
      const DType from = VarOf(root_, limit).dtype();
      if (from != DType::kFloat64)
        limit = MakeDouble(op, "cast", {{"X", {limit}}}, CastAttrs(from, DType::kFloat64));
    } else {
      limit = MakeConstant(op, static_cast<double>(op.GetAttr<float>("max_norm", 0)));
    }
    const std::string factor = is_double ? SplitFactor(op, norm, limit, exponent)
                                         : MakeFactor(op, limit, Larger(op, norm, limit));
    op.SetType("scale");
    op.RemoveAttr("max_norm");
    op.RemoveAttr("axis");
    op.SetInput("MaxNorm", {});
    op.SetInput("ScaleTensor", {factor});
  }
  std::string Larger(const OpDesc& op, const std::string& x, const std::string& y) {
    return MakeDouble(op, "elementwise_max", {{"X", {x}}, {"Y", {y}}});
  }
  std::string Smaller(const OpDesc& op, const std::string& x, const std::string& y) {
    return MakeDouble(op, "elementwise_min", {{"X", {x}}, {"Y", {y}}});
  }
  std::string MakeFactor(const OpDesc& op, const std::string& x, const std::string& y) {
    return MakeDouble(op, "elementwise_div", {{"X", {x}}, {"Y", {y}}});
  }

  // Whether the limit of a clip is a constant that loses digits where it is divided by 2^64.
  bool IsSmallLimit(const OpDesc& op) const {
    if (!op.HasInput("MaxNorm")) return false;  // an attr is a float32
    const auto writers = std::as_const(root_).Uses(op.Input("MaxNorm")[0]).writers;
    if (writers.size() != 1 || writers[0]->type() != "fill_constant") return false;
    double limit = 0;
    return ParseDouble(writers[0]->GetAttr<std::string>("str_value", ""), &limit) && limit > 0 &&
           limit <= kLeastScaled;
  }

  // Norms of float64 gradients may be larger than every float64, so `norm` is divided by
  // 2^exponent. With a small limit it is not, and a larger norm is infinite: the gradient becomes
  // zeros. The factor may be smaller than every number with all digits. It is therefore a product:
  // the gradient is multiplied by one part here, which is 1 for all but extreme gradients, and the
  // other is returned. Limits that are computed are taken to be 4.1e-289 at least.
  std::string SplitFactor(const OpDesc& op, const std::string& norm, const std::string& limit,
                          int32_t exponent) {
    const auto times = [&](const std::string& x, double power) {
      return MakeDouble(op, "elementwise_mul", {{"X", {x}}, {"Y", {MakeConstant(op, power)}}});
    };
    using Double = std::numeric_limits<double>;
    std::string small = limit;
    if (exponent != 0)
      small = Larger(op, times(limit, std::ldexp(1, -exponent)), MakeConstant(op, Double::min()));
    const std::string larger = Larger(op, norm, small);
    const std::string reach =
        Smaller(op, times(small, std::ldexp(1, 1000)), MakeConstant(op, Double::max()));
    const std::string one = MakeConstant(op, 1);
    const std::string rest = MakeFactor(op, one, Larger(op, MakeFactor(op, larger, reach), one));
    const std::string grad = op.Input("X").at(0);
    inserter_.Before(op, MakeOp("scale", {{"X", {grad}}, {"ScaleTensor", {rest}}},
                                {{"Out", {grad}}}, {}, RoleOf(op)));
    return MakeFactor(op, small, Smaller(op, larger, reach));
  }
  static constexpr int32_t kClipExponent = 64;
  static constexpr double kLeastScaled = 1e-280;

  // --- gradients that do not begin with that of the loss ---

  void LeaveOutRowsThatDoNotCount() {
    main_.ForEachOp([&](const OpDesc& op) {
      if (!HasRole(op, kBackward)) return;
      const std::vector<std::string> grads = GradientsOfRows(op);
      if (grads.empty()) return;
      if (AreMeansOfRows(op)) WarnOfRows(op, "is a mean over the rank's rows, and ranks add them");
      if (op.block() == &root_) {
        for (const std::string& grad : grads) writer_.LeaveOutRowsThatDoNotCount(grad, op);
      } else if (!options_.share.empty()) {
        WarnOfRows(op,
                   "counts the row that stands in for those of a rank without any, within a block");
      }
    });
  }
  void WarnOfRows(const OpDesc& op, const char* why) {
    report_.unknown.push_back(
        fmt::format("{}, which {} makes, {}", Quote(GradientsOfRows(op)[0]), op.type(), why));
  }

  // --- exchanges ---

  bool IsSparse(const std::string& name) const {
    return VarOf(root_, name).type() == VarType::kSelectedRows;
  }
  struct Bucket {
    GradientBucket what;
    DType dtype = DType::kFloat32;
    size_t complete = 0;
    const OpDesc* once = nullptr;
  };

  std::vector<Bucket> MakeBuckets(const std::vector<Gradient>& gradients, int64_t limit) const {
    std::vector<Bucket> full, open;
    for (const Gradient& gradient : gradients) {
      const std::string& name = gradient.exchanged();
      const DType dtype = VarOf(root_, name).dtype();
      if (IsSparse(name)) {
        full.push_back({{{name}, -1}, dtype, gradient.complete, gradient.once});
        continue;
      }
      auto at = std::find_if(open.begin(), open.end(), [&](const Bucket& bucket) {
        return bucket.dtype == dtype && bucket.once == gradient.once;
      });
      if (at == open.end()) at = open.insert(open.end(), {{{}, 0}, dtype, 0, gradient.once});
      at->what.gradients.push_back(name);
      at->what.bytes += BytesOf(VarOf(root_, name));
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
    const int64_t limit = BucketLimit(options_.bucket_mb);
    for (const Bucket& bucket : MakeBuckets(gradients_, limit)) {
      const std::vector<std::string>& names = bucket.what.gradients;
      exchanged_.insert(names.begin(), names.end());
      const OpDesc exchange = SumOf(names, options_.ring_id, kBackward);
      if (bucket.once) {
        ExchangeInBlock(*bucket.once, exchange, bucket);
      } else {
        inserter_.Behind(root_.op(bucket.complete), exchange);
        if (bucket.what.bytes >= 0) WaitFor(names, root_, bucket.complete + 1);
      }
      report_.buckets.push_back(bucket.what);
    }
    for (const Bucket& bucket : MakeBuckets(scattered_, limit)) {
      sharder_.Scatter(bucket.what.gradients, root_.op(bucket.complete), &inserter_);
      report_.scattered.push_back(bucket.what);
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
    const OpDesc wait = Collective("c_sync_comm_stream", names, options_.ring_id, kOptimize);
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

  // That of a part may be a nan, of no elements, where that of the batch is none.
  void CheckWholeLoss() {
    root_.ForEachOp([&](OpDesc& op) {
      if (op.type() != "isfinite" || !HasRole(op, kOptimize) || op.Input("X").size() != 1) return;
      const std::string loss = op.Input("X")[0];
      if (!parts_.Of(loss).IsNumber()) return;
      const PartValue part = writer_.Settle(loss);
      if (part.IsNumber() && !part.MeanOfRows()) op.SetInput("X", {writer_.WholeOf(loss)});
    });
  }

  void AgreeOnFlags() {
    for (const RankFlag& flag : FindRankFlags(main_, exchanged_)) {
      const OpDesc agree = Collective(flag.reduction, {flag.name}, options_.ring_id, kOptimize);
      if (flag.behind)
        inserter_.Behind(*flag.place, agree);
      else
        inserter_.Before(*flag.place, agree);
    }
  }

  // The noise of dpsgd: ranks draw by seeds of their own, but for ops with a seed.
  void DrawTheSameInUpdates() {
    const auto seed = static_cast<int32_t>(main_.random_seed % INT32_MAX);
    main_.ForEachOp([&](OpDesc& op) {
      if (op.type() == "dpsgd" && op.GetAttr<int32_t>("seed", 0) == 0)
        op.SetAttr("seed", seed != 0 ? seed : int32_t{1});
    });
  }

  // Those whose statistics are the batch's; a pass that fuses batch_norm has not run yet.
  void SyncBatchNorms() {
    main_.ForEachOp([&](OpDesc& op) {
      const bool fused = op.type().starts_with("fused_batch_norm_act") ||
                         op.type().starts_with("fused_bn_add_activation");
      if ((!op.type().starts_with("batch_norm") && !fused) || HasFixedStatistics(op)) return;
      if (fused || op.block() != &root_ || op.type() == "batch_norm_grad_grad") {
        ThrowInvalid(fmt::format("distribute: {}{} cannot take the statistics of all ranks; leave "
                                 "out sync_batch_norm",
                                 op.type(), op.block() == &root_ ? "" : " within a block"),
                     "  " + Locate(op));
      }
      op.SetType("sync_" + op.type());
    });
  }

  ProgramDesc& main_;
  ProgramDesc& startup_;
  const AllReduceOptions& options_;
  const OpRegistry& ops_;
  BlockDesc& root_;
  const PartValues parts_;
  const WholeValueOptions whole_options_;
  WholeWriter writer_;
  bool settled_ = true;  // how all losses weigh is known
  std::vector<Gradient> gradients_, scattered_;
  std::set<std::string> exchanged_;
  StateSharder sharder_;
  OpInserter inserter_, startup_inserter_;
  AllReduceReport report_;
};

}  // namespace

void SumOverRanks(const Ranks& ranks, Tensor* tensor) {
  if (!ranks.several()) return;
  ranks.communicator()->Run({Exchange::Kind::kAllReduce,
                             tensor->dtype(),
                             {tensor->numel()},
                             tensor->raw(),
                             tensor->raw()});
}

// The updates of running statistics are linear, and no step reads them: their mean now, or later,
// is the same.
void AverageLocals(const Ranks& ranks, const std::vector<std::string>& names, Scope& scope) {
  if (!ranks.several()) return;
  for (const std::string& name : names) {
    if (!scope.Has(name)) continue;
    const DType kept = scope.Get(name).dtype();
    const bool is_double = kept == DType::kFloat64;
    Tensor value = is_double ? scope.Get(name).Clone() : scope.Get(name).Cast(DType::kFloat32);
    SumOverRanks(ranks, &value);
    const auto divide = [&]<class T>() {
      for (T& element : value.span<T>()) element /= static_cast<T>(ranks.size());
    };
    is_double ? divide.template operator()<double>() : divide.template operator()<float>();
    scope.Set(name, value.Cast(kept));
  }
}

AllReduceReport InsertAllReduce(ProgramDesc& main, ProgramDesc& startup,
                                const AllReduceOptions& options) {
  RequireRanksToBe(options.nranks);
  RequireNoExchanges(main);
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  VerifyOrThrow(main, ops, {.infer_shapes = false});
  VerifyOrThrow(startup, ops, {.infer_shapes = false});
  ProgramDesc new_main = main, new_startup = startup;
  AgreeOnLengths(new_main, WholeOptions(options));
  AllReduceReport report = Inserter(new_main, new_startup, options).Run();
  main = std::move(new_main);
  startup = std::move(new_startup);
  return report;
}

}  // namespace coracle

#include <coracle/backward/sub_block_gradient.h>
#include <coracle/framework/ir/program.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace coracle::inline internal {
namespace {

// The nesting limit of Verify.
constexpr int kMaxDepth = 128;

class SubBlockGradient {
 public:
  SubBlockGradient(BackwardRun& run, BlockDesc& parent, const GradientBlockRequest& request)
      : run_(run),
        parent_(parent),
        forward_(parent.program().Block(request.forward_block)),
        request_(request) {}

  GradientBlock Append(GradientOps::OuterValue outer_value) {
    FindWanted();
    FindArriving();
    if (arriving_.empty() || !AnyLeaves()) return {};
    BlockDesc& block = parent_.program().AppendBlock(parent_);
    block.SetForwardBlockIdx(forward_.idx());
    GradientOps gradients(run_, *graph_, block, std::move(outer_value));
    MarkShares(gradients);
    GradientBlock result;
    result.idx = block.idx();
    for (const std::string& var : arriving_)
      result.arriving.push_back({var, gradients.SeedArriving(graph_->Last(var))});
    gradients.AppendBackwardOps();
    for (const std::string& var : wanted_) {
      const int32_t version = graph_->VersionBefore(var);
      // A gradient passed to the previous run, or to the op before the loop, must be dense like the
      // variable; only contributions to a sum may be sparse.
      const std::string gradient =
          IsHandedOn(var) ? gradients.DenseGradientOf(version) : gradients.GradientOf(version);
      if (!gradient.empty()) result.leaving.push_back({var, gradient});
    }
    gradients.RequireWritten(0);
    gradients.RemoveUnused();
    CollectReads(block, &result);
    return result;
  }

 private:
  bool IsHandedOn(const std::string& name) const {
    return Contains(request_.outputs, name) ||
           std::any_of(request_.carried.begin(), request_.carried.end(),
                       [&](const auto& pair) { return pair.first == name; });
  }
  static bool Contains(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  static void AddOnce(std::vector<std::string>& names, const std::string& name) {
    if (!IsEmptyName(name) && !Contains(names, name)) names.push_back(name);
  }

  // A carried variable that depends on a wanted one at the end of a run also depends on it at the
  // beginning of the next.
  void FindWanted() {
    for (const std::string& name : request_.inputs) AddOnce(wanted_, name);
    for (bool grown = true; grown;) {
      graph_ = std::make_unique<ForwardGraph>(
          forward_, run_.ops,
          ForwardGraph::Request{wanted_, run_.options.no_grad_set, run_.options.stop_gradients,
                                ForwardGraph::Start::kBefore});
      std::vector<std::string> all = wanted_;
      for (const auto& [before, after] : request_.carried) {
        const int32_t v = graph_->Last(after);
        if (v >= 0 && graph_->version(v).reached) AddOnce(all, before);
      }
      grown = all.size() > wanted_.size();
      if (grown) wanted_ = std::move(all);
    }
    for (const std::string& name : wanted_) graph_->VersionBefore(name);  // makes it known
  }

  // If the gradient block computes the gradient of a carried variable before a run, it receives one
  // for that variable after the previous run.
  void FindArriving() {
    for (const std::string& name : request_.outputs) AddArriving(name);
    size_t known = 0;
    do {
      known = arriving_.size();
      std::vector<int32_t> targets;
      for (const std::string& name : arriving_) targets.push_back(graph_->Last(name));
      graph_->MarkPath(targets);
      for (const auto& [before, after] : request_.carried) {
        if (Leaves(before)) AddArriving(after);
      }
    } while (arriving_.size() > known);
  }

  void AddArriving(const std::string& name) {
    const int32_t v = graph_->Last(name);
    if (v >= 0 && graph_->version(v).reached) AddOnce(arriving_, name);
  }

  bool Leaves(const std::string& name) {
    const int32_t v = graph_->VersionBefore(name);
    return v >= 0 && graph_->version(v).pending > 0;
  }
  bool AnyLeaves() {
    return std::any_of(wanted_.begin(), wanted_.end(),
                       [&](const std::string& name) { return Leaves(name); });
  }

  // Marks gradients of outer variables as shares: each run contributes one.
  void MarkShares(GradientOps& gradients) {
    for (const std::string& name : wanted_) {
      const bool carried = std::any_of(request_.carried.begin(), request_.carried.end(),
                                       [&](const auto& pair) { return pair.first == name; });
      const int32_t v = graph_->VersionBefore(name);
      if (v >= 0 && !carried && !forward_.FindVar(name)) gradients.MarkShare(v);
    }
  }

  void CollectReads(const BlockDesc& block, GradientBlock* result) {
    std::unordered_set<std::string> seen;
    auto add = [&](const std::string& name) {
      if (block.FindVar(name) || !seen.insert(name).second) return;
      (forward_.FindVar(name) ? result->inner_reads : result->outer_reads).push_back(name);
    };
    block.ForEachOp([&](const OpDesc& op) {
      op.ForEachInput(add);
      for (int nested : op.SubBlocks()) {
        const auto reads = run_.outer_reads.find(nested);
        if (reads == run_.outer_reads.end()) continue;
        for (const std::string& name : reads->second) add(name);
      }
    });
    run_.outer_reads[block.idx()] = result->outer_reads;
  }

  BackwardRun& run_;
  BlockDesc& parent_;
  BlockDesc& forward_;
  const GradientBlockRequest& request_;
  std::unique_ptr<ForwardGraph> graph_;
  std::vector<std::string> wanted_, arriving_;
};

}  // namespace

GradientBlock AppendSubBlockGradient(BackwardRun& run, BlockDesc& parent,
                                     const GradientBlockRequest& request,
                                     GradientOps::OuterValue outer_value) {
  if (run.depth >= kMaxDepth)
    ThrowInvalid(fmt::format("{}: more than {} sub-blocks are nested", run.who, kMaxDepth));
  ++run.depth;
  GradientBlock block = SubBlockGradient(run, parent, request).Append(std::move(outer_value));
  --run.depth;
  return block;
}

GradientBlock GradientOps::BlockGradient(const ForwardGraph::Node& node,
                                         const GradientBlockRequest& request) {
  const int idx = request.forward_block;
  if (idx <= 0 || idx == graph_.block().idx() || idx >= block().program().NumBlocks()) {
    ThrowInvalid(fmt::format("{}: {} names the sub-block {}, which block {} cannot run", run_.who,
                             node.op->type(), idx, graph_.block().idx()),
                 "  " + Locate(*node.op));
  }
  GradientBlockRequest with_unlisted = request;
  // Dependencies on the runs of a nested block are found when that block is visited.
  for (uint32_t a = node.inputs; a < node.captured; ++a) {
    const ForwardGraph::Arg& arg = graph_.arg(a);
    if (arg.differentiable && graph_.VarOf(arg.version).scopes)
      with_unlisted.inputs.emplace_back(graph_.VarOf(arg.version).name);
  }
  std::vector<std::string> unlisted;
  for (uint32_t a = node.captured; a < node.kept; ++a) {
    const ForwardGraph::Arg& arg = graph_.arg(a);
    if (arg.differentiable) unlisted.emplace_back(graph_.VarOf(arg.version).name);
  }
  with_unlisted.inputs.insert(with_unlisted.inputs.end(), unlisted.begin(), unlisted.end());
  GradientBlock result = AppendSubBlockGradient(
      run_, block(), with_unlisted, [this, &node](std::string_view name) -> std::string {
        const std::string* other = OtherName(graph_.ReadBy(node, name));
        return other ? *other : std::string(name);
      });
  for (const std::string& name : unlisted) {
    if (!GradientBlock::Find(result.leaving, name).empty()) ThrowUnlisted(*node.op, "reads", name);
  }
  return result;
}

}  // namespace coracle::inline internal

#include <coracle/backward/backward.h>
#include <coracle/backward/forward_graph.h>
#include <coracle/backward/gradient_tree.h>
#include <coracle/backward/open_types.h>
#include <coracle/backward/verify_program.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

namespace coracle {
namespace {

using internal::ForwardGraph;

constexpr int kMaxDepth = 16;

std::string Name(const OpDesc& op) { return op.type() + ", " + Locate(op); }

// The slot of arg `a` among a node's inputs (outputs), whose args begin at `begin`.
std::string SlotOf(const SlotList& slots, uint32_t begin, uint32_t a) {
  for (const Slot& slot : slots) {
    if (a < begin + slot.args.size()) return slot.name;
    begin += static_cast<uint32_t>(slot.args.size());
  }
  return "";
}

// The index of the output arg that writes the version.
uint32_t OutputOf(const ForwardGraph& graph, const ForwardGraph::Node& node, int32_t v) {
  uint32_t a = node.outputs;
  while (a < node.end && graph.arg(a).version != v) ++a;
  return a;
}

std::string InputSlot(const ForwardGraph::Node& node, uint32_t a) {
  if (a >= node.kept) return "(its former value)";
  return a >= node.captured ? "(in its sub-block)" : SlotOf(node.op->inputs(), node.inputs, a);
}

// Whether a path may end at the version.
bool Starts(ForwardGraph& graph, int32_t v) {
  const ForwardGraph::Version& version = graph.version(v);
  return version.writer < 0 || version.updated || !graph.VarOf(v).held_before;
}

// The inputs of ops whose contributions the gradient of `wrt` sums.
std::vector<std::string> ContributionsTo(ForwardGraph& graph, const std::string& of,
                                         const std::string& wrt) {
  const int32_t target = graph.Last(of);
  if (target < 0 || !graph.version(target).reached) return {};
  graph.MarkPath({target});
  const int32_t wanted = graph.WantedVersion(wrt);
  std::vector<std::string> list;
  for (size_t i = graph.NumNodes(); i-- > 0;) {
    const ForwardGraph::Node& node = graph.node(i);
    if (!node.on_path) continue;
    for (uint32_t a = node.inputs; a < node.outputs; ++a) {
      const ForwardGraph::Arg& arg = graph.arg(a);
      if (arg.version == wanted && arg.differentiable)
        list.push_back(Name(*node.op) + ", " + InputSlot(node, a));
    }
  }
  return list;
}

// The number of contributions that the gradient of each variable sums.
std::unordered_map<std::string, int32_t> CountContributions(ForwardGraph& graph, int32_t target,
                                                            const std::vector<std::string>& names) {
  std::unordered_map<std::string, int32_t> contributions;
  graph.MarkPath({target});
  std::unordered_map<int32_t, std::string> wanted;
  for (const std::string& name : names) wanted.emplace(graph.WantedVersion(name), name);
  wanted.erase(-1);
  for (size_t i = 0; i < graph.NumNodes(); ++i) {
    const ForwardGraph::Node& node = graph.node(i);
    for (uint32_t a = node.inputs; node.on_path && a < node.outputs; ++a) {
      const auto found = wanted.find(graph.arg(a).version);
      if (found != wanted.end() && graph.arg(a).differentiable) ++contributions[found->second];
    }
  }
  return contributions;
}

// A reason for a missing path: which ops read the variable.
std::string NoPathReason(const BlockDesc& block, const std::string& of, const std::string& wrt) {
  const VarUses uses = block.Uses(wrt);
  if (uses.readers.empty()) {
    return fmt::format("{} does not depend on {}: no op of block {} reads it", Quote(of),
                       Quote(wrt), block.idx());
  }
  return fmt::format(
      "{} does not depend on {}: the results of {} and {} more ops do not lead "
      "there",
      Quote(of), Quote(wrt), Name(*uses.readers[0]), uses.readers.size() - 1);
}

// Finds the reasons why no gradient passes.
class Obstacles {
 public:
  Obstacles(ForwardGraph& graph, const BackwardOptions& options)
      : graph_(graph), options_(options) {}

  // The reason why no gradient goes from output v to input u of a node.
  std::string Of(const ForwardGraph::Node& node, uint32_t a, int32_t v, int32_t u) {
    const std::string type = node.op->type();
    if (graph_.VarOf(v).stopped)
      return fmt::format("{} is in stop_gradients", Quote(graph_.VarOf(v).name));
    if (node.updates)
      return type + " is an optimizer's op: it writes a new value, not a function of its inputs";
    if (!node.def) return "the op type is not known";
    const std::string& reason = node.def->no_gradient_reason;
    if (node.def->shape_only) return type + " reads only shapes";
    switch (node.def->gradient_kind) {
      case GradientKind::kRule:
        break;
      case GradientKind::kNotDifferentiable:
        return type + " is not differentiable: " + reason;
      case GradientKind::kNoRule:
        return type + " has no gradient rule: " + reason;
      case GradientKind::kForbidden:
        return "the gradient of " + type +
               " is forbidden: " + node.op->GetAttr<std::string>("message", reason);
    }
    const SlotDef* slot = a < node.captured
                              ? node.def->FindInput(SlotOf(node.op->inputs(), node.inputs, a))
                              : nullptr;
    if (slot && slot->no_gradient)
      return fmt::format("no gradient flows into the input {} of {}", slot->name, type);
    return At(u);
  }

  // The reason why the variable of the version gets no gradient; "" if it does.
  std::string At(int32_t v) {
    const ForwardGraph::Var& var = graph_.VarOf(v);
    if (!var.desc) return fmt::format("{} is declared in no block", Quote(var.name));
    const VarMeta& meta = graph_.MetaOf(v);
    if (var.scopes) return "";
    if (internal::IsOpen(meta)) return fmt::format("the type of {} is not known", Quote(var.name));
    if (!IsFloating(meta.dtype) && !IsComplex(meta.dtype))
      return fmt::format("{} holds {}, which are constants for backward", Quote(var.name),
                         coracle::ToString(meta.dtype));
    const auto& no_grad = options_.no_grad_set;
    if (std::find(no_grad.begin(), no_grad.end(), var.name) != no_grad.end())
      return fmt::format("{} is in no_grad_set", Quote(var.name));
    if (var.desc->stop_gradient()) {
      const OpDesc* writer = graph_.WriterOf(v);
      return fmt::format("stop_gradient is set on {}, which {}", Quote(var.name),
                         writer ? "is written by " + Name(*writer) : "is fed or persistable");
    }
    return "";
  }

 private:
  ForwardGraph& graph_;
  const BackwardOptions& options_;
};

class Explainer {
 public:
  // `wrt`: the requested variables, at least one.
  Explainer(BlockDesc& block, const BackwardOptions& options, std::string of,
            std::vector<std::string> wrt)
      : block_(block),
        of_(std::move(of)),
        wanted_(std::move(wrt)),
        graph_(block, options.ops ? *options.ops : DefaultOps(),
               {wanted_, options.no_grad_set, options.stop_gradients}),
        obstacles_(graph_, options) {}

  // The path with the fewest obstacles; empty if no chain of ops leads there.
  std::vector<GradientStep> Path(int depth) {
    const int32_t target = graph_.Last(of_);
    if (target < 0) return {};
    int32_t start = -1;
    Search(target, [&](int32_t v) {
      if (graph_.VarOf(v).name == wanted_[0] && Starts(graph_, v)) start = v;
      return start >= 0;
    });
    std::vector<GradientStep> steps;
    if (start < 0) return steps;
    for (int32_t v = start; v != target; v = from_[static_cast<size_t>(v)].version)
      steps.push_back(Step(v, depth));
    std::reverse(steps.begin(), steps.end());
    return steps;
  }
  // The tree for every variable. Steps through ops with sub-blocks lack the steps inside.
  GradientTree Tree() {
    GradientTree tree;
    tree.of = of_;
    const int32_t target = graph_.Last(of_);
    if (target < 0) return tree;
    std::vector<int32_t> step_of(graph_.NumVersions(), -1);
    Search(target, [&](int32_t v) {
      if (v != target) {
        step_of[static_cast<size_t>(v)] = static_cast<int32_t>(tree.steps.size());
        tree.steps.push_back(TreeStep(v, step_of));
      }
      if (Starts(graph_, v))
        tree.starts.try_emplace(std::string(graph_.VarOf(v).name), step_of[static_cast<size_t>(v)]);
      return false;
    });
    tree.contributions = CountContributions(graph_, target, wanted_);
    return tree;
  }
  // The obstacle at the variable itself; "" if there is none.
  std::string ObstacleAt(const std::string& name) {
    const int32_t v = graph_.Last(name);
    return v < 0 ? "" : obstacles_.At(v);
  }
  // The inputs of ops whose contributions the gradient sums.
  std::vector<std::string> Contributions() { return ContributionsTo(graph_, of_, wanted_[0]); }
  bool SameVariable() { return graph_.Last(of_) >= 0 && of_ == wanted_[0]; }

 private:
  struct From {
    int32_t version = -1;  // the one nearer to the target
    int32_t node = -1;
    uint32_t input = 0, output = 0;
  };

  GradientTreeStep TreeStep(int32_t v, const std::vector<int32_t>& step_of) {
    const From& from = from_[static_cast<size_t>(v)];
    const ForwardGraph::Node& node = graph_.node(static_cast<size_t>(from.node));
    GradientTreeStep step;
    step.step = Step(v, 0);
    step.block = block_.idx();
    step.op = static_cast<size_t>(node.position);
    step.next = step_of[static_cast<size_t>(from.version)];
    return step;
  }

  // Searches back from the target along the paths with the fewest obstacles. Calls found(version)
  // for each version that it reaches, nearer ones first, until found returns true.
  template <class Found>
  void Search(int32_t target, Found&& found) {
    const size_t n = graph_.NumVersions();
    from_.assign(n, {});
    std::vector<int32_t> cost(n, INT32_MAX);
    std::deque<int32_t> queue = {target};
    cost[static_cast<size_t>(target)] = 0;
    std::vector<uint8_t> done(n, 0);
    while (!queue.empty()) {
      const int32_t v = queue.front();
      queue.pop_front();
      if (done[static_cast<size_t>(v)]++) continue;
      if (found(v)) return;
      const int32_t writer = graph_.version(v).writer;
      if (writer < 0) continue;
      const ForwardGraph::Node& node = graph_.node(static_cast<size_t>(writer));
      const uint32_t out = OutputOf(graph_, node, v);
      for (uint32_t a = node.inputs; a < node.outputs; ++a) {
        const int32_t u = graph_.arg(a).version;
        if (u < 0 || u == v) continue;
        const int32_t step = obstacles_.Of(node, a, v, u).empty() ? 0 : 1;
        const int32_t total = cost[static_cast<size_t>(v)] + step;
        if (total >= cost[static_cast<size_t>(u)]) continue;
        cost[static_cast<size_t>(u)] = total;
        from_[static_cast<size_t>(u)] = {v, writer, a, out};
        step ? queue.push_back(u) : queue.push_front(u);
      }
    }
  }

  GradientStep Step(int32_t u, int depth) {
    const From& from = from_[static_cast<size_t>(u)];
    const ForwardGraph::Node& node = graph_.node(static_cast<size_t>(from.node));
    GradientStep step;
    step.from = graph_.VarOf(from.version).name;
    step.to = graph_.VarOf(u).name;
    step.op = Name(*node.op);
    step.from_slot = SlotOf(node.op->outputs(), node.outputs, from.output);
    step.to_slot = InputSlot(node, from.input);
    step.obstacle = obstacles_.Of(node, from.input, from.version, u);
    step.depth = depth;
    return step;
  }

  BlockDesc& block_;
  std::string of_;
  std::vector<std::string> wanted_;
  ForwardGraph graph_;
  Obstacles obstacles_;
  std::vector<From> from_;
};

// The first sub-block that the op of a step runs; nullptr if there is none.
BlockDesc* SubBlockOf(BlockDesc& block, const OpDesc& op) {
  for (int idx : op.SubBlocks()) {
    if (idx > block.idx() && idx < block.program().NumBlocks()) return &block.program().Block(idx);
  }
  return nullptr;
}

// The first sub-block of each op of the block, by the op's Name.
using SubBlocks = std::unordered_map<std::string, BlockDesc*>;
SubBlocks SubBlocksOf(BlockDesc& block) {
  SubBlocks all;
  for (const OpDesc* op : block.SubBlockOps()) all[Name(*op)] = SubBlockOf(block, *op);
  return all;
}

// Inserts, after each step through an op with a sub-block, the steps inside it.
std::vector<GradientStep> WithSubBlocks(const SubBlocks& sub_blocks, const BackwardOptions& options,
                                        const std::vector<GradientStep>& steps, int depth) {
  std::vector<GradientStep> all;
  for (const GradientStep& step : steps) {
    all.push_back(step);
    const auto found = sub_blocks.find(step.op);
    if (depth >= kMaxDepth || !step.obstacle.empty() || found == sub_blocks.end()) continue;
    BlockDesc* inner = found->second;
    if (!inner || !inner->FindVarRecursive(step.from) || !inner->FindVarRecursive(step.to))
      continue;
    const auto nested =
        WithSubBlocks(SubBlocksOf(*inner), options,
                      Explainer(*inner, options, step.from, {step.to}).Path(depth + 1), depth + 1);
    all.insert(all.end(), nested.begin(), nested.end());
  }
  return all;
}

BlockDesc& HomeOf(ProgramDesc& program, const std::string& name) {
  std::vector<std::string> names;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    BlockDesc& block = program.Block(b);
    if (block.FindVar(name)) return block;
    for (size_t i = 0; i < block.NumVars(); ++i) names.push_back(block.var(i).name());
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("the program has no var {}{}", Quote(name), DidYouMean(name, names)));
}

// Lets backward compute the gradient on a copy; stores its name, or the error.
void Differentiate(const ProgramDesc& program, int block, const BackwardOptions& options,
                   GradientExplanation* result) {
  ProgramDesc copy = program;
  BackwardOptions quiet = options;
  quiet.callbacks.clear();
  quiet.unconnected = Unconnected::kNone;
  try {
    BlockDesc& home = copy.Block(block);
    result->gradient =
        Gradients({Variable::Of(home, result->of)}, {Variable::Of(home, result->wrt)}, quiet)[0];
  } catch (const Error& e) {
    result->reason = e.message();
  }
}

}  // namespace

GradientExplanation ExplainGradient(const ProgramDesc& program, const std::string& of,
                                    const std::string& wrt, const BackwardOptions& options) {
  GradientExplanation result;
  result.of = of;
  result.wrt = wrt;
  ProgramDesc copy = program;
  internal::CheckAndFillTypes(copy, options.ops ? *options.ops : DefaultOps());
  BlockDesc& home = HomeOf(copy, of);
  HomeOf(copy, wrt);
  if (!home.FindVarRecursive(wrt)) {
    result.reason = fmt::format("{} is a variable of a sub-block, which {} does not see",
                                Quote(wrt), Quote(of));
    return result;
  }
  Explainer explainer(home, options, of, {wrt});
  result.path = WithSubBlocks(SubBlocksOf(home), options, explainer.Path(0), 0);
  result.depends = !result.path.empty() || explainer.SameVariable();
  Differentiate(copy, home.idx(), options, &result);
  if (!result.gradient.empty()) {
    result.contributions = explainer.Contributions();
    return result;
  }
  auto blocked = std::find_if(result.path.begin(), result.path.end(),
                              [](const GradientStep& s) { return !s.obstacle.empty(); });
  if (!result.reason.empty()) return result;  // an error of backward
  if (!result.depends)
    result.reason = NoPathReason(home, of, wrt);
  else if (std::string at = explainer.ObstacleAt(of); !at.empty())
    result.reason = at;
  else if (blocked != result.path.end())
    result.reason = blocked->obstacle;
  else
    result.reason = "the gradient rules on the way yield none";
  return result;
}

namespace {

// Adds the steps inside the sub-blocks of ops.
void AddInnerSteps(BlockDesc& home, const BackwardOptions& options, GradientTree* tree) {
  std::unordered_map<std::string, const OpDesc*> inner_ops;
  const SubBlocks sub_blocks = SubBlocksOf(home);
  for (GradientTreeStep& step : tree->steps) {
    if (!step.step.obstacle.empty() || !home.op(step.op).HasSubBlock()) continue;
    if (inner_ops.empty()) {
      home.program().ForEachOp([&](const OpDesc& op) { inner_ops.emplace(Name(op), &op); });
    }
    for (const GradientStep& inner : WithSubBlocks(sub_blocks, options, {step.step}, 0)) {
      const auto found = inner_ops.find(inner.op);
      if (inner.depth == 0 || found == inner_ops.end()) continue;
      const BlockDesc& block = *found->second->block();
      step.inside.push_back({inner, block.idx(), block.IndexOf(*found->second)});
    }
  }
}

}  // namespace

GradientTree internal::MakeGradientTree(const ProgramDesc& program, const std::string& of,
                                        const BackwardOptions& options) {
  ProgramDesc copy = program;
  internal::CheckAndFillTypes(copy, options.ops ? *options.ops : DefaultOps());
  BlockDesc& home = HomeOf(copy, of);
  std::vector<std::string> wanted = copy.Parameters();
  if (wanted.empty()) wanted.push_back(of);
  GradientTree tree = Explainer(home, options, of, std::move(wanted)).Tree();
  AddInnerSteps(home, options, &tree);
  return tree;
}

std::string GradientExplanation::ToString() const {
  std::string text = gradient.empty() ? fmt::format("no gradient of {} with respect to {}: {}\n",
                                                    Quote(of), Quote(wrt), PrintableLine(reason))
                                      : fmt::format("the gradient of {} with respect to {} is {}\n",
                                                    Quote(of), Quote(wrt), Quote(gradient));
  for (const GradientStep& step : path) {
    const std::string indent(2 + 2 * static_cast<size_t>(step.depth), ' ');
    text += indent +
            PrintableLine(fmt::format("{} -> {}  through {}: {} -> {}", step.from, step.to, step.op,
                                      step.from_slot, step.to_slot)) +
            "\n";
    if (step.obstacle.empty()) continue;
    text += fmt::format("{}  ends here: {}\n", indent, PrintableLine(step.obstacle));
    if (gradient.empty()) break;
  }
  if (contributions.size() > 1)
    text += fmt::format("{} contributions are summed\n", contributions.size());
  for (const std::string& c : contributions) text += fmt::format("  from {}\n", PrintableLine(c));
  return text;
}

}  // namespace coracle

#include <coracle/backward/outer_path.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/check/block_use.h>
#include <coracle/framework/op/context/inner_gradient.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;

// The ops that run a block, anywhere in the program.
std::vector<const OpDesc*> RunnersOf(const BlockDesc& inner) {
  std::vector<const OpDesc*> runners;
  for (int b = 0; b < inner.program().NumBlocks(); ++b) {
    for (const OpDesc* op : inner.program().Block(b).SubBlockOps()) {
      const std::vector<int> blocks = op->SubBlocks();
      if (std::find(blocks.begin(), blocks.end(), inner.idx()) != blocks.end())
        runners.push_back(op);
    }
  }
  return runners;
}

// The outer variables that the block and the blocks run by its ops write.
Names WritesOf(const BlockDesc& block) {
  Names names = OuterWrites(block);
  for (const BlockDesc* nested : block.program().BlocksRunBy(block)) {
    for (const std::string& name : OuterWrites(*nested)) {
      if (!block.FindVar(name)) names.push_back(name);
    }
  }
  return names;
}

// Whether an op computes the version from a wanted variable.
bool IsComputed(ForwardGraph& graph, int32_t v) {
  const ForwardGraph::Version& version = graph.version(v);
  if (version.writer < 0 || !version.reached || version.updated) return false;
  const ForwardGraph::Node& node = graph.node(static_cast<size_t>(version.writer));
  for (uint32_t a = node.inputs; a < node.outputs; ++a) {
    if (graph.arg(a).differentiable) return true;
  }
  return false;
}

}  // namespace

OuterPath::OuterPath(const char* who, ForwardGraph& graph, const std::vector<int32_t>& targets,
                     const BackwardOptions& options, const std::vector<std::string>& wanted)
    : who_(who),
      ops_(graph.ops()),
      options_(options),
      wanted_(wanted),
      wanted_set_(wanted.begin(), wanted.end()) {
  ForwardGraph* inside = &graph;
  std::vector<int32_t> versions = targets;
  for (BlockDesc* inner = &graph.block(); inner->parent(); inner = inner->parent()) {
    Level& level = levels_.emplace_back();
    level.block = inner->parent();
    level.inner = inner;
    FindVia(level, *inside, versions);
    versions.clear();
    for (const std::string& name : level.reads) {
      const int32_t v = level.graph->Last(name);
      if (v >= 0) versions.push_back(v);
    }
    inside = level.graph.get();
  }
  RequireNoMissedPath(graph.block());
  while (!levels_.empty() && levels_.back().via.empty()) levels_.pop_back();
  all_ = wanted_;
  std::unordered_set<std::string_view> seen;
  for (const Level& level : levels_) {
    for (const std::string& name : level.via) {
      if (!seen.insert(name).second) continue;
      names_.push_back(name);
      if (!IsWanted(name)) all_.push_back(name);
    }
  }
  for (Level& level : levels_) MakeGraph(level, all_);
}

// Saves values that the inner block overwrites.
void OuterPath::MakeGraph(Level& level, const Names& wanted) {
  level.graph = std::make_unique<ForwardGraph>(
      *level.block, ops_,
      ForwardGraph::Request{wanted, options_.no_grad_set, options_.stop_gradients,
                            ForwardGraph::Start::kProgram, nullptr, level.end});
  for (const std::string& name : WritesOf(*level.inner)) {
    const int32_t v = level.graph->Last(name);
    if (v >= 0) level.graph->version(v).overwriter = static_cast<int32_t>(level.end);
  }
}

void OuterPath::FindVia(Level& level, ForwardGraph& inside, const std::vector<int32_t>& targets) {
  const std::vector<const OpDesc*> runners = RunnersOf(*level.inner);
  // If no op runs the block yet, it is still being built, and the op that will run it comes after
  // all present ops.
  const bool here = runners.size() == 1 && runners[0]->block() == level.block;
  level.end = here ? level.block->IndexOf(*runners[0]) : level.block->NumOps();
  MakeGraph(level, wanted_);
  level.reads = inside.OuterReads(targets);
  std::vector<int32_t> via;
  for (const std::string& name : level.reads) {
    const int32_t v = level.graph->Last(name);
    if (v < 0 || !IsComputed(*level.graph, v)) continue;
    level.via.push_back(name);
    via.push_back(v);
  }
  level.via_set.insert(level.via.begin(), level.via.end());
  AddReads(level.reads);
  AddReads(inside.GivenReads(targets));
  if (!here && !runners.empty()) RequireOnePlace(level, runners);
  if (via.empty()) return;
  // Records the variables at which the outer path ends. If the block changed one of them, its name
  // would refer to two values.
  level.graph->MarkPath(via);
  for (const std::string& name : wanted_) {
    if (level.graph->WantedVersion(name) >= 0) reads_.push_back(name);
  }
}

void OuterPath::AddReads(const Names& names) {
  for (const std::string& name : names) {
    if (!IsWanted(name)) reads_.push_back(name);
  }
}

// Requires a single runner, since outer variables are looked up at the position of the op that runs
// the block.
void OuterPath::RequireOnePlace(const Level& level,
                                const std::vector<const OpDesc*>& runners) const {
  const auto made = MadeFrom(level.block->program(), ops_, wanted_);
  for (const std::string& name : level.reads) {
    if (!IsWanted(name) && made.count(name))
      Refuse(
          *runners[0], name,
          "is computed before the op that runs the block; backward inside a block needs a single "
          "op that runs it, and this block has several");
  }
}

void OuterPath::RequireNoMissedPath(const BlockDesc& block) const {
  const auto missed = FindMissedPath({&block, reads_, wanted_}, ops_);
  if (!missed) return;
  const std::string& type = missed->runner->type();
  Refuse(*missed->runner, missed->name,
         fmt::format("other runs of this {}'s block, or the {} itself, compute; backward inside a "
                     "block follows one run only",
                     type, type));
}

void OuterPath::Refuse(const OpDesc& runner, const std::string& name,
                       const std::string& why) const {
  throw Error(
      ErrorCode::kUnimplemented,
      fmt::format("{}: the gradient of {} would pass through {}, which {}; put {} into "
                  "stop_gradients for the gradient of one run",
                  who_, Quote(wanted_.empty() ? "" : wanted_[0]), Quote(name), why, Quote(name)),
      "  " + Locate(runner));
}

std::vector<ForwardGraph*> OuterPath::MarkedGraphs() {
  std::vector<ForwardGraph*> graphs;
  for (const Level& level : levels_) {
    std::vector<int32_t> via;
    for (const std::string& name : level.via) {
      if (const int32_t v = level.graph->Last(name); v >= 0) via.push_back(v);
    }
    level.graph->MarkPath(via);
    graphs.push_back(level.graph.get());
  }
  return graphs;
}

void OuterPath::Append(BackwardRun& run, BlockDesc& target,
                       std::unordered_map<std::string, std::string>* gradients) {
  for (Level& level : levels_) AppendLevel(level, run, target, gradients);
}

void OuterPath::AppendLevel(Level& level, BackwardRun& run, BlockDesc& target,
                            std::unordered_map<std::string, std::string>* gradients) {
  ForwardGraph& graph = *level.graph;
  std::vector<int32_t> entries;
  std::vector<std::string> seeds;
  auto enter = [&](const std::string& name) {
    const std::string& gradient = (*gradients)[name];
    const int32_t v = graph.Last(name);
    if (gradient.empty() || v < 0 || !graph.version(v).reached) return;
    entries.push_back(v);
    seeds.push_back(gradient);
  };
  for (const std::string& name : level.via) enter(name);
  if (entries.empty()) return;
  graph.MarkPath(entries);
  // The contribution from inside is added only to gradients that are also computed here.
  std::vector<std::string> joined;
  for (const std::string& name : all_) {
    if (!level.via_set.count(name) && graph.WantedVersion(name) >= 0) joined.push_back(name);
  }
  for (const std::string& name : joined) enter(name);
  graph.MarkPath(entries);
  std::vector<int32_t> versions;
  for (const std::string& name : all_) {
    versions.push_back(graph.WantedVersion(name));
    if (versions.back() >= 0) graph.VarOf(versions.back()).plain = versions.back();
  }
  RequireVisible(level, target);
  const size_t first_op = target.NumOps();
  GradientOps ops(run, graph, target);
  for (size_t i = 0; i < entries.size(); ++i) ops.SeedFrom(entries[i], seeds[i]);
  ops.AppendBackwardOps();
  for (size_t i = 0; i < all_.size(); ++i) {
    const std::string& gradient = ops.GradientOf(versions[i]);
    if (!gradient.empty() || (level.via_set.count(all_[i]) && !IsWanted(all_[i])))
      (*gradients)[all_[i]] = gradient;
  }
  ops.RequireWritten(first_op);
  ops.RemoveUnused();
}

// These gradient ops are in the inner block but read variables of the outer one.
void OuterPath::RequireVisible(Level& level, const BlockDesc& target) const {
  for (size_t i = 0; i < level.graph->NumNodes(); ++i) {
    const ForwardGraph::Node& node = level.graph->node(i);
    for (uint32_t a = node.inputs; node.on_path && a < node.end; ++a) {
      const int32_t v = level.graph->arg(a).version;
      for (const BlockDesc* b = &target; v >= 0 && b != level.block; b = b->parent()) {
        if (!b->FindVar(level.graph->VarOf(v).name)) continue;
        throw Error(
            ErrorCode::kUnimplemented,
            fmt::format("{}: the path of the gradient leaves block {}, which hides the "
                        "variable {} of block {} with one of its own",
                        who_, b->idx(), Quote(level.graph->VarOf(v).name), level.block->idx()),
            "  " + Locate(*node.op));
      }
    }
  }
}

}  // namespace coracle::inline internal

// The order: find the ops between targets and wanted variables (FindPath), replace those that have
// no gradient themselves, then append the gradient ops in reverse order (AppendGradients).

#include <coracle/backward/differentiate.h>
#include <coracle/backward/forward_graph.h>
#include <coracle/backward/gradient_ops.h>
#include <coracle/backward/outer_path.h>
#include <coracle/backward/slice.h>
#include <coracle/backward/verify_program.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/op/context/inner_gradient.h>
#include <coracle/passes/pass.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

// The ops through which the targets depend on the wanted variables. It holds views into a Request.
struct Path {
  std::optional<std::vector<uint32_t>> positions;
  std::optional<ForwardGraph> graph;
  std::optional<OuterPath> outer;
  std::vector<std::string> reads;  // in a sub-block: see OuterPath
  // The wanted variables, and those through which the path leaves the block.
  std::vector<std::string> all;
  std::vector<int32_t> all_versions;     // like input_versions
  std::vector<int32_t> target_versions;  // -1: depends on no wanted variable
  std::vector<int32_t> input_versions;   // -1: no target depends on it
};

struct Appended {
  std::vector<std::string> gradients;  // for each input; "" if it has none
  std::vector<OpDesc*> writers;        // the last op that writes each; nullptr: none
};

void MakeGraph(const Request& request, const std::vector<std::string>& wanted, Path& path) {
  const BackwardOptions& options = request.options;
  path.graph.emplace(request.block, request.ops,
                     ForwardGraph::Request{wanted, options.no_grad_set, options.stop_gradients,
                                           ForwardGraph::Start::kProgram,
                                           path.positions ? &*path.positions : nullptr});
}

// In a sub-block, the targets may depend on variables computed in the enclosing blocks.
void FindOuterPath(const Request& request, Path& path) {
  std::vector<int32_t> targets;
  for (const Target& target : request.targets) targets.push_back(path.graph->Last(target.name));
  path.outer.emplace(request.who, *path.graph, targets, request.options, request.wanted);
  path.reads = path.outer->reads();
  if (path.outer->names().empty()) return path.outer.reset();
  path.all = request.wanted;
  const std::unordered_set<std::string_view> wanted(request.wanted.begin(), request.wanted.end());
  for (const std::string& name : path.outer->names()) {
    if (!wanted.count(name)) path.all.push_back(name);
  }
  MakeGraph(request, path.all, path);
}

void MarkPath(const Request& request, Path& path) {
  ForwardGraph& graph = *path.graph;
  std::vector<int32_t> reached;
  for (const Target& target : request.targets) {
    const int32_t v = graph.Last(target.name);
    const bool depends = v >= 0 && graph.version(v).reached;
    path.target_versions.push_back(depends ? v : -1);
    if (depends) reached.push_back(v);
  }
  graph.MarkPath(reached);
  // Gives the gradient of each wanted variable the name without a number.
  for (const std::string& name : path.outer ? path.all : request.wanted) {
    const int32_t v = graph.WantedVersion(name);
    if (v >= 0) graph.VarOf(v).plain = v;
    if (path.outer) path.all_versions.push_back(v);
  }
  for (const std::string& name : request.inputs)
    path.input_versions.push_back(graph.WantedVersion(name));
}

std::unique_ptr<Path> FindPath(const Request& request, OpenTypes& open) {
  auto path = std::make_unique<Path>();
  if (!request.of_loss && !request.block.parent()) {
    std::vector<std::string> names;
    for (const Target& target : request.targets) names.push_back(target.name);
    path->positions = OpsBetween(request.block, request.ops, request.wanted, names);
  }
  if (path->positions)
    open.FillWhereOpen(request.block, *path->positions);
  else if (!request.of_loss)
    open.FillWhereOpen();
  MakeGraph(request, request.wanted, *path);
  if (request.block.parent()) FindOuterPath(request, *path);
  MarkPath(request, *path);
  return path;
}

// Whether the path in one block contains an op that only joins others, perhaps in a sub-block.
bool NeedsExpansionIn(const ForwardGraph& graph, const Request& request) {
  const auto expands = [&](const OpDesc& op) {
    const OpSpec* spec = request.ops.Find(op.type());
    return spec && spec->Expands();
  };
  for (size_t i = 0; i < graph.NumNodes(); ++i) {
    const ForwardGraph::Node& node = graph.node(i);
    if (!node.on_path) continue;
    if (expands(*node.op)) return true;
    if (!node.has_sub_block) continue;
    for (const BlockDesc* block : request.block.program().BlocksRunBy(*node.op)) {
      for (size_t k = 0; k < block->NumOps(); ++k) {
        if (expands(block->op(k))) return true;
      }
    }
  }
  return false;
}

bool NeedsExpansion(Path& path, const Request& request) {
  if (NeedsExpansionIn(*path.graph, request)) return true;
  if (!path.outer) return false;
  const std::vector<ForwardGraph*> graphs = path.outer->MarkedGraphs();
  return std::any_of(graphs.begin(), graphs.end(),
                     [&](const ForwardGraph* graph) { return NeedsExpansionIn(*graph, request); });
}

// Whether the path contains the gradient of a call. It has no gradient itself, but the ops that
// replace it do.
bool NeedsInlining(const ForwardGraph& graph) {
  for (size_t i = 0; i < graph.NumNodes(); ++i) {
    const ForwardGraph::Node& node = graph.node(i);
    if (node.on_path && node.def && node.def->block.replaced && !node.def->HasGradient())
      return true;
  }
  return false;
}

// Finds the path. Ops on it that have no gradient themselves are first replaced by ops that have
// one: those that only join others, and gradients of calls.
std::unique_ptr<Path> FindDifferentiablePath(const Request& request, OpenTypes& open) {
  ProgramDesc& program = request.block.program();
  std::unique_ptr<Path> path = FindPath(request, open);
  if (NeedsExpansion(*path, request)) {
    path.reset();
    open.Commit();  // it refers to variables of sub-blocks, which are remade
    RequireProgram(program, request.ops);
    ExpandOps(program, request.ops);
    path = FindPath(request, open);
  }
  // In a sub-block, the error of call_grad explains what to do.
  if (request.block.parent() || !NeedsInlining(*path->graph)) return path;
  path.reset();
  open.Commit();
  ReplaceCalls(program, request.ops);
  return FindPath(request, open);
}

// A gradient of an outer variable is only a share here, since enclosing blocks contribute too.
void MarkShares(const Request& request, const Path& path, GradientOps& gradients) {
  if (!path.outer) return;
  for (size_t i = 0; i < path.all.size(); ++i) {
    if (path.all_versions[i] >= 0 && !request.block.FindVar(path.all[i]))
      gradients.MarkShare(path.all_versions[i]);
  }
}

Appended GradientsOfBlock(const Path& path, GradientOps& gradients) {
  Appended result;
  for (int32_t v : path.input_versions) {
    result.gradients.push_back(gradients.GradientOf(v));
    result.writers.push_back(result.gradients.back().empty() ? nullptr : gradients.WriterOf(v));
  }
  return result;
}

// Appends the gradient ops of the enclosing blocks.
Appended GradientsThroughOuterBlocks(const Request& request, Path& path, BackwardRun& run,
                                     GradientOps& gradients) {
  std::unordered_map<std::string, std::string> all;
  for (size_t i = 0; i < path.all.size(); ++i)
    all[path.all[i]] = gradients.GradientOf(path.all_versions[i]);
  path.outer->Append(run, request.block, &all);
  Appended result;
  for (const std::string& name : request.inputs) {
    const std::string& gradient = all[name];
    result.gradients.push_back(gradient);
    result.writers.push_back(gradient.empty() ? nullptr
                                              : request.block.Uses(gradient).writers.back());
    if (run.grad_to_var && !gradient.empty()) run.grad_to_var->insert_or_assign(gradient, name);
  }
  return result;
}

// Records the outer reads for ops that run this block, perhaps later:
// see framework/op/context/inner_gradient.h.
void RecordOuterReads(const Request& request, const Path& path, size_t first_gradient) {
  if (!request.block.parent() || request.block.NumOps() <= first_gradient || path.reads.empty())
    return;
  OpDesc& op = request.block.op(first_gradient);
  op.SetAttr(kOuterReadsAttr, path.reads);
  op.SetAttr(kOuterInputsAttr, request.wanted);
}

Appended AppendGradients(const Request& request, Path& path, GradToVar* grad_to_var) {
  const BackwardOptions& options = request.options;
  BlockDesc& block = request.block;
  const int seed_role = request.of_loss ? kBackward | kLoss : kBackward;
  GradToVar own;
  if (!grad_to_var && !options.callbacks.empty()) grad_to_var = &own;
  const OpDesc* last_forward = block.NumOps() > 0 ? &block.op(block.NumOps() - 1) : nullptr;
  const size_t first_gradient = block.NumOps();
  BackwardRun run{request.who, options, request.ops, grad_to_var};
  GradientOps gradients(run, *path.graph, block);
  MarkShares(request, path, gradients);
  for (size_t i = 0; i < request.targets.size(); ++i) {
    const int32_t v = path.target_versions[i];
    const std::string& seed = request.targets[i].seed;
    if (v >= 0) seed.empty() ? gradients.SeedOnes(v, seed_role) : gradients.SeedFrom(v, seed);
  }
  gradients.AppendBackwardOps();
  gradients.RequireWritten(first_gradient);
  Appended result = path.outer ? GradientsThroughOuterBlocks(request, path, run, gradients)
                               : GradientsOfBlock(path, gradients);
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (result.gradients[i].empty() && options.unconnected == Unconnected::kZero)
      result.gradients[i] = gradients.AppendZeros(request.inputs[i]);
  }
  RecordOuterReads(request, path, first_gradient);
  gradients.RemoveUnused();
  run.saved.Finish();
  if (options.recompute.enabled()) {
    const size_t first = last_forward ? block.IndexOf(*last_forward) + 1 : 0;
    Recompute(block, first, options.recompute, request.ops);
  }
  return result;
}

// Adds {param, grad} to op_role_var of the last op that writes the gradient.
void MarkParameter(OpDesc& writer, const ParamAndGrad& pair) {
  std::vector<std::string> names;
  if (writer.HasAttr(kOpRoleVarAttr))
    names = writer.GetAttr<std::vector<std::string>>(kOpRoleVarAttr, {});
  for (size_t i = 0; i + 1 < names.size(); i += 2) {
    if (names[i] == pair.param && names[i + 1] == pair.grad) return;  // listed twice
  }
  names.push_back(pair.param);
  names.push_back(pair.grad);
  writer.SetAttr(kOpRoleVarAttr, std::move(names));
}

}  // namespace

std::vector<std::string> Differentiate(const Request& request, OpenTypes& open,
                                       GradToVar* grad_to_var) {
  ProgramDesc& program = request.block.program();
  try {
    const EditGuard attempt(program);
    const std::unique_ptr<Path> path = FindDifferentiablePath(request, open);
    const int32_t target = path->target_versions[0];
    OpDesc* target_writer = target < 0 ? nullptr : path->graph->WriterOf(target);
    Appended appended = AppendGradients(request, *path, grad_to_var);
    if (!request.of_loss) return std::move(appended.gradients);
    if (target_writer) target_writer->SetAttr(kOpRoleAttr, int32_t{kForward | kLoss});
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      if (appended.writers[i])
        MarkParameter(*appended.writers[i], {request.inputs[i], appended.gradients[i]});
    }
    return std::move(appended.gradients);
  } catch (const InternalError&) {
    RequireProgram(program, request.ops);
    throw;
  }
}

}  // namespace coracle::inline internal

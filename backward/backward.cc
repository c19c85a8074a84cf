#include <coracle/backward/backward.h>
#include <coracle/backward/forward_graph.h>
#include <coracle/backward/gradient_ops.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

namespace coracle {
namespace {

using internal::BackwardRun;
using internal::ForwardGraph;
using internal::GradientOps;

[[noreturn]] void ThrowUnknownName(const BlockDesc& block, const char* what,
                                   const std::string& name) {
  std::vector<std::string> names;
  for (const BlockDesc* b = &block; b; b = b->parent()) {
    for (size_t i = 0; i < b->NumVars(); ++i) names.push_back(b->var(i).name());
  }
  throw Error(ErrorCode::kNotFound, fmt::format("append_backward: {} names the var {}, which the "
                                                "program does not have{}",
                                                what, Quote(name), DidYouMean(name, names)));
}

void RequireNames(const BlockDesc& block, const char* what, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!block.FindVarRecursive(name)) ThrowUnknownName(block, what, name);
  }
}

// The block that declares the variable: a handle may have been looked up from a sub-block.
BlockDesc& HomeOf(const Variable& variable) {
  if (!variable) ThrowInvalid("append_backward: got an empty Variable");
  BlockDesc* block = &variable.block();
  while (block->parent() && block->FindVar(variable.name()) != &variable.desc())
    block = block->parent();
  return *block;
}

void CheckTarget(const VarDesc& var, const char* what, const std::vector<std::string>& no_grad) {
  const std::string name = Quote(var.name());
  if (var.type() != VarType::kLoDTensor || !IsFloating(var.dtype())) {
    ThrowInvalid(fmt::format("append_backward: the {} {} is {}; it must be a floating-point tensor",
                             what, name, var.meta().ToString()));
  }
  if (var.stop_gradient()) {
    ThrowInvalid(fmt::format(
        "append_backward: the {} {} has stop_gradient set, so no gradient leaves it; clear it",
        what, name));
  }
  if (std::find(no_grad.begin(), no_grad.end(), var.name()) != no_grad.end()) {
    ThrowInvalid(fmt::format("append_backward: the {} {} is in no_grad_set", what, name));
  }
}

void CheckLossShape(const VarDesc& loss) {
  const Shape& shape = loss.shape();
  if (shape.IsKnown() && shape.numel() == 1) return;
  ThrowInvalid(
      fmt::format("append_backward: the loss {} must hold one element, its shape is {}; reduce it "
                  "by mean or reduce_sum",
                  Quote(loss.name()), shape.ToString()));
}

// Takes back what was appended to the program unless Keep() is called.
class Undo {
 public:
  explicit Undo(ProgramDesc& program) : program_(program) {
    for (int b = 0; b < program.NumBlocks(); ++b)
      sizes_.push_back({program.Block(b).NumOps(), program.Block(b).NumVars()});
  }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  ~Undo() {
    if (kept_) return;
    program_.TruncateBlocks(static_cast<int>(sizes_.size()));
    for (size_t b = 0; b < sizes_.size(); ++b) {
      BlockDesc& block = program_.Block(static_cast<int>(b));
      block.TruncateOps(sizes_[b].first);
      block.RemoveVarsIf([](const VarDesc&) { return true; }, sizes_[b].second);
    }
  }
  void Keep() { kept_ = true; }

 private:
  ProgramDesc& program_;
  std::vector<std::pair<size_t, size_t>> sizes_;
  bool kept_ = false;
};

// What AppendBackward differentiates by when it is not told: see BackwardOptions.
std::vector<std::string> DefaultWanted(const BlockDesc& block,
                                       const std::vector<std::string>& parameters) {
  std::vector<std::string> wanted = parameters;
  std::unordered_set<std::string_view> fed;
  for (const BlockDesc* b = &block; b; b = b->parent()) {
    for (size_t i = 0; i < b->NumVars(); ++i) {
      const VarDesc& var = b->var(i);
      if (var.stop_gradient_field() == std::optional<bool>(false) && !var.is_parameter() &&
          !var.persistable()) {
        fed.insert(var.name());
      }
    }
  }
  for (size_t i = 0; i < block.NumOps() && !fed.empty(); ++i) {
    for (const Slot& slot : block.op(i).outputs()) {
      for (const std::string& arg : slot.args) fed.erase(arg);
    }
  }
  wanted.insert(wanted.end(), fed.begin(), fed.end());
  return wanted;
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

// The gradient of each wanted variable takes the plain name.
void ReservePlainNames(ForwardGraph& graph, const std::vector<std::string>& wanted) {
  for (const std::string& name : wanted) {
    const int32_t version = graph.WantedVersion(name);
    if (version >= 0) graph.VarOf(version).plain = version;
  }
}

std::vector<int32_t> WantedVersions(ForwardGraph& graph, const std::vector<std::string>& names) {
  std::vector<int32_t> versions;
  for (const std::string& name : names) versions.push_back(graph.WantedVersion(name));
  return versions;
}

}  // namespace

std::vector<ParamAndGrad> AppendBackward(const Variable& loss, const BackwardOptions& options,
                                         GradToVar* grad_to_var) {
  BlockDesc& block = HomeOf(loss);
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  CheckTarget(loss.desc(), "loss", options.no_grad_set);
  CheckLossShape(loss.desc());
  RequireNames(block, "parameter_list", options.parameter_list);
  RequireNames(block, "no_grad_set", options.no_grad_set);
  const bool all = options.parameter_list.empty();
  const std::vector<std::string> parameters =
      all ? block.program().Parameters() : options.parameter_list;
  const std::vector<std::string> wanted = all ? DefaultWanted(block, parameters) : parameters;

  ForwardGraph graph(block, ops, wanted, options.no_grad_set);
  const int32_t target = graph.Last(loss.name());
  GradToVar own;
  if (!grad_to_var && !options.callbacks.empty()) grad_to_var = &own;
  std::vector<ParamAndGrad> pairs;
  for (const std::string& name : parameters) pairs.push_back({name, ""});
  if (target < 0 || !graph.version(target).reached) return pairs;
  graph.MarkPath({target});
  ReservePlainNames(graph, wanted);
  const std::vector<int32_t> versions = WantedVersions(graph, parameters);

  Undo undo(block.program());
  BackwardRun run{options, ops, grad_to_var};
  GradientOps gradients(run, graph, block);
  gradients.SeedOnes(target, kBackward | kLoss);
  gradients.AppendBackwardOps();
  for (size_t i = 0; i < pairs.size(); ++i) {
    pairs[i].grad = gradients.GradientOf(versions[i]);
    if (!pairs[i].grad.empty()) MarkParameter(*gradients.WriterOf(versions[i]), pairs[i]);
  }
  const int32_t writer = graph.version(target).writer;
  if (writer >= 0)
    block.op(static_cast<size_t>(writer)).SetAttr(kOpRoleAttr, int32_t{kForward | kLoss});
  undo.Keep();
  gradients.RemoveUnused();
  run.saved.Finish();
  return pairs;
}

std::vector<std::string> Gradients(const std::vector<Variable>& targets,
                                   const std::vector<Variable>& inputs,
                                   const GradientsOptions& options, GradToVar* grad_to_var) {
  if (targets.empty()) ThrowInvalid("gradients: no target is given");
  BlockDesc& block = HomeOf(targets.front());
  const auto& seeds = options.target_gradients;
  if (!seeds.empty() && seeds.size() != targets.size()) {
    ThrowInvalid(fmt::format("gradients: got {} target gradients for {} targets", seeds.size(),
                             targets.size()));
  }
  for (const Variable& target : targets) {
    if (&HomeOf(target) != &block) ThrowInvalid("gradients: all targets must belong to one block");
    CheckTarget(target.desc(), "target", options.no_grad_set);
  }
  RequireNames(block, "no_grad_set", options.no_grad_set);
  std::vector<std::string> wanted;
  for (const Variable& input : inputs) {
    if (!input) ThrowInvalid("gradients: an input is an empty Variable");
    wanted.push_back(input.name());
  }
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  ForwardGraph graph(block, ops, wanted, options.no_grad_set);
  std::vector<int32_t> versions;
  for (size_t i = 0; i < targets.size(); ++i) {
    versions.push_back(graph.Last(targets[i].name()));
    if (i >= seeds.size() || seeds[i].empty()) continue;
    const VarDesc* seed = block.FindVarRecursive(seeds[i]);
    if (!seed) ThrowUnknownName(block, "target_gradients", seeds[i]);
    if (seed->dtype() != targets[i].dtype() || !seed->shape().CompatibleWith(targets[i].shape())) {
      ThrowInvalid(fmt::format("gradients: the target gradient {} is {}, its target {} is {}",
                               Quote(seeds[i]), seed->meta().ToString(), Quote(targets[i].name()),
                               targets[i].desc().meta().ToString()));
    }
  }
  std::vector<int32_t> reached;
  for (int32_t v : versions) {
    if (v >= 0 && graph.version(v).reached) reached.push_back(v);
  }
  graph.MarkPath(reached);
  ReservePlainNames(graph, wanted);
  const std::vector<int32_t> wanted_versions = WantedVersions(graph, wanted);

  GradToVar own;
  if (!grad_to_var && !options.callbacks.empty()) grad_to_var = &own;
  Undo undo(block.program());
  BackwardRun run{options, ops, grad_to_var};
  GradientOps gradients(run, graph, block);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (versions[i] < 0 || !graph.version(versions[i]).reached) continue;
    if (i < seeds.size() && !seeds[i].empty())
      gradients.SeedFrom(versions[i], seeds[i]);
    else
      gradients.SeedOnes(versions[i], kBackward);
  }
  gradients.AppendBackwardOps();
  std::vector<std::string> result;
  for (int32_t v : wanted_versions) result.push_back(gradients.GradientOf(v));
  undo.Keep();
  gradients.RemoveUnused();
  run.saved.Finish();
  return result;
}

const OpDesc* FindForwardOp(const OpDesc& gradient_op) {
  const auto link = gradient_op.GetAttr<std::string>(kForwardOpAttr, "");
  const size_t open = link.find('(');
  if (!gradient_op.block() || open == std::string::npos || link.back() != ')') return nullptr;
  const std::string type = link.substr(0, open);
  const std::string output = link.substr(open + 1, link.size() - open - 2);
  // A name may hold a '#' itself.
  const size_t hash = output.rfind('#');
  size_t ordinal = 0;
  const bool numbered =
      hash != std::string::npos && hash + 1 < output.size() &&
      std::from_chars(output.data() + hash + 1, output.data() + output.size(), ordinal).ptr ==
          output.data() + output.size();
  std::vector<const BlockDesc*> queue = {gradient_op.block()};
  for (size_t i = 0; i < queue.size() && i < 1000; ++i) {
    const BlockDesc& block = *queue[i];
    auto find = [&](const std::string& name, size_t n) -> const OpDesc* {
      const std::vector<OpDesc*>& writers = block.Uses(name).writers;
      return n < writers.size() && writers[n]->type() == type ? writers[n] : nullptr;
    };
    if (const OpDesc* found = find(output, 0)) return found;
    if (const OpDesc* found = numbered ? find(output.substr(0, hash), ordinal) : nullptr)
      return found;
    if (const BlockDesc* next = block.forward_block()) queue.push_back(next);
    if (const BlockDesc* next = block.parent()) queue.push_back(next);
  }
  return nullptr;
}

}  // namespace coracle

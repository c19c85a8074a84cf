#include <coracle/backward/backward.h>
#include <coracle/backward/forward_graph.h>
#include <coracle/backward/gradient_ops.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace coracle {
namespace {

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

// Takes back what was appended to a block unless Keep() is called.
class Undo {
 public:
  explicit Undo(BlockDesc& block) : block_(block), ops_(block.NumOps()), vars_(block.NumVars()) {}
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  ~Undo() {
    if (kept_) return;
    std::vector<std::unique_ptr<OpDesc>> ops = block_.TakeOps();
    ops.resize(std::min(ops.size(), ops_));
    block_.SetOps(std::move(ops));
    size_t i = 0;
    block_.RemoveVarsIf([&](const VarDesc&) { return i++ >= vars_; });
  }
  void Keep() { kept_ = true; }

 private:
  BlockDesc& block_;
  size_t ops_, vars_;
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

  Undo undo(block);
  GradientOps gradients(graph, options.callbacks, grad_to_var);
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
  gradients.Finish();
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
  Undo undo(block);
  GradientOps gradients(graph, options.callbacks, grad_to_var);
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
  gradients.Finish();
  return result;
}

}  // namespace coracle

#include <coracle/backward/backward.h>
#include <coracle/backward/differentiate.h>
#include <coracle/backward/open_types.h>
#include <coracle/backward/verify_program.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/framework/ir/mismatch.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

namespace coracle {
namespace {

using internal::OpenTypes;

[[noreturn]] void ThrowUnknownName(const char* who, const BlockDesc& block, const char* what,
                                   const std::string& name) {
  std::vector<std::string> names;
  for (const BlockDesc* b = &block; b; b = b->parent()) {
    for (size_t i = 0; i < b->NumVars(); ++i) names.push_back(b->var(i).name());
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("{}: {} names the var {}, which the program does not have{}", who, what,
                          Quote(name), DidYouMean(name, names)));
}

void RequireNames(const char* who, const BlockDesc& block, const char* what,
                  const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!block.FindVarRecursive(name)) ThrowUnknownName(who, block, what, name);
  }
}

// Accepts names of any block, since they also apply to gradients inside sub-blocks.
void RequireNamesAnywhere(const char* who, const BlockDesc& block, const char* what,
                          const std::vector<std::string>& names) {
  const ProgramDesc& program = block.program();
  for (const std::string& name : names) {
    bool found = block.FindVarRecursive(name) != nullptr;
    for (int b = 0; b < program.NumBlocks() && !found; ++b)
      found = program.Block(b).FindVar(name) != nullptr;
    if (!found) ThrowUnknownName(who, block, what, name);
  }
}

// A complex target must be `seeded` with a gradient, since ones would be meaningless.
void CheckTarget(const char* who, const VarDesc& var, const char* what, bool seeded,
                 const std::vector<std::string>& no_grad) {
  const std::string name = Quote(var.name());
  const bool complex = var.type() == VarType::kLoDTensor && IsComplex(var.dtype());
  if (complex && !seeded) {
    ThrowInvalid(
        fmt::format("{}: the {} {} is {}; it must be a floating-point tensor (take its "
                    "real or imag part), or its gradient be given",
                    who, what, name, var.meta().ToString()));
  }
  if (!complex && (var.type() != VarType::kLoDTensor || !IsFloating(var.dtype()))) {
    ThrowInvalid(fmt::format("{}: the {} {} is {}; it must be a floating-point tensor", who, what,
                             name, var.meta().ToString()));
  }
  if (var.stop_gradient()) {
    ThrowInvalid(
        fmt::format("{}: the {} {} has stop_gradient set, so no gradient leaves it; clear it", who,
                    what, name));
  }
  if (std::find(no_grad.begin(), no_grad.end(), var.name()) != no_grad.end()) {
    ThrowInvalid(fmt::format("{}: the {} {} is in no_grad_set", who, what, name));
  }
}

bool IsInteger(const VarDesc& var) {
  return var.type() == VarType::kLoDTensor && IsValid(var.dtype()) && !IsFloating(var.dtype()) &&
         !IsComplex(var.dtype());
}

void CheckLossShape(const VarDesc& loss) {
  const Shape& shape = loss.shape();
  if (shape.IsKnown() && shape.numel() == 1) return;
  ThrowInvalid(
      fmt::format("append_backward: the loss {} must hold one element, its shape is {}; reduce it "
                  "by mean or reduce_sum",
                  Quote(loss.name()), shape.ToString()));
}

// The default variables of AppendBackward; see BackwardOptions.
std::vector<std::string> DefaultWanted(const BlockDesc& block,
                                       const std::vector<std::string>& parameters) {
  std::vector<std::string> wanted = parameters;
  std::unordered_set<std::string_view> fed;
  for (const BlockDesc* b = &block; b; b = b->parent()) {
    for (size_t i = 0; i < b->NumVars(); ++i) {
      const VarDesc& var = b->var(i);
      if (FileFields::StopGradient(var) == std::optional<bool>(false) && !var.is_parameter() &&
          !var.persistable()) {
        fed.insert(var.name());
      }
    }
  }
  for (const BlockDesc* b = &block; b; b = b->parent()) {
    for (size_t i = 0; i < b->NumOps() && !fed.empty(); ++i)
      b->op(i).ForEachOutput([&](const std::string& name) { fed.erase(name); });
  }
  wanted.insert(wanted.end(), fed.begin(), fed.end());
  return wanted;
}

// The variables that hold the incoming gradients, one for each target; "" for ones.
std::vector<std::string> SeedsOf(const char* who, const BlockDesc& block,
                                 const std::vector<Variable>& targets,
                                 const std::vector<std::string>& seeds) {
  if (seeds.empty()) return std::vector<std::string>(targets.size());
  if (seeds.size() != targets.size()) {
    ThrowInvalid(fmt::format("{}: got {} target gradients for {} targets", who, seeds.size(),
                             targets.size()));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (seeds[i].empty()) continue;
    const VarDesc* seed = block.FindVarRecursive(seeds[i]);
    if (!seed) ThrowUnknownName(who, block, "target_gradients", seeds[i]);
    const VarDesc& target = targets[i].desc();
    if (seed->dtype() != target.dtype() || !seed->shape().CompatibleWith(target.shape())) {
      ThrowInvalid(fmt::format("{}: the target gradient {} of {} {}", who, Quote(seeds[i]),
                               Quote(target.name()),
                               DescribeMismatch(target.meta(), seed->meta())));
    }
  }
  return seeds;
}

void CheckNames(const char* who, const BlockDesc& block, const BackwardOptions& options,
                const OpRegistry& ops) {
  RequireNamesAnywhere(who, block, "no_grad_set", options.no_grad_set);
  RequireNamesAnywhere(who, block, "stop_gradients", options.stop_gradients);
  RequireNames(who, block, "checkpoints", options.recompute.checkpoints);
  for (const BackwardCallback& callback : options.callbacks) {
    if (!callback) ThrowInvalid(fmt::format("{}: a callback is empty", who));
  }
  for (const GradientOverride& over : options.overrides) {
    if (!over.rule) {
      ThrowInvalid(fmt::format("{}: the override of {} has no rule", who, over.op_type));
    }
    const OpSpec* spec = ops.Find(over.op_type);
    if (spec && spec->Expands()) {
      ThrowInvalid(
          fmt::format("{}: {} is replaced by the ops that it joins; override the gradients "
                      "of {}",
                      who, over.op_type, Join(spec->expands_to, ", ")));
    }
  }
}

std::vector<std::string> InputNames(const BlockDesc& block, const std::vector<Variable>& inputs) {
  std::vector<std::string> names;
  for (const Variable& input : inputs) {
    if (!input) ThrowInvalid("gradients: an input is an empty Variable");
    if (block.FindVarRecursive(input.name()) != &input.desc()) {
      ThrowInvalid(
          fmt::format("gradients: the input {} is not a variable of the program of the "
                      "targets, or not seen from their block",
                      Quote(input.name())));
    }
    if (input.desc().stop_gradient()) {
      LogMessage(
          MessageLevel::kWarning,
          fmt::format("gradients: the input {} has stop_gradient set (as data has), so that it has "
                      "no gradient; clear it: SetStopGradient(false)",
                      Quote(input.name())));
    }
    names.push_back(input.name());
  }
  return names;
}

}  // namespace

std::vector<ParamAndGrad> AppendBackward(const Variable& loss, const BackwardOptions& options,
                                         GradToVar* grad_to_var) {
  const char* who = "append_backward";
  if (!loss) ThrowInvalid("append_backward: got an empty Variable");
  const EditGuard guard(loss.program());
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  internal::RequireBlocks(loss.program(), ops);
  BlockDesc& block = internal::BlockOf(loss);
  OpenTypes open(block.program(), ops);
  open.FillWhereOpen();
  const bool seeded = !options.target_gradients.empty() && !options.target_gradients[0].empty();
  CheckTarget(who, loss.desc(), "loss", seeded, options.no_grad_set);
  CheckLossShape(loss.desc());
  RequireNames(who, block, "parameter_list", options.parameter_list);
  CheckNames(who, block, options, ops);
  const std::vector<std::string> seeds = SeedsOf(who, block, {loss}, options.target_gradients);
  const bool all = options.parameter_list.empty();
  const std::vector<std::string> parameters =
      all ? block.program().Parameters() : options.parameter_list;
  const internal::Request request = {.who = who,
                                     .block = block,
                                     .options = options,
                                     .ops = ops,
                                     .targets = {{loss.name(), seeds[0]}},
                                     .wanted = all ? DefaultWanted(block, parameters) : parameters,
                                     .inputs = parameters,
                                     .of_loss = true};
  const std::vector<std::string> gradients = Differentiate(request, open, grad_to_var);
  std::vector<ParamAndGrad> pairs;
  for (size_t i = 0; i < parameters.size(); ++i) pairs.push_back({parameters[i], gradients[i]});
  open.Commit();
  return pairs;
}

std::vector<std::string> Gradients(const std::vector<Variable>& targets,
                                   const std::vector<Variable>& inputs,
                                   const GradientsOptions& options, GradToVar* grad_to_var) {
  const char* who = "gradients";
  if (targets.empty()) ThrowInvalid("gradients: no target is given");
  if (!options.parameter_list.empty())
    ThrowInvalid("gradients: parameter_list belongs to append_backward; pass inputs");
  for (const Variable& target : targets) {
    if (!target) ThrowInvalid("gradients: got an empty Variable");
  }
  const EditGuard guard(targets.front().program());
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  internal::RequireBlocks(targets.front().program(), ops);
  BlockDesc& block = internal::BlockOf(targets.front());
  OpenTypes open(block.program(), ops);
  for (size_t i = 0; i < targets.size(); ++i) {
    const Variable& target = targets[i];
    if (&internal::BlockOf(target) != &block)
      ThrowInvalid("gradients: all targets must belong to one block");
    open.FillWhereOpen(block, target.desc());
    const bool seeded = i < options.target_gradients.size() && !options.target_gradients[i].empty();
    // Integer targets are allowed: a path that ends in integers is constant.
    if (!IsInteger(target.desc()))
      CheckTarget(who, target.desc(), "target", seeded, options.no_grad_set);
  }
  CheckNames(who, block, options, ops);
  const std::vector<std::string> seeds = SeedsOf(who, block, targets, options.target_gradients);
  internal::Request request = {.who = who,
                               .block = block,
                               .options = options,
                               .ops = ops,
                               .targets = {},
                               .wanted = InputNames(block, inputs),
                               .inputs = {}};
  request.inputs = request.wanted;
  for (size_t i = 0; i < targets.size(); ++i)
    request.targets.push_back({targets[i].name(), seeds[i]});
  std::vector<std::string> gradients = Differentiate(request, open, grad_to_var);
  open.Commit();
  return gradients;
}

Unconnected UnconnectedFromText(const std::string& text) {
  if (text == "none") return Unconnected::kNone;
  if (text == "zero") return Unconnected::kZero;
  ThrowInvalid(
      fmt::format("unknown value for unconnected gradients: {}; one of none, zero", Quote(text)));
}

Aggregation AggregationFromText(const std::string& text) {
  if (text == "sum") return Aggregation::kSum;
  if (text == "running") return Aggregation::kRunning;
  ThrowInvalid(fmt::format("unknown aggregation: {}; one of sum, running", Quote(text)));
}

const OpDesc* FindForwardOp(const OpDesc& gradient_op) {
  const auto link = gradient_op.GetAttr<std::string>(kForwardOpAttr, "");
  const size_t open = link.find('(');
  if (!gradient_op.block() || open == std::string::npos || link.back() != ')') return nullptr;
  const std::string type = link.substr(0, open);
  const std::string output = link.substr(open + 1, link.size() - open - 2);
  // A name may contain '#' too.
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
      const auto writers = block.Uses(name).writers;
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

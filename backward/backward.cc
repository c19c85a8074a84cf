#include <coracle/backward/backward.h>
#include <coracle/backward/forward_graph.h>
#include <coracle/backward/gradient_ops.h>
#include <coracle/backward/open_types.h>
#include <coracle/backward/outer_path.h>
#include <coracle/backward/slice.h>
#include <coracle/backward/verify_program.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/framework/op/inner_gradient.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>

namespace coracle {
namespace {

using internal::BackwardRun;
using internal::ForwardGraph;
using internal::GradientOps;
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
      if (var.stop_gradient_field() == std::optional<bool>(false) && !var.is_parameter() &&
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

// The common part of AppendBackward and Gradients: differentiates targets in one block with respect
// to the wanted variables.
class Differentiation {
 public:
  struct Target {
    std::string name;
    std::string seed;  // variable with the gradient that enters; "": ones
  };

  // `inputs` are the wanted variables whose gradients are returned. With `part`, only the
  // ops between inputs and targets are examined, so that the cost does not depend on the
  // size of the block.
  Differentiation(const char* who, BlockDesc& block, const BackwardOptions& options,
                  const std::vector<std::string>& wanted, const std::vector<std::string>& inputs,
                  const std::vector<Target>& targets, OpenTypes& open, bool part)
      : who_(who),
        block_(block),
        options_(options),
        ops_(options.ops ? *options.ops : DefaultOps()),
        wanted_(wanted),
        inputs_(inputs),
        targets_(targets) {
    if (part && !block.parent()) {
      std::vector<std::string> names;
      for (const Target& target : targets) names.push_back(target.name);
      positions_ = internal::OpsBetween(block, ops_, wanted, names);
    }
    if (positions_)
      open.FillWhereOpen(block, *positions_);
    else if (part)
      open.FillWhereOpen();
    MakeGraph(wanted_);
    if (block.parent()) FindOuterPath();
    MarkPath();
  }

  // Whether the path contains the gradient of a call. It has no gradient itself, but the ops that
  // replace it do.
  bool NeedsInlining() const {
    for (size_t i = 0; i < graph_->NumNodes(); ++i) {
      const ForwardGraph::Node& node = graph_->node(i);
      if (node.on_path && node.def && node.def->block.replaced && !node.def->HasGradient())
        return true;
    }
    return false;
  }

  // Appends the gradient ops and returns the gradients of the inputs. Call it once.
  std::vector<std::string> Append(int seed_role, GradToVar* grad_to_var) {
    GradToVar own;
    if (!grad_to_var && !options_.callbacks.empty()) grad_to_var = &own;
    const OpDesc* last_forward = block_.NumOps() > 0 ? &block_.op(block_.NumOps() - 1) : nullptr;
    const size_t first_gradient = block_.NumOps();
    BackwardRun run{who_, options_, ops_, grad_to_var};
    GradientOps gradients(run, *graph_, block_);
    if (outer_) MarkShares(gradients);
    for (size_t i = 0; i < targets_.size(); ++i) {
      const int32_t v = target_versions_[i];
      if (v < 0) continue;
      targets_[i].seed.empty() ? gradients.SeedOnes(v, seed_role)
                               : gradients.SeedFrom(v, targets_[i].seed);
    }
    gradients.AppendBackwardOps();
    gradients.RequireWritten(first_gradient);
    std::vector<std::string> result = outer_ ? OuterResults(run, gradients) : Results(gradients);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (result[i].empty() && options_.unconnected == Unconnected::kZero)
        result[i] = gradients.AppendZeros(inputs_[i]);
    }
    if (block_.parent() && block_.NumOps() > first_gradient) NoteOuterReads(first_gradient);
    gradients.RemoveUnused();
    run.saved.Finish();
    if (options_.recompute.enabled()) {
      const size_t first = last_forward ? block_.IndexOf(*last_forward) + 1 : 0;
      Recompute(block_, first, options_.recompute, ops_);
    }
    return result;
  }

  // The last op that writes the gradient of an input; nullptr if there is none.
  OpDesc* WriterOf(size_t input) const { return writers_[input]; }
  // The op that writes a target that depends on a wanted variable.
  OpDesc* TargetWriter(size_t target) {
    const int32_t v = target_versions_[target];
    return v < 0 ? nullptr : graph_->WriterOf(v);
  }

 private:
  void MakeGraph(const std::vector<std::string>& wanted) {
    graph_.emplace(
        block_, ops_,
        ForwardGraph::Request{wanted, options_.no_grad_set, options_.stop_gradients,
                              ForwardGraph::Start::kProgram, positions_ ? &*positions_ : nullptr});
  }

  // In a sub-block, the targets may depend on variables computed in the enclosing blocks.
  void FindOuterPath() {
    std::vector<int32_t> targets;
    for (const Target& target : targets_) targets.push_back(graph_->Last(target.name));
    outer_.emplace(who_, *graph_, targets, options_, wanted_);
    reads_ = outer_->reads();
    if (outer_->names().empty()) return outer_.reset();
    all_ = wanted_;
    const std::unordered_set<std::string_view> wanted(wanted_.begin(), wanted_.end());
    for (const std::string& name : outer_->names()) {
      if (!wanted.count(name)) all_.push_back(name);
    }
    MakeGraph(all_);
  }

  void MarkPath() {
    std::vector<int32_t> reached;
    for (const Target& target : targets_) {
      const int32_t v = graph_->Last(target.name);
      const bool depends = v >= 0 && graph_->version(v).reached;
      target_versions_.push_back(depends ? v : -1);
      if (depends) reached.push_back(v);
    }
    graph_->MarkPath(reached);
    // Gives the gradient of each wanted variable the name without a number.
    for (const std::string& name : outer_ ? all_ : wanted_) {
      const int32_t v = graph_->WantedVersion(name);
      if (v >= 0) graph_->VarOf(v).plain = v;
      if (outer_) all_versions_.push_back(v);
    }
    for (const std::string& name : inputs_) input_versions_.push_back(graph_->WantedVersion(name));
  }

  std::vector<std::string> Results(GradientOps& gradients) {
    std::vector<std::string> result;
    for (int32_t v : input_versions_) {
      result.push_back(gradients.GradientOf(v));
      writers_.push_back(result.back().empty() ? nullptr : gradients.WriterOf(v));
    }
    return result;
  }

  // Records the outer reads for ops that run this block, perhaps later:
  // see framework/op/inner_gradient.h.
  void NoteOuterReads(size_t first_gradient) {
    if (reads_.empty()) return;
    block_.op(first_gradient).SetAttr(kOuterReadsAttr, reads_);
    block_.op(first_gradient).SetAttr(kOuterInputsAttr, wanted_);
  }

  // A gradient of an outer variable is only a share here, since enclosing blocks contribute too.
  void MarkShares(GradientOps& gradients) {
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_versions_[i] >= 0 && !block_.FindVar(all_[i])) gradients.MarkShare(all_versions_[i]);
    }
  }

  std::vector<std::string> OuterResults(BackwardRun& run, GradientOps& gradients) {
    std::unordered_map<std::string, std::string> all;
    for (size_t i = 0; i < all_.size(); ++i) all[all_[i]] = gradients.GradientOf(all_versions_[i]);
    outer_->Append(run, block_, &all);
    std::vector<std::string> result;
    for (const std::string& name : inputs_) {
      const std::string& gradient = all[name];
      result.push_back(gradient);
      writers_.push_back(gradient.empty() ? nullptr : block_.Uses(gradient).writers.back());
      if (run.grad_to_var && !gradient.empty()) run.grad_to_var->insert_or_assign(gradient, name);
    }
    return result;
  }

  const char* who_;
  BlockDesc& block_;
  const BackwardOptions& options_;
  const OpRegistry& ops_;
  const std::vector<std::string>& wanted_;
  const std::vector<std::string>& inputs_;
  std::vector<Target> targets_;
  std::optional<std::vector<uint32_t>> positions_;
  std::optional<ForwardGraph> graph_;
  std::optional<internal::OuterPath> outer_;
  std::vector<std::string> reads_;  // in a sub-block: see OuterPath
  // The wanted variables, and those through which the path leaves the block.
  std::vector<std::string> all_;
  std::vector<int32_t> all_versions_;     // like input_versions_
  std::vector<int32_t> target_versions_;  // -1: depends on no wanted variable
  std::vector<int32_t> input_versions_;   // -1: no target depends on it
  std::vector<OpDesc*> writers_;
};

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

void CheckNames(const char* who, const BlockDesc& block, const BackwardOptions& options) {
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

// Makes a Differentiation, and makes it again if gradients of calls are on its path.
template <class F>
void Inlining(BlockDesc& block, const OpRegistry& ops, OpenTypes& open,
              std::optional<Differentiation>& backward, const F& make) {
  make();
  // In a sub-block, the error of call_grad explains what to do.
  if (block.parent() || !backward->NeedsInlining()) return;
  backward.reset();
  open.Commit();  // it refers to variables of sub-blocks, which are remade
  internal::ReplaceCalls(block.program(), ops);
  make();
}

// If backward fails on an invalid program, throws the verifier's error instead. (Verifying every
// program first would cost as much as differentiating it.)
template <class F>
void Blaming(const ProgramDesc& program, const OpRegistry& ops, const F& differentiate) {
  try {
    differentiate();
  } catch (const InternalError&) {
    internal::RequireProgram(program, ops);
    throw;
  }
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
  CheckNames(who, block, options);
  const std::vector<std::string> seeds = SeedsOf(who, block, {loss}, options.target_gradients);
  const bool all = options.parameter_list.empty();
  const std::vector<std::string> parameters =
      all ? block.program().Parameters() : options.parameter_list;
  const std::vector<std::string> wanted = all ? DefaultWanted(block, parameters) : parameters;
  std::vector<ParamAndGrad> pairs;
  Blaming(block.program(), ops, [&] {
    const EditGuard attempt(block.program());  // restores the program before it is verified
    std::optional<Differentiation> backward;
    Inlining(block, ops, open, backward, [&] {
      backward.emplace(who, block, options, wanted, parameters,
                       std::vector<Differentiation::Target>{{loss.name(), seeds[0]}}, open, false);
    });
    OpDesc* loss_op = backward->TargetWriter(0);
    const std::vector<std::string> grads = backward->Append(kBackward | kLoss, grad_to_var);
    if (loss_op) loss_op->SetAttr(kOpRoleAttr, int32_t{kForward | kLoss});
    for (size_t i = 0; i < parameters.size(); ++i) {
      pairs.push_back({parameters[i], grads[i]});
      if (OpDesc* writer = backward->WriterOf(i)) MarkParameter(*writer, pairs.back());
    }
  });
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
  CheckNames(who, block, options);
  const std::vector<std::string> seeds = SeedsOf(who, block, targets, options.target_gradients);
  const std::vector<std::string> wanted = InputNames(block, inputs);
  std::vector<Differentiation::Target> entries;
  for (size_t i = 0; i < targets.size(); ++i) entries.push_back({targets[i].name(), seeds[i]});
  std::vector<std::string> gradients;
  Blaming(block.program(), ops, [&] {
    const EditGuard attempt(block.program());  // restores the program before it is verified
    std::optional<Differentiation> backward;
    Inlining(block, ops, open, backward,
             [&] { backward.emplace(who, block, options, wanted, wanted, entries, open, true); });
    gradients = backward->Append(kBackward, grad_to_var);
  });
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

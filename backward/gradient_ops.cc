#include <coracle/backward/gradient_ops.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/op_context.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// Up to this number, requests are searched one by one.
constexpr size_t kFewRequests = 8;
// Converting a sparse gradient to a dense one with at least this many elements causes a warning.
constexpr int64_t kLargeDense = 100'000'000;

std::string SlotsText(const SlotList& slots) {
  std::vector<std::string> parts;
  for (const Slot& slot : slots) parts.push_back(slot.name + "=" + Join(slot.args, ","));
  return Join(parts, " ");
}

std::string OriginOf(const OpDesc& forward) {
  return fmt::format("in the gradient of {}, {}", forward.type(), Locate(forward));
}

}  // namespace

GradientOps::GradientOps(BackwardRun& run, ForwardGraph& graph, BlockDesc& target,
                         OuterValue outer_value)
    : run_(run),
      graph_(graph),
      target_(target),
      outer_value_(std::move(outer_value)),
      trace_(VlogIsOn(1)),
      gate_(run.options.gate_gradients),
      running_sum_(run.options.aggregation == Aggregation::kRunning),
      first_var_(target.NumVars()),
      gradient_index_(graph.NumVersions(), -1) {}

const std::string& GradientOps::GradientOf(int32_t version) const {
  static const std::string none;
  const auto v = static_cast<size_t>(version);
  const int32_t index = version < 0 || v >= gradient_index_.size() ? -1 : gradient_index_[v];
  if (index < 0) return none;
  const Gradient& gradient = gradients_[static_cast<size_t>(index)];
  return gradient.complete ? gradient.var->name() : none;
}

OpDesc* GradientOps::WriterOf(int32_t version) const {
  const int32_t index = version < 0 ? -1 : gradient_index_[static_cast<size_t>(version)];
  return index < 0 ? nullptr : gradients_[static_cast<size_t>(index)].writer;
}

// --- names ---

GradientOps::Gradient& GradientOps::GradientAt(int32_t version) {
  int32_t& index = gradient_index_[static_cast<size_t>(version)];
  if (index < 0) {
    index = static_cast<int32_t>(gradients_.size());
    Gradient& gradient = gradients_.emplace_back();
    gradient.var = DeclareGradient(version);
    gradient.total = graph_.version(version).pending;
  }
  return gradients_[static_cast<size_t>(index)];
}

VarDesc* GradientOps::DeclareGradient(int32_t version) {
  graph_.RequireFloating(run_.who, version);
  ForwardGraph::Var& var = graph_.VarOf(version);
  std::string name = run_.options.gradient_prefix + GradName(var.name);
  if (var.plain < 0) var.plain = version;
  if (var.plain == version) return Declare(std::move(name), graph_.MetaOf(version));
  ProgramDesc& program = block().program();
  for (int& k = run_.numbered[name];;) {
    std::string numbered = fmt::format("{}@{}", name, ++k);
    if (program.FreeName(numbered) == numbered)
      return Declare(std::move(numbered), graph_.MetaOf(version));
  }
}

const std::string& GradientOps::NameContribution(int32_t version) {
  Gradient& gradient = GradientAt(version);
  // A single contribution is written under the gradient's own name, which saves a sum.
  if (gradient.total == 1) return gradient.var->name();
  return Declare(fmt::format("{}@RENAME@block{}@{}", gradient.var->name(), block().idx(),
                             gradient.named++),
                 graph_.MetaOf(version))
      ->name();
}

// Declares a new variable with that name, or with a name made from it.
VarDesc* GradientOps::Declare(std::string name, const VarMeta& meta) {
  ProgramDesc& program = block().program();
  // In a program with one block, TryAddVar alone checks that the name is free, at less cost.
  if (program.NumBlocks() > 1) name = program.FreeName(name);
  VarDesc* var = block().TryAddVar(name);
  if (!var) var = block().TryAddVar(program.UniqueName(name));
  var->SetMeta(meta);
  return var;
}

// --- accumulation ---

// Counts a contribution ("" if a rule yielded none); the last one triggers the sum.
void GradientOps::Contribute(int32_t version, const std::string& name) {
  if (graph_.VarOf(version).scopes) return;  // no gradient is expected there
  Gradient& gradient = GradientAt(version);
  if (gradient.total > 1 && !name.empty()) gradient.parts.push_back(name);
  if (--graph_.version(version).pending > 0) {
    if (running_sum_ && gradient.parts.size() == 2) Accumulate(gradient, version);
    return;
  }
  if (gradient.complete) return;
  if (gradient.parts.empty())
    unused_.insert(gradient.var->name());
  else
    Sum(version);
}

// Replaces two contributions by their sum.
void GradientOps::Accumulate(Gradient& gradient, int32_t version) {
  const std::string total = NameContribution(version);
  std::vector<std::string> parts = std::move(gradient.parts);
  AppendSum(std::move(parts), total);
  RunCallbacks();
  GradientAt(version).parts = {total};
}

OpDesc& GradientOps::AppendSum(std::vector<std::string> parts, const std::string& total) {
  if (trace_) LogVerbose(2, fmt::format("{} = sum of {}", total, Join(parts, ", ")));
  // Only one part is left if the other contributions turned out to be empty.
  const char* type = parts.size() == 1 ? "assign" : "sum";
  return Append(
      std::make_unique<OpDesc>(type, SlotList{{"X", std::move(parts)}}, SlotList{{"Out", {total}}}),
      nullptr);
}

void GradientOps::Sum(int32_t version) {
  Gradient& gradient = GradientAt(version);
  std::vector<std::string> parts = std::move(gradient.parts);
  OpDesc& sum = AppendSum(std::move(parts), gradient.var->name());
  Complete(version, &sum);
  RunCallbacks();
}

void GradientOps::Complete(int32_t version, OpDesc* writer) {
  Gradient& gradient = GradientAt(version);
  gradient.complete = true;
  gradient.writer = writer;
  if (!run_.grad_to_var || (!shares_.empty() && shares_.count(version))) return;
  const std::string& name = gradient.var->name();
  run_.grad_to_var->insert_or_assign(name, std::string(graph_.VarOf(version).name));
  if (!run_.options.callbacks.empty()) version_of_name_.emplace(name, version);
}

void GradientOps::AppendSeed(int32_t version, const std::string& name, std::unique_ptr<OpDesc> op) {
  OpDesc& seed = Append(std::move(op), nullptr);
  any_sparse_ |= block().FindVar(name)->type() == VarType::kSelectedRows;
  if (GradientAt(version).total == 1) Complete(version, &seed);
  RunCallbacks();
  Contribute(version, name);
}

const std::string& GradientOps::SeedArriving(int32_t version) {
  const std::string& name = NameContribution(version);
  if (GradientAt(version).total == 1) Complete(version, nullptr);
  Contribute(version, name);
  arriving_.insert(name);
  return name;
}

void GradientOps::SeedOnes(int32_t version, int op_role) {
  const std::string& name = NameContribution(version);
  const VarMeta& meta = graph_.MetaOf(version);
  std::unique_ptr<OpDesc> op;
  if (meta.shape.IsKnown()) {
    op = std::make_unique<OpDesc>("fill_constant", SlotList{}, SlotList{{"Out", {name}}},
                                  AttrList{{"shape", meta.shape.ToVector()},
                                           {"value", 1.0f},
                                           {"dtype", static_cast<int32_t>(meta.dtype)},
                                           {"force_cpu", false}});
  } else {
    const std::string target(graph_.VarOf(version).name);
    op = std::make_unique<OpDesc>("fill_any_like", SlotList{{"X", {target}}},
                                  SlotList{{"Out", {name}}}, AttrList{{"value", 1.0f}});
  }
  op->SetAttr(kOpRoleAttr, int32_t{op_role});
  AppendSeed(version, name, std::move(op));
}

void GradientOps::SeedFrom(int32_t version, const std::string& gradient) {
  const std::string& name = NameContribution(version);
  AppendSeed(
      version, name,
      std::make_unique<OpDesc>("assign", SlotList{{"X", {gradient}}}, SlotList{{"Out", {name}}}));
}

const std::string& GradientOps::AppendZeros(const std::string& var) {
  const VarDesc& desc = *block().FindVarRecursive(var);
  const VarDesc& zeros = *Declare(run_.options.gradient_prefix + GradName(var), desc.meta());
  Append(std::make_unique<OpDesc>("fill_zeros_like", SlotList{{"X", {var}}},
                                  SlotList{{"Out", {zeros.name()}}}),
         nullptr);
  return zeros.name();
}

// --- gradient rules ---

// Grows the block's tables once if a large part of the block is differentiated. For a small part
// that would cost time proportional to the block, so the tables grow as needed.
void GradientOps::ReserveForPath() {
  size_t ops = 0, args = 0;
  for (size_t i = 0; i < graph_.NumNodes(); ++i) {
    if (!graph_.node(i).on_path) continue;
    ++ops;
    args += graph_.node(i).captured - graph_.node(i).inputs;
  }
  if (4 * ops > target_.NumOps())
    target_.Reserve(target_.NumVars() + args + ops, target_.NumOps() + ops + ops / 2);
}

void GradientOps::AppendBackwardOps() {
  ReserveForPath();
  for (size_t i = graph_.NumNodes(); i-- > 0;) {
    if (!graph_.node(i).on_path) continue;
    CheckTimeLimit("differentiating");
    AppendGradientsOf(graph_.node(i));
  }
}

bool GradientOps::AnyArrived(const ForwardGraph::Node& node) {
  for (uint32_t a = node.outputs; a < node.end; ++a) {
    const int32_t v = graph_.arg(a).version;
    if (GradientOf(v).empty() || graph_.VarOf(v).stopped) continue;
    if (a < node.written) return true;
    ThrowUnlisted(*node.op, "writes", graph_.VarOf(v).name);
  }
  return false;
}

void GradientOps::AppendGradientsOf(const ForwardGraph::Node& node) {
  if (!AnyArrived(node)) {
    for (uint32_t a = node.inputs; a < node.outputs; ++a) {
      if (graph_.arg(a).differentiable) Contribute(graph_.arg(a).version, "");
    }
    return;
  }
  const GradientFn& rule = RuleOf(node);
  if (!overridden_) graph_.RequireLists(node);
  GradientContext context(graph_.ops(), MakeRequest(node));
  try {
    overridden_ ? rule(context) : RunGradient(*node.def, context);
  } catch (const InternalError&) {
    throw;  // the caller finds out what is wrong with the program
  } catch (const Error& e) {
    if (!context.has_formulas()) throw;
    throw e.WithDetail(OriginOf(*node.op));
  }
  AppendRuleOps(node, context.ReleaseOps());
  for (uint32_t a = node.captured; a < node.kept; ++a) {
    if (graph_.arg(a).differentiable) Contribute(graph_.arg(a).version, "");
  }
}

// The caller's rule for ops of this type and name scope, else the rule of the OpDef.
const GradientFn& GradientOps::RuleOf(const ForwardGraph::Node& node) {
  overridden_ = false;
  for (const GradientOverride& over : run_.options.overrides) {
    if (over.op_type != node.op->type()) continue;
    const auto scope = node.op->GetAttr<std::string>(kOpNamescopeAttr, "");
    if (!over.name_scope.empty() && scope.find(over.name_scope) != 0) continue;
    overridden_ = true;
    return over.rule;
  }
  if (const auto name = node.op->GetAttr<std::string>("gradient_function", ""); !name.empty()) {
    auto function = run_.options.functions.find(name);
    if (function == run_.options.functions.end()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}: the gradient of {} is the function {}, which "
                              "BackwardOptions::functions does not have",
                              run_.who, node.op->type(), Quote(name)),
                  "  " + Locate(*node.op));
    }
    overridden_ = true;
    return function->second;
  }
  if (node.def && node.def->HasGradient()) return node.def->gradient;
  std::string_view arrived;
  for (uint32_t a = node.outputs; a < node.end && arrived.empty(); ++a) {
    const int32_t v = graph_.arg(a).version;
    if (!GradientOf(v).empty()) arrived = graph_.VarOf(v).name;
  }
  graph_.ThrowNoGradient(run_.who, node, arrived);
}

GradientContext::Request GradientOps::MakeRequest(const ForwardGraph::Node& node) {
  GradientContext::Request request;
  request.op = request.forward_op = node.op;
  request.block = &block();
  request.fresh_name = [this](const std::string& hint) {
    std::string name = block().program().FreeName(hint);
    block().Var(name);
    return name;
  };
  if (node.has_sub_block) {
    request.gradient_block = [this, &node](const GradientBlockRequest& r) {
      return BlockGradient(node, r);
    };
    request.forward_output = [this, &node](std::string_view slot, const VarMeta& meta) {
      return run_.saved.ForwardOutput(*node.op, slot, meta);
    };
  }
  bool renamed = false;
  request.output_grads.reserve(node.written - node.outputs);
  for (uint32_t a = node.outputs; a < node.written; ++a) {
    const int32_t v = graph_.arg(a).version;
    request.output_grads.push_back(v >= 0 && graph_.VarOf(v).stopped ? "" : GradientOf(v));
    renamed |= OtherName(v) != nullptr;
  }
  requests_.clear();
  request.input_grads.reserve(node.captured - node.inputs);
  uint32_t a = node.inputs;
  ForEachPosition(node.op->inputs(), [&](const std::string&, const std::string& slot) {
    renamed |= OtherName(graph_.arg(a).version) != nullptr;
    request.input_grads.push_back(Ask(graph_.arg(a++), slot));
  });
  a = node.kept;
  ForEachPosition(node.op->outputs(), [&](const std::string&, const std::string& slot) {
    if (a < node.outputs) request.kept_grads.push_back(Ask(graph_.arg(a++), slot));
  });
  if (renamed) request.op = RenameStale(node, &request);
  request_index_.clear();
  if (requests_.size() > kFewRequests) {
    for (size_t i = 0; i < requests_.size(); ++i) request_index_.emplace(*requests_[i].name, i);
  }
  return request;
}

std::string GradientOps::Ask(const ForwardGraph::Arg& arg, const std::string& slot) {
  if (!arg.differentiable || graph_.VarOf(arg.version).scopes) return "";
  requests_.push_back({&NameContribution(arg.version), arg.version, -1, &slot});
  return *requests_.back().name;
}

GradientOps::Request* GradientOps::FindRequest(const std::string& name) {
  if (requests_.size() > kFewRequests) {
    auto it = request_index_.find(name);
    return it == request_index_.end() ? nullptr : &requests_[it->second];
  }
  for (Request& request : requests_) {
    if (*request.name == name) return &request;
  }
  return nullptr;
}

// The name under which gradient ops read a version whose value is overwritten later in the program:
// the name of a saved copy. nullptr if they can read the variable itself.
const std::string* GradientOps::OtherName(int32_t version) {
  if (version < 0) return nullptr;
  if (graph_.IsStale(version)) return &SavedName(version);
  if (!outer_value_ || graph_.version(version).writer >= 0) return nullptr;
  const std::string_view name = graph_.VarOf(version).name;
  if (graph_.block().FindVar(name)) return nullptr;
  std::string& other = other_name_[version];
  if (other.empty()) other = outer_value_(name);
  return other == name ? nullptr : &other;
}

const std::string& GradientOps::SavedName(int32_t version) {
  std::string& name = other_name_[version];
  if (name.empty()) {
    const ForwardGraph::Version& v = graph_.version(version);
    name =
        run_.saved
            .Add(graph_.block(), graph_.VarOf(version).name, v.overwriter, graph_.MetaOf(version))
            .name;
  }
  return name;
}

// A copy of the op with the names under which gradient ops read its variables.
OpDesc* GradientOps::RenameStale(const ForwardGraph::Node& node,
                                 GradientContext::Request* request) {
  renamed_ = std::make_unique<OpDesc>(*node.op);
  auto rename = [&](const SlotList& slots, uint32_t a, bool outputs) {
    ForEachPosition(slots, [&](const std::string& name) {
      const int32_t v = graph_.arg(a++).version;
      const std::string* other = OtherName(v);
      if (!other) return;
      request->saved.emplace_back(*other, graph_.MetaOf(v));
      outputs ? renamed_->RenameOutput(name, *other) : renamed_->RenameInput(name, *other);
    });
  };
  rename(node.op->inputs(), node.inputs, false);
  rename(node.op->outputs(), node.outputs, true);
  return renamed_.get();
}

void GradientOps::AppendRuleOps(const ForwardGraph::Node& node,
                                std::vector<std::unique_ptr<OpDesc>> ops) {
  run_.saved.NoteUses(ops);
  auto for_each_yield = [&](const OpDesc& op, auto visit) {
    op.ForEachOutput([&](const std::string& name) {
      if (Request* request = FindRequest(name)) visit(*request);
    });
  };
  for (size_t k = 0; k < ops.size(); ++k)
    for_each_yield(*ops[k], [&](Request& r) { r.last_writer = static_cast<int>(k); });
  for (size_t k = 0; k < ops.size(); ++k) {
    CheckCount(*node.op, *ops[k]);
    OpDesc& op = Append(std::move(ops[k]), &node);
    auto for_each_last = [&](auto visit) {
      for_each_yield(op, [&](Request& r) {
        if (r.last_writer == static_cast<int>(k)) visit(r);
      });
    };
    for_each_last([&](Request& r) {
      CheckContract(r, *node.op, op);
      if (GradientAt(r.version).total == 1) Complete(r.version, &op);
    });
    RunCallbacks();
    if (!gate_) for_each_last([&](Request& r) { Fulfil(r); });
  }
  for (Request& request : requests_) {
    if (gate_ || request.last_writer < 0) Fulfil(request);
  }
}

// The dense copy of a sparse gradient, for ops that take only dense tensors. Made once
// per gradient.
const std::string& GradientOps::DenseOf(const std::string& name, const VarMeta& sparse) {
  auto [it, added] = dense_of_.try_emplace(name);
  if (!added) return it->second;
  VarMeta meta = sparse;
  meta.type = VarType::kLoDTensor;
  it->second = Declare(name + "@DENSE", meta)->name();
  if (!meta.shape.IsKnown() || meta.shape.numel() >= kLargeDense) {
    LogMessage(MessageLevel::kWarning,
               fmt::format(
                   "backward: the sparse gradient {} {} is turned into a dense tensor{}, which may "
                   "take much memory",
                   Quote(name), sparse.ToString(),
                   meta.shape.IsKnown() ? "" : " of a shape that is not known yet"));
  }
  OpDesc& dense = block().AppendOp("get_tensor_from_selected_rows", {{"X", {name}}},
                                   {{"Out", {it->second}}}, {{kOpRoleAttr, int32_t{kBackward}}});
  InferOp(block(), dense, graph_.ops());
  return it->second;
}

std::string GradientOps::DenseGradientOf(int32_t version) {
  const std::string gradient = GradientOf(version);
  const VarDesc* var = block().FindVar(gradient);
  return var && var->type() == VarType::kSelectedRows ? DenseOf(gradient, var->meta()) : gradient;
}

// Replaces each sparse gradient by its dense copy if a slot of the op does not accept
// selected rows.
void GradientOps::MakeInputsDense(OpDesc& op) {
  const OpSpec* def = any_sparse_ ? graph_.ops().Find(op.type()) : nullptr;
  if (!def) return;
  op.RenameInputs([&](const std::string& name, const std::string& slot) {
    const VarDesc* var = block().FindVarRecursive(name);
    const bool sparse = var && var->type() == VarType::kSelectedRows;
    return sparse && !def->SlotTakes(slot, VarType::kSelectedRows) ? DenseOf(name, var->meta())
                                                                   : name;
  });
}

void GradientOps::Fulfil(Request& request) {
  const bool yielded = request.last_writer >= 0;
  if (!yielded) unused_.insert(*request.name);
  Contribute(request.version, yielded ? *request.name : "");
}

OpDesc& GradientOps::Append(std::unique_ptr<OpDesc> op, const ForwardGraph::Node* forward) {
  MakeInputsDense(*op);
  if (!op->HasAttr(kOpRoleAttr)) op->SetAttr(kOpRoleAttr, int32_t{kBackward});
  if (forward) op->SetAttr(kForwardOpAttr, ForwardLink(*forward));
  OpDesc& added = block().AppendOp(std::move(op));
  if (trace_) {
    LogVerbose(1, fmt::format("gradient op {}: {} -> {}", added.type(), SlotsText(added.inputs()),
                              SlotsText(added.outputs())));
  }
  try {
    InferOp(block(), added, graph_.ops());
  } catch (const Error& e) {
    if (!forward) throw;
    throw e.WithDetail(OriginOf(*forward->op));
  }
  return added;
}

// "tanh(h)" is the op that writes h first; "tanh(h#2)" is the third op that writes h.
std::string GradientOps::ForwardLink(const ForwardGraph::Node& node) {
  std::string link = node.op->type();
  for (uint32_t a = node.outputs; a < node.end; ++a) {
    const int32_t v = graph_.arg(a).version;
    if (v < 0) continue;
    link += '(';
    link += graph_.VarOf(v).name;
    if (graph_.version(v).ordinal > 0) link += '#' + std::to_string(graph_.version(v).ordinal);
    link += ')';
    break;
  }
  return link;
}

void GradientOps::RunCallbacks() {
  if (run_.options.callbacks.empty()) return;
  const size_t before = block().NumOps();
  for (const BackwardCallback& callback : run_.options.callbacks)
    callback(block(), *run_.grad_to_var);
  for (size_t i = before; i < block().NumOps(); ++i) {
    OpDesc& op = block().op(i);
    op.ForEachOutput([&](const std::string& name) {
      auto it = version_of_name_.find(name);
      if (it != version_of_name_.end()) GradientAt(it->second).writer = &op;
    });
  }
}

void GradientOps::RemoveUnused() {
  if (unused_.empty()) return;
  block().RemoveVarsIf([&](const VarDesc& var) { return unused_.count(var.name()) > 0; },
                       first_var_);
  unused_.clear();
}

}  // namespace coracle::inline internal

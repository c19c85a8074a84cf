#include <coracle/backward/gradient_ops.h>
#include <coracle/framework/base/logging.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/infer_context.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::internal {
namespace {

// Up to so many are searched one by one.
constexpr size_t kFewRequests = 8;
// Elements of a dense gradient from which on making one of a sparse one is worth a warning.
constexpr int64_t kLargeDense = 100'000'000;

std::string SlotsText(const SlotList& slots) {
  std::vector<std::string> parts;
  for (const Slot& slot : slots) parts.push_back(slot.name + "=" + Join(slot.args, ","));
  return Join(parts, " ");
}

// Compares what a shape rule makes of the declared types with the declared outputs.
class DeclaredTypes : public MetaTable {
 public:
  explicit DeclaredTypes(const BlockDesc& block) : block_(block) {}
  const VarMeta* Find(const std::string& name) const override {
    const VarDesc* var = block_.FindVarRecursive(name);
    return var ? &var->meta() : nullptr;
  }
  void Set(const std::string& name, const VarMeta& meta) override {
    const VarMeta* declared = Find(name);
    if (!declared ||
        (declared->dtype == meta.dtype && declared->shape.CompatibleWith(meta.shape))) {
      return;
    }
    ThrowInvalid(fmt::format("{} is declared {}, and what is written to it is {}", Quote(name),
                             declared->ToString(), meta.ToString()));
  }

 private:
  const BlockDesc& block_;
};

// The types that a file declares may contradict its ops, and the operands of its gradient ops each
// other: then that is what is wrong, not the gradient rule.
void RefuseContradiction(const BlockDesc& block, const OpDesc& op, const OpRegistry& ops) {
  DeclaredTypes types(block);
  const OpDef& def = ops.Get(op.type());
  try {
    InferContext context(def, op, types);
    def.RunInfer(context);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    throw error.WithPrefix("no gradient of " + op.type());
  }
  if (op.type().ends_with("_grad")) {
    ThrowInvalid(fmt::format("no gradient of {}: the types of its operands do not belong together",
                             op.type()));
  }
}

}  // namespace

GradientOps::GradientOps(ForwardGraph& graph, const std::vector<BackwardCallback>& callbacks,
                         GradToVar* grad_to_var)
    : graph_(graph),
      callbacks_(callbacks),
      grad_to_var_(grad_to_var),
      trace_(VlogIsOn(1)),
      gradient_index_(graph.NumVersions(), -1) {}

const std::string& GradientOps::GradientOf(int32_t version) const {
  static const std::string none;
  const int32_t index = version < 0 ? -1 : gradient_index_[static_cast<size_t>(version)];
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
  ForwardGraph::Var& var = graph_.VarOf(version);
  std::string name = GradName(var.name);
  if (var.plain < 0) var.plain = version;
  if (var.plain == version) return Declare(std::move(name), graph_.MetaOf(version));
  ProgramDesc& program = block().program();
  for (int k = 1;; ++k) {
    std::string numbered = fmt::format("{}@{}", name, k);
    if (program.FreeName(numbered) == numbered)
      return Declare(std::move(numbered), graph_.MetaOf(version));
  }
}

const std::string& GradientOps::NameContribution(int32_t version) {
  Gradient& gradient = GradientAt(version);
  if (gradient.total == 1) return gradient.var->name();
  return Declare(fmt::format("{}@RENAME@block{}@{}", gradient.var->name(), block().idx(),
                             gradient.named++),
                 graph_.MetaOf(version))
      ->name();
}

// A new variable of that name, or of one made from it.
VarDesc* GradientOps::Declare(std::string name, const VarMeta& meta) {
  ProgramDesc& program = block().program();
  if (program.NumBlocks() > 1) name = program.FreeName(name);
  VarDesc* var = block().TryAddVar(name);
  if (!var) var = block().TryAddVar(program.UniqueName(name));
  var->SetMeta(meta);
  return var;
}

// --- accumulation ---

// Counts a contribution ("" where a rule yielded none); the last one sums them up.
void GradientOps::Contribute(int32_t version, const std::string& name) {
  Gradient& gradient = GradientAt(version);
  if (gradient.total > 1 && !name.empty()) gradient.parts.push_back(name);
  if (--graph_.version(version).pending > 0 || gradient.complete) return;
  if (gradient.parts.empty())
    unused_.insert(gradient.var->name());
  else
    Sum(version);
}

void GradientOps::Sum(int32_t version) {
  Gradient& gradient = GradientAt(version);
  std::vector<std::string> parts = std::move(gradient.parts);
  if (trace_) Vlog(2, fmt::format("{} = sum of {}", gradient.var->name(), Join(parts, ", ")));
  OpDesc& sum = Append(std::make_unique<OpDesc>("sum", SlotList{{"X", std::move(parts)}},
                                                SlotList{{"Out", {gradient.var->name()}}}),
                       nullptr);
  Complete(version, sum);
  RunCallbacks();
}

void GradientOps::Complete(int32_t version, OpDesc& writer) {
  Gradient& gradient = GradientAt(version);
  gradient.complete = true;
  gradient.writer = &writer;
  if (!grad_to_var_) return;
  const std::string& name = gradient.var->name();
  grad_to_var_->insert_or_assign(name, std::string(graph_.VarOf(version).name));
  if (!callbacks_.empty()) version_of_name_.emplace(name, version);
}

void GradientOps::AppendSeed(int32_t version, const std::string& name, std::unique_ptr<OpDesc> op) {
  OpDesc& seed = Append(std::move(op), nullptr);
  if (GradientAt(version).total == 1) Complete(version, seed);
  RunCallbacks();
  Contribute(version, name);
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

// --- gradient rules ---

void GradientOps::AppendBackwardOps() {
  for (size_t i = graph_.NumNodes(); i-- > 0;) {
    if (graph_.node(i).on_path) AppendGradientsOf(graph_.node(i));
  }
}

void GradientOps::AppendGradientsOf(const ForwardGraph::Node& node) {
  GradientContext context(graph_.ops(), MakeRequest(node));
  node.def->RunGradient(context);
  AppendRuleOps(node, context.TakeOps());
  for (size_t i = 0; i < requests_.size(); ++i) {
    const bool yielded = requests_[i].last_writer >= 0;
    if (!yielded) unused_.insert(*requests_[i].name);
    Contribute(requests_[i].version, yielded ? *requests_[i].name : "");
  }
}

GradientContext::Request GradientOps::MakeRequest(const ForwardGraph::Node& node) {
  GradientContext::Request request;
  request.op = node.op;
  request.block = &block();
  request.fresh_name = [this](const std::string& hint) {
    std::string name = block().program().FreeName(hint);
    block().Var(name);
    return name;
  };
  bool stale = false;
  request.output_grads.reserve(node.end - node.outputs);
  for (uint32_t a = node.outputs; a < node.end; ++a) {
    const int32_t v = graph_.arg(a).version;
    request.output_grads.push_back(GradientOf(v));
    stale |= v >= 0 && graph_.IsStale(v);
  }
  requests_.clear();
  request.input_grads.reserve(node.outputs - node.inputs);
  uint32_t a = node.inputs;
  for (const Slot& slot : node.op->inputs()) {
    for (size_t k = 0; k < slot.args.size(); ++k, ++a) {
      const ForwardGraph::Arg& arg = graph_.arg(a);
      stale |= arg.version >= 0 && graph_.IsStale(arg.version);
      if (!arg.differentiable) {
        request.input_grads.emplace_back();
        continue;
      }
      requests_.push_back({&NameContribution(arg.version), arg.version, -1, &slot.name});
      request.input_grads.push_back(*requests_.back().name);
    }
  }
  if (stale) request.op = RenameStale(node, &request);
  request_index_.clear();
  if (requests_.size() > kFewRequests) {
    for (size_t i = 0; i < requests_.size(); ++i) request_index_.emplace(*requests_[i].name, i);
  }
  return request;
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

// A copy of the op that names, instead of each variable that was overwritten since, its saved copy.
OpDesc* GradientOps::RenameStale(const ForwardGraph::Node& node,
                                 GradientContext::Request* request) {
  renamed_ = std::make_unique<OpDesc>(*node.op);
  auto rename = [&](const SlotList& slots, uint32_t a, bool outputs) {
    for (const Slot& slot : slots) {
      for (const std::string& arg : slot.args) {
        const int32_t v = graph_.arg(a++).version;
        if (v < 0 || !graph_.IsStale(v)) continue;
        const std::string& saved = SavedName(v);
        request->saved.emplace_back(saved, graph_.MetaOf(v));
        outputs ? renamed_->RenameOutput(arg, saved) : renamed_->RenameInput(arg, saved);
      }
    }
  };
  rename(node.op->inputs(), node.inputs, false);
  rename(node.op->outputs(), node.outputs, true);
  return renamed_.get();
}

const std::string& GradientOps::SavedName(int32_t version) {
  auto [it, added] = saved_of_version_.try_emplace(version, saved_.size());
  if (added) {
    ProgramDesc& program = block().program();
    const std::string stem = std::string(graph_.VarOf(version).name) + "@SAVED";
    std::string name = program.FreeName(stem);
    while (saved_of_name_.count(name)) name = program.UniqueName(stem);
    saved_of_name_.emplace(name, saved_.size());
    saved_.push_back({version, std::move(name), false});
  }
  return saved_[it->second].name;
}

void GradientOps::NoteUses(const std::vector<std::unique_ptr<OpDesc>>& ops) {
  for (const auto& op : ops) {
    for (const Slot& slot : op->inputs()) {
      for (const std::string& arg : slot.args) {
        auto it = saved_of_name_.find(arg);
        if (it == saved_of_name_.end() || saved_[it->second].used) continue;
        saved_[it->second].used = true;
        block().Var(arg).SetMeta(graph_.MetaOf(saved_[it->second].version));
      }
    }
  }
}

void GradientOps::AppendRuleOps(const ForwardGraph::Node& node,
                                std::vector<std::unique_ptr<OpDesc>> ops) {
  if (!saved_.empty()) NoteUses(ops);
  auto for_each_yield = [&](const OpDesc& op, auto visit) {
    for (const Slot& slot : op.outputs()) {
      for (const std::string& arg : slot.args) {
        if (Request* request = FindRequest(arg)) visit(*request);
      }
    }
  };
  for (size_t k = 0; k < ops.size(); ++k)
    for_each_yield(*ops[k], [&](Request& r) { r.last_writer = static_cast<int>(k); });
  for (size_t k = 0; k < ops.size(); ++k) {
    OpDesc& op = Append(std::move(ops[k]), node.op);
    for_each_yield(op, [&](Request& r) {
      if (r.last_writer != static_cast<int>(k)) return;
      CheckContract(r, *node.op, op);
      if (GradientAt(r.version).total == 1) Complete(r.version, op);
    });
    RunCallbacks();
  }
}

// The dense tensor of a sparse gradient, for the ops that know no other.
const std::string& GradientOps::DenseOf(const std::string& name, const VarMeta& sparse) {
  auto [it, added] = dense_of_.try_emplace(name);
  if (!added) return it->second;
  VarMeta meta = sparse;
  meta.type = VarType::kLoDTensor;
  it->second = Declare(name + "@DENSE", meta)->name();
  if (!meta.shape.IsKnown() || meta.shape.numel() >= kLargeDense) {
    Log(LogLevel::kWarning,
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

// Puts the dense tensor in the place of each sparse gradient that a slot of the op does not take.
void GradientOps::MakeInputsDense(OpDesc& op) {
  const OpDef* def = any_sparse_ ? graph_.ops().Find(op.type()) : nullptr;
  for (size_t s = 0; def && s < op.inputs().size(); ++s) {
    const Slot slot = op.inputs()[s];
    if (def->SlotTakes(slot.name, VarType::kSelectedRows)) continue;
    for (const std::string& arg : slot.args) {
      const VarDesc* var = block().FindVarRecursive(arg);
      if (!var || var->type() != VarType::kSelectedRows) continue;
      const std::string dense = DenseOf(arg, var->meta());
      std::vector<std::string> args = op.inputs()[s].args;
      std::replace(args.begin(), args.end(), arg, dense);
      op.SetInput(slot.name, std::move(args));
    }
  }
}

OpDesc& GradientOps::Append(std::unique_ptr<OpDesc> op, const OpDesc* forward) {
  MakeInputsDense(*op);
  if (!op->HasAttr(kOpRoleAttr)) op->SetAttr(kOpRoleAttr, int32_t{kBackward});
  OpDesc& added = block().AppendOp(std::move(op));
  if (trace_) {
    Vlog(1, fmt::format("gradient op {}: {} -> {}", added.type(), SlotsText(added.inputs()),
                        SlotsText(added.outputs())));
  }
  try {
    InferOp(block(), added, graph_.ops());
  } catch (const Error& e) {
    if (!forward) throw;
    throw e.WithDetail(fmt::format("in the gradient of {}, {}", forward->type(), Locate(*forward)));
  }
  return added;
}

void GradientOps::RunCallbacks() {
  const size_t before = block().NumOps();
  for (const BackwardCallback& callback : callbacks_) callback(block(), *grad_to_var_);
  for (size_t i = before; i < block().NumOps(); ++i) {
    OpDesc& op = block().op(i);
    for (const Slot& slot : op.outputs()) {
      for (const std::string& arg : slot.args) {
        auto it = version_of_name_.find(arg);
        if (it != version_of_name_.end()) GradientAt(it->second).writer = &op;
      }
    }
  }
}

// A gradient has the shape and dtype of its variable; dims that the rule left open are taken from
// there.
void GradientOps::CheckContract(const Request& request, const OpDesc& forward, const OpDesc& op) {
  VarDesc& gradient = *block().FindVar(*request.name);
  const VarMeta& wanted = graph_.MetaOf(request.version);
  const VarMeta& got = gradient.meta();
  if (got.dtype != wanted.dtype || !got.shape.CompatibleWith(wanted.shape)) {
    RefuseContradiction(block(), forward, graph_.ops());
    throw InternalError(fmt::format(
        "gradient rule of {}: {} yields {} for the gradient of input {} {}, which is {}",
        forward.type(), op.type(), got.ToString(), *request.slot,
        Quote(graph_.VarOf(request.version).name), wanted.ToString()));
  }
  any_sparse_ |= got.type == VarType::kSelectedRows;
  if (got.type == VarType::kLoDTensor && !got.shape.IsKnown()) gradient.SetMeta(wanted);
}

// --- values that were overwritten ---

void GradientOps::Finish() {
  // By the op that overwrites them.
  std::unordered_map<int32_t, std::vector<const Saved*>> before;
  for (const Saved& saved : saved_) {
    if (saved.used) before[graph_.version(saved.version).overwriter].push_back(&saved);
  }
  if (!before.empty()) {
    std::vector<std::unique_ptr<OpDesc>> old = block().TakeOps(), ops;
    ops.reserve(old.size() + saved_.size());
    for (size_t i = 0; i < old.size(); ++i) {
      auto it = before.find(static_cast<int32_t>(i));
      if (it != before.end()) {
        for (const Saved* saved : it->second) {
          ops.push_back(std::make_unique<OpDesc>(
              "assign", SlotList{{"X", {std::string(graph_.VarOf(saved->version).name)}}},
              SlotList{{"Out", {saved->name}}}, AttrList{{kOpRoleAttr, int32_t{kForward}}}));
        }
      }
      ops.push_back(std::move(old[i]));
    }
    block().SetOps(std::move(ops));
  }
  if (!unused_.empty()) {
    block().RemoveVarsIf([&](const VarDesc& var) { return unused_.count(var.name()) > 0; });
  }
}

}  // namespace coracle::internal

#include <coracle/backward/forward_graph.h>
#include <coracle/backward/open_types.h>
#include <coracle/backward/verify_program.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// The outer variables that the sub-blocks of `op` read or write.
std::vector<std::string_view> OuterNames(const BlockDesc& block, const OpDesc& op, bool reads) {
  std::vector<std::string_view> names;
  for (const BlockDesc* inner : block.program().BlocksRunBy(op)) {
    auto add = [&](const std::string& name) {
      if (!inner->FindVar(name) && block.FindVarRecursive(name)) names.push_back(name);
    };
    inner->ForEachOp(
        [&](const OpDesc& run) { reads ? run.ForEachInput(add) : run.ForEachOutput(add); });
  }
  return names;
}

bool CarriesGradient(const VarDesc& var) {
  return !var.stop_gradient() && IsFloatingOrOpen(var.meta());
}

bool IsDifferentiable(const OpSpec* def, const std::string& slot) {
  const SlotDef* slot_def = def ? def->FindInput(slot) : nullptr;
  return !slot_def || !slot_def->no_gradient;
}

int32_t PositionOf(const OpDesc& op) { return static_cast<int32_t>(op.block()->IndexOf(op)); }

// The number of these ops, given in order, that come before a position.
int32_t CountBefore(std::span<const OpDesc* const> ops, int32_t position) {
  auto it = std::partition_point(ops.begin(), ops.end(),
                                 [&](const OpDesc* op) { return PositionOf(*op) < position; });
  return static_cast<int32_t>(it - ops.begin());
}

std::unordered_set<std::string_view> NamesIn(const SlotList& slots) {
  std::unordered_set<std::string_view> names;
  for (const Slot& slot : slots) names.insert(slot.args.begin(), slot.args.end());
  return names;
}

}  // namespace

bool UsesUnlistedNames(const OpDesc& op) {
  for (bool reads : {true, false}) {
    const auto listed = NamesIn(reads ? op.inputs() : op.outputs());
    for (std::string_view name : OuterNames(*op.block(), op, reads)) {
      if (!listed.count(name)) return true;
    }
  }
  return false;
}

ForwardGraph::ForwardGraph(BlockDesc& block, const OpRegistry& ops, const Request& request)
    : block_(block),
      ops_(ops),
      start_(request.start),
      part_(request.positions != nullptr),
      wanted_(request.wanted.begin(), request.wanted.end()),
      no_grad_(request.no_grad_set.begin(), request.no_grad_set.end()),
      stop_(request.stop_gradients.begin(), request.stop_gradients.end()) {
  const size_t n = part_ ? request.positions->size() : std::min(request.end, block.NumOps());
  local_.assign(block.NumVars(), -1);
  vars_.reserve(2 * n);
  versions_.reserve(2 * n);
  args_.reserve(4 * n);
  nodes_.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    const size_t at = part_ ? (*request.positions)[i] : i;
    RequireOp(block.op(at), ops);
    AddNode(block.op(at), static_cast<int32_t>(at));
    if (undeclared_) RequireDeclared(block.op(at));
  }
}

int32_t ForwardGraph::Intern(std::string_view name) {
  VarDesc* desc = block_.FindVar(name);
  int32_t& id = desc ? local_[desc->index()] : outer_.try_emplace(name, -1).first->second;
  if (id >= 0) return id;
  id = static_cast<int32_t>(vars_.size());
  if (!desc) desc = block_.FindVarRecursive(name);
  undeclared_ |= !desc;
  Var& var = vars_.emplace_back();
  var.name = name;
  var.desc = desc;
  var.wanted = wanted_.count(name) > 0;
  // The saved runs of a block have no gradient themselves, but values computed from them may depend
  // on anything.
  var.scopes = desc && desc->type() == VarType::kStepScopes;
  var.blocked = !desc || (!var.scopes && !CarriesGradient(*desc)) ||
                (!no_grad_.empty() && no_grad_.count(name) > 0);
  var.stopped = !stop_.empty() && stop_.count(name) > 0;
  if (!part_) return id;
  const auto [writers, readers] = block_.Uses(name);
  var.held_before =
      !readers.empty() && (writers.empty() || PositionOf(*readers[0]) <= PositionOf(*writers[0]));
  var.versions = static_cast<int32_t>(writers.size()) + var.held_before;
  any_overwritten_ |= var.versions > 1;
  return id;
}

int32_t ForwardGraph::AddVersion(int32_t id, int32_t writer, int32_t ordinal) {
  Var& v = var(id);
  const int32_t previous = v.last;
  v.last = static_cast<int32_t>(versions_.size());
  Version version;
  version.var = id;
  version.writer = writer;
  version.previous = previous;
  version.ordinal = ordinal;
  versions_.push_back(version);
  return v.last;
}

// For graphs that cover only a part of the block: returns the version made by the writer with this
// ordinal. Must be called with ascending ordinals.
int32_t ForwardGraph::VersionOfWrite(int32_t id, int32_t ordinal) {
  Var& v = var(id);
  if (v.last >= 0 && version(v.last).ordinal == ordinal) return v.last;
  const auto writers = block_.Uses(v.name).writers;
  const OpDesc* writer = ordinal < 0 ? nullptr : writers[static_cast<size_t>(ordinal)];
  const int32_t made = AddVersion(id, writer ? PositionOf(*writer) : -1, ordinal);
  const size_t next = static_cast<size_t>(ordinal) + 1;  // 0 after none
  if (next < writers.size()) version(made).overwriter = PositionOf(*writers[next]);
  version(made).updated = writer && IsUpdate(*writer);
  const bool starts =
      !writer || (start_ == Start::kProgram && (version(made).updated || !v.held_before));
  version(made).reached = v.wanted && starts && !v.blocked;
  return made;
}

int32_t ForwardGraph::Read(std::string_view name, int32_t position) {
  const int32_t id = Intern(name);
  Var& v = var(id);
  if (part_) return VersionOfWrite(id, CountBefore(block_.Uses(name).writers, position) - 1);
  if (v.last < 0) {
    AddVersion(id, -1, -1);
    v.versions = 1;
    v.held_before = true;
    version(v.last).reached = v.wanted && !v.blocked;
  }
  return v.last;
}

int32_t ForwardGraph::Write(std::string_view name, const Node& node) {
  const int32_t id = Intern(name);
  Var& v = var(id);
  if (part_) return VersionOfWrite(id, CountBefore(block_.Uses(name).writers, node.position));
  if (v.last >= 0) {
    version(v.last).overwriter = node.position;
    any_overwritten_ = true;
  }
  ++v.versions;
  const int32_t ordinal = v.last < 0 ? 0 : version(v.last).ordinal + 1;
  AddVersion(id, node.position, ordinal);
  version(v.last).updated = node.updates;
  return v.last;
}

// Whether the variable has a value at this point; a variable of this block has none before its
// first write.
bool ForwardGraph::HasValue(std::string_view name, int32_t position) {
  const Var& v = var(Intern(name));
  if (!block_.FindVar(name)) return true;
  return part_ ? v.held_before || CountBefore(block_.Uses(name).writers, position) > 0
               : v.last >= 0;
}

void ForwardGraph::AddNode(OpDesc& op, int32_t position) {
  Node node;
  node.position = position;
  node.op = &op;
  node.def = ops_.Find(op.type());
  node.has_sub_block = op.HasSubBlock();
  node.updates = IsUpdate(op);
  bool reached = false;
  auto here = [this] { return static_cast<uint32_t>(args_.size()); };
  node.inputs = here();
  AddInputs(node, &reached);
  node.kept = here();
  if (node.def && !node.def->keeps_outputs.empty()) AddKept(node, &reached);
  node.outputs = here();
  nodes_.push_back(node);
  AddOutputs(nodes_.back(), reached && PassesGradient(nodes_.back()));
  nodes_.back().end = here();
}

bool ForwardGraph::PassesGradient(const Node& node) {
  if (node.updates) return false;
  return !node.def ||
         (!node.def->shape_only && node.def->gradient_kind != GradientKind::kNotDifferentiable);
}

void ForwardGraph::AddInputs(Node& node, bool* reached) {
  auto add = [&](std::string_view name, bool differentiable) {
    if (IsEmptyName(name)) {
      args_.push_back({});
      return;
    }
    const int32_t v = Read(name, node.position);
    differentiable = differentiable && version(v).reached;
    *reached |= differentiable;
    args_.push_back({v, differentiable});
  };
  ForEachPosition(node.op->inputs(), [&](const std::string& name, const std::string& slot) {
    add(name, IsDifferentiable(node.def, slot));
  });
  node.captured = static_cast<uint32_t>(args_.size());
  if (!node.has_sub_block) return;
  std::unordered_set<std::string_view> listed = NamesIn(node.op->inputs());
  for (std::string_view name : OuterNames(block_, *node.op, true)) {
    if (listed.insert(name).second) add(name, true);
  }
}

void ForwardGraph::AddKept(const Node& node, bool* reached) {
  const std::unordered_set<std::string_view> listed = NamesIn(node.op->inputs());
  const std::vector<std::string>& kept = node.def->keeps_outputs;
  ForEachPosition(node.op->outputs(), [&](const std::string& name, const std::string& slot) {
    const bool keeps = std::find(kept.begin(), kept.end(), slot) != kept.end();
    Arg arg;
    if (keeps && !IsEmptyName(name) && !listed.count(name) && HasValue(name, node.position)) {
      arg.version = Read(name, node.position);
      arg.differentiable = version(arg.version).reached;
      *reached |= arg.differentiable;
    }
    args_.push_back(arg);
  });
}

void ForwardGraph::AddOutputs(Node& node, bool reached) {
  ForEachPosition(node.op->outputs(),
                  [&](const std::string& name) { AddOutput(node, name, reached); });
  node.written = static_cast<uint32_t>(args_.size());
  if (!node.has_sub_block) return;
  std::unordered_set<std::string_view> listed = NamesIn(node.op->outputs());
  for (std::string_view name : OuterNames(block_, *node.op, false)) {
    if (listed.insert(name).second) AddOutput(node, name, reached);
  }
}

void ForwardGraph::AddOutput(const Node& node, std::string_view name, bool reached) {
  if (IsEmptyName(name)) {
    args_.push_back({});
    return;
  }
  const int32_t v = Write(name, node);
  const Var& var = VarOf(v);
  // The path of a wanted variable starts at the value that an optimizer writes, or, if the variable
  // had no value before the run, at any value that the program writes.
  const bool starts = start_ == Start::kProgram && var.wanted && (node.updates || !var.held_before);
  const bool blocked = var.blocked && !(reached && MakesFloat(node, name));
  version(v).reached = !blocked && ((reached && !var.stopped) || starts);
  args_.push_back({v, true});
}

int32_t ForwardGraph::Last(const std::string& name) {
  const VarDesc* desc = block_.FindVarRecursive(name);
  return desc ? Read(desc->name(), kEnd) : -1;
}

int32_t ForwardGraph::ReadBy(const Node& node, std::string_view name) {
  for (uint32_t a = node.inputs; a < node.outputs; ++a) {
    if (args_[a].version >= 0 && VarOf(args_[a].version).name == name) return args_[a].version;
  }
  return -1;
}

void ForwardGraph::MarkPath(const std::vector<int32_t>& targets) {
  if (marked_) {
    for (Version& v : versions_) v.pending = 0;
    for (Node& node : nodes_) node.on_path = false;
  }
  marked_ = true;
  for (int32_t target : targets) {
    if (version(target).reached) ++version(target).pending;
  }
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& node = nodes_[i];
    bool used = false, reached = false;
    for (uint32_t a = node.outputs; a < node.end; ++a) {
      const int32_t v = args_[a].version;
      used |= v >= 0 && version(v).pending > 0 && !VarOf(v).stopped && Carries(v);
    }
    if (!used || !PassesGradient(node)) continue;
    for (uint32_t a = node.inputs; a < node.outputs; ++a) {
      args_[a].differentiable = args_[a].differentiable && Carries(args_[a].version);
      reached |= args_[a].differentiable;
    }
    if (!reached) continue;
    node.on_path = true;
    for (uint32_t a = node.inputs; a < node.outputs; ++a) {
      if (args_[a].differentiable) ++version(args_[a].version).pending;
    }
  }
}

void ForwardGraph::ThrowNoGradient(const char* who, const Node& node, std::string_view to) {
  std::string_view from;
  int32_t scopes = -1;
  for (uint32_t a = node.inputs; a < node.outputs; ++a) {
    if (!args_[a].differentiable) continue;
    const Var& var = VarOf(args_[a].version);
    if (var.scopes)
      scopes = args_[a].version;
    else if (from.empty())
      from = var.name;
  }
  if (from.empty() && scopes >= 0) ThrowThroughScopes(who, node, to, scopes);
  const std::string details = "  " + Locate(*node.op);
  if (!node.def) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: no gradient flows from {} to {}: {}", who, Quote(to), Quote(from),
                            DescribeMissingOp(node.op->type(), ops_.Types())),
                details);
  }
  const std::string reason = node.def->no_gradient_reason.empty() && node.def->Expands()
                                 ? "the ops that it joins must replace it first (ExpandOps)"
                                 : node.def->no_gradient_reason;
  if (node.def->gradient_kind == GradientKind::kForbidden) {
    const std::string message = node.op->GetAttr<std::string>("message", "");
    ThrowInvalid(
        fmt::format("{}: the gradient through {} from {} to {} is explicitly disabled: {}", who,
                    node.op->type(), Quote(to), Quote(from), message.empty() ? reason : message),
        details);
  }
  throw Error(ErrorCode::kUnimplemented,
              fmt::format("{}: {} has no gradient, which is needed from {} to {}: {}; set "
                          "stop_gradient on {} if none is wanted",
                          who, node.op->type(), Quote(to), Quote(from), reason, Quote(from)),
              details);
}

// Reports a path through the values that an op saved of the runs of its sub-block, which no
// gradient rule follows.
void ForwardGraph::ThrowThroughScopes(const char* who, const Node& node, std::string_view to,
                                      int32_t scopes) {
  const OpDesc* runner = WriterOf(scopes);
  throw Error(
      ErrorCode::kUnimplemented,
      fmt::format(
          "{}: {} has no gradient, which is needed from {} to the results of {}: {}; "
          "put {} into no_grad_set if none is wanted",
          who, node.op->type(), Quote(to), runner ? runner->type() : std::string("the block"),
          node.def ? node.def->no_gradient_reason : "unknown op type", Quote(VarOf(scopes).name)),
      "  " + Locate(*node.op));
}

int32_t ForwardGraph::WantedVersion(const std::string& name) {
  for (int32_t v = Last(name); v >= 0; v = version(v).previous) {
    const bool starts = version(v).writer < 0 || version(v).updated;
    if (version(v).pending > 0 && (starts || !VarOf(v).held_before)) return v;
  }
  return -1;
}

std::vector<std::string> ForwardGraph::OuterReads(const std::vector<int32_t>& targets) {
  return ReadsBefore(targets, false);
}

std::vector<std::string> ForwardGraph::GivenReads(const std::vector<int32_t>& targets) {
  return ReadsBefore(targets, true);
}

std::vector<std::string> ForwardGraph::ReadsBefore(const std::vector<int32_t>& targets, bool own) {
  std::vector<uint8_t> needed(versions_.size(), 0);
  for (int32_t v : targets) {
    if (v >= 0) needed[static_cast<size_t>(v)] = 1;
  }
  auto need = [&](int32_t v) {
    if (v >= 0 && !VarOf(v).blocked && !VarOf(v).stopped) needed[static_cast<size_t>(v)] = 1;
  };
  for (size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    bool used = false;
    for (uint32_t a = node.outputs; a < node.end; ++a)
      used |= args_[a].version >= 0 && needed[static_cast<size_t>(args_[a].version)];
    if (!used || !PassesGradient(node)) continue;
    uint32_t a = node.inputs;
    ForEachPosition(node.op->inputs(), [&](const std::string&, const std::string& slot) {
      const int32_t v = args_[a++].version;
      if (v >= 0 && IsDifferentiable(node.def, slot)) need(v);
    });
    for (; a < node.outputs; ++a) need(args_[a].version);
  }
  std::vector<std::string> names;
  for (size_t v = 0; v < versions_.size(); ++v) {
    const Var& var = vars_[static_cast<size_t>(versions_[v].var)];
    if (needed[v] && versions_[v].writer < 0 && (block_.FindVar(var.name) != nullptr) == own)
      names.emplace_back(var.name);
  }
  return names;
}

OpDesc* ForwardGraph::WriterOf(int32_t v) {
  const int32_t writer = version(v).writer;
  return writer < 0 ? nullptr : &block_.op(static_cast<size_t>(writer));
}

int32_t ForwardGraph::VersionBefore(const std::string& name) {
  for (int32_t v = Last(name); v >= 0; v = version(v).previous) {
    if (version(v).writer < 0) return v;
  }
  return -1;
}

int32_t ForwardGraph::FindId(std::string_view name) const {
  if (const VarDesc* desc = block_.FindVar(name)) {
    return desc->index() < local_.size() ? local_[desc->index()] : -1;
  }
  auto it = outer_.find(name);
  return it == outer_.end() ? -1 : it->second;
}

}  // namespace coracle::inline internal

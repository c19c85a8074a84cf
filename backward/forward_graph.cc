#include <coracle/backward/forward_graph.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/infer_context.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::internal {
namespace {

void CollectSubBlocks(const OpDesc& op, std::vector<int>* blocks) {
  for (const NamedAttr& attr : op.attrs()) {
    if (const auto* one = std::get_if<BlockRef>(&attr.value)) blocks->push_back(one->idx);
    if (const auto* many = std::get_if<std::vector<BlockRef>>(&attr.value)) {
      for (BlockRef ref : *many) blocks->push_back(ref.idx);
    }
  }
}

// What the sub-blocks of `op` read or write of the variables outside them.
std::vector<std::string_view> OuterNames(const BlockDesc& block, const OpDesc& op, bool reads) {
  std::vector<int> blocks;
  CollectSubBlocks(op, &blocks);
  std::vector<std::string_view> names;
  std::unordered_set<int> seen = {block.idx()};
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b] < 0 || blocks[b] >= block.program().NumBlocks() || !seen.insert(blocks[b]).second)
      continue;
    const BlockDesc& inner = block.program().Block(blocks[b]);
    for (size_t i = 0; i < inner.NumOps(); ++i) {
      CollectSubBlocks(inner.op(i), &blocks);
      for (const Slot& slot : reads ? inner.op(i).inputs() : inner.op(i).outputs()) {
        for (const std::string& arg : slot.args) {
          if (!IsEmptyName(arg) && !inner.FindVar(arg) && block.FindVarRecursive(arg))
            names.push_back(arg);
        }
      }
    }
  }
  return names;
}

bool CarriesGradient(const VarDesc& var) {
  switch (var.type()) {
    case VarType::kLoDTensor:
    case VarType::kSelectedRows:
    case VarType::kLoDTensorArray:
      return IsFloating(var.dtype()) && !var.stop_gradient();
    default:
      return false;
  }
}

bool IsDifferentiable(const OpDef* def, const std::string& slot) {
  const SlotDef* slot_def = def ? def->FindInput(slot) : nullptr;
  return !slot_def || !slot_def->no_gradient;
}

std::unordered_set<std::string_view> NamesIn(const SlotList& slots) {
  std::unordered_set<std::string_view> names;
  for (const Slot& slot : slots) names.insert(slot.args.begin(), slot.args.end());
  return names;
}

}  // namespace

ForwardGraph::ForwardGraph(BlockDesc& block, const OpRegistry& ops,
                           const std::vector<std::string>& wanted,
                           const std::vector<std::string>& no_grad_set, Start start)
    : block_(block),
      ops_(ops),
      start_(start),
      wanted_(wanted.begin(), wanted.end()),
      no_grad_(no_grad_set.begin(), no_grad_set.end()) {
  const size_t n = block.NumOps();
  local_.assign(block.NumVars(), -1);
  vars_.reserve(2 * n);
  versions_.reserve(2 * n);
  args_.reserve(4 * n);
  nodes_.reserve(n);
  for (size_t i = 0; i < n; ++i) AddNode(block.op(i));
}

int32_t ForwardGraph::Intern(std::string_view name) {
  VarDesc* desc = block_.FindVar(name);
  int32_t& id = desc ? local_[desc->index()] : outer_.try_emplace(name, -1).first->second;
  if (id >= 0) return id;
  id = static_cast<int32_t>(vars_.size());
  if (!desc) desc = block_.FindVarRecursive(name);
  const bool blocked =
      !desc || !CarriesGradient(*desc) || (!no_grad_.empty() && no_grad_.count(name) > 0);
  vars_.push_back({name, desc, wanted_.count(name) > 0, blocked, false, -1, 0, -1});
  return id;
}

int32_t ForwardGraph::Read(std::string_view name) {
  const int32_t id = Intern(name);
  Var& v = var(id);
  if (v.last < 0) {
    v.last = static_cast<int32_t>(versions_.size());
    v.versions = 1;
    v.held_before = true;
    versions_.push_back({id, -1, -1, -1, 0, -1, v.wanted && !v.blocked});
  }
  return v.last;
}

int32_t ForwardGraph::Write(std::string_view name, int32_t op) {
  const int32_t id = Intern(name);
  Var& v = var(id);
  if (v.last >= 0) {
    version(v.last).overwriter = op;
    any_overwritten_ = true;
  }
  const int32_t previous = v.last;
  v.last = static_cast<int32_t>(versions_.size());
  ++v.versions;
  const int32_t ordinal = previous < 0 ? 0 : version(previous).ordinal + 1;
  versions_.push_back({id, op, previous, -1, 0, ordinal, false});
  return v.last;
}

void ForwardGraph::AddNode(OpDesc& op) {
  Node node;
  node.op = &op;
  node.def = ops_.Find(op.type());
  node.has_sub_block = op.HasSubBlock();
  const int role = op.role();
  node.updates = role != kNotSpecified && (role & (kOptimize | kLRSched)) != 0;
  bool reached = false;
  auto here = [this] { return static_cast<uint32_t>(args_.size()); };
  node.inputs = here();
  AddInputs(node, &reached);
  node.kept = here();
  if (node.def && !node.def->keeps_outputs().empty()) AddKept(node, &reached);
  node.outputs = here();
  nodes_.push_back(node);
  AddOutputs(nodes_.back(), reached && PassesGradient(nodes_.back()));
  nodes_.back().end = here();
}

bool ForwardGraph::PassesGradient(const Node& node) {
  if (node.updates) return false;
  return !node.def ||
         (!node.def->shape_only() && node.def->gradient_kind() != GradientKind::kNotDifferentiable);
}

void ForwardGraph::AddInputs(Node& node, bool* reached) {
  auto add = [&](std::string_view name, bool differentiable) {
    if (IsEmptyName(name)) {
      args_.push_back({});
      return;
    }
    const int32_t v = Read(name);
    differentiable = differentiable && version(v).reached;
    *reached |= differentiable;
    args_.push_back({v, differentiable});
  };
  for (const Slot& slot : node.op->inputs()) {
    const bool differentiable = IsDifferentiable(node.def, slot.name);
    for (const std::string& name : slot.args) add(name, differentiable);
  }
  node.captured = static_cast<uint32_t>(args_.size());
  if (!node.has_sub_block) return;
  std::unordered_set<std::string_view> listed = NamesIn(node.op->inputs());
  for (std::string_view name : OuterNames(block_, *node.op, true)) {
    if (listed.insert(name).second) add(name, true);
  }
}

void ForwardGraph::AddKept(const Node& node, bool* reached) {
  const std::unordered_set<std::string_view> listed = NamesIn(node.op->inputs());
  const std::vector<std::string>& kept = node.def->keeps_outputs();
  for (const Slot& slot : node.op->outputs()) {
    const bool keeps = std::find(kept.begin(), kept.end(), slot.name) != kept.end();
    for (const std::string& name : slot.args) {
      Arg arg;
      // Before its first write a variable of this block holds nothing.
      if (keeps && !IsEmptyName(name) && !listed.count(name) &&
          (var(Intern(name)).last >= 0 || !block_.FindVar(name))) {
        arg.version = Read(name);
        arg.differentiable = version(arg.version).reached;
        *reached |= arg.differentiable;
      }
      args_.push_back(arg);
    }
  }
}

void ForwardGraph::AddOutputs(Node& node, bool reached) {
  for (const Slot& slot : node.op->outputs()) {
    for (const std::string& name : slot.args) AddOutput(node, name, reached);
  }
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
  const int32_t v = Write(name, static_cast<int32_t>(nodes_.size()) - 1);
  const Var& var = VarOf(v);
  // A wanted variable starts anew where an optimizer writes it, or where the program makes it.
  const bool starts = start_ == Start::kProgram && var.wanted && (node.updates || !var.held_before);
  version(v).reached = !var.blocked && (reached || starts);
  args_.push_back({v, true});
}

int32_t ForwardGraph::Last(const std::string& name) {
  const VarDesc* desc = block_.FindVarRecursive(name);
  return desc ? Read(desc->name()) : -1;
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
    for (uint32_t a = node.outputs; a < node.end; ++a)
      used |= args_[a].version >= 0 && version(args_[a].version).pending > 0;
    if (!used || !PassesGradient(node)) continue;
    for (uint32_t a = node.inputs; a < node.outputs; ++a) reached |= args_[a].differentiable;
    if (!reached) continue;
    node.on_path = true;
    for (uint32_t a = node.inputs; a < node.outputs; ++a) {
      if (args_[a].differentiable) ++version(args_[a].version).pending;
    }
  }
}

void ForwardGraph::ThrowNoGradient(const Node& node, std::string_view to) {
  std::string_view from;
  for (uint32_t a = node.inputs; a < node.outputs && from.empty(); ++a) {
    if (args_[a].differentiable) from = VarOf(args_[a].version).name;
  }
  const std::string details = "  " + Locate(*node.op);
  if (!node.def) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("append_backward: no gradient flows from {} to {}: unknown op type {}{}",
                    Quote(to), Quote(from), Quote(node.op->type()),
                    DidYouMean(node.op->type(), ops_.Types())),
        details);
  }
  const std::string& reason = node.def->no_gradient_reason();
  if (node.def->gradient_kind() == GradientKind::kForbidden) {
    const std::string message = node.op->GetAttr<std::string>("message", "");
    ThrowInvalid(
        fmt::format("append_backward: the gradient through {} from {} to {} is explicitly "
                    "disabled: {}",
                    node.op->type(), Quote(to), Quote(from), message.empty() ? reason : message),
        details);
  }
  throw Error(ErrorCode::kUnimplemented,
              fmt::format("append_backward: {} has no gradient, which is needed from {} to {}: {}; "
                          "set stop_gradient on {} if none is wanted",
                          node.op->type(), Quote(to), Quote(from), reason, Quote(from)),
              details);
}

int32_t ForwardGraph::WantedVersion(const std::string& name) {
  for (int32_t v = Last(name); v >= 0; v = version(v).previous) {
    const int32_t writer = version(v).writer;
    const bool starts = writer < 0 || nodes_[static_cast<size_t>(writer)].updates;
    if (version(v).pending > 0 && (starts || !VarOf(v).held_before)) return v;
  }
  return -1;
}

int32_t ForwardGraph::VersionBefore(const std::string& name) {
  for (int32_t v = Last(name); v >= 0; v = version(v).previous) {
    if (version(v).writer < 0) return v;
  }
  return -1;
}

// Versions of overwritten variables as their writers leave them; all other variables have one type.
class ForwardGraph::Metas : public MetaTable {
 public:
  explicit Metas(ForwardGraph& graph) : graph_(graph) {}
  const VarMeta* Find(const std::string& name) const override {
    auto it = now_.find(name);
    if (it != now_.end()) return &it->second;
    const VarDesc* var = graph_.block_.FindVarRecursive(name);
    return var ? &var->meta() : nullptr;
  }
  void Set(const std::string& name, const VarMeta& meta) override { now_[name] = meta; }

 private:
  ForwardGraph& graph_;
  std::unordered_map<std::string, VarMeta> now_;
};

void ForwardGraph::InferOverwritten() {
  inferred_ = true;
  Metas metas(*this);
  for (const Node& node : nodes_) {
    bool writes = false;
    for (uint32_t a = node.outputs; a < node.end; ++a)
      writes |= args_[a].version >= 0 && VarOf(args_[a].version).versions > 1;
    if (!writes || !node.def) continue;
    try {
      InferContext context(*node.def, *node.op, metas);
      node.def->RunInfer(context);
    } catch (const Error&) {
      continue;  // Verify reports it; the declared type stands in
    }
    for (uint32_t a = node.outputs; a < node.end; ++a) {
      const int32_t v = args_[a].version;
      if (v < 0 || VarOf(v).versions < 2) continue;
      if (const VarMeta* meta = metas.Find(std::string(VarOf(v).name)))
        overwritten_metas_[v] = *meta;
    }
  }
}

const VarMeta& ForwardGraph::MetaOf(int32_t v) {
  if (any_overwritten_) {
    if (!inferred_) InferOverwritten();
    auto it = overwritten_metas_.find(v);
    if (it != overwritten_metas_.end()) return it->second;
  }
  return VarOf(v).desc->meta();
}

}  // namespace coracle::internal

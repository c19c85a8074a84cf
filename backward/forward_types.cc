// The types of the versions in a ForwardGraph. Each version of an overwritten variable has the type
// that its writer gives it; every other variable has a single type.

#include <coracle/backward/forward_graph.h>
#include <coracle/backward/open_types.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/check/flow_types.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

bool HasList(const OpDesc& op) {
  const auto is_list = []<class T>(const T&) {
    return requires(T list) { list.begin(); }
    &&!std::is_same_v<T, std::string>;
  };
  return std::any_of(op.attrs().begin(), op.attrs().end(), [&](const NamedAttr& attr) {
    return std::visit(is_list, attr.value) && attr.name != kOpCallstackAttr &&
           attr.name != kOpRoleVarAttr;
  });
}

}  // namespace

// The ops whose shape rules determine the types of overwritten variables, in order: ops that write
// such a variable, and the ops that write overwritten variables which these ops read.
std::vector<OpDesc*> ForwardGraph::OpsForTypes() {
  std::vector<OpDesc*> ops;
  std::unordered_set<const OpDesc*> seen;
  std::unordered_set<std::string> looked_up;  // each once, even if it is overwritten often
  auto add_writers = [&](const std::string& name, size_t least) {
    if (!looked_up.insert(name).second) return;
    const MutableVarUses uses = block_.Uses(name);
    if (uses.writers.size() < least || uses.writers.size() + !uses.readers.empty() < 2) return;
    for (OpDesc* op : uses.writers) {
      if (seen.insert(op).second) ops.push_back(op);
    }
  };
  for (const Var& v : vars_) {
    if (v.versions > 1) add_writers(std::string(v.name), 1);
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    ops[i]->ForEachInput([&](const std::string& name) { add_writers(name, 2); });
  }
  std::sort(ops.begin(), ops.end(), [&](const OpDesc* a, const OpDesc* b) {
    return block_.IndexOf(*a) < block_.IndexOf(*b);
  });
  return ops;
}

void ForwardGraph::InferOverwritten() {
  inferred_ = true;
  FlowTypes types(block_);
  std::unordered_map<std::string_view, int32_t> writes;  // number of writes of each variable so far
  std::unordered_map<int32_t, std::unordered_map<int32_t, int32_t>> by_ordinal;
  for (size_t v = 0; v < versions_.size(); ++v) {
    if (versions_[v].writer >= 0 && var(versions_[v].var).versions > 1)
      by_ordinal[versions_[v].var][versions_[v].ordinal] = static_cast<int32_t>(v);
  }
  for (OpDesc* op : OpsForTypes()) {
    const OpSpec* def = ops_.Find(op->type());
    // Verify reports a rule that refuses the op; the declared type is used.
    const bool known = def && types.Infer(*def, *op);
    op->ForEachOutput([&](const std::string& name) {
      const int32_t ordinal = writes[name]++;
      auto versions = known ? by_ordinal.find(FindId(name)) : by_ordinal.end();
      if (versions == by_ordinal.end()) return;
      auto version = versions->second.find(ordinal);
      const VarMeta* meta = types.Find(name);
      // An undeclared type gives no information, so the declared type is used.
      if (version != versions->second.end() && meta && !IsOpen(*meta))
        overwritten_metas_[version->second] = *meta;
    });
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

// Whether an op writes floating-point numbers to a variable declared with another type; at run time
// the op's type applies.
bool ForwardGraph::MakesFloat(const Node& node, std::string_view name) {
  const VarDesc* desc = block_.FindVarRecursive(name);
  if (!desc || !node.def || desc->stop_gradient() || no_grad_.count(name) ||
      IsFloatingOrOpen(desc->meta()))
    return false;
  FlowTypes types(block_);
  // RequireOp and Verify report an op that is wrong.
  if (!types.Infer(*node.def, *node.op)) return false;
  const VarMeta& made = *types.Find(std::string(name));
  return !IsOpen(made) && IsFloatingOrOpen(made);
}

// If a variable takes values of several types, some of them may be constants.
bool ForwardGraph::Carries(int32_t v) {
  return VarOf(v).versions < 2 || VarOf(v).scopes || IsFloatingOrOpen(MetaOf(v));
}

void ForwardGraph::RequireFloating(const char* who, int32_t v) {
  const VarMeta& meta = MetaOf(v);
  if (!IsOpen(meta) && IsFloatingOrOpen(meta)) return;
  const std::string name(VarOf(v).name);
  const OpDesc* writer = WriterOf(v);
  const std::string details = writer ? "  " + Locate(*writer) : "";
  if (IsOpen(meta)) {
    ThrowInvalid(fmt::format("{}: the type of {} is not known, and a gradient must pass through "
                             "it; declare its dtype and shape",
                             who, Quote(name)),
                 details);
  }
  ThrowInvalid(fmt::format("{}: {} is declared {}, but {} writes floating-point numbers to it", who,
                           Quote(name), meta.ToString(), writer ? writer->type() : "an op"),
               details);
}

void ForwardGraph::RequireLists(const Node& node) {
  if (!node.def || !HasList(*node.op)) return;
  FlowTypes types(block_);
  for (uint32_t a = node.inputs; a < node.outputs; ++a) {
    const int32_t v = args_[a].version;
    if (v >= 0 && VarOf(v).versions > 1) types.Set(std::string(VarOf(v).name), MetaOf(v));
  }
  types.InferOrThrow(*node.def, *node.op);
}

}  // namespace coracle::inline internal

#include <coracle/framework/ir/op.h>
#include <coracle/inspect/inspect.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace coracle {
namespace {

bool IsOfKind(const OpDesc& op, OpKind kind, const OpRegistry& ops) {
  const OpSpec* spec = ops.Find(op.type());
  return spec && spec->kind == kind;
}

bool IsDense(const BlockDesc& root, const std::string& name) {
  const VarDesc* var = root.FindVar(name);
  return var && var->type() == VarType::kLoDTensor && !var->persistable();
}

// 0 if the attr is not a number, as in unverified programs.
int32_t ColumnOf(const OpDesc& op) {
  const Attribute* column = op.FindAttr("col");
  Attribute number;
  if (!column || !ConvertAttribute(*column, AttrType::kInt, &number)) return 0;
  return std::get<int32_t>(number);
}

// The variables that feed ops write, or that fetch ops read, in the order of their attr col.
std::vector<std::string> ByColumn(const BlockDesc& root, OpKind kind, const OpRegistry& ops) {
  std::vector<std::pair<int32_t, std::string>> columns;
  root.ForEachOp([&](const OpDesc& op) {
    if (!IsOfKind(op, kind, ops)) return;
    const int32_t column = ColumnOf(op);
    const auto& names = kind == OpKind::kFeed ? op.Output("Out") : op.Input("X");
    for (const std::string& name : names) columns.emplace_back(column, name);
  });
  std::stable_sort(columns.begin(), columns.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (auto& [column, name] : columns) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> ReadFirst(const BlockDesc& root) {
  std::vector<std::string> names;
  std::unordered_set<std::string> known;
  root.ForEachOp([&](const OpDesc& op) {
    op.ForEachInput([&](const std::string& name) {
      if (IsDense(root, name) && known.insert(name).second) names.push_back(name);
    });
    op.ForEachOutput([&](const std::string& name) { known.insert(name); });
  });
  return names;
}

// Whether an op writes the variable to a slot that is not only for a gradient op.
bool IsResult(const std::string& name, const VarUses& uses, const OpRegistry& ops) {
  return std::any_of(uses.writers.begin(), uses.writers.end(), [&](const OpDesc* op) {
    const OpSpec* spec = ops.Find(op->type());
    return op->AnyOutput([&](const std::string& output, const std::string& slot) {
      if (output != name) return false;
      const auto is_intermediate = [&](const SlotDef& def) {
        return def.name == slot && def.intermediate;
      };
      return !spec || std::none_of(spec->outputs.begin(), spec->outputs.end(), is_intermediate);
    });
  });
}

std::vector<std::string> ReadByNobody(const BlockDesc& root, const OpRegistry& ops) {
  std::vector<std::string> names;
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const std::string& name = root.var(i).name();
    const VarUses uses = root.Uses(name);
    if (IsDense(root, name) && uses.readers.empty() && IsResult(name, uses, ops))
      names.push_back(name);
  }
  return names;
}

}  // namespace

bool HasOpOfKind(const BlockDesc& root, OpKind kind, const OpRegistry& ops) {
  bool has = false;
  root.ForEachOp([&](const OpDesc& op) { has = has || IsOfKind(op, kind, ops); });
  return has;
}

std::vector<std::string> InputNames(const ProgramDesc& program, const OpRegistry& ops) {
  const BlockDesc& root = program.Root();
  return HasOpOfKind(root, OpKind::kFeed, ops) ? ByColumn(root, OpKind::kFeed, ops)
                                               : ReadFirst(root);
}

std::vector<std::string> OutputNames(const ProgramDesc& program, const OpRegistry& ops) {
  const BlockDesc& root = program.Root();
  return HasOpOfKind(root, OpKind::kFetch, ops) ? ByColumn(root, OpKind::kFetch, ops)
                                                : ReadByNobody(root, ops);
}

}  // namespace coracle

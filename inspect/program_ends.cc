#include <coracle/framework/ir/op.h>
#include <coracle/inspect/program_ends.h>

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

// What feed ops write, or fetch ops read, in the order of their attr col.
std::vector<std::string> ByColumn(const BlockDesc& root, OpKind kind, const OpRegistry& ops) {
  std::vector<std::pair<int32_t, std::string>> columns;
  root.ForEachOp([&](const OpDesc& op) {
    if (!IsOfKind(op, kind, ops)) return;
    const int32_t column = op.GetAttr<int32_t>("col", 0);
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

std::vector<std::string> ReadByNobody(const BlockDesc& root) {
  std::vector<std::string> names;
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const std::string& name = root.var(i).name();
    const VarUses uses = root.Uses(name);
    if (IsDense(root, name) && uses.readers.empty() && !uses.writers.empty()) names.push_back(name);
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
                                                : ReadByNobody(root);
}

}  // namespace coracle

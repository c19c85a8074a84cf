#include <coracle/executor/plan/procedure.h>

namespace coracle::inline internal {

CellId Procedure::CellOf(const std::string& variable, CellOwner owner) {
  CellId& cell = variables_[variable];
  if (!cell) cell = cells_.Add(owner);
  return cell;
}

CellId Procedure::FindCell(const std::string& variable) const {
  auto it = variables_.find(variable);
  return it == variables_.end() ? CellId() : it->second;
}

template <class Key>
CellId Procedure::FindOrAdd(std::map<Key, CellId>& cells, const Key& key, CellOwner owner) {
  CellId& cell = cells[key];
  if (!cell) cell = cells_.Add(owner);
  return cell;
}

CellId Procedure::ResultCell(size_t result) {
  return FindOrAdd(result_cells_, result, CellOwner::kCaller);
}

CellId Procedure::ScratchCell(size_t op, size_t n) {
  return FindOrAdd(scratch_, {op, n}, CellOwner::kActivation);
}

CellId Procedure::OutputCell(size_t op, const std::string& variable) {
  return FindOrAdd(outputs_, {op, variable}, CellOwner::kActivation);
}

CallSiteId Procedure::CallSite(size_t op, size_t n) {
  return call_sites_.try_emplace({op, n}, call_sites_.size()).first->second;
}

ProcedureId ProcedureTable::Get(int block, const std::vector<std::string>& parameters,
                                const std::vector<std::string>& results) {
  auto [it, added] = index_.try_emplace({block, parameters, results}, procedures_.size());
  if (added) procedures_.emplace_back(block, parameters, results);
  return it->second;
}

}  // namespace coracle::inline internal

#include <coracle/executor/planner/cell_values.h>
#include <coracle/framework/op/kernel/interpreter.h>

namespace coracle::inline internal {

ValueId CellValues::Add(CellId cell, const std::string& name, const VarMeta& meta) {
  return values_.AddAt(cell, name, meta);
}

ValueId CellValues::AddScratch(size_t op, size_t n) {
  return Add(procedure_.ScratchCell(op, n), "", UnknownMeta());
}

const VarDesc* CellValues::FindOwnArray(const std::string& name) const {
  const VarDesc* var = block_.FindVar(name);
  return var && var->type() == VarType::kLoDTensorArray && !var->persistable() ? var : nullptr;
}

ValueId CellValues::Find(const std::string& name) {
  // An array of this block has a cell even if no earlier stage used it.
  const VarDesc* array = FindOwnArray(name);
  const CellId cell = array ? procedure_.CellOf(name) : procedure_.FindCell(name);
  if (!cell) return ValueId();
  const VarValue* held = FindValue(cells_, cell);
  VarMeta meta = held ? MetaOfValue(*held) : VarMeta{};
  if (guarded_.insert(cell).second) plan_.guards.cells.push_back({cell, held != nullptr, meta});
  if (!held) {
    // An array in a cell of the caller must not be emptied here.
    if (!array || !procedure_.Owns(cell)) return ValueId();
    EmptyAtStart(cell, VarType::kLoDTensorArray);
    meta = {VarType::kLoDTensorArray, array->dtype(), Shape{-1, -1}, 0};
  }
  const ValueId value = Add(cell, name, meta);
  // Only a value found here has an address when the run begins. Later values of the cell are made
  // by steps, and kernels access them through Workspace::ValueOf.
  if (meta.type == VarType::kLoDTensor) {
    plan_.dense_cells.push_back(value);
    values_[value].lod_source = value;
  }
  values_.SetCurrent(name, value);
  return value;
}

}  // namespace coracle::inline internal

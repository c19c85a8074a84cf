#pragma once
// CellValues: the values of a plan that are stored in cells of the activation.
// Internal to executor/.

#include <coracle/executor/plan/guards.h>
#include <coracle/executor/plan/procedure.h>
#include <coracle/executor/planner/value_table.h>
#include <coracle/framework/ir/program.h>

#include <set>
#include <string>

namespace coracle::inline internal {

class CellValues {
 public:
  // `cells`: the cells as the stage finds them; fewer than the procedure's if some do not
  // exist yet.
  CellValues(Plan& plan, ValueTable& values, Procedure& procedure, const BlockDesc& block,
             const Cells& cells)
      : plan_(plan), values_(values), procedure_(procedure), block_(block), cells_(cells) {}

  // Adds a new value in a cell.
  ValueId Add(CellId cell, const std::string& name, const VarMeta& meta);
  // Adds the nth cell that the op at that position requests as scratch memory.
  ValueId AddScratch(size_t op, size_t n);
  // The value that the variable's cell holds when the stage begins, recorded in a guard; empty if
  // it has no value there. A tensor array of this block is empty until it is written.
  ValueId Find(const std::string& name);
  // Makes the run empty the cell before its first step.
  void EmptyAtStart(CellId cell, VarType type) { plan_.new_cells.emplace_back(cell, type); }

  bool IsIn(ValueId value, CellId cell) const {
    return cell && plan_.StorageOf(value).As<CellId>() == cell;
  }

 private:
  const VarDesc* FindOwnArray(const std::string& name) const;

  Plan& plan_;
  ValueTable& values_;
  Procedure& procedure_;
  const BlockDesc& block_;
  const Cells& cells_;
  std::set<CellId> guarded_;
};

// The type of a variable that no value determines.
inline VarMeta UnknownMeta() { return {VarType::kLoDTensor, DType::kFloat32, Shape{-1}, 0}; }

}  // namespace coracle::inline internal

#pragma once
// CellValues: the values of a plan that live in cells of the activation. Internal to executor/.

#include <coracle/executor/guards.h>
#include <coracle/executor/procedure.h>
#include <coracle/executor/value_table.h>
#include <coracle/framework/ir/program.h>

#include <set>
#include <string>

namespace coracle {

class CellValues {
 public:
  // `cells`: what the stage finds; shorter than the procedure's when none is there yet.
  CellValues(Plan& plan, ValueTable& values, Procedure& procedure, const BlockDesc& block,
             const Cells& cells)
      : plan_(plan), values_(values), procedure_(procedure), block_(block), cells_(cells) {}

  // A new value in a cell.
  ValueId Add(CellId cell, const std::string& name, const VarMeta& meta);
  // The nth cell that the op at that position asks for as memory of its own.
  ValueId AddScratch(size_t op, size_t n);
  // What the variable's cell holds when the stage begins, which a guard then says; nothing: it has
  // no value there. A tensor array of this block is empty until it is written.
  ValueId Find(const std::string& name);
  // A value that the run empties before its first step.
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

// The type of a variable that no value tells anything about.
inline VarMeta UnknownMeta() { return {VarType::kLoDTensor, DType::kFloat32, Shape{-1}, 0}; }

}  // namespace coracle

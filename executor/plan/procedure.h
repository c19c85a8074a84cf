#pragma once
// Procedure: a block as some op runs it, with the parameters that the op sets before a run and the
// results that it reads afterwards. It numbers the cells and call sites, which must be the same in
// all plans of the block. The root block is procedure 0. Internal to executor/.

#include <coracle/executor/plan/ids.h>

#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// The owner of a cell's memory: the activation, or the caller, which binds the cell before
// each run.
enum class CellOwner { kActivation, kCaller };

class Procedure {
 public:
  Procedure(int block, std::vector<std::string> parameters, std::vector<std::string> results)
      : block_(block), parameters_(std::move(parameters)), results_(std::move(results)) {}

  int block() const { return block_; }
  const std::vector<std::string>& parameters() const { return parameters_; }
  const std::vector<std::string>& results() const { return results_; }

  // The cell of a variable; added with that owner if it does not exist.
  CellId CellOf(const std::string& variable, CellOwner owner = CellOwner::kActivation);
  CellId FindCell(const std::string& variable) const;  // empty if there is none
  // Where the caller finds a result; the variable itself may have another cell.
  CellId ResultCell(size_t result);
  // Memory of the op at that position in the block: the nth scratch cell that it requested, and the
  // cell of an output whose shape only the kernel knows.
  CellId ScratchCell(size_t op, size_t n);
  CellId OutputCell(size_t op, const std::string& variable);

  const IdVector<CellId, CellOwner>& cells() const { return cells_; }
  bool Owns(CellId cell) const { return cells_[cell] == CellOwner::kActivation; }

  // The place where an op runs a sub-block, as the nth of the op's calls.
  CallSiteId CallSite(size_t op, size_t n);

 private:
  template <class Key>
  CellId FindOrAdd(std::map<Key, CellId>& cells, const Key& key, CellOwner owner);

  int block_;
  std::vector<std::string> parameters_, results_;
  IdVector<CellId, CellOwner> cells_;
  std::unordered_map<std::string, CellId> variables_;
  std::map<size_t, CellId> result_cells_;
  std::map<std::pair<size_t, size_t>, CellId> scratch_;
  std::map<std::pair<size_t, std::string>, CellId> outputs_;
  std::map<std::pair<size_t, size_t>, CallSiteId> call_sites_;
};

// The procedures of a program; grows while plans are made. Addresses stay valid.
class ProcedureTable {
 public:
  ProcedureTable() { Get(0, {}, {}); }
  Procedure& operator[](ProcedureId id) { return procedures_[id.index()]; }
  // Added if it does not exist.
  ProcedureId Get(int block, const std::vector<std::string>& parameters,
                  const std::vector<std::string>& results);

 private:
  using Key = std::tuple<int, std::vector<std::string>, std::vector<std::string>>;
  std::deque<Procedure> procedures_;
  std::map<Key, ProcedureId> index_;
};

}  // namespace coracle::inline internal

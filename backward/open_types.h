#pragma once
// Open types: variables that a program declares without element type or shape (files may: an
// unknown kind, no tensor description, no dims), and what shape rules say of them.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace coracle::internal {

// Whether a declaration leaves the element type open.
bool IsOpen(const VarMeta& meta);

// Whether gradients may be of this type: floating-point, complex, or open, which may turn out to be
// one of them.
bool IsFloatingOrOpen(const VarMeta& meta);

// Gives variables of a program the types that shape rules find, and takes them back unless Commit()
// is called. REQUIRES: blocks that are nested properly (RequireBlocks).
class OpenTypes {
 public:
  OpenTypes(ProgramDesc& program, const OpRegistry& ops) : program_(program), ops_(ops) {}
  OpenTypes(const OpenTypes&) = delete;
  OpenTypes& operator=(const OpenTypes&) = delete;
  ~OpenTypes();

  // Fills in the types of the whole program if some variable's is open: any of the program, or any
  // that the ops of the block at these positions, or their sub-blocks, use. Shape rules run only
  // when there is one; looking for it costs what the ops looked at cost.
  void FillWhereOpen();
  void FillWhereOpen(BlockDesc& block, const std::vector<uint32_t>& positions);
  void FillWhereOpen(BlockDesc& block, const VarDesc& var);
  void Commit() { changed_.clear(); }

 private:
  class Table;

  bool IsOpenIn(BlockDesc& block, const VarDesc& var);
  bool AnyOpen(BlockDesc& block);
  void Fill();
  void RunInfer(const OpDesc& op, Table& table) const;
  void Visit(BlockDesc& block, Table* outer, int depth);
  void SetBlockInputs(const OpDesc& op, BlockDesc& inner, const Table& outer);
  void Declare(VarDesc& var, const VarMeta& meta);

  ProgramDesc& program_;
  const OpRegistry& ops_;
  bool filled_ = false;
  std::vector<bool> visited_;
  std::unordered_map<VarDesc*, VarMeta> changed_;  // with the types before
};

}  // namespace coracle::internal

#pragma once
// Open types: variables that a program declares without element type or shape (files may have an
// unknown kind, no tensor description, or no dims), and the types that shape rules infer for them.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace coracle::inline internal {

// Whether a declaration leaves the element type open.
bool IsOpen(const VarMeta& meta);

// Whether gradients may have this type: floating-point, complex, or open, since an open type may
// turn out to be one of them.
bool IsFloatingOrOpen(const VarMeta& meta);

// Gives variables of a program the types that shape rules infer, and removes them again unless
// Commit() is called. REQUIRES: properly nested blocks (RequireBlocks).
class OpenTypes {
 public:
  OpenTypes(ProgramDesc& program, const OpRegistry& ops) : program_(program), ops_(ops) {}
  OpenTypes(const OpenTypes&) = delete;
  OpenTypes& operator=(const OpenTypes&) = delete;
  ~OpenTypes();

  // Fills in the types of the whole program if an open type is found: in any variable of the
  // program, or in any variable used by the block's ops at these positions or by their sub-blocks.
  // Shape rules run only if one is found; the search takes time proportional to the ops examined.
  void FillWhereOpen();
  void FillWhereOpen(BlockDesc& block, const std::vector<uint32_t>& positions);
  void FillWhereOpen(BlockDesc& block, const VarDesc& var);
  void Commit() { changed_.clear(); }

 private:
  class Table;

  bool IsOpenIn(BlockDesc& block, const VarDesc& var);
  bool AnyOpen(BlockDesc& block);
  void Fill();
  bool Infer(const OpDesc& op, Table& table) const;
  void Visit(BlockDesc& block, Table* outer, int depth);
  void SetBlockInputs(const OpDesc& op, BlockDesc& inner, const Table& outer);
  void Declare(VarDesc& var, const VarMeta& meta);

  ProgramDesc& program_;
  const OpRegistry& ops_;
  bool filled_ = false;
  std::vector<bool> visited_;
  std::unordered_map<VarDesc*, VarMeta> changed_;  // with their previous types
};

}  // namespace coracle::inline internal

#pragma once
// EditJournal: what an EditGuard needs to undo the edits of a program. ProgramDesc, BlockDesc,
// OpDesc and VarDesc note their changes in it while there is one.

#include <coracle/framework/ir/program.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle::internal {

// An object whose stamp is `id` is new since the journal began, or copied in it already.
struct EditJournal {
  explicit EditJournal(ProgramDesc& program);

  // Before the change that each names.
  void NoteAppend(BlockDesc& block);
  void NoteVarOrder(BlockDesc& block);
  void NoteOpOrder(BlockDesc& block);
  // Copies of the block's ops take their places, since who gets them may destroy them.
  void NoteRelease(BlockDesc& block);
  void SaveVar(VarDesc& var);
  void SaveOp(OpDesc& op);
  void NoteCounter(const std::string& prefix);
  // Keep what is removed, so that handles on it stay valid.
  void KeepVar(std::unique_ptr<VarDesc> var) { removed_vars.push_back(std::move(var)); }
  void KeepOp(std::unique_ptr<OpDesc> op) { removed_ops.push_back(std::move(op)); }
  void KeepBlocks(size_t first);
  void KeepAllBlocks();  // the program gets another content; nothing is noted from now on

  void Undo();
  void AddTo(EditJournal& outer);  // of a guard around this one, which may undo it later

  struct BlockRecord {
    size_t vars = 0, ops = 0;  // how many there were
    std::optional<int32_t> forward_block_idx;
    std::optional<std::vector<VarDesc*>> var_order;  // where it may differ from their places
    std::optional<std::vector<OpDesc*>> op_order;
  };

  ProgramDesc& program;
  EditJournal* const outer;
  const uint32_t id;
  const size_t num_blocks;
  const std::optional<int64_t> version;
  const uint64_t random_seed;
  std::unordered_map<BlockDesc*, BlockRecord> blocks;
  std::unordered_map<VarDesc*, std::unique_ptr<VarDesc>> vars;  // copies
  std::unordered_map<OpDesc*, std::unique_ptr<OpDesc>> ops;
  std::vector<std::unique_ptr<VarDesc>> removed_vars;
  std::vector<std::unique_ptr<OpDesc>> removed_ops;
  std::map<size_t, std::unique_ptr<BlockDesc>> removed_blocks;  // by index
  std::unordered_map<std::string, std::optional<int64_t>> counters;
  std::optional<std::vector<std::unique_ptr<BlockDesc>>> all_blocks;

 private:
  BlockRecord& RecordOf(BlockDesc& block);
  bool IsNoted(uint32_t stamp) const { return stamp == id || all_blocks.has_value(); }
  void NoteNames(const BlockDesc& block);
  // A copy takes the place of an op in what this journal has noted.
  void NoteReplaced(OpDesc* op, OpDesc* copy);
  void UndoVars(BlockDesc& block, BlockRecord& record);
  void UndoOps(BlockDesc& block, BlockRecord& record);
  void Restore(VarDesc& var, VarDesc& copy) const;
  void Restore(OpDesc& op, OpDesc& copy) const;
};

}  // namespace coracle::internal

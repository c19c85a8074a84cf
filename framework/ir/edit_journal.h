#pragma once
// EditJournal: the records with which an EditGuard undoes the edits of a program. ProgramDesc,
// BlockDesc, OpDesc and VarDesc report each change to the program's journal before they make it.

#include <coracle/framework/ir/program.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// The objects that a block had when the journal began. The first `kept` of them have their
// places still; `rest` lists the others, the last one first. Note costs no more than the edit
// that it precedes.
template <class T>
struct OrderRecord {
  size_t kept = 0;
  std::vector<T*> rest;

  // Called before an edit of the positions from `first` on.
  void Note(size_t first, const std::vector<std::unique_ptr<T>>& objects) {
    for (; kept > first; --kept) rest.push_back(objects[kept - 1].get());
  }
};

template <class T>
// A list, since lists can be joined without allocation.
using Removed = std::list<std::unique_ptr<T>>;

// A variable or op whose stamp equals `id` is new since the journal began, or the journal has a
// copy of it. A nested journal leaves its own stamp, so that other objects may be new too. Notes
// may throw; Undo and AddTo allocate nothing.
struct EditJournal {
  explicit EditJournal(ProgramDesc& program);

  // Each is called before the change that it names.
  void NoteBlock(BlockDesc& block);  // variables or ops are appended, or other fields change
  void NoteVarOrder(BlockDesc& block, size_t first);  // of the variables from `first` on
  void NoteOpOrder(BlockDesc& block, size_t first);
  // Replaces the block's ops by copies, since the receiver of the released ops may destroy them.
  void NoteRelease(BlockDesc& block);
  void SaveVar(VarDesc& var);
  void SaveOp(OpDesc& op);
  void NoteCounter(const std::string& prefix);
  void NoteOpVersions();
  void NoteUnknownFields();
  void NoteUnknownFields(BlockDesc& block);
  // Keep removed objects, so that handles on them stay valid.
  void KeepBlocks(size_t first);
  void KeepContent() noexcept;  // of a program that gets other blocks, which need no notes
  void KeepProgram() noexcept;  // its other fields too

  void Undo() noexcept;
  void AddTo(EditJournal& outer) noexcept;  // the journal of an enclosing guard

  struct BlockRecord {
    OrderRecord<VarDesc> vars;
    OrderRecord<OpDesc> ops;
    std::optional<int32_t> forward_block_idx;
    std::optional<std::string> unknown_fields;  // before their first change
  };
  struct Content {
    std::vector<std::unique_ptr<BlockDesc>> blocks;
    std::unordered_map<std::string, int64_t> name_counters;
    std::unordered_map<size_t, int> inner_names;
  };

  ProgramDesc& program;
  EditJournal* const outer;
  const uint32_t id;
  const size_t num_blocks;
  const bool parents_first;
  const std::optional<int64_t> version;
  const bool version_in_legacy_field;
  const uint64_t random_seed;
  std::optional<std::optional<ProgramDesc::OpVersions>> op_versions;  // before their first change
  std::optional<std::string> unknown_fields;
  bool names_lost = false;  // ProgramDesc::HasName has marked a name as lost
  // Each block here has a record in the outer journal, too, unless it is new there.
  std::map<BlockDesc*, BlockRecord> blocks;
  std::map<VarDesc*, std::unique_ptr<VarDesc>> vars;  // copies of changed objects
  std::map<OpDesc*, std::unique_ptr<OpDesc>> ops;
  Removed<VarDesc> removed_vars;
  Removed<OpDesc> removed_ops;
  std::map<size_t, std::unique_ptr<BlockDesc>> removed_blocks;  // by index
  std::map<std::string, std::optional<int64_t>> counters;
  std::optional<Content> content;  // the original content of a program that got another

 private:
  BlockRecord& RecordOf(BlockDesc& block);
  bool IsNoted(uint32_t stamp) const { return stamp == id || content.has_value(); }
  bool IsNew(const BlockDesc& block) const;
  // Substitutes copies for ops of the block in the records of this journal.
  void NoteReplaced(BlockDesc& block, const std::unordered_map<OpDesc*, OpDesc*>& copies);
  void PutBackObjects() noexcept;
  void UndoFields() noexcept;
  void UndoVars(BlockDesc& block) noexcept;
  void UndoOps(BlockDesc& block) noexcept;
  void Restore(VarDesc& var, VarDesc& copy) const noexcept;
  void Restore(OpDesc& op, OpDesc& copy) const noexcept;
};

}  // namespace coracle::inline internal

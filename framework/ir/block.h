#pragma once
// BlockDesc: the variables and ops of one block. All edits of the op list go through it; it keeps
// a def-use index.

#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/var.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle {

// VarIndex: finds a block's variables by name. It is an open-addressing table, because programs
// have hundreds of thousands of names and a look-up should touch one cache line.

class VarIndex {
 public:
  static size_t Hash(std::string_view name) { return std::hash<std::string_view>()(name); }
  VarDesc* Find(std::string_view name) const { return Find(name, Hash(name)); }
  VarDesc* Find(std::string_view name, size_t hash) const {
    if (entries_.empty()) return nullptr;
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Entry& entry = entries_[i];
      if (!entry.var) return nullptr;
      if (entry.hash == hash && entry.var->name() == name) return entry.var;
    }
  }
  // Adds a variable. Returns false, and changes nothing, if its name is in use.
  bool Add(VarDesc* var) {
    if (2 * (size_ + 1) > entries_.size()) Resize(4 * (size_ + 1));
    const size_t hash = std::hash<std::string_view>()(var->name());
    size_t i = hash & mask_;
    for (; entries_[i].var; i = (i + 1) & mask_) {
      if (entries_[i].hash == hash && entries_[i].var->name() == var->name()) return false;
    }
    entries_[i] = {hash, var};
    ++size_;
    return true;
  }
  void Remove(std::string_view name) {
    if (entries_.empty()) return;
    size_t hole = std::hash<std::string_view>()(name) & mask_;
    while (entries_[hole].var && entries_[hole].var->name() != name) hole = (hole + 1) & mask_;
    if (!entries_[hole].var) return;
    --size_;
    // Later entries whose hash puts them at or before the hole move up.
    for (size_t i = (hole + 1) & mask_; entries_[i].var; i = (i + 1) & mask_) {
      const size_t home = entries_[i].hash & mask_;
      if (((i - home) & mask_) < ((i - hole) & mask_)) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole] = {};
  }
  void Reserve(size_t size) {
    if (2 * size > entries_.size()) Resize(2 * size);
  }
  // Keeps the capacity, so that as many variables as before can be added without an allocation.
  void Clear() {
    std::fill(entries_.begin(), entries_.end(), Entry());
    size_ = 0;
  }

 private:
  struct Entry {
    size_t hash = 0;
    VarDesc* var = nullptr;
  };
  void Resize(size_t at_least) {
    size_t capacity = 16;
    while (capacity < at_least) capacity *= 2;
    std::vector<Entry> old(capacity);
    old.swap(entries_);
    mask_ = capacity - 1;
    for (const Entry& entry : old) {
      if (!entry.var) continue;
      size_t i = entry.hash & mask_;
      while (entries_[i].var) i = (i + 1) & mask_;
      entries_[i] = entry;
    }
  }

  std::vector<Entry> entries_;  // their number is a power of two; at most half are in use
  size_t mask_ = 0, size_ = 0;
};

class ProgramDesc;
namespace internal {
struct EditJournal;
}

// The ops of one block that write and read a variable, in program order; an op appears once in each
// list. Views of the block's index: valid until the block's ops change.
struct VarUses {
  std::span<const OpDesc* const> writers;
  std::span<const OpDesc* const> readers;
};
struct MutableVarUses {
  std::span<OpDesc* const> writers;
  std::span<OpDesc* const> readers;
  operator VarUses() const {  // NOLINT(google-explicit-constructor): the same, const
    return {writers, readers};
  }
};

class BlockDesc {
 public:
  BlockDesc(ProgramDesc* program, int idx, int parent_idx);
  BlockDesc(const BlockDesc&) = delete;
  BlockDesc& operator=(const BlockDesc&) = delete;

  ProgramDesc& program() { return *program_; }
  const ProgramDesc& program() const { return *program_; }
  int idx() const { return idx_; }
  int parent_idx() const { return parent_idx_; }  // -1 for the root
  int forward_block_idx() const { return forward_block_idx_.value_or(-1); }
  void SetForwardBlockIdx(int idx);
  BlockDesc* parent();  // nullptr for the root, and if parent_idx() names no block
  const BlockDesc* parent() const;
  BlockDesc* forward_block();  // nullptr if there is none
  const BlockDesc* forward_block() const;

  // --- variables, in the order in which they were added ---
  size_t NumVars() const { return vars_.size(); }
  VarDesc& var(size_t i) { return *vars_[CheckedVar(i)]; }  // throws kOutOfRange
  const VarDesc& var(size_t i) const { return *vars_[CheckedVar(i)]; }
  VarDesc& Var(const std::string& name);  // found in this block, or added
  VarDesc* TryAddVar(std::string name);   // nullptr if this block has a variable of that name
  VarDesc* FindVar(std::string_view name) { return var_index_.Find(name); }
  const VarDesc* FindVar(std::string_view name) const { return var_index_.Find(name); }
  // Looks in this block, then in the forward block, then in the parent, and so on breadth-first.
  // Returns nullptr if the variable is absent.
  VarDesc* FindVarRecursive(std::string_view name);
  const VarDesc* FindVarRecursive(std::string_view name) const;
  VarDesc& AppendVar(const VarDesc& var);  // a copy; throws kAlreadyExists for a name in use
  // Keeps the variable's position and handles on it. Ops keep the old name. Throws like AppendVar.
  void RenameVar(VarDesc& var, std::string name);
  bool RemoveVar(std::string_view name);
  // Considers the variables from position `first` on; takes no time for those before it.
  void RemoveVarsIf(const std::function<bool(const VarDesc&)>& predicate, size_t first = 0);
  // Reserves room for that many variables and ops; changes nothing else.
  void Reserve(size_t vars, size_t ops);

  // --- ops ---
  size_t NumOps() const { return ops_.size(); }
  OpDesc& op(size_t i) { return *ops_[CheckedOp(i)]; }  // throws kOutOfRange
  const OpDesc& op(size_t i) const { return *ops_[CheckedOp(i)]; }
  // f(op) for each op in order, including those that f appends.
  template <class F>
  void ForEachOp(F&& f) {
    for (size_t i = 0; i < ops_.size(); ++i) f(*ops_[i]);
  }
  template <class F>
  void ForEachOp(F&& f) const {
    for (size_t i = 0; i < ops_.size(); ++i) f(std::as_const(*ops_[i]));
  }
  OpDesc& AppendOp(std::string type, SlotList inputs, SlotList outputs, AttrList attrs = {});
  OpDesc& AppendOp(const OpDesc& op);            // a copy
  OpDesc& AppendOp(std::unique_ptr<OpDesc> op);  // not nullptr
  OpDesc& PrependOp(std::string type, SlotList inputs, SlotList outputs, AttrList attrs = {});
  // Before the op at `position`; a copy. Throws kOutOfRange, as does RemoveOp.
  OpDesc& InsertOp(size_t position, const OpDesc& op);
  void RemoveOp(size_t position);
  void RemoveOpsIf(const std::function<bool(const OpDesc&)>& predicate);  // one pass
  void TruncateOps(size_t size);                                          // keeps the first `size`
  // Take out and replace the whole list, for passes that rebuild it in one sweep.
  std::vector<std::unique_ptr<OpDesc>> ReleaseOps();
  void SetOps(std::vector<std::unique_ptr<OpDesc>> ops);

  // The first look-up after an edit of ops builds the index of uses. Appended ops are added to
  // it by the next look-up, in time proportional to their number. Not thread-safe while the
  // index is stale.
  MutableVarUses Uses(std::string_view name);
  VarUses Uses(std::string_view name) const;
  std::span<OpDesc* const> SubBlockOps();  // the ops with an attr that names a block
  std::span<const OpDesc* const> SubBlockOps() const;
  // Position of the op in this block; throws InternalError for an op of another block.
  size_t IndexOf(const OpDesc& op) const;

  bool operator==(const BlockDesc& other) const;

  // For the codec only.
  const std::string& unknown_fields() const { return unknown_fields_; }
  void SetUnknownFields(std::string bytes);
  std::optional<int32_t>& forward_block_idx_field() {
    NoteChange();
    return forward_block_idx_;
  }
  const std::optional<int32_t>& forward_block_idx_field() const { return forward_block_idx_; }

 private:
  friend class ProgramDesc;
  friend class OpDesc;
  friend class VarDesc;
  friend struct internal::EditJournal;
  size_t CheckedVar(size_t i) const {
    if (i >= vars_.size()) ThrowPast("var", i, vars_.size());
    return i;
  }
  size_t CheckedOp(size_t i) const {
    if (i >= ops_.size()) ThrowPast("op", i, ops_.size());
    return i;
  }
  [[noreturn]] void ThrowPast(const char* what, size_t i, size_t size) const;
  internal::EditJournal* journal() const;
  void NoteChange();  // before a change of forward_block_idx
  template <class Block>
  static auto* FindFrom(Block& start, std::string_view name, size_t hash);
  struct UseLists {
    std::vector<OpDesc*> writers, readers;
  };
  void InvalidateUses() { uses_valid_ = false; }
  // An edit of the newest op does not touch an index that does not contain it yet.
  void NoteEdit(const OpDesc& op) {
    if (indexed_ops_ >= ops_.size() || ops_.back().get() != &op) InvalidateUses();
  }
  void IndexUses() const;
  UseLists& UsesOf(std::string_view name) const;
  const UseLists& IndexedUsesOf(std::string_view name) const;
  VarDesc* TryAppend(std::unique_ptr<VarDesc> var);
  void RemoveOpsAt(const std::vector<size_t>& places);  // in ascending order
  [[noreturn]] void ThrowTaken(const std::string& name) const;

  ProgramDesc* program_;
  int idx_;
  int parent_idx_;
  std::optional<int32_t> forward_block_idx_;
  std::vector<std::unique_ptr<VarDesc>> vars_;
  VarIndex var_index_;
  std::vector<std::unique_ptr<OpDesc>> ops_;
  std::string unknown_fields_;
  uint32_t stamp_ = 0;  // see EditJournal
  // The index of uses covers the first indexed_ops_ ops.
  mutable bool uses_valid_ = true;
  mutable size_t indexed_ops_ = 0;
  mutable std::vector<OpDesc*> sub_block_ops_;
  mutable std::vector<UseLists> uses_;  // of the block's own variables, by VarDesc::index()
  // The keys point into the slots of the ops.
  mutable std::unordered_map<std::string_view, UseLists> outer_uses_;
};

}  // namespace coracle

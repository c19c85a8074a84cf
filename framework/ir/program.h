#pragma once
// ProgramDesc: a whole program, made of blocks of variables and ops. A value type; copies are deep.

#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/var.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle {

class ProgramDesc;
inline namespace internal {
class EditGuard;
struct EditJournal;
struct FileFields;
class VarIndex;
}  // namespace internal

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

// The variables and ops of one block. All edits of the op list go through it, since it keeps an
// index of definitions and uses.
class BlockDesc {
 public:
  BlockDesc(ProgramDesc* program, int idx, int parent_idx);
  BlockDesc(const BlockDesc&) = delete;
  BlockDesc& operator=(const BlockDesc&) = delete;
  ~BlockDesc();

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
  VarDesc& Var(const std::string& name);    // found in this block, or added
  VarDesc* TryAddVar(std::string name);     // nullptr if this block has a variable of that name
  VarDesc* FindVar(std::string_view name);  // nullptr if this block has no such variable
  const VarDesc* FindVar(std::string_view name) const;
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

 private:
  friend class ProgramDesc;
  friend class OpDesc;
  friend class VarDesc;
  friend struct internal::EditJournal;
  friend struct internal::FileFields;
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
  void SetUnknownFields(std::string bytes);
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
  std::unique_ptr<internal::VarIndex> var_index_;
  std::vector<std::unique_ptr<OpDesc>> ops_;
  std::string unknown_fields_;  // see FileFields
  uint32_t stamp_ = 0;          // see EditJournal
  // The index of uses covers the first indexed_ops_ ops.
  mutable bool uses_valid_ = true;
  mutable size_t indexed_ops_ = 0;
  mutable std::vector<OpDesc*> sub_block_ops_;
  mutable std::vector<UseLists> uses_;  // of the block's own variables, by VarDesc::index()
  // The keys point into the slots of the ops.
  mutable std::unordered_map<std::string_view, UseLists> outer_uses_;
};

class ProgramDesc {
 public:
  ProgramDesc();  // one empty block, the root
  ProgramDesc(const ProgramDesc& other);
  // Moving from a program that an EditGuard watches copies it, because the guard may restore it.
  ProgramDesc(ProgramDesc&& other) noexcept;
  ProgramDesc& operator=(const ProgramDesc& other);
  ProgramDesc& operator=(ProgramDesc&& other) noexcept;
  ~ProgramDesc();

  int NumBlocks() const { return static_cast<int>(blocks_.size()); }
  // Throw kOutOfRange if the block does not exist. A moved-from program has no blocks.
  BlockDesc& Block(int idx) { return *blocks_[Checked(idx)]; }
  const BlockDesc& Block(int idx) const { return *blocks_[Checked(idx)]; }
  BlockDesc& Root() { return Block(0); }
  const BlockDesc& Root() const { return Block(0); }
  BlockDesc& AppendBlock(const BlockDesc& parent);
  // For the codec: takes any index, which Verify checks later.
  BlockDesc& AppendBlock(int parent_idx);

  void TruncateBlocks(int size);  // keeps the first `size`

  // Calls f(op) for each op of each block, in order. f must not add blocks.
  template <class F>
  void ForEachOp(F&& f) {
    for (auto& block : blocks_) block->ForEachOp(f);
  }
  template <class F>
  void ForEachOp(F&& f) const {
    for (const auto& block : blocks_) std::as_const(*block).ForEachOp(f);
  }

  // The blocks that an op (or the ops of a block) may run: its sub-blocks and, recursively, the
  // sub-blocks of their ops. Each appears once, breadth first, without the op's own block. Indices
  // that name no block and the root, which ops never run, are skipped, so this is safe on
  // unverified programs. With `seen`, blocks whose indices are in it are skipped too, and the found
  // ones are added to it.
  std::vector<const BlockDesc*> BlocksRunBy(const OpDesc& op,
                                            std::unordered_set<int>* seen = nullptr) const;
  std::vector<const BlockDesc*> BlocksRunBy(const BlockDesc& block) const;

  // A name that is unused in the whole program: "prefix_0", "prefix_1", ..., in the order of
  // the calls.
  std::string UniqueName(const std::string& prefix);
  // `name` itself if it is free, else UniqueName(name).
  std::string FreeName(const std::string& name);

  // The trainable parameters (VarDesc::is_parameter), in the order of the root block.
  std::vector<std::string> Parameters() const;

  // Decides which variables of the root block are parameters if no variable says so (in files older
  // than that field): persistable floating-point tensors that a forward op reads and no op writes,
  // and those that an op updates as its Param. This is done once, when a file is read; later
  // additions to the program do not change the result. Variables for which SetIsParameter was
  // called are not affected.
  void InferParameters();

  // Deep copy for evaluation: drops ops with the roles Backward, Optimize and LRSched and the
  // variables that only these used, and sets every is_test attr that is present to true.
  ProgramDesc CloneForTest() const;

  // Keeps the ops of the root block that the targets depend on (with the sub-blocks they run),
  // the ops marked is_target, and the variables that these use. Ops that only compute `feeds` are
  // dropped. In-place updates of a kept name are kept. Throws kNotFound for a target that no
  // block has.
  void Prune(const std::vector<std::string>& targets, const std::vector<std::string>& feeds = {});

  // Version of the framework that wrote the program, as major * 1000000 + minor * 1000 + patch;
  // empty if unknown.
  std::optional<int64_t> version;
  // Whether the version was read from the format's older place (2018's field 2) instead of field 4.
  bool version_in_legacy_field = false;
  // Seed of the random ops whose own seed is 0; saved in an extension. 0: use the executor's seed.
  uint64_t random_seed = 0;

  // Versions of op types, the file's op_version_map; empty if a file has no such map.
  using OpVersions = std::vector<std::pair<std::string, int32_t>>;
  const std::optional<OpVersions>& op_versions() const { return op_versions_; }
  void SetOpVersions(std::optional<OpVersions> versions);

  bool operator==(const ProgramDesc& other) const;

 private:
  friend class BlockDesc;
  friend class internal::EditGuard;
  friend struct internal::EditJournal;
  friend struct internal::FileFields;

  size_t Checked(int idx) const {
    if (idx < 0 || idx >= NumBlocks()) ThrowNoBlock(idx);
    return static_cast<size_t>(idx);
  }
  [[noreturn]] void ThrowNoBlock(int idx) const;
  bool HasName(const std::string& name) const;
  void AddSubBlocks(const OpDesc& op, int home, std::unordered_set<int>& seen,
                    std::vector<const BlockDesc*>* blocks) const;
  void AddNestedBlocks(int home, std::unordered_set<int>& seen,
                       std::vector<const BlockDesc*>* blocks) const;
  void NoteInnerName(std::string_view name, int block);
  void NoteParent(int parent_idx, int idx);
  bool MayBeInner(size_t hash) const {
    const auto noted = inner_names_.find(hash);
    return noted != inner_names_.end() && noted->second != kLost;
  }
  void CopyFrom(const ProgramDesc& other);
  void Readopt();
  void SetUnknownFields(std::string bytes);
  void ClearBlocks();
  bool MustSayParameters() const;

  std::vector<std::unique_ptr<BlockDesc>> blocks_;
  std::unordered_map<std::string, int64_t> name_counters_;
  // Maps the hash of a name to a non-root block that declared it (and may have removed it since),
  // or to kLost if no block has the name now. Makes HasName fast for each new name, in programs
  // with any number of blocks.
  std::unordered_map<size_t, int> inner_names_;
  static constexpr int kLost = -1;
  // Each block's parent has a lower index, so that the root is above all.
  bool parents_first_ = true;
  std::optional<OpVersions> op_versions_;
  std::string unknown_fields_;                // see FileFields
  internal::EditJournal* journal_ = nullptr;  // of the EditGuard that watches it
};

// --- variables made by code that rewrites programs: training state and temporaries ---

// Makes a persistable variable in the root blocks of both programs and appends an op to `startup`
// that fills it with `value` (exactly, in float64 and integer types). Returns its name.
std::string MakeState(ProgramDesc& main, ProgramDesc& startup, const std::string& name, DType dtype,
                      const Shape& shape, double value);

// Makes a variable in `block` with a new name "prefix_N" and stop_gradient set.
std::string MakeTemporary(BlockDesc& block, const std::string& prefix, DType dtype,
                          const Shape& shape = {1});

// --- programs as text for people ---
// A text has one line per op, parameters with their sizes, and the order of a training step.

// Empty functions select everything and hide nothing.
struct PrintOptions {
  int block = -1;  // print this one only
  // Select the ops and variables to print. If either is set, empty sections and the summary of the
  // program are left out.
  std::function<bool(const OpDesc& op)> keep_op = {};
  std::function<bool(const VarDesc& var)> keep_var = {};
  // Returns true for an attr to hide (one with its default value). The attrs that every op may have
  // (op_role, op_callstack, ...) are never shown.
  std::function<bool(const OpDesc& op, const NamedAttr& attr)> hide_attr = {};
  // Returns true for an output slot to hide.
  std::function<bool(const OpDesc& op, const Slot& output)> hide_output = {};
  // Names the slot of an output also where an op shows one only.
  bool name_all_outputs = false;
};

// Linear in the size of the program; safe on unverified programs. Names with characters that could
// act on a terminal are quoted and escaped.
std::string PrintProgram(const ProgramDesc& program, const PrintOptions& options = {});

// "h:float32[-1,500] = mul(X=x, Y=w) {x_num_col_dims=2}", without a line end. If an op shows
// several outputs, their slots are named: "Out=v:float32[-1,3], Indices=i:int64[-1,3] = top_k()".
std::string PrintOp(const OpDesc& op, const PrintOptions& options = {});

// Variable: a handle on a variable of a block, as the builder functions take and return it. Cheap
// to copy; valid while its program lives (and stays where it is) and the variable is not removed.

inline namespace internal {
struct WriterState;
}

// The namespace of the functions and operators on Variables (operators/operators.h). Only calls
// with a Variable find them, so they cannot collide with a user's own Log or Min.
namespace variable_functions {
struct Found {};
}  // namespace variable_functions

class Variable : private variable_functions::Found {
 public:
  // Handle on no variable: the functions below, except bool, throw kInvalidArgument.
  Variable() = default;
  Variable(BlockDesc* block, VarDesc* desc) : block_(block), desc_(desc) {}
  // Moves are copies, so a moved-from handle stays valid.
  Variable(const Variable&) = default;
  Variable& operator=(const Variable&) = default;
  // The variable of that name, looked up recursively from `block`; throws kNotFound. It has no
  // Writer: functions on it need another operand that has one, such as a Variable of Writer::Var.
  static Variable Of(BlockDesc& block, const std::string& name);

  explicit operator bool() const { return desc_ != nullptr; }
  const std::string& name() const { return desc().name(); }
  const Shape& shape() const { return desc().shape(); }
  DType dtype() const { return desc().dtype(); }
  VarDesc& desc() const {
    if (!desc_) ThrowEmpty();
    return *desc_;
  }
  BlockDesc& block() const {
    if (!block_) ThrowEmpty();
    return *block_;
  }
  ProgramDesc& program() const { return block().program(); }

 private:
  friend class Writer;
  [[noreturn]] static void ThrowEmpty();
  BlockDesc* block_ = nullptr;
  VarDesc* desc_ = nullptr;
  std::shared_ptr<internal::WriterState> writer_;  // of the Writer that made it; may be null
};

}  // namespace coracle

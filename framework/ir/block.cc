#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_journal.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/var_index.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace coracle {

BlockDesc::BlockDesc(ProgramDesc* program, int idx, int parent_idx)
    : program_(&Required(program, "the program of a block")),
      idx_(idx),
      parent_idx_(parent_idx),
      var_index_(std::make_unique<VarIndex>()) {}
BlockDesc::~BlockDesc() = default;

namespace {

template <class Program>
auto* BlockAt(Program& program, int idx) {
  return idx >= 0 && idx < program.NumBlocks() ? &program.Block(idx) : nullptr;
}

// The blocks that a look-up has visited, without an allocation per look-up.
class SeenBlocks {
 public:
  explicit SeenBlocks(int blocks) {
    if (marks_.size() < static_cast<size_t>(blocks)) marks_.resize(static_cast<size_t>(blocks), 0);
    if (++round_ == 0) {
      std::fill(marks_.begin(), marks_.end(), 0);
      round_ = 1;
    }
  }
  bool Add(int idx) {
    uint32_t& mark = marks_[static_cast<size_t>(idx)];
    return std::exchange(mark, round_) != round_;
  }

 private:
  static thread_local std::vector<uint32_t> marks_;
  static thread_local uint32_t round_;
};
thread_local std::vector<uint32_t> SeenBlocks::marks_;
thread_local uint32_t SeenBlocks::round_ = 0;

}  // namespace

BlockDesc* BlockDesc::parent() { return BlockAt(*program_, parent_idx_); }
const BlockDesc* BlockDesc::parent() const { return BlockAt(*program_, parent_idx_); }
BlockDesc* BlockDesc::forward_block() { return BlockAt(*program_, forward_block_idx()); }
const BlockDesc* BlockDesc::forward_block() const {
  return BlockAt(*program_, forward_block_idx());
}

VarDesc* BlockDesc::FindVar(std::string_view name) { return var_index_->Find(name); }
const VarDesc* BlockDesc::FindVar(std::string_view name) const { return var_index_->Find(name); }

VarDesc& BlockDesc::Var(const std::string& name) {
  VarDesc* found = FindVar(name);
  return found ? *found : *TryAddVar(name);
}

VarDesc* BlockDesc::TryAddVar(std::string name) {
  return TryAppend(std::make_unique<VarDesc>(std::move(name)));
}

// The index is updated after everything that may throw, so it never holds a variable that the
// block lacks.
VarDesc* BlockDesc::TryAppend(std::unique_ptr<VarDesc> var) {
  if (auto* edits = journal()) {
    edits->NoteBlock(*this);
    var->stamp_ = edits->id;
  }
  if (idx_ > 0) program_->NoteInnerName(var->name(), idx_);
  if (vars_.size() == vars_.capacity()) vars_.reserve(2 * vars_.size() + 1);
  var->index_ = vars_.size();
  if (!var_index_->Add(var.get())) return nullptr;
  var->block_ = this;
  // Ops may have used the name before the variable was declared.
  if (uses_valid_ && !outer_uses_.empty() && outer_uses_.count(var->name())) InvalidateUses();
  vars_.push_back(std::move(var));
  return vars_.back().get();
}

// An untrusted program may nest thousands of blocks. So names that no inner block has are looked up
// in the root at once, and chains of parents are walked without a list of blocks.
template <class Block>
auto* BlockDesc::FindFrom(Block& start, std::string_view name, size_t hash) {
  VarDesc* found = start.var_index_->Find(name, hash);
  const ProgramDesc& program = *start.program_;
  if (found || (start.parent_idx_ < 0 && !start.forward_block_idx_)) return found;
  if (program.parents_first_ && !program.MayBeInner(hash))
    return program.Root().var_index_->Find(name, hash);
  Block* at = &start;
  for (int left = program.NumBlocks(); at && !at->forward_block_idx_ && left > 0; --left) {
    at = at->parent();
    if (at && (found = at->var_index_->Find(name, hash))) return found;
  }
  if (!at || !at->forward_block_idx_) return found;
  SeenBlocks seen(program.NumBlocks());
  std::vector<Block*> queue = {at};
  seen.Add(at->idx_);
  for (size_t i = 0; i < queue.size() && !found; ++i) {
    for (Block* next : {queue[i]->forward_block(), queue[i]->parent()}) {
      if (found || !next || !seen.Add(next->idx_)) continue;
      found = next->var_index_->Find(name, hash);
      queue.push_back(next);
    }
  }
  return found;
}

VarDesc* BlockDesc::FindVarRecursive(std::string_view name) {
  return FindFrom(*this, name, VarIndex::Hash(name));
}
const VarDesc* BlockDesc::FindVarRecursive(std::string_view name) const {
  return FindFrom(*this, name, VarIndex::Hash(name));
}

internal::EditJournal* BlockDesc::journal() const { return program_->journal_; }

void BlockDesc::NoteChange() {
  if (auto* edits = journal()) edits->NoteBlock(*this);
}

void BlockDesc::SetUnknownFields(std::string bytes) {
  if (auto* edits = journal()) edits->NoteUnknownFields(*this);
  unknown_fields_ = std::move(bytes);
}

void BlockDesc::SetForwardBlockIdx(int idx) {
  NoteChange();
  forward_block_idx_ = idx;
}

void BlockDesc::ThrowPast(const char* what, size_t i, size_t size) const {
  throw Error(ErrorCode::kOutOfRange,
              fmt::format("block {} has no {} {}; it has {}", idx_, what, i, size));
}

void BlockDesc::ThrowTaken(const std::string& name) const {
  throw Error(ErrorCode::kAlreadyExists,
              fmt::format("block {} already has a var {}", idx_, Quote(name)));
}

VarDesc& BlockDesc::AppendVar(const VarDesc& var) {
  if (VarDesc* added = TryAppend(std::make_unique<VarDesc>(var))) return *added;
  ThrowTaken(var.name());
}

void BlockDesc::RenameVar(VarDesc& var, std::string name) {
  if (FindVar(var.name()) != &var)
    ThrowInvalid(
        fmt::format("block {} does not have the var {} to rename", idx_, Quote(var.name())));
  if (IsEmptyName(name))
    ThrowInvalid(fmt::format("var {} cannot be renamed to {}", Quote(var.name()), Quote(name)));
  if (FindVar(name)) ThrowTaken(name);
  var.Save();
  var_index_->Remove(var.name());
  var.name_ = std::move(name);
  var_index_->Add(&var);
  if (idx_ > 0) program_->NoteInnerName(var.name(), idx_);
  if (uses_valid_ && (var.index() < uses_.size() || outer_uses_.count(var.name())))
    InvalidateUses();
}

bool BlockDesc::RemoveVar(std::string_view name) {
  VarDesc* var = FindVar(name);
  if (!var) return false;
  RemoveVarsIf([&](const VarDesc& v) { return &v == var; });
  return true;
}

namespace {

// The positions from `first` on whose object satisfies the predicate. The predicate may throw or
// look objects up, so nothing is removed before its last call.
template <class T>
std::vector<size_t> PlacesWhere(const std::vector<std::unique_ptr<T>>& objects, size_t first,
                                const std::function<bool(const T&)>& predicate) {
  std::vector<size_t> places;
  for (size_t i = first; i < objects.size(); ++i)
    if (predicate(*objects[i])) places.push_back(i);
  return places;
}

// Moves the objects at `places`, in ascending order, out of `objects`, which keeps its capacity.
template <class T>
internal::Removed<T> TakeOut(const std::vector<size_t>& places,
                             std::vector<std::unique_ptr<T>>& objects) {
  internal::Removed<T> taken(places.size());
  if (places.empty()) return taken;
  auto next = places.begin();
  auto to = taken.begin();
  size_t kept = places.front();
  for (size_t i = kept; i < objects.size(); ++i) {
    if (next != places.end() && *next == i) {
      *to++ = std::move(objects[i]);
      ++next;
    } else {
      objects[kept++] = std::move(objects[i]);
    }
  }
  objects.resize(kept);
  return taken;
}

}  // namespace

void BlockDesc::RemoveVarsIf(const std::function<bool(const VarDesc&)>& predicate, size_t first) {
  RequireFunction(predicate, "the predicate of RemoveVarsIf");
  const std::vector<size_t> places = PlacesWhere(vars_, first, predicate);
  if (places.empty()) return;
  if (journal()) journal()->NoteVarOrder(*this, places.front());
  internal::Removed<VarDesc> removed = TakeOut(places, vars_);
  for (size_t i = places.front(); i < vars_.size(); ++i) vars_[i]->index_ = i;
  if (places.front() < uses_.size()) InvalidateUses();
  for (const auto& var : removed) var_index_->Remove(var->name());
  if (auto* edits = journal()) edits->removed_vars.splice(edits->removed_vars.end(), removed);
}

void BlockDesc::Reserve(size_t vars, size_t ops) {
  vars_.reserve(vars);
  var_index_->Reserve(vars);
  ops_.reserve(ops);
}

OpDesc& BlockDesc::AppendOp(std::string type, SlotList inputs, SlotList outputs, AttrList attrs) {
  return AppendOp(std::make_unique<OpDesc>(std::move(type), std::move(inputs), std::move(outputs),
                                           std::move(attrs)));
}

OpDesc& BlockDesc::AppendOp(const OpDesc& op) { return AppendOp(std::make_unique<OpDesc>(op)); }

OpDesc& BlockDesc::AppendOp(std::unique_ptr<OpDesc> op) {
  if (!op) ThrowInvalid("a null op was appended to a block");
  if (auto* edits = journal()) {
    edits->NoteBlock(*this);
    op->stamp_ = edits->id;
  }
  op->block_ = this;
  ops_.push_back(std::move(op));
  return *ops_.back();
}

OpDesc& BlockDesc::InsertOp(size_t position, const OpDesc& op) {
  if (position > ops_.size()) ThrowPast("op", position, ops_.size());
  auto added = std::make_unique<OpDesc>(op);
  added->block_ = this;
  if (auto* edits = journal()) {
    edits->NoteOpOrder(*this, position);
    added->stamp_ = edits->id;
  }
  InvalidateUses();
  return **ops_.insert(ops_.begin() + static_cast<std::ptrdiff_t>(position), std::move(added));
}

void BlockDesc::RemoveOp(size_t position) { RemoveOpsAt({CheckedOp(position)}); }

void BlockDesc::RemoveOpsIf(const std::function<bool(const OpDesc&)>& predicate) {
  RequireFunction(predicate, "the predicate of RemoveOpsIf");
  RemoveOpsAt(PlacesWhere(ops_, 0, predicate));
}

void BlockDesc::TruncateOps(size_t size) {
  std::vector<size_t> places;
  for (size_t i = size; i < ops_.size(); ++i) places.push_back(i);
  RemoveOpsAt(places);
}

void BlockDesc::RemoveOpsAt(const std::vector<size_t>& places) {
  if (places.empty()) return;
  InvalidateUses();
  auto* edits = journal();
  if (edits) edits->NoteOpOrder(*this, places.front());
  internal::Removed<OpDesc> removed = TakeOut(places, ops_);
  if (edits) edits->removed_ops.splice(edits->removed_ops.end(), removed);
}

std::vector<std::unique_ptr<OpDesc>> BlockDesc::ReleaseOps() {
  InvalidateUses();
  std::vector<std::unique_ptr<OpDesc>> taken;
  taken.reserve(ops_.size());
  if (auto* edits = journal()) edits->NoteRelease(*this);
  for (auto& op : ops_) {
    op->block_ = nullptr;
    taken.push_back(std::move(op));
  }
  ops_.clear();  // keeps its capacity, which the journal relies on
  return taken;
}

void BlockDesc::SetOps(std::vector<std::unique_ptr<OpDesc>> ops) {
  for (const auto& op : ops)
    if (!op) ThrowInvalid("a null op was put into a block");
  ops_.reserve(ops.size());
  static_cast<void>(ReleaseOps());
  for (auto& op : ops) {
    op->block_ = this;
    if (auto* edits = journal()) op->stamp_ = edits->id;
    ops_.push_back(std::move(op));
  }
}

BlockDesc::UseLists& BlockDesc::UsesOf(std::string_view name) const {
  const VarDesc* var = FindVar(name);
  return var ? uses_[var->index_] : outer_uses_[name];
}

void BlockDesc::IndexUses() const {
  if (!uses_valid_) {
    uses_.clear();
    outer_uses_.clear();
    sub_block_ops_.clear();
    indexed_ops_ = 0;
    uses_valid_ = true;
  }
  if (uses_.size() < vars_.size()) uses_.resize(vars_.size());
  auto add = [](std::vector<OpDesc*>& list, OpDesc* op) {
    if (list.empty() || list.back() != op) list.push_back(op);
  };
  for (; indexed_ops_ < ops_.size(); ++indexed_ops_) {
    OpDesc* op = ops_[indexed_ops_].get();
    op->position_ = indexed_ops_;
    // An op comes twice if memory ran out the first time.
    if (op->HasSubBlock()) add(sub_block_ops_, op);
    op->ForEachInput([&](const std::string& name) { add(UsesOf(name).readers, op); });
    op->ForEachOutput([&](const std::string& name) { add(UsesOf(name).writers, op); });
  }
}

const BlockDesc::UseLists& BlockDesc::IndexedUsesOf(std::string_view name) const {
  static const UseLists none;
  IndexUses();
  if (const VarDesc* var = FindVar(name)) return uses_[var->index_];
  auto it = outer_uses_.find(name);
  return it == outer_uses_.end() ? none : it->second;
}

MutableVarUses BlockDesc::Uses(std::string_view name) {
  const UseLists& uses = IndexedUsesOf(name);
  return {uses.writers, uses.readers};
}

VarUses BlockDesc::Uses(std::string_view name) const {
  const UseLists& uses = IndexedUsesOf(name);
  return {uses.writers, uses.readers};
}

std::span<OpDesc* const> BlockDesc::SubBlockOps() {
  IndexUses();
  return sub_block_ops_;
}

std::span<const OpDesc* const> BlockDesc::SubBlockOps() const {
  IndexUses();
  return sub_block_ops_;
}

size_t BlockDesc::IndexOf(const OpDesc& op) const {
  IndexUses();
  if (op.block_ != this || op.position_ >= ops_.size() || ops_[op.position_].get() != &op)
    throw InternalError("an op was looked up in a block that does not hold it");
  return op.position_;
}

bool BlockDesc::operator==(const BlockDesc& other) const {
  auto same = [](const auto& a, const auto& b) { return *a == *b; };
  return idx_ == other.idx_ && parent_idx_ == other.parent_idx_ &&
         forward_block_idx() == other.forward_block_idx() &&
         std::equal(vars_.begin(), vars_.end(), other.vars_.begin(), other.vars_.end(), same) &&
         std::equal(ops_.begin(), ops_.end(), other.ops_.begin(), other.ops_.end(), same) &&
         unknown_fields_ == other.unknown_fields_;
}

}  // namespace coracle

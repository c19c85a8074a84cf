#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/block.h>
#include <coracle/framework/ir/edit_journal.h>
#include <coracle/framework/ir/program.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace coracle {

BlockDesc::BlockDesc(ProgramDesc* program, int idx, int parent_idx)
    : program_(program), idx_(idx), parent_idx_(parent_idx) {}

namespace {

template <class Program>
auto* BlockAt(Program& program, int idx) {
  return idx >= 0 && idx < program.NumBlocks() ? &program.Block(idx) : nullptr;
}

// The blocks that a look-up has seen, without allocating for each look-up.
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

VarDesc& BlockDesc::Var(const std::string& name) {
  VarDesc* found = FindVar(name);
  return found ? *found : *TryAddVar(name);
}

VarDesc* BlockDesc::TryAddVar(std::string name) {
  return TryAppend(std::make_unique<VarDesc>(std::move(name)));
}

VarDesc* BlockDesc::TryAppend(std::unique_ptr<VarDesc> var) {
  var->index_ = vars_.size();
  if (!var_index_.Add(var.get())) return nullptr;
  var->block_ = this;
  if (auto* edits = journal()) {
    edits->NoteAppend(*this);
    var->stamp_ = edits->id;
  }
  if (idx_ > 0) program_->NoteInnerName(var->name(), idx_);
  // Ops may have named it before it was declared.
  if (uses_valid_ && !outer_uses_.empty() && outer_uses_.count(var->name())) InvalidateUses();
  vars_.push_back(std::move(var));
  return vars_.back().get();
}

// A program of strangers may nest thousands of blocks, so that names that no inner block has are
// looked up in the root at once, and chains of parents are walked without a list of blocks.
template <class Block>
auto* BlockDesc::FindFrom(Block& start, std::string_view name, size_t hash) {
  VarDesc* found = start.var_index_.Find(name, hash);
  const ProgramDesc& program = *start.program_;
  if (found || (start.parent_idx_ < 0 && !start.forward_block_idx_)) return found;
  if (program.parents_first_ && !program.MayBeInner(hash))
    return program.Root().var_index_.Find(name, hash);
  Block* at = &start;
  for (int left = program.NumBlocks(); at && !at->forward_block_idx_ && left > 0; --left) {
    at = at->parent();
    if (at && (found = at->var_index_.Find(name, hash))) return found;
  }
  if (!at || !at->forward_block_idx_) return found;
  SeenBlocks seen(program.NumBlocks());
  std::vector<Block*> queue = {at};
  seen.Add(at->idx_);
  for (size_t i = 0; i < queue.size() && !found; ++i) {
    for (Block* next : {queue[i]->forward_block(), queue[i]->parent()}) {
      if (found || !next || !seen.Add(next->idx_)) continue;
      found = next->var_index_.Find(name, hash);
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

void BlockDesc::SetForwardBlockIdx(int idx) {
  if (journal()) journal()->NoteAppend(*this);
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
  if (FindVar(name)) ThrowTaken(name);
  var.Save();
  var_index_.Remove(var.name());
  var.name_ = std::move(name);
  var_index_.Add(&var);
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

void BlockDesc::RemoveVarsIf(const std::function<bool(const VarDesc&)>& predicate, size_t first) {
  if (journal()) journal()->NoteVarOrder(*this);
  std::vector<std::unique_ptr<VarDesc>> kept, removed;  // the predicate may look vars up
  for (size_t i = first; i < vars_.size(); ++i)
    (predicate(*vars_[i]) ? removed : kept).push_back(std::move(vars_[i]));
  vars_.resize(std::min(first, vars_.size()));
  for (auto& var : kept) {
    var->index_ = vars_.size();
    vars_.push_back(std::move(var));
  }
  if (removed.empty()) return;
  if (first < uses_.size()) InvalidateUses();
  if (removed.size() < vars_.size() / 2) {
    for (const auto& var : removed) var_index_.Remove(var->name());
  } else {
    var_index_.Clear();
    var_index_.Reserve(vars_.size());
    for (const auto& var : vars_) var_index_.Add(var.get());
  }
  if (!journal()) return;
  for (auto& var : removed) journal()->KeepVar(std::move(var));
}

void BlockDesc::Reserve(size_t vars, size_t ops) {
  vars_.reserve(vars);
  var_index_.Reserve(vars);
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
    edits->NoteAppend(*this);
    op->stamp_ = edits->id;
  }
  op->block_ = this;
  ops_.push_back(std::move(op));
  return *ops_.back();
}

OpDesc& BlockDesc::PrependOp(std::string type, SlotList inputs, SlotList outputs, AttrList attrs) {
  return InsertOp(0,
                  OpDesc(std::move(type), std::move(inputs), std::move(outputs), std::move(attrs)));
}

OpDesc& BlockDesc::InsertOp(size_t position, const OpDesc& op) {
  if (position > ops_.size()) ThrowPast("op", position, ops_.size());
  auto added = std::make_unique<OpDesc>(op);
  added->block_ = this;
  if (auto* edits = journal()) {
    edits->NoteOpOrder(*this);
    added->stamp_ = edits->id;
  }
  InvalidateUses();
  return **ops_.insert(ops_.begin() + static_cast<std::ptrdiff_t>(position), std::move(added));
}

void BlockDesc::RemoveOp(size_t position) {
  CheckedOp(position);
  const auto at = ops_.begin() + static_cast<std::ptrdiff_t>(position);
  if (auto* edits = journal()) {
    edits->NoteOpOrder(*this);
    edits->KeepOp(std::move(*at));
  }
  ops_.erase(at);
  InvalidateUses();
}

void BlockDesc::RemoveOpsIf(const std::function<bool(const OpDesc&)>& predicate) {
  std::vector<bool> remove(ops_.size());  // the predicate may look ops up
  for (size_t i = 0; i < remove.size(); ++i) remove[i] = predicate(*ops_[i]);
  auto* edits = journal();
  if (edits) edits->NoteOpOrder(*this);
  std::vector<std::unique_ptr<OpDesc>> kept;
  kept.reserve(ops_.size());
  for (size_t i = 0; i < remove.size(); ++i) {
    if (!remove[i]) {
      kept.push_back(std::move(ops_[i]));
    } else if (edits) {
      edits->KeepOp(std::move(ops_[i]));
    }
  }
  ops_ = std::move(kept);
  InvalidateUses();
}

void BlockDesc::TruncateOps(size_t size) {
  if (size >= ops_.size()) return;
  InvalidateUses();
  if (auto* edits = journal()) {
    edits->NoteOpOrder(*this);
    for (size_t i = size; i < ops_.size(); ++i) edits->KeepOp(std::move(ops_[i]));
  }
  ops_.resize(size);
}

std::vector<std::unique_ptr<OpDesc>> BlockDesc::ReleaseOps() {
  InvalidateUses();
  if (auto* edits = journal()) edits->NoteRelease(*this);
  std::vector<std::unique_ptr<OpDesc>> taken = std::move(ops_);
  ops_.clear();
  for (auto& op : taken) op->block_ = nullptr;
  return taken;
}

void BlockDesc::SetOps(std::vector<std::unique_ptr<OpDesc>> ops) {
  for (const auto& op : ops)
    if (!op) ThrowInvalid("a null op was put into a block");
  static_cast<void>(ReleaseOps());
  ops_ = std::move(ops);
  for (auto& op : ops_) {
    op->block_ = this;
    if (auto* edits = journal()) op->stamp_ = edits->id;
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
    if (op->HasSubBlock()) sub_block_ops_.push_back(op);
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

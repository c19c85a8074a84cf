#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/edit_journal.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/var_index.h>
#include <fmt/format.h>

#include <unordered_set>

namespace coracle {
namespace {

using NameSet = std::unordered_set<std::string>;

bool WritesAny(const OpDesc& op, const NameSet& names) {
  return op.AnyOutput([&](const std::string& name) { return names.count(name) > 0; });
}

void AddSlotNames(const OpDesc& op, bool outputs, NameSet& names) {
  for (const Slot& slot : op.inputs()) names.insert(slot.args.begin(), slot.args.end());
  if (!outputs) return;
  for (const Slot& slot : op.outputs()) names.insert(slot.args.begin(), slot.args.end());
}

// Adds the names in the op's slots, and those in the blocks that it runs, except blocks in `seen`,
// whose names are already in the set.
void AddNames(const ProgramDesc& program, const OpDesc& op, bool outputs,
              std::unordered_set<int>& seen, NameSet& names) {
  AddSlotNames(op, outputs, names);
  for (const BlockDesc* inner : program.BlocksRunBy(op, &seen))
    inner->ForEachOp([&](const OpDesc& run) { AddSlotNames(run, outputs, names); });
}

void RemoveUnusedVars(ProgramDesc& program, const NameSet& keep) {
  NameSet used = keep;
  program.ForEachOp([&](const OpDesc& op) { AddSlotNames(op, true, used); });
  for (int b = 0; b < program.NumBlocks(); ++b) {
    program.Block(b).RemoveVarsIf([&](const VarDesc& var) { return used.count(var.name()) == 0; });
  }
}

}  // namespace

void ProgramDesc::ThrowNoBlock(int idx) const {
  throw Error(ErrorCode::kOutOfRange,
              blocks_.empty()
                  ? "a program without blocks was used: it was moved from, or its blocks cleared"
                  : fmt::format("the program has no block {}; it has {}", idx, NumBlocks()));
}

ProgramDesc::ProgramDesc() { blocks_.push_back(std::make_unique<BlockDesc>(this, 0, -1)); }

ProgramDesc::ProgramDesc(const ProgramDesc& other) { CopyFrom(other); }

ProgramDesc::ProgramDesc(ProgramDesc&& other) noexcept { *this = std::move(other); }

ProgramDesc::~ProgramDesc() = default;

ProgramDesc& ProgramDesc::operator=(const ProgramDesc& other) {
  if (this == &other) return *this;
  ProgramDesc copy(other);
  return *this = std::move(copy);
}

ProgramDesc& ProgramDesc::operator=(ProgramDesc&& other) noexcept {
  if (this == &other) return *this;
  if (other.journal_) return *this = std::as_const(other);
  if (journal_) journal_->KeepProgram();
  version = other.version;
  version_in_legacy_field = other.version_in_legacy_field;
  op_versions_ = std::move(other.op_versions_);
  random_seed = other.random_seed;
  blocks_ = std::move(other.blocks_);
  parents_first_ = other.parents_first_;
  name_counters_ = std::move(other.name_counters_);
  inner_names_ = std::move(other.inner_names_);
  unknown_fields_ = std::move(other.unknown_fields_);
  Readopt();
  return *this;
}

void ProgramDesc::Readopt() {
  for (auto& block : blocks_) block->program_ = this;
}

void ProgramDesc::CopyFrom(const ProgramDesc& other) {
  version = other.version;
  version_in_legacy_field = other.version_in_legacy_field;
  op_versions_ = other.op_versions_;
  random_seed = other.random_seed;
  name_counters_ = other.name_counters_;
  unknown_fields_ = other.unknown_fields_;
  parents_first_ = other.parents_first_;
  for (const auto& from : other.blocks_) {
    blocks_.push_back(std::make_unique<BlockDesc>(this, from->idx_, from->parent_idx_));
    BlockDesc& to = *blocks_.back();
    to.forward_block_idx_ = from->forward_block_idx_;
    to.unknown_fields_ = from->unknown_fields_;
    to.vars_.reserve(from->vars_.size());
    to.var_index_->Reserve(from->vars_.size());
    for (const auto& var : from->vars_) to.AppendVar(*var);
    to.ops_.reserve(from->ops_.size());
    for (const auto& op : from->ops_) to.AppendOp(*op);
  }
}

BlockDesc& ProgramDesc::AppendBlock(const BlockDesc& parent) {
  if (&parent.program() != this)
    ThrowInvalid("the parent of a new block is a block of another program");
  return AppendBlock(parent.idx());
}

void ProgramDesc::ClearBlocks() {
  if (journal_) {
    std::unordered_map<std::string, int64_t> counters = name_counters_;
    journal_->KeepContent();
    name_counters_ = std::move(counters);
  }
  blocks_.clear();
  parents_first_ = true;
}

BlockDesc& ProgramDesc::AppendBlock(int parent_idx) {
  NoteParent(parent_idx, NumBlocks());
  blocks_.push_back(std::make_unique<BlockDesc>(this, NumBlocks(), parent_idx));
  if (journal_) blocks_.back()->stamp_ = journal_->id;
  return *blocks_.back();
}

void ProgramDesc::TruncateBlocks(int size) {
  if (size < 0 || size >= NumBlocks()) return;
  if (journal_) journal_->KeepBlocks(static_cast<size_t>(size));
  blocks_.resize(static_cast<size_t>(size));
}

void ProgramDesc::AddSubBlocks(const OpDesc& op, int home, std::unordered_set<int>& seen,
                               std::vector<const BlockDesc*>* blocks) const {
  for (int idx : op.SubBlocks()) {
    const bool runnable = idx > 0 && idx < NumBlocks() && idx != home;
    if (runnable && seen.insert(idx).second) blocks->push_back(&Block(idx));
  }
}

void ProgramDesc::AddNestedBlocks(int home, std::unordered_set<int>& seen,
                                  std::vector<const BlockDesc*>* blocks) const {
  for (size_t i = 0; i < blocks->size(); ++i)
    (*blocks)[i]->ForEachOp([&](const OpDesc& op) { AddSubBlocks(op, home, seen, blocks); });
}

std::vector<const BlockDesc*> ProgramDesc::BlocksRunBy(const OpDesc& op,
                                                       std::unordered_set<int>* seen) const {
  std::vector<const BlockDesc*> blocks;
  std::unordered_set<int> own;
  const int home = op.block() ? op.block()->idx() : -1;
  AddSubBlocks(op, home, seen ? *seen : own, &blocks);
  AddNestedBlocks(home, seen ? *seen : own, &blocks);
  return blocks;
}

std::vector<const BlockDesc*> ProgramDesc::BlocksRunBy(const BlockDesc& block) const {
  std::vector<const BlockDesc*> blocks;
  std::unordered_set<int> seen;
  block.ForEachOp([&](const OpDesc& op) { AddSubBlocks(op, block.idx(), seen, &blocks); });
  AddNestedBlocks(block.idx(), seen, &blocks);
  return blocks;
}

void ProgramDesc::SetOpVersions(std::optional<OpVersions> versions) {
  if (journal_) journal_->NoteOpVersions();
  op_versions_ = std::move(versions);
}

void ProgramDesc::SetUnknownFields(std::string bytes) {
  if (journal_) journal_->NoteUnknownFields();
  unknown_fields_ = std::move(bytes);
}

void ProgramDesc::NoteParent(int parent_idx, int idx) {
  if (idx > 0 && (parent_idx < 0 || parent_idx >= idx)) parents_first_ = false;
}

void ProgramDesc::NoteInnerName(std::string_view name, int block) {
  inner_names_[std::hash<std::string_view>()(name)] = block;
}

bool ProgramDesc::HasName(const std::string& name) const {
  if (Root().FindVar(name)) return true;
  // A cache: a block that has lost the name is visited once, not in each call.
  auto& noted = const_cast<ProgramDesc*>(this)->inner_names_;
  const auto inner = noted.find(VarIndex::Hash(name));
  if (inner == noted.end() || inner->second == kLost) return false;
  if (inner->second < NumBlocks() && Block(inner->second).FindVar(name)) return true;
  for (const auto& block : blocks_) {
    if (!block->FindVar(name)) continue;
    inner->second = block->idx();
    return true;
  }
  inner->second = kLost;
  if (journal_) journal_->names_lost = true;
  return false;
}

std::string ProgramDesc::UniqueName(const std::string& prefix) {
  if (journal_) journal_->NoteCounter(prefix);
  int64_t& counter = name_counters_[prefix];
  while (true) {
    std::string name = fmt::format("{}_{}", prefix, counter++);
    if (!HasName(name)) return name;
  }
}

std::string ProgramDesc::FreeName(const std::string& name) {
  return HasName(name) ? UniqueName(name) : name;
}

ProgramDesc ProgramDesc::CloneForTest() const {
  ProgramDesc copy = *this;
  NameSet dropped_names, kept;
  std::unordered_set<int> dropped_blocks;
  constexpr int kDropped = kBackward | kOptimize | kLRSched;
  for (auto& block : copy.blocks_) {
    block->RemoveOpsIf([&](const OpDesc& op) {
      const bool drop = (op.role() & kDropped) != 0;  // throws for a role that is no number
      if (drop) AddNames(copy, op, true, dropped_blocks, dropped_names);
      return drop;
    });
    for (size_t i = 0; i < block->NumOps(); ++i) {
      if (block->op(i).HasAttr("is_test")) block->op(i).SetAttr("is_test", true);
    }
  }
  for (auto& block : copy.blocks_) {
    for (const auto& var : block->vars_) {
      if (!dropped_names.count(var->name())) kept.insert(var->name());
    }
  }
  RemoveUnusedVars(copy, kept);
  return copy;
}

void ProgramDesc::Prune(const std::vector<std::string>& targets,
                        const std::vector<std::string>& feeds) {
  const EditGuard guard(*this);
  NameSet needed, stop(feeds.begin(), feeds.end());
  for (const std::string& target : targets) {
    if (!Root().FindVar(target)) {
      std::vector<std::string> names;
      for (size_t i = 0; i < Root().NumVars(); ++i) names.push_back(Root().var(i).name());
      throw Error(ErrorCode::kNotFound, fmt::format("prune: the program has no var {}{}",
                                                    Quote(target), DidYouMean(target, names)));
    }
    needed.insert(target);
  }
  std::unordered_set<const OpDesc*> kept;
  std::unordered_set<int> read_blocks, live_blocks;
  for (size_t i = Root().NumOps(); i-- > 0;) {
    const OpDesc& op = Root().op(i);
    if (!op.is_target() && !WritesAny(op, needed)) continue;
    kept.insert(&op);
    NameSet reads;
    AddNames(*this, op, false, read_blocks, reads);
    for (const std::string& name : reads) {
      if (!stop.count(name)) needed.insert(name);
    }
  }
  Root().RemoveOpsIf([&](const OpDesc& op) { return kept.count(&op) == 0; });
  NameSet keep(targets.begin(), targets.end());
  keep.insert(feeds.begin(), feeds.end());
  NameSet live = keep;
  for (size_t i = 0; i < Root().NumOps(); ++i)
    AddNames(*this, Root().op(i), true, live_blocks, live);
  for (auto& block : blocks_) {
    block->RemoveVarsIf([&](const VarDesc& var) { return live.count(var.name()) == 0; });
  }
}

bool ProgramDesc::operator==(const ProgramDesc& other) const {
  if (version != other.version || version_in_legacy_field != other.version_in_legacy_field ||
      op_versions_ != other.op_versions_ || random_seed != other.random_seed ||
      unknown_fields_ != other.unknown_fields_ || NumBlocks() != other.NumBlocks()) {
    return false;
  }
  for (int i = 0; i < NumBlocks(); ++i) {
    if (!(Block(i) == other.Block(i))) return false;
  }
  return true;
}

}  // namespace coracle

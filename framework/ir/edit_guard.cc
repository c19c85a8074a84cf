#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/edit_journal.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/framework/ir/var_index.h>

#include <atomic>
#include <exception>
#include <unordered_set>
#include <utility>

namespace coracle::inline internal {
namespace {

uint32_t NewStamp() {
  static std::atomic<uint32_t> last{0};
  uint32_t stamp = ++last;
  return stamp == 0 ? ++last : stamp;
}

}  // namespace

EditJournal::EditJournal(ProgramDesc& edited)
    : program(edited),
      outer(edited.journal_),
      id(NewStamp()),
      num_blocks(edited.blocks_.size()),
      parents_first(edited.parents_first_),
      version(edited.version),
      version_in_legacy_field(edited.version_in_legacy_field),
      random_seed(edited.random_seed) {}

// New blocks get no record, because they may be destroyed while the journal lives, and others may
// get their addresses.
bool EditJournal::IsNew(const BlockDesc& block) const {
  const auto index = static_cast<size_t>(block.idx_);
  return IsNoted(block.stamp_) || index >= num_blocks || removed_blocks.count(index) > 0;
}

// The outer journal gets its record at once, since it could not tell later what the guard of this
// journal has changed.
EditJournal::BlockRecord& EditJournal::RecordOf(BlockDesc& block) {
  if (const auto found = blocks.find(&block); found != blocks.end()) return found->second;
  if (outer) outer->NoteBlock(block);
  BlockRecord record;
  record.vars.kept = block.vars_.size();
  record.ops.kept = block.ops_.size();
  record.forward_block_idx = block.forward_block_idx_;
  return blocks.emplace(&block, std::move(record)).first->second;
}

void EditJournal::NoteBlock(BlockDesc& block) {
  if (!IsNew(block)) RecordOf(block);
}

void EditJournal::NoteVarOrder(BlockDesc& block, size_t first) {
  if (IsNew(block)) return;
  if (outer) outer->NoteVarOrder(block, first);
  RecordOf(block).vars.Note(first, block.vars_);
}

void EditJournal::NoteOpOrder(BlockDesc& block, size_t first) {
  if (IsNew(block)) return;
  if (outer) outer->NoteOpOrder(block, first);
  RecordOf(block).ops.Note(first, block.ops_);
}

void EditJournal::SaveVar(VarDesc& var) {
  if (IsNoted(var.stamp_) || IsNew(*var.block_)) return;
  RecordOf(*var.block_);
  if (!vars.count(&var)) vars.emplace(&var, std::make_unique<VarDesc>(var));
  var.stamp_ = id;
}

void EditJournal::SaveOp(OpDesc& op) {
  if (IsNoted(op.stamp_) || IsNew(*op.block_)) return;
  RecordOf(*op.block_);
  if (!ops.count(&op)) ops.emplace(&op, std::make_unique<OpDesc>(op));
  op.stamp_ = id;
}

void EditJournal::NoteCounter(const std::string& prefix) {
  if (content || counters.count(prefix)) return;
  const auto found = program.name_counters_.find(prefix);
  counters.emplace(
      prefix, found == program.name_counters_.end() ? std::nullopt : std::optional(found->second));
}

void EditJournal::NoteOpVersions() {
  if (!op_versions) op_versions = program.op_versions_;
}

void EditJournal::NoteUnknownFields() {
  if (!unknown_fields) unknown_fields = program.unknown_fields_;
}

void EditJournal::NoteUnknownFields(BlockDesc& block) {
  if (IsNew(block)) return;
  if (outer) outer->NoteUnknownFields(block);
  BlockRecord& record = RecordOf(block);
  if (!record.unknown_fields) record.unknown_fields = block.unknown_fields_;
}

void EditJournal::KeepBlocks(size_t first) {
  std::map<size_t, std::unique_ptr<BlockDesc>> gone;
  for (size_t i = first; i < num_blocks && i < program.blocks_.size(); ++i)
    if (!IsNew(*program.blocks_[i])) gone.emplace(i, nullptr);
  for (auto& [index, block] : gone) block = std::move(program.blocks_[index]);
  removed_blocks.merge(gone);
}

void EditJournal::KeepContent() noexcept {
  if (content) return;
  content.emplace();
  std::swap(content->blocks, program.blocks_);
  std::swap(content->name_counters, program.name_counters_);
  std::swap(content->inner_names, program.inner_names_);
}

void EditJournal::KeepProgram() noexcept {
  KeepContent();
  if (!op_versions) op_versions = std::move(program.op_versions_);
  if (!unknown_fields) unknown_fields = std::move(program.unknown_fields_);
}

// Ops that are older than this journal are in the record of the block: NoteOpOrder puts them there.
// Nothing is moved before the last allocation.
void EditJournal::NoteRelease(BlockDesc& block) {
  if (IsNew(block)) return;
  NoteOpOrder(block, 0);
  std::unordered_set<OpDesc*> held;
  for (const auto& op : block.ops_) held.insert(op.get());
  std::unordered_map<OpDesc*, OpDesc*> copies;
  for (OpDesc* op : RecordOf(block).ops.rest) {
    if (!held.count(op)) continue;
    SaveOp(*op);
    copies.emplace(op, ops.at(op).get());
  }
  Removed<OpDesc> kept(copies.size());
  auto place = kept.begin();
  for (const auto& [op, copy] : copies) {
    *place++ = std::move(ops.at(op));
    ops.erase(op);
  }
  removed_ops.splice(removed_ops.end(), kept);
  for (EditJournal* journal = this; journal; journal = journal->outer)
    journal->NoteReplaced(block, copies);
}

void EditJournal::NoteReplaced(BlockDesc& block,
                               const std::unordered_map<OpDesc*, OpDesc*>& copies) {
  const auto record = blocks.find(&block);
  if (record == blocks.end()) return;
  for (OpDesc*& op : record->second.ops.rest)
    if (const auto copy = copies.find(op); copy != copies.end()) op = copy->second;
  for (const auto& [op, copy] : copies) {
    ops.erase(copy);  // the record of a destroyed op that had this address
    if (auto saved = ops.extract(op)) {
      saved.key() = copy;
      ops.insert(std::move(saved));
    }
  }
}

void EditJournal::Restore(VarDesc& var, VarDesc& copy) const noexcept {
  var.name_ = std::move(copy.name_);
  var.meta_ = std::move(copy.meta_);
  var.persistable_ = copy.persistable_;
  var.need_check_feed_ = copy.need_check_feed_;
  var.is_parameter_ = copy.is_parameter_;
  var.stop_gradient_ = copy.stop_gradient_;
  var.inferred_parameter_ = copy.inferred_parameter_;
  var.training_ = std::move(copy.training_);
  var.wire_ = std::move(copy.wire_);
}

void EditJournal::Restore(OpDesc& op, OpDesc& copy) const noexcept {
  op.type_ = std::move(copy.type_);
  op.inputs_ = std::move(copy.inputs_);
  op.outputs_ = std::move(copy.outputs_);
  op.attrs_ = std::move(copy.attrs_);
  op.is_target_ = copy.is_target_;
  op.unknown_fields_ = std::move(copy.unknown_fields_);
}

namespace {

// Releases the marked objects of a list; PutBack takes them over.
template <class Objects, class IsMarked>
void GiveUp(Objects& objects, const IsMarked& is_marked) {
  for (auto& object : objects)
    if (object && is_marked(*object)) static_cast<void>(object.release());
}

// Allocates nothing, since the vector of a block keeps its capacity while a journal watches it.
template <class T>
void PutBack(const OrderRecord<T>& record, std::vector<std::unique_ptr<T>>& objects) {
  objects.resize(record.kept);
  for (size_t i = record.rest.size(); i-- > 0;) objects.emplace_back(record.rest[i]);
}

}  // namespace

void EditJournal::UndoVars(BlockDesc& block) noexcept {
  block.var_index_->Clear();
  for (size_t i = 0; i < block.vars_.size(); ++i) {
    VarDesc& var = *block.vars_[i];
    var.index_ = i;
    var.block_ = &block;
    if (const auto copy = vars.find(&var); copy != vars.end()) Restore(var, *copy->second);
    block.var_index_->Add(&var);
  }
}

void EditJournal::UndoOps(BlockDesc& block) noexcept {
  for (const auto& op : block.ops_) {
    op->block_ = &block;
    if (const auto copy = ops.find(op.get()); copy != ops.end()) Restore(*op, *copy->second);
  }
  block.InvalidateUses();
}

// First every list releases the objects that return to a record's place. The objects that the lists
// still own afterwards are new and are destroyed.
void EditJournal::PutBackObjects() noexcept {
  const uint32_t mark = NewStamp();
  const auto is_marked = [mark](const auto& object) { return object.stamp_ == mark; };
  for (const auto& block : program.blocks_) {
    const auto record = blocks.find(block.get());
    if (record == blocks.end()) continue;
    for (VarDesc* var : record->second.vars.rest) var->stamp_ = mark;
    for (OpDesc* op : record->second.ops.rest) op->stamp_ = mark;
  }
  GiveUp(removed_vars, is_marked);
  GiveUp(removed_ops, is_marked);
  for (const auto& block : program.blocks_) {
    const auto record = blocks.find(block.get());
    if (record == blocks.end()) continue;
    GiveUp(block->vars_, is_marked);
    GiveUp(block->ops_, is_marked);
    PutBack(record->second.vars, block->vars_);
    PutBack(record->second.ops, block->ops_);
  }
}

void EditJournal::UndoFields() noexcept {
  for (const auto& [prefix, counter] : counters) {
    const auto found = program.name_counters_.find(prefix);
    if (found == program.name_counters_.end()) continue;
    if (counter)
      found->second = *counter;
    else
      program.name_counters_.erase(found);
  }
  // A lost name may be back. HasName looks for it in each block once.
  if (names_lost) {
    for (auto& [hash, block] : program.inner_names_)
      if (block == ProgramDesc::kLost) block = 0;
  }
  program.parents_first_ = parents_first;
  program.version = version;
  program.version_in_legacy_field = version_in_legacy_field;
  program.random_seed = random_seed;
  if (op_versions) program.op_versions_ = std::move(*op_versions);
  if (unknown_fields) program.unknown_fields_ = std::move(*unknown_fields);
}

void EditJournal::Undo() noexcept {
  if (content) {
    program.blocks_ = std::move(content->blocks);
    program.name_counters_ = std::move(content->name_counters);
    program.inner_names_ = std::move(content->inner_names);
  }
  program.blocks_.resize(num_blocks);
  for (auto& [index, block] : removed_blocks)
    if (index < num_blocks) program.blocks_[index] = std::move(block);
  PutBackObjects();
  for (const auto& block : program.blocks_) {
    const auto record = blocks.find(block.get());
    if (record == blocks.end()) continue;
    block->forward_block_idx_ = record->second.forward_block_idx;
    if (auto& fields = record->second.unknown_fields) block->unknown_fields_ = std::move(*fields);
    UndoVars(*block);
    UndoOps(*block);
  }
  UndoFields();
}

// If `to` has recorded an object, it has an older state, which merge keeps. An object made
// after `to` began may get a record there, which Undo ignores. `to` already has the records of
// the blocks.
void EditJournal::AddTo(EditJournal& to) noexcept {
  to.removed_vars.splice(to.removed_vars.end(), removed_vars);
  to.removed_ops.splice(to.removed_ops.end(), removed_ops);
  if (!to.op_versions) to.op_versions = std::move(op_versions);
  if (!to.unknown_fields) to.unknown_fields = std::move(unknown_fields);
  to.names_lost |= names_lost;
  if (to.content) return;
  to.counters.merge(counters);
  to.vars.merge(vars);
  to.ops.merge(ops);
  to.removed_blocks.merge(removed_blocks);
  if (content) to.content = std::move(content);
}

EditGuard::EditGuard(ProgramDesc& program) : EditGuard(program, program) {}

EditGuard::EditGuard(ProgramDesc& main, ProgramDesc& startup)
    : exceptions_(std::uncaught_exceptions()),
      main_(std::make_unique<EditJournal>(main)),
      startup_(&startup == &main ? nullptr : std::make_unique<EditJournal>(startup)) {
  main.journal_ = main_.get();
  if (startup_) startup.journal_ = startup_.get();
}

EditGuard::~EditGuard() {
  const bool failed = std::uncaught_exceptions() > exceptions_;
  for (auto* journal : {startup_.get(), main_.get()}) {
    if (!journal) continue;
    if (failed)
      journal->Undo();
    else if (journal->outer)
      journal->AddTo(*journal->outer);
    journal->program.journal_ = journal->outer;
  }
}

}  // namespace coracle::inline internal

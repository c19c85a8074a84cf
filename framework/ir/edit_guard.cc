#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/edit_journal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <unordered_set>
#include <utility>

namespace coracle {
namespace internal {
namespace {

uint32_t NewStamp() {
  static std::atomic<uint32_t> last{0};
  uint32_t stamp = ++last;
  return stamp == 0 ? ++last : stamp;
}

// The objects of a block and those removed from it, by address.
template <class T>
std::unordered_map<T*, std::unique_ptr<T>> ByAddress(std::vector<std::unique_ptr<T>>& held,
                                                     std::vector<std::unique_ptr<T>>& removed) {
  std::unordered_map<T*, std::unique_ptr<T>> all;
  for (auto* list : {&held, &removed}) {
    for (auto& object : *list)
      if (object) all.emplace(object.get(), std::move(object));
    list->clear();
  }
  return all;
}

// Puts the objects of `order` into `held` again. All of them live: see NoteRelease.
template <class T>
void PutBack(const std::vector<T*>& order, std::vector<std::unique_ptr<T>>& removed,
             std::vector<std::unique_ptr<T>>& held) {
  auto all = ByAddress(held, removed);
  for (T* object : order) held.push_back(std::move(all.at(object)));
  for (auto& [address, object] : all)
    if (object) removed.push_back(std::move(object));
}

}  // namespace

EditJournal::EditJournal(ProgramDesc& edited)
    : program(edited),
      outer(edited.journal_),
      id(NewStamp()),
      num_blocks(edited.blocks_.size()),
      version(edited.version),
      random_seed(edited.random_seed) {}

EditJournal::BlockRecord& EditJournal::RecordOf(BlockDesc& block) {
  const auto [found, added] = blocks.try_emplace(&block);
  if (added) {
    found->second.vars = block.vars_.size();
    found->second.ops = block.ops_.size();
    found->second.forward_block_idx = block.forward_block_idx_;
  }
  return found->second;
}

void EditJournal::NoteAppend(BlockDesc& block) {
  if (!IsNoted(block.stamp_)) RecordOf(block);
}

void EditJournal::NoteVarOrder(BlockDesc& block) {
  if (IsNoted(block.stamp_)) return;
  BlockRecord& record = RecordOf(block);
  if (record.var_order) return;
  record.var_order.emplace();
  for (size_t i = 0; i < record.vars; ++i) record.var_order->push_back(block.vars_[i].get());
}

void EditJournal::NoteOpOrder(BlockDesc& block) {
  if (IsNoted(block.stamp_)) return;
  BlockRecord& record = RecordOf(block);
  if (record.op_order) return;
  record.op_order.emplace();
  for (size_t i = 0; i < record.ops; ++i) record.op_order->push_back(block.ops_[i].get());
}

void EditJournal::SaveVar(VarDesc& var) {
  if (IsNoted(var.stamp_)) return;
  if (!IsNoted(var.block_->stamp_)) RecordOf(*var.block_);
  vars.emplace(&var, std::make_unique<VarDesc>(var));
  var.stamp_ = id;
}

void EditJournal::SaveOp(OpDesc& op) {
  if (IsNoted(op.stamp_)) return;
  if (!IsNoted(op.block_->stamp_)) RecordOf(*op.block_);
  ops.emplace(&op, std::make_unique<OpDesc>(op));
  op.stamp_ = id;
}

void EditJournal::NoteCounter(const std::string& prefix) {
  if (counters.count(prefix)) return;
  const auto found = program.name_counters_.find(prefix);
  counters[prefix] =
      found == program.name_counters_.end() ? std::nullopt : std::optional(found->second);
}

void EditJournal::KeepBlocks(size_t first) {
  for (size_t i = first; i < program.blocks_.size() && !all_blocks; ++i)
    if (i < num_blocks && !IsNoted(program.blocks_[i]->stamp_))
      removed_blocks.try_emplace(i, std::move(program.blocks_[i]));  // the first was there before
}

void EditJournal::KeepAllBlocks() {
  if (!all_blocks) all_blocks = std::move(program.blocks_);
}

void EditJournal::Restore(VarDesc& var, VarDesc& copy) const {
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

void EditJournal::Restore(OpDesc& op, OpDesc& copy) const {
  op.type_ = std::move(copy.type_);
  op.inputs_ = std::move(copy.inputs_);
  op.outputs_ = std::move(copy.outputs_);
  op.attrs_ = std::move(copy.attrs_);
  op.is_target_ = copy.is_target_;
  op.unknown_fields_ = std::move(copy.unknown_fields_);
}

void EditJournal::UndoVars(BlockDesc& block, BlockRecord& record) {
  if (record.var_order)
    PutBack(*record.var_order, removed_vars, block.vars_);
  else
    block.vars_.resize(record.vars);
  block.var_index_.Clear();
  block.var_index_.Reserve(block.vars_.size());
  for (size_t i = 0; i < block.vars_.size(); ++i) {
    VarDesc& var = *block.vars_[i];
    var.index_ = i;
    var.block_ = &block;
    if (const auto copy = vars.find(&var); copy != vars.end() && copy->second)
      Restore(var, *copy->second);
    block.var_index_.Add(&var);
  }
}

void EditJournal::NoteReplaced(OpDesc* op, OpDesc* copy) {
  for (auto& [block, record] : blocks)
    if (record.op_order) std::replace(record.op_order->begin(), record.op_order->end(), op, copy);
  ops.erase(copy);  // of an op that was at this address before
  if (auto saved = ops.extract(op)) {
    saved.key() = copy;
    ops.insert(std::move(saved));
  }
}

void EditJournal::NoteRelease(BlockDesc& block) {
  NoteOpOrder(block);
  const auto record = blocks.find(&block);
  if (IsNoted(block.stamp_) || record == blocks.end()) return;
  std::unordered_set<OpDesc*> held;
  for (const auto& op : block.ops_) held.insert(op.get());
  for (OpDesc*& op : *record->second.op_order) {
    if (held.count(op) == 0) continue;
    SaveOp(*op);
    std::unique_ptr<OpDesc> copy = std::move(ops.at(op));
    ops.erase(op);
    ops.erase(copy.get());
    for (EditJournal* around = outer; around; around = around->outer)
      around->NoteReplaced(op, copy.get());
    op = copy.get();
    removed_ops.push_back(std::move(copy));
  }
}

void EditJournal::UndoOps(BlockDesc& block, BlockRecord& record) {
  if (record.op_order)
    PutBack(*record.op_order, removed_ops, block.ops_);
  else
    block.ops_.resize(record.ops);
  for (const auto& op : block.ops_) {
    op->block_ = &block;
    if (const auto copy = ops.find(op.get()); copy != ops.end() && copy->second)
      Restore(*op, *copy->second);
  }
  block.InvalidateUses();
}

void EditJournal::NoteNames(const BlockDesc& block) {
  program.NoteParent(block.parent_idx_, block.idx_);
  if (block.idx_ == 0) return;
  for (const auto& var : block.vars_) program.NoteInnerName(var->name(), block.idx_);
}

void EditJournal::Undo() {
  if (all_blocks) {
    program.blocks_ = std::move(*all_blocks);
    program.Readopt();
    for (const auto& block : program.blocks_) NoteNames(*block);
  }
  program.blocks_.resize(num_blocks);
  for (auto& [index, block] : removed_blocks)
    if (index < num_blocks) program.blocks_[index] = std::move(block);
  for (const auto& block : program.blocks_) {  // others were new, and are gone
    const auto record = blocks.find(block.get());
    if (record == blocks.end()) continue;
    block->forward_block_idx_ = record->second.forward_block_idx;
    UndoVars(*block, record->second);
    UndoOps(*block, record->second);
  }
  for (const auto& [prefix, counter] : counters) {
    if (counter)
      program.name_counters_[prefix] = *counter;
    else
      program.name_counters_.erase(prefix);
  }
  program.version = version;
  program.random_seed = random_seed;
}

namespace {

template <class T>
void MoveTo(std::vector<T>& from, std::vector<T>& to) {
  for (T& object : from) to.push_back(std::move(object));
}

// What stood in the places that `outer` counted.
template <class T>
void AddOrder(const std::optional<std::vector<T*>>& order, size_t count,
              std::optional<std::vector<T*>>& outer) {
  if (order && !outer) outer.emplace(order->begin(), order->begin() + std::ptrdiff_t(count));
}

}  // namespace

// Where `outer` has noted an object it knows an older state. An object that is new since `outer`
// began may get a record there, which Undo does not look up.
void EditJournal::AddTo(EditJournal& to) {
  MoveTo(removed_vars, to.removed_vars);
  MoveTo(removed_ops, to.removed_ops);
  for (auto& [prefix, counter] : counters) to.counters.try_emplace(prefix, counter);
  if (to.all_blocks) return;
  for (auto& [block, record] : blocks) {
    const auto [found, added] = to.blocks.try_emplace(block, record);
    if (added) continue;
    AddOrder(record.var_order, found->second.vars, found->second.var_order);
    AddOrder(record.op_order, found->second.ops, found->second.op_order);
  }
  for (auto& [var, copy] : vars) to.vars.try_emplace(var, std::move(copy));
  for (auto& [op, copy] : ops) to.ops.try_emplace(op, std::move(copy));
  for (auto& [index, block] : removed_blocks)
    to.removed_blocks.try_emplace(index, std::move(block));
  if (all_blocks) to.all_blocks = std::move(all_blocks);
}

}  // namespace internal

EditGuard::EditGuard(ProgramDesc& program) : exceptions_(std::uncaught_exceptions()) {
  Watch(program, &main_);
}

EditGuard::EditGuard(ProgramDesc& main, ProgramDesc& startup)
    : exceptions_(std::uncaught_exceptions()) {
  Watch(main, &main_);
  if (&startup != &main) Watch(startup, &startup_);
}

void EditGuard::Watch(ProgramDesc& program, std::unique_ptr<internal::EditJournal>* journal) {
  *journal = std::make_unique<internal::EditJournal>(program);
  program.journal_ = journal->get();
}

EditGuard::~EditGuard() {
  const bool failed = std::uncaught_exceptions() > exceptions_;
  for (auto* journal : {&startup_, &main_}) {
    if (!*journal) continue;
    internal::EditJournal* outer = (*journal)->outer;
    (*journal)->program.journal_ = nullptr;
    try {
      if (failed) (*journal)->Undo();
      if (!failed && outer) (*journal)->AddTo(*outer);
    } catch (const std::bad_alloc&) {  // the exception under way says more
    }
    (*journal)->program.journal_ = outer;
  }
}

}  // namespace coracle

#pragma once
// The planner of one block: MakePlan's work. Its methods lie in planner.cc (ops), planner_values.cc
// (who holds what), planner_slots.cc (sub-blocks and stages). Internal to executor/.

#include <coracle/executor/internal/planner.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/prepare_context.h>

#include <set>

namespace coracle {

class Planner : public MetaTable, public ArgTable {
 public:
  explicit Planner(const PlanRequest& request)
      : request_(request),
        unit_((*request.units)[request.unit]),
        block_(request.program->Block(unit_.block)),
        use_((*request.uses)[Index(unit_.block)]) {}

  Plan Make();

  // --- MetaTable: the types as the op being planned sees them ---
  const VarMeta* Find(const std::string& name) const override;
  void Set(const std::string& name, const VarMeta& meta) override { inferred_[name] = meta; }
  const Tensor* Constant(const std::string& name) const override { return ConstantOf(name); }
  bool exact() const override { return true; }

  // --- ArgTable: names as args of the op being prepared ---
  TensorArg Read(const std::string& name) override;
  TensorArg Write(const std::string& name) override;
  TensorArg Scratch(DType dtype, const Shape& shape) override;
  TensorArg ScratchArray() override;
  const Tensor* Constant(const std::string& name) override { return ConstantOf(name); }
  TensorArg ScratchValue() override { return ArgOf(ScratchSlot()); }
  FileAccess files() const override { return request_.files; }
  bool HasGradientBlock(BlockRef block) override { return UseOf(block).has_gradient; }
  int32_t SubBlock(BlockRef block, const BlockArgs& args) override;

 private:
  static size_t Index(int32_t i) { return static_cast<size_t>(i); }
  static bool SameType(const VarMeta& a, const VarMeta& b) {
    return a.type == b.type && a.dtype == b.dtype && a.shape == b.shape;
  }
  template <class F>
  static void ForEachName(const SlotList& slots, F f) {
    for (const Slot& slot : slots) {
      for (const std::string& name : slot.args) {
        if (!IsEmptyName(name)) f(name);
      }
    }
  }

  // --- ops ---
  void PlanOps();
  void PlanOp(const OpDesc& op);
  void Infer();
  // Runs the op now when its result can be known: all inputs are constant, or only their shapes
  // matter.
  bool Fold();
  void AppendStep(Kernel kernel, std::string type, std::string where);
  // Pairs of this op that may share memory; decided when all lifetimes are known.
  void NoteSharing(int32_t step);
  void CopyBack();
  void AppendCopy(int32_t from, int32_t to);

  // --- values and storages ---
  const Tensor* ConstantOf(const std::string& name) const;
  [[noreturn]] void ThrowUndefined(const std::string& name) const;
  TensorArg ArgOf(int32_t value) const;
  // Of a value's elements; throws OutOfMemory past the limit.
  uint64_t AffordableBytes(const std::string& name, const VarMeta& meta) const;
  int32_t NewStorage(StorageKind kind, int32_t source, uint64_t bytes);
  // A value in an arena storage of its own (or, when it is no dense tensor, a Value of the frame).
  int32_t NewValue(const std::string& name, const VarMeta& meta, int32_t storage = -1);
  // How often each name is written by the block and the blocks that its ops run.
  void CountWrites();
  void BindFeeds();
  // The value that the name stands for now; a persistable variable is bound to the scope when it is
  // first met.
  int32_t CurrentOrPersistable(const std::string& name);
  // A temporary for the op to write, copied to `target` after it.
  int32_t CopyLater(const std::string& name, const VarMeta& meta, int32_t target);
  int32_t BindPersistable(const std::string& name, const VarMeta& meta, bool read_first);
  // An output of as many rows as an input with LoD has that LoD.
  void ShareLod();
  bool Reads(const std::string& name) const;
  void MakeOutput(const std::string& name, const VarMeta& meta);
  // The scope's memory itself, unless the op reads the variable elsewhere than where it writes it.
  int32_t PersistableOutput(const std::string& name, const VarMeta& meta);
  int32_t RebindPersistable(int32_t bound, const VarMeta& meta);
  void BindFetches();
  Storage& StorageOf(int32_t value);

  // --- slots: sub-blocks and stages ---
  const BlockUse& UseOf(BlockRef block) const;
  // What the outer block binds; the same names for every stage.
  void DeclareSlots();
  const VarCell* CellAt(int32_t slot) const;
  // `meta` may be that of another of the plan's values, which move when one is added.
  int32_t NewSlotValue(const std::string& name, VarMeta meta, int32_t slot);
  // A place that only this op uses.
  int32_t ScratchSlot();
  // What the variable's cell holds when the stage begins; -1: nothing. A tensor array of this block
  // is empty until it is written.
  int32_t ValueInSlot(const std::string& name);
  bool IsInSlot(int32_t value, int32_t slot);
  // Before a sub-block writes the variable: its value moves to its cell.
  int32_t MoveToSlot(const std::string& name);
  Binding BindingOf(int32_t inner_slot, int32_t value);
  void AppendFrameStep(const char* type, int32_t value, Kernel kernel);
  void AppendStore(int32_t value, int32_t slot);
  // At the end of the block: what the op that runs it, the enclosing blocks and gradient blocks
  // find afterwards.
  void Deliver();
  void AppendKeep(const std::string& name, size_t index);
  void RequireValue(const std::string& needed);
  // What the ops from `next` on, those inside them and the end of the block use.
  std::set<std::string> UsedFrom(size_t next) const;
  // Everything that is still used is handed over, or stays in its slot.
  void EndStage(size_t next, const std::string& needs);
  // An array is kept by name: ops add to it (write_to_array). Afterwards its elements have one type
  // only if those before had it.
  int32_t ArrayOutput(const std::string& name, const VarMeta& meta);

  const PlanRequest& request_;
  Unit& unit_;
  const BlockDesc& block_;
  const BlockUse& use_;
  Plan plan_;
  size_t op_index_ = 0;
  const OpDesc* op_ = nullptr;
  const OpDef* def_ = nullptr;
  bool ends_stage_ = false;
  std::unordered_map<std::string, int32_t> current_;
  std::unordered_map<std::string, VarMeta> inferred_;
  std::unordered_map<std::string, int32_t> writes_;
  std::unordered_map<std::string, int> write_count_;
  std::unordered_set<std::string> read_, written_, is_copied_;
  std::unordered_set<int32_t> guarded_;  // slots
  std::vector<int32_t> op_values_;
  std::vector<int32_t> inside_uses_;  // values that the op's sub-blocks use
  std::set<std::string> changed_;     // variables that the op's sub-blocks write
  int sub_blocks_of_op_ = 0, scratch_slots_of_op_ = 0;
  std::vector<std::pair<int32_t, int32_t>> copies_;  // (from, to)
  MemoryUsage usage_;
};

}  // namespace coracle

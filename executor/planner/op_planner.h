#pragma once
// OpPlanner: plans one op. It infers the types of the outputs, decides where they are written,
// prepares the kernel and appends the op's steps. Internal to executor/.

#include <coracle/executor/planner/plan_draft.h>
#include <coracle/executor/planner/sub_block_planner.h>
#include <coracle/framework/base/file_access.h>
#include <coracle/framework/op/op_context.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle::inline internal {

// Lives while one op is planned. Shape rules see it as a MetaTable, Prepare as an ArgTable.
class OpPlanner : private MetaTable, private ArgTable {
 public:
  // `position`: index in the draft's block of the op, or of the op that it replaces.
  OpPlanner(PlanDraft& draft, const OpDesc& op, size_t position);

  // Throws NeedsValue if a shape depends on an unknown value; in that case it has appended nothing.
  void Plan();
  // Whether the types of some variables are known only after the op has run.
  bool EndsStage() const { return has_open_shape_ || !sub_blocks_.changed().empty(); }

 private:
  struct Output {
    std::string name;
    VarMeta meta;
    OutputPlace place = {};
  };

  // --- MetaTable: types as the op finds them ---
  const VarMeta* Find(const std::string& name) const override;
  void Set(const std::string& name, const VarMeta& meta) override;
  const Tensor* Constant(const std::string& name) const override { return draft_.Constant(name); }
  std::optional<std::vector<int64_t>> LevelSizes(const std::string& name) const override;
  bool exact() const override { return true; }

  // --- ArgTable: names as args ---
  TensorArg Read(const std::string& name) override;
  TensorArg Write(const std::string& name) override;
  TensorArg Scratch(DType dtype, const Shape& shape) override;
  TensorArg ScratchArray() override;
  TensorArg ScratchValue() override;
  int32_t SubBlock(BlockRef block, const BlockArgs& args) override;
  bool HasGradientBlock(BlockRef block) override;
  const Tensor* Constant(const std::string& name) override { return draft_.Constant(name); }
  std::shared_ptr<const Tensor> Packed(const std::string& name,
                                       const PackedLayout& layout) override;
  FileAccess files() const override { return draft_.context.files; }
  Kernel Choose(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                const std::vector<KernelWay>& ways) override;
  void NoteKernel(const std::string& name) override { how_ = name; }

  // --- the parts of Plan ---
  void RequireInputs();
  void InferOutputs();
  // Computes the result now if possible: all inputs are constant, or only their shapes matter.
  bool Fold();
  OutputPlace PlaceOutput(const Output& output);
  OutputPlace PlaceArray(const std::string& name, VarMeta meta);
  // The LoD may differ in each run of a plan, so the plan records which value's LoD an output has.
  void PassLod();
  void PassToPersistable(PlanPersistable& persistable, ValueId lod);
  void SetLodSource(ValueId value, ValueId lod);
  void AddKernelStep(Kernel kernel);
  // Plans the ops of the block instead of a step for the op, which has no kernel
  // (see PrepareKernel).
  void PlanOpsOfBlock();
  void NoteRebindings();
  // Records pairs of inputs and outputs that may share memory; ShareMemory decides when all
  // lifetimes are known.
  void NoteSharing(StepId step);
  void FinishOutputs();
  const Output* FindOutput(const std::string& name) const;

  PlanDraft& draft_;
  size_t position_;
  const OpDesc& op_;
  const OpSpec& def_;
  bool runs_blocks_;
  SubBlockPlanner sub_blocks_;
  std::vector<Output> outputs_;  // in the order of the shape rule
  std::unordered_map<std::string, size_t> output_index_;
  // Variables that the kernel reads in their plain layout.
  std::unordered_set<std::string> plain_reads_;
  std::vector<ValueId> scratch_;
  std::vector<LodPass> lods_;
  // The name of the kernel's method.
  std::string how_;
  // The shape rule used the numbers of sequences.
  mutable bool reads_levels_ = false;
  size_t scratch_cells_ = 0;
  bool has_open_shape_ = false;
};

}  // namespace coracle::inline internal

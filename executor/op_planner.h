#pragma once
// OpPlanner: plans one op. It infers the types of the outputs, says where they are written,
// prepares the kernel and appends the op's steps. Internal to executor/.

#include <coracle/executor/plan_draft.h>
#include <coracle/executor/sub_block_planner.h>
#include <coracle/framework/base/file_access.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/prepare_context.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle {

// Lives while one op is planned. The shape rule sees it as a MetaTable, Prepare as an ArgTable.
class OpPlanner : private MetaTable, private ArgTable {
 public:
  // `position`: in the draft's block, of the op or of the one that it takes the place of.
  OpPlanner(PlanDraft& draft, const OpDesc& op, size_t position);

  // Throws NeedsValue when a shape depends on a value that is not known; then nothing was appended.
  void Plan();
  // Whether the types of some variable are known only when the op has run.
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
  // Runs the op now when its result can be known: all inputs are constant, or only
  // their shapes matter.
  bool Fold();
  OutputPlace PlaceOutput(const Output& output);
  OutputPlace PlaceArray(const std::string& name, VarMeta meta);
  // LoD may differ in each run of a plan, so the plan says which value's LoD an output has.
  void PassLod();
  void PassToPersistable(PlanPersistable& persistable, ValueId lod);
  void SetLodSource(ValueId value, ValueId lod);
  void AddKernelStep(Kernel kernel);
  // Instead of a step of the op's own: it has no kernel (see PrepareKernel).
  void PlanOpsOfBlock();
  void NoteRebindings();
  // Pairs of inputs and outputs that may share memory; decided when all lifetimes are known.
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
  std::unordered_set<std::string> plain_reads_;  // which the kernel has as they are
  std::vector<ValueId> scratch_;
  std::vector<LodPass> lods_;
  std::string how_;                    // the kernel computes
  mutable bool reads_levels_ = false;  // the shape rule found numbers of sequences
  size_t scratch_cells_ = 0;
  bool has_open_shape_ = false;
};

}  // namespace coracle

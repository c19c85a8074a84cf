#pragma once
// The group of ops run by a fused_elementwise or a fused_images, the memory of its parts, and the
// cut of a fused_elementwise's tensors into pieces.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_registry.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle::inline internal {

// The static types of the group's variables.
class GroupTypes : public MetaTable {
 public:
  using ConstantOf = std::function<const Tensor*(const std::string& name)>;
  GroupTypes(bool exact, ConstantOf constant) : exact_(exact), constant_(std::move(constant)) {}

  const VarMeta* Find(const std::string& name) const override;
  void Set(const std::string& name, const VarMeta& meta) override { metas_[name] = meta; }
  const Tensor* Constant(const std::string& name) const override { return constant_(name); }
  bool exact() const override { return exact_; }

 private:
  bool exact_;
  ConstantOf constant_;
  std::map<std::string, VarMeta> metas_;
};

struct FusedGroup {
  const BlockDesc* block = nullptr;
  const OpRegistry* ops = nullptr;
  std::vector<std::string> arguments, results;  // variables of the block

  // Runs the shape rules of the ops. `types` has the types of the arguments.
  void Infer(GroupTypes& types) const;
  // Runs them on hypothetical types; false if a rule rejects them, or reads a value or a LoD.
  bool CanInfer(GroupTypes& types) const;
};

// Bytes of a cache line. The memory of a part of the work consists of whole lines.
inline constexpr int64_t kFusedLine = 64;
inline int64_t LineAligned(int64_t bytes) {
  return (bytes + kFusedLine - 1) / kFusedLine * kFusedLine;
}

// Results of at least this many bytes are written past the caches: they would not stay there.
inline constexpr int64_t kPastCaches = int64_t{8} << 20;
// Tensors of at least this many bytes are prefetched.
inline constexpr int64_t kReadAhead = int64_t{1} << 20;
// Elements per task.
inline constexpr int64_t kFusedGrain = 32768;

// The args with which an op of a group is prepared: only tensors and scratch tensors.
class GroupArgs : public ArgTable {
 public:
  TensorArg ScratchArray() override { Refuse(); }
  TensorArg ScratchValue() override { Refuse(); }
  int32_t SubBlock(BlockRef, const BlockArgs&) override { Refuse(); }
  bool HasGradientBlock(BlockRef) override { Refuse(); }

 private:
  [[noreturn]] static void Refuse() {
    throw InternalError("an op of a fused group uses inputs other than tensors");
  }
};

// Scratch memory of ops: index of a pointer, offset in the part's memory.
using ScratchPlaces = std::vector<std::array<int64_t, 2>>;

// Gives an op scratch memory in its part of the work, after the variables' memory. Offsets are
// relative to it until RunInParts places it.
class PartArgs : public GroupArgs {
 public:
  // Adds the needs of all ops to `pointers` and `bytes`.
  PartArgs(size_t& pointers, int64_t& bytes, ScratchPlaces& places)
      : pointers_(pointers), bytes_(bytes), places_(places) {}
  TensorArg Scratch(DType dtype, const Shape& shape) override;
  void BeginOp() { used_ = 0; }  // it reuses the scratch memory of the previous op

 private:
  size_t& pointers_;
  int64_t& bytes_;
  ScratchPlaces& places_;
  int64_t used_ = 0;
};

// The memory seen by the kernels of a group's ops: `pointers` has a piece of each tensor.
class GroupWorkspace : public Workspace {
 public:
  GroupWorkspace(const Workspace& around, void** pointers) {
    data_ = pointers;
    seed_ = around.seed();
    step_ = around.step();
  }
  VarValue& ValueOf(const TensorArg&) override { Refuse(); }
  const LoD& LodOf(const TensorArg&) override {  // the op passes it on
    static const LoD none;
    return none;
  }
  LoD& OutputLod(const TensorArg&) override { Refuse(); }

 private:
  [[noreturn]] static void Refuse() {
    throw InternalError("an op of a fused group uses more than the elements of its tensors");
  }
};

// The group of such an op; its block is not checked, and is null if the op is not in a program.
FusedGroup FusedGroupOf(const OpDesc& op, const OpSpec& spec, const OpRegistry& ops);

// Whether an op can be in a group.
using TakesOp = bool (*)(const OpSpec& spec);

// Declarations shared by ops that run groups: slots, attrs and constraints, with `which` describing
// the ops in such a group ("be elementwise"), and the shape rule.
void DeclareGroup(OpDef& def, const std::string& which);
void InferGroup(InferContext& ctx, const OpRegistry& ops, TakesOp takes);

// A variable of the group, once shapes are known.
struct FusedVar {
  std::string name;
  VarMeta meta;
  int argument = -1, result = -1;  // indices in X and Out
  // The first of the group's dims that its dims correspond to; -1 if a piece needs all of it.
  int first_dim = -1;
};

// The variables of a group in a plan: the arguments, then the results of ops.
struct FusedVars {
  // Throws if the op is not in a program.
  FusedVars(const PrepareContext& context, const FusedGroup& group);

  const FusedVar& operator[](size_t var) const { return list[var]; }
  size_t size() const { return list.size(); }
  size_t IndexOf(const std::string& name) const { return index.at(name); }

  std::vector<FusedVar> list;
  std::unordered_map<std::string, size_t> index;
  std::vector<TensorArg> inputs;  // X
  // By variable: the last op that reads it, or the one that writes it.
  std::vector<size_t> last_use;
};

// The kernel that calls `run` for each part of a plan, on several threads. Each part gets its own
// memory: `pointers` pointers, `slot_bytes` for variables, `scratch_bytes` for one op. Offsets in
// the plan's places and scratch memory are relative to these areas on entry, and relative to the
// part's memory on return.
template <class Plan>
Kernel RunInParts(const PrepareContext& context, const std::shared_ptr<Plan>& plan, size_t pointers,
                  int64_t slot_bytes, int64_t scratch_bytes,
                  void (*run)(const Plan& plan, Workspace& ws, int64_t part)) {
  const int64_t pointer_bytes =
      LineAligned(CheckedMul(static_cast<int64_t>(pointers), int64_t{sizeof(void*)}));
  for (auto& place : plan->places) {
    if (place.offset >= 0) place.offset += pointer_bytes;
  }
  for (auto& kernels : plan->kernels) {
    for (auto& scratch : kernels.scratch) scratch[1] += pointer_bytes + slot_bytes;
  }
  plan->part_bytes = CheckedAdd(CheckedAdd(pointer_bytes, slot_bytes), scratch_bytes);
  plan->memory = context.Scratch(DType::kUInt8, {CheckedMul(plan->parts, plan->part_bytes)});
  return [plan = std::shared_ptr<const Plan>(plan), run](Workspace& ws) {
    ParallelFor(plan->parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) run(*plan, ws, part);
    });
  };
}

// The cut of a group. All results of its ops have one shape. It is cut along the dim `dim` into
// `chunks` pieces of `rows` rows (the last may be smaller), and into single rows along the dims
// before it. A variable that lacks a dim, or has size 1 in it, is the same for all pieces along it.
struct FusedCut {
  Shape shape;  // of the results, possibly with all elements in the last dim
  bool flat = false;
  int dim = 0;
  int64_t outer = 1, chunks = 1, rows = 1;

  int64_t pieces() const { return outer * chunks; }
  int64_t last_rows() const { return shape[dim] - (chunks - 1) * rows; }
  // The shape of a variable's part of a piece of `piece_rows` rows.
  Shape PieceOf(const FusedVar& var, int64_t piece_rows) const;
  // The step of a variable along the group's dim `d`, in elements.
  int64_t StepOf(const FusedVar& var, int d) const;
};

// The cut into pieces of about `elements` elements; sets first_dim of the variables. False if the
// group cannot be cut: a result has another shape, or the ops' shape rules do not confirm that a
// piece of the results needs exactly these pieces of the arguments.
bool FindCut(const FusedGroup& group, int64_t elements, std::vector<FusedVar>& vars, FusedCut* cut);

// Changes a cut of FindCut into runs of elements, as long as possible, along which each argument
// advances with the results or stays at one element: a piece is one step along the dim `dim`. False
// if the runs are shorter than `elements`, or the group is a single run, which needs no cut.
bool CutIntoRuns(const FusedGroup& group, int64_t elements, const std::vector<FusedVar>& vars,
                 FusedCut* cut);

// The kernel of fused_elementwise; its ops use kernels of that mode.
Kernel PrepareFused(const PrepareContext& context, const OpRegistry& ops, KernelMode mode);

}  // namespace coracle::inline internal

#pragma once
// The group of ops that a fused_elementwise or a fused_images runs, the memory that its parts have,
// and how the tensors of a fused_elementwise are cut into pieces.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle {

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

  // Runs the shape rules of the ops. The arguments have their types.
  void Infer(GroupTypes& types) const;
  // Runs them on types that a run may not have; false where a rule refuses them, or asks for a
  // value or a LoD.
  bool CanInfer(GroupTypes& types) const;
};

// Bytes of a cache line. The memory of a part of the work consists of whole lines.
inline constexpr int64_t kFusedLine = 64;
inline int64_t LineAligned(int64_t bytes) {
  return (bytes + kFusedLine - 1) / kFusedLine * kFusedLine;
}

// Results of so many bytes are written past the caches: nobody will find them there.
inline constexpr int64_t kPastCaches = int64_t{8} << 20;
// Tensors of so many bytes are read into a cache before they are needed.
inline constexpr int64_t kReadAhead = int64_t{1} << 20;
// Elements that are worth a thread.
inline constexpr int64_t kFusedGrain = 32768;

// What an op of a group is prepared with: it asks for tensors and scratch tensors alone.
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

// Where scratch memory of ops is: index of a pointer, offset in the part's memory.
using ScratchPlaces = std::vector<std::array<int64_t, 2>>;

// Gives an op scratch memory of its part of the work, behind the variables'. Offsets count from its
// beginning until RunInParts has placed it.
class PartArgs : public GroupArgs {
 public:
  // Counts in `pointers` and `bytes` what all ops need.
  PartArgs(size_t& pointers, int64_t& bytes, ScratchPlaces& places)
      : pointers_(pointers), bytes_(bytes), places_(places) {}
  TensorArg Scratch(DType dtype, const Shape& shape) override;
  void BeginOp() { used_ = 0; }  // its scratch memory is that of the op before

 private:
  size_t& pointers_;
  int64_t& bytes_;
  ScratchPlaces& places_;
  int64_t used_ = 0;
};

// The memory that the kernels of a group's ops see: at `pointers` a piece of each tensor.
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

// The group of such an op, whose block is not checked; without a block where the op is in no
// program.
FusedGroup FusedGroupOf(const OpDesc& op, const OpSpec& spec, const OpRegistry& ops);

// Whether an op can be in a group.
using TakesOp = bool (*)(const OpSpec& spec, const OpDesc& op);

// What the declarations of ops that run groups have in common: slots, attrs and constraints, of
// which `which` says what ops such an op takes ("be elementwise"), and the shape rule.
void DeclareGroup(OpDef& def, const std::string& which);
void InferGroup(InferContext& ctx, const OpRegistry& ops, TakesOp takes);

// A variable of the group when the shapes are known.
struct FusedVar {
  std::string name;
  VarMeta meta;
  int argument = -1, result = -1;  // places in X and Out
  // The first of the group's dims that its own dims stand for; -1: a piece needs all of it.
  int first_dim = -1;
};

// The variables of a group in a plan: the arguments, then what the ops write.
struct FusedVars {
  // Throws if the op is in no program.
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

// The kernel that runs the parts of a plan, `run` each, in threads. It gives each part memory of
// its own: so many `pointers`, `slot_bytes` for variables, `scratch_bytes` for one op. Offsets in
// the plan's places and scratch memory counted from the beginning of those; now they count from
// that of the part.
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

// All results of the group's ops have one shape. It is cut along the dim `dim` into `chunks` pieces
// of `rows` (but for the last), and into single rows along the dims before it. What has 1 in the
// place of a dim, or lacks it, is the same for all pieces along it.
struct FusedCut {
  Shape shape;  // of the results, maybe with all elements in the last dim
  bool flat = false;
  int dim = 0;
  int64_t outer = 1, chunks = 1, rows = 1;

  int64_t pieces() const { return outer * chunks; }
  int64_t last_rows() const { return shape[dim] - (chunks - 1) * rows; }
  // The shape of a variable's part of a piece of so many rows.
  Shape PieceOf(const FusedVar& var, int64_t piece_rows) const;
  // How many elements a step along the group's dim `d` is in a variable.
  int64_t StepOf(const FusedVar& var, int d) const;
};

// The cut into pieces of about `elements`; sets first_dim of the variables. False where the group
// cannot be cut: a result has another shape, or the ops' shape rules do not confirm that a piece of
// the results needs just these pieces of the arguments.
bool FindCut(const FusedGroup& group, int64_t elements, std::vector<FusedVar>& vars, FusedCut* cut);

// Changes a cut that FindCut found into one of whole runs of elements, along which each argument
// moves with the results or stays at one element, as long as they can be: a piece is one step along
// the dim `dim`. False where they are shorter than `elements`, or the group's one run needs no cut.
bool CutIntoRuns(const FusedGroup& group, int64_t elements, const std::vector<FusedVar>& vars,
                 FusedCut* cut);

// The kernel of fused_elementwise, whose ops have kernels of that mode.
Kernel PrepareFused(const PrepareContext& context, const OpRegistry& ops, KernelMode mode);

}  // namespace coracle

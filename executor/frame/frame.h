#pragma once
// Frame: the memory of one running plan. Internal to executor/.

#include <coracle/executor/frame/scope_binding.h>
#include <coracle/executor/frame/value_pointers.h>
#include <coracle/executor/plan/guards.h>
#include <coracle/executor/plan/plan.h>
#include <coracle/framework/base/trace.h>

#include <memory>
#include <span>
#include <vector>

namespace coracle::inline internal {

class Frame;

// Runs the sub-blocks of a frame's ops. See Workspace::RunBlock for `save_to` and `saved`.
class BlockCaller {
 public:
  virtual void Call(const BlockCall& call, Frame& caller, StepScopes::Step* save_to,
                    StepScopes::Step* saved) = 0;

 protected:
  ~BlockCaller() = default;
};

// The settings of a run, besides feeds and scope.
struct RunNumbers {
  uint64_t seed = 0, step = 0;  // for random ops
  // Receives the values that gradient blocks read; nullptr: save none.
  StepScopes::Step* save_to = nullptr;
  CommContext* comm = nullptr;  // see Workspace::comm
};

class Frame : public Workspace {
 public:
  // Allocates the arena. `cells` and `caller` belong to the activation and must outlive the frame.
  Frame(std::shared_ptr<const Plan> plan, const Cells& cells, BlockCaller& caller);
  ~Frame() override;

  const Plan& plan() const { return *plan_; }
  bool StillMatches(const Scope& scope) const { return scope_.StillMatches(scope); }

  // Prepares a run: binds persistables to the scope, feeds to their tensors (which must live as
  // long as the run) and values to their cells. Cheap if nothing has moved.
  void Begin(Scope& scope, std::span<const Tensor> feeds, const RunNumbers& run);
  void Run(const PlanStep& step);

  // The current content of a value; a view if it is a dense tensor.
  VarValue& Held(ValueId value);
  // Stores a view of a value after the run: in the frame's memory for results, in the scope, in a
  // constant, in the feed or in a cell. `to_caller`: the tensor leaves the executor, so it must not
  // change with the plan or a cell. Throws kInvalidArgument for a value that is not a dense tensor.
  void Fetch(ValueId value, bool to_caller, Tensor* out) const;

  // Ends a run for variables of the scope that hold strings (string_arena.h).
  void OwnStrings();

  // --- Workspace ---
  VarValue& ValueOf(const TensorArg& arg) override { return Held(Plan::IdOf(arg)); }
  const LoD& LodOf(const TensorArg& arg) override { return LodAt(Plan::IdOf(arg)); }
  LoD& OutputLod(const TensorArg& out) override;
  void RunBlock(int32_t handle, StepScopes::Step* save_to, StepScopes::Step* saved) override;

  struct StepTime {
    uint64_t runs = 0;
    double seconds = 0;
  };
  IdVector<StepId, StepTime>& times() { return times_; }
  const IdVector<StepId, StepTime>& times() const { return times_; }
  // The label of a step in a trace.
  Trace::LabelId LabelIn(Trace& trace, StepId step);
  // Memory of the frame and of its plan, including other values than dense tensors, as the last run
  // left them.
  uint64_t Bytes() const;

 private:
  void Allocate();
  void* FixedAddress(const Storage& storage) const;
  bool Overwrites(const Tensor& feed) const;
  void BindFeeds(std::span<const Tensor> feeds);
  void BindCells();
  const LoD& LodAt(ValueId value) const;
  // The tensor of the scope that has the elements of the value; nullptr if there is none.
  Tensor* InScopeAt(ValueId value) const;
  const VarValue& InCell(CellId cell) const { return cells_[cell]->value; }

  void Do(const RunKernel& action);
  void Do(const LodPass& action);
  void Do(const CopyElements& action);
  void Do(const StoreInCell& action);
  void Do(const SaveForGradient& action);

  struct Fed {
    bool bound = false;
    const void* data = nullptr;
    Tensor copy = {};  // used if the run overwrites the fed memory
  };

  std::shared_ptr<const Plan> plan_;
  const Cells& cells_;
  BlockCaller& caller_;
  std::shared_ptr<void> arena_, results_;
  bool has_strings_ = false;  // in the plan
  bool owns_strings_ = true;  // the scope's variables do
  ValuePointers pointers_;
  ScopeBinding scope_;
  // The values stored InFrame, and the views made by Held.
  IdVector<ValueId, VarValue> own_values_;
  // LoDs made by ops, of constants, and of values in cells as found when the run began: the content
  // of a cell may be replaced while other values still have its LoD.
  IdVector<ValueId, LoD> lods_;
  std::span<const Tensor> feeds_;
  IdVector<FeedId, Fed> fed_;
  std::vector<const void*> cell_data_;  // parallel to plan.dense_cells
  StepScopes::Step* save_to_ = nullptr;
  IdVector<StepId, StepTime> times_;
  uint64_t labelled_for_ = 0;  // id of the trace of labels_; 0: none
  IdVector<StepId, Trace::LabelId> labels_;
};

}  // namespace coracle::inline internal

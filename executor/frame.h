#pragma once
// Frame: the memory of one running plan. Internal to executor/.

#include <coracle/executor/guards.h>
#include <coracle/executor/plan.h>
#include <coracle/executor/scope_binding.h>
#include <coracle/executor/value_pointers.h>
#include <coracle/framework/base/trace.h>

#include <memory>
#include <span>
#include <vector>

namespace coracle {

class Frame;

// Runs the sub-blocks of a frame's ops. See Workspace::RunBlock for `save_to` and `saved`.
class BlockCaller {
 public:
  virtual void Call(const BlockCall& call, Frame& caller, StepScopes::Step* save_to,
                    StepScopes::Step* saved) = 0;

 protected:
  ~BlockCaller() = default;
};

// What differs from run to run besides feeds and scope.
struct RunNumbers {
  uint64_t seed = 0, step = 0;          // of random ops
  StepScopes::Step* save_to = nullptr;  // for the values that gradient blocks read; nullptr: none
  CommContext* comm = nullptr;          // see Workspace::comm
};

class Frame : public Workspace {
 public:
  // Allocates the arena. `cells` and `caller`, those of the activation, outlive the frame.
  Frame(std::shared_ptr<const Plan> plan, const Cells& cells, BlockCaller& caller);

  const Plan& plan() const { return *plan_; }
  bool StillMatches(const Scope& scope) const { return scope_.StillMatches(scope); }

  // Makes ready for a run: finds persistables in the scope, feeds in their tensors (which must live
  // as long as the run) and values in their cells. Cheap when nothing has moved.
  void Begin(Scope& scope, std::span<const Tensor> feeds, const RunNumbers& run);
  void Run(const PlanStep& step);

  // What a value is now; for a dense tensor a view.
  VarValue& Held(ValueId value);
  // A view of a value after the run: in the frame's memory for results, in the scope, a constant,
  // the feed or a cell. `to_caller`: it leaves the executor, and must not change when the plan or a
  // cell does. Throws kInvalidArgument for what is no dense tensor.
  void Fetch(ValueId value, bool to_caller, Tensor* out) const;

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
  // Of a step in a trace.
  Trace::LabelId LabelIn(Trace& trace, StepId step);
  // Memory of the frame and of its plan, values that are no dense tensors as the last
  // run left them.
  uint64_t Bytes() const;

 private:
  void Allocate();
  void* FixedAddress(const Storage& storage) const;
  bool Overwrites(const Tensor& feed) const;
  void BindFeeds(std::span<const Tensor> feeds);
  void BindCells();
  const LoD& LodAt(ValueId value) const;
  // The tensor of the scope whose elements a value has, if there is one.
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
    Tensor copy = {};  // where the run overwrites what is fed
  };

  std::shared_ptr<const Plan> plan_;
  const Cells& cells_;
  BlockCaller& caller_;
  std::shared_ptr<void> arena_, results_;
  ValuePointers pointers_;
  ScopeBinding scope_;
  IdVector<ValueId, VarValue> own_values_;  // those InFrame, and views made by Held
  // Of values whose LoD ops make, of constants, and of those found in cells as they were when the
  // run began: at its end a cell gets another value, while others still have its LoD.
  IdVector<ValueId, LoD> lods_;
  std::span<const Tensor> feeds_;
  IdVector<FeedId, Fed> fed_;
  std::vector<const void*> cell_data_;  // as plan.dense_cells
  StepScopes::Step* save_to_ = nullptr;
  IdVector<StepId, StepTime> times_;
  uint64_t labelled_for_ = 0;  // id of the trace that labels_ is of; 0: none
  IdVector<StepId, Trace::LabelId> labels_;
};

}  // namespace coracle

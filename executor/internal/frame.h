#pragma once
// Frame: the memory of one running plan. Internal to executor/.

#include <coracle/executor/executor.h>
#include <coracle/executor/internal/plan.h>
#include <coracle/framework/tensor/scope.h>

#include <memory>
#include <span>
#include <vector>

namespace coracle {

class Activation;

class Frame : public Workspace {
 public:
  // Allocates the arena. `activation` runs the block and outlives this frame.
  Frame(std::shared_ptr<const Plan> plan, Activation& activation);

  const std::shared_ptr<const Plan>& plan() const { return plan_; }

  // Whether the plan may run after stage `before` on these: feeds, cells and values as it relies on
  // them, and persistables of its types (`StillFits`: in the scope bound last, without looking up a
  // name).
  static bool Fits(const Plan& plan, const Plan* before, std::span<const Tensor> feeds,
                   std::span<VarCell* const> slots, const Scope& scope);
  static bool FitsScope(const Plan& plan, const Scope& scope);
  bool StillFits(const Scope& scope) const;

  // Makes ready for a run: points persistable values at the scope (making those that the plan
  // writes first), feeds at their tensors, slots at their cells. Cheap when nothing has moved.
  void Bind(Scope& scope, std::span<const Tensor> feeds);
  void SetRun(uint64_t seed, uint64_t step) {
    seed_ = seed;
    step_ = step;
  }

  TensorArg ArgOf(int32_t value) const;
  VarValue& ValueOf(const TensorArg& arg) override;
  void RunBlock(int32_t handle, StepScopes::Step* keep, StepScopes::Step* kept) override;

  // A view of a value after the run: in the frame's fetch memory, in the scope, a constant, the
  // feed or a cell. `to_caller`: it is handed out, and must not change when the plan or a cell
  // does.
  void Fetch(int32_t value, bool to_caller, Tensor* out);

  // Copies a value into a cell of the activation (-1: leaves the cell without value).
  void Store(int32_t value, int32_t slot);
  // Copies a value to where gradient blocks find it (or hands it over, when nothing else will read
  // it); nothing happens in a run that keeps nothing.
  void Keep(int32_t value, size_t index, bool hand_over);

  std::vector<OpTime>& times() { return times_; }
  uint64_t ValueBytes() const;  // of values that are no dense tensors, as the last run left them

 private:
  void* BaseOf(const Storage& storage) const;
  void BindScope(Scope& scope);
  void BindOne(size_t persistable, Scope& scope);
  void PointStorage(int32_t storage, void* data);
  void BindSlots();
  const LoD* LodOf(int32_t value) const;
  void CopyInto(int32_t value, VarCell* cell);

  std::shared_ptr<const Plan> plan_;
  Activation& activation_;
  std::shared_ptr<void> arena_, fetched_;
  std::vector<void*> pointers_;                  // by value
  std::vector<std::vector<int32_t>> values_of_;  // by storage
  std::vector<VarValue> own_values_;             // by value: views made by ValueOf, and kValue
  std::vector<VarValue*> persistables_;          // in the scope
  std::vector<const void*> bound_data_;
  std::vector<const void*> slot_data_;
  std::span<const Tensor> feeds_;
  std::vector<const void*> fed_data_;
  std::vector<bool> fed_;
  std::vector<OpTime> times_;
  uint64_t scope_generation_ = 0;
  const Scope* scope_ = nullptr;
};

}  // namespace coracle

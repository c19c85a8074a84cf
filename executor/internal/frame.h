#pragma once
// Frame: the memory of one running plan. A workspace holds one for the root block; control-flow ops
// push one per run of their sub-block. Internal to executor/.

#include <coracle/executor/internal/plan.h>
#include <coracle/framework/tensor/scope.h>

#include <memory>
#include <vector>

namespace coracle {

class Frame : public Workspace {
 public:
  // Allocates the arena. Throws kResourceExhausted when the plan needs more than `memory_limit`
  // bytes.
  // `parent` runs the enclosing block and outlives this frame.
  Frame(std::shared_ptr<const Plan> plan, uint64_t memory_limit, Frame* parent = nullptr);

  const std::shared_ptr<const Plan>& plan() const { return plan_; }

  // True when the scope's persistables have the types that the plan was made for.
  static bool Fits(const Plan& plan, const Scope& scope);

  // The same for the scope bound last, without looking up a name; false for any other scope.
  bool StillFits(const Scope& scope) const;

  // Points the persistable values at the scope (making those that the plan writes first) and the
  // feeds at their tensors. Cheap when neither the scope's layout nor its tensors' addresses
  // changed since the last call.
  void BindScope(Scope& scope);
  void BindFeeds(std::span<const Tensor> feeds);
  void SetRun(uint64_t seed, uint64_t step) {
    seed_ = seed;
    step_ = step;
  }

  Value& ValueOf(const TensorArg& arg) override;
  void RunBlock(int32_t handle) override;

  // Memory of the values that are no dense tensors, as the last run left it.
  uint64_t ValueBytes() const;

  // A view of a value after the run: in the frame's fetch memory, in the scope, a constant's copy
  // or the feed.
  void Fetch(int32_t value, std::span<const Tensor> feeds, Tensor* out);

 private:
  void* BaseOf(const Storage& storage) const;
  void BindOne(size_t persistable, Scope& scope);
  void PointStorage(int32_t storage, void* data);
  void BindOuter();

  std::shared_ptr<const Plan> plan_;
  Frame* parent_;
  std::vector<std::unique_ptr<Frame>> children_;  // by handle, made when first run
  std::shared_ptr<void> arena_, fetched_;
  std::vector<void*> pointers_;                  // by value
  std::vector<std::vector<int32_t>> values_of_;  // by storage
  std::vector<Value>
      own_values_;  // by value: views made by ValueOf, and values that are no dense tensor
  std::vector<Value*> persistables_;  // in the scope
  std::vector<const void*> bound_data_;
  std::vector<const void*> fed_data_;
  std::vector<bool> fed_;
  uint64_t scope_generation_ = 0;
  const Scope* scope_ = nullptr;
};

}  // namespace coracle

#pragma once
// Kernels: what a plan runs. An op is prepared once per plan (names, attrs, shapes) and then run
// every step.

#include <coracle/framework/ir/var.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace coracle {

// One variable of a prepared op: where a workspace keeps it, and its static type. An absent one
// converts to false.
struct TensorArg {
  int32_t index = -1;
  DType dtype = DType::kFloat32;
  Shape shape;
  int64_t numel = 0;  // 0 when it is no dense tensor
  VarType type = VarType::kLoDTensor;

  int64_t nbytes() const { return numel == 0 ? 0 : static_cast<int64_t>(ByteSize(dtype, shape)); }
  explicit operator bool() const { return index >= 0; }
};

// The memory of one run of a plan, seen by kernels. One thread uses it at a time.
class Workspace {
 public:
  virtual ~Workspace() = default;

  // First element of a tensor (nullptr when it has none). T must be the arg's dtype; that was
  // checked by Prepare.
  template <class T>
  T* Data(const TensorArg& arg) const {
    return static_cast<T*>(data_[static_cast<size_t>(arg.index)]);
  }
  template <class T>
  std::span<T> Span(const TensorArg& arg) const {
    return {Data<T>(arg), static_cast<size_t>(arg.numel)};
  }
  // The variable as a value: for ops on tensor arrays and selected rows, and for ops that need a
  // Tensor (save). For a dense tensor this is a view of Data().
  virtual VarValue& ValueOf(const TensorArg& arg) = 0;

  // Runs a sub-block once; `handle` is from PrepareContext::SubBlock. Variables of enclosing blocks
  // are read, and hold afterwards what the block made of them; its own are made afresh. When `keep`
  // is given, it gets what the gradient blocks of the block read of this run; when the block is a
  // gradient block, `kept` is that of the run that it differentiates. Throws kDeadlineExceeded and
  // kCancelled where a run is limited, so that no loop is endless.
  virtual void RunBlock(int32_t handle, StepScopes::Step* keep, StepScopes::Step* kept);
  void RunBlock(int32_t handle) { RunBlock(handle, nullptr, nullptr); }

  // Key of random draws: see rng.h. `seed` is the program's; `step` counts the runs.
  uint64_t seed() const { return seed_; }
  uint64_t step() const { return step_; }

 protected:
  void** data_ = nullptr;
  uint64_t seed_ = 0;
  uint64_t step_ = 0;
};

// The tensor to write an output to whose shape may be known only now (OpDef::RunTimeShape): of that
// dtype and shape. Throws InternalError when a plan relies on another one.
Tensor& ResizeOutput(Workspace& ws, const TensorArg& out, DType dtype, const Shape& shape);

// Does only arithmetic: no names, no shape inference, no allocation. May throw Error for what
// shapes could not tell (an index out of range). Runs concurrently on different workspaces, so it
// must not change what it captured.
using Kernel = std::function<void(Workspace&)>;

enum class KernelMode {
  kAuto,       // the fast kernel where there is one
  kReference,  // plain loops only
};

}  // namespace coracle

#pragma once
// Helpers for kernels on oneDNN: the engine, a stream for each thread, memory descriptors, calls.
// Include only from .cc files under `#ifdef CORACLE_ONEDNN`; not a public header.

#include <coracle/framework/op/op_context.h>

#include <dnnl.hpp>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace coracle::onednn {

// The CPU engine of the process.
const dnnl::engine& Engine();
// The calling thread's stream.
dnnl::stream& ThreadStream();

// Throws Error (kUnimplemented if oneDNN has no such primitive, kResourceExhausted, kInternal).
[[noreturn]] void Rethrow(const dnnl::error& error, const char* what);

// Calls f() and converts dnnl::error to coracle::Error.
template <class F>
decltype(auto) Translate(const char* what, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const dnnl::error& error) {
    Rethrow(error, what);
  }
}

// A descriptor of float32 or bfloat16.
dnnl::memory::desc Desc(const dnnl::memory::dims& dims, dnnl::memory::format_tag tag,
                        DType dtype = DType::kFloat32);
// A descriptor with one dimension.
dnnl::memory::desc Vector(int64_t n, DType dtype = DType::kFloat32);

// Scratch memory for a tensor of this descriptor (bytes rounded up to floats).
TensorArg ScratchFor(const PrepareContext& ctx, const dnnl::memory::desc& desc);

// A primitive with the descriptors of its arguments: built in Prepare, run by any thread. Copies
// share it. The memory objects of a run are kept for the next one; a second thread that runs the
// call at the same time creates its own.
class Call {
 public:
  Call() = default;
  explicit Call(dnnl::primitive primitive);
  explicit operator bool() const { return state_ != nullptr; }

  Call& Arg(int id, const dnnl::memory::desc& desc);
  // Pointers in the order of Arg(). At most kMaxArgs.
  void Run(std::initializer_list<const void*> pointers) const;

  static constexpr size_t kMaxArgs = 12;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Copies between two layouts or dtypes of one tensor, from several threads if it is large.
class Reorder {
 public:
  Reorder() = default;
  Reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  explicit operator bool() const { return !parts_.empty(); }

  void Run(const void* from, void* to) const;

 private:
  std::vector<Call> parts_;  // by the tensor's first dimension
};

}  // namespace coracle::onednn

#pragma once
// The border between C and C++: no exception leaves the functions of coracle_c.h.

#include <coracle/coracle_c.h>
#include <coracle/framework/base/error.h>

#include <atomic>
#include <utility>

namespace coracle::capi {

// Keeps the error for coracle_last_error in this thread, and returns its status. To be called in a
// catch block.
int32_t KeepError() noexcept;

// Runs f and returns CORACLE_OK, or the status of what it throws.
template <class F>
int32_t Guard(F&& f) noexcept {
  try {
    std::forward<F>(f)();
    return CORACLE_OK;
  } catch (...) {
    return KeepError();
  }
}

// Marks a handle as used, so that a second thread gets an error instead of wrong results.
class InUse {
 public:
  // Throws kInvalidArgument with the message if another thread uses the handle.
  InUse(std::atomic<bool>& used, const char* message);
  ~InUse() { used_ = false; }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  std::atomic<bool>& used_;
};

// Throws kInvalidArgument that names the argument.
void RequireArgument(const void* pointer, const char* name);

}  // namespace coracle::capi

#include <coracle/operators/kernels/onednn_scope.h>
#include <coracle/test/faults/allocations.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

extern "C" {
void* __libc_malloc(size_t);            // NOLINT: glibc's names
void* __libc_calloc(size_t, size_t);    // NOLINT
void* __libc_realloc(void*, size_t);    // NOLINT
void* __libc_memalign(size_t, size_t);  // NOLINT
}

namespace coracle::faults {
namespace {

std::atomic<bool> active{false};
std::atomic<int64_t> count{0}, fails_at{0};

// oneDNN 2.6 does not survive failures of its own allocations; PrepareKernel sees to it that there
// is room for them.
bool Fails() {
  if (!active.load(std::memory_order_relaxed) || onednn::calls_under_way > 0) return false;
  if (++count != fails_at) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

ScopedAllocationFault::ScopedAllocationFault(int64_t at) {
  fails_at = at;
  count = 0;
  active = true;
}
ScopedAllocationFault::~ScopedAllocationFault() { active = false; }
int64_t ScopedAllocationFault::Count() { return count; }

}  // namespace coracle::faults

using coracle::faults::Fails;

extern "C" {
void* malloc(size_t size) noexcept { return Fails() ? nullptr : __libc_malloc(size); }
void* calloc(size_t n, size_t size) noexcept { return Fails() ? nullptr : __libc_calloc(n, size); }
void* realloc(void* p, size_t size) noexcept { return Fails() ? nullptr : __libc_realloc(p, size); }
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return Fails() ? nullptr : __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) noexcept {
  return Fails() ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** p, size_t alignment, size_t size) noexcept {
  if (Fails()) return ENOMEM;
  *p = __libc_memalign(alignment, size);
  return *p ? 0 : ENOMEM;
}
}

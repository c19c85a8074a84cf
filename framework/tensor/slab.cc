#include <coracle/framework/base/address_sanitizer.h>
#include <coracle/framework/tensor/slab.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace coracle::inline internal {
namespace {

constexpr uint64_t kAlignment = 64, kHugePage = uint64_t{2} << 20;
constexpr uint64_t kLeast = kHugePage / 2, kChunk = 16 * kHugePage;

}  // namespace

thread_local TensorSlab* TensorSlab::current_ = nullptr;

TensorSlab::TensorSlab(uint64_t bytes) : outer_(current_), expected_(bytes) { current_ = this; }

TensorSlab::~TensorSlab() { current_ = outer_; }

TensorSlab::Piece TensorSlab::Take(uint64_t size) {
#ifdef CORACLE_ADDRESS_SANITIZER  // separate memory for each tensor, to find overruns
  return {};
#endif
  if (expected_ < kLeast || size > kHugePage) return {};
  size = (size + kAlignment - 1) / kAlignment * kAlignment;
  if (size > size_ - used_) {
    const uint64_t pages = (std::min(expected_, kChunk) + kHugePage - 1) / kHugePage;
    void* data = std::aligned_alloc(kHugePage, pages * kHugePage);
    if (!data) return {};
    ::madvise(data, pages * kHugePage, MADV_HUGEPAGE);
    chunk_ = std::shared_ptr<void>(data, std::free);
    size_ = pages * kHugePage;
    used_ = 0;
  }
  Piece piece{chunk_, static_cast<char*>(chunk_.get()) + used_};
  used_ += size;
  return piece;
}

}  // namespace coracle::inline internal

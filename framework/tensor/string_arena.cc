#include <coracle/framework/tensor/string_arena.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace coracle::inline internal {
namespace {

constexpr uint64_t kFirstChunk = uint64_t{4} << 10, kLargestChunk = uint64_t{1} << 20;

}  // namespace

thread_local StringArena* StringArena::current_ = nullptr;

StringArena& StringArena::OfRun() {
  if (!current_) throw InternalError("a kernel makes strings outside of a run");
  return *current_;
}

char* StringArena::Take(uint64_t size) {
  used_ = true;
  if (size > size_ - at_) {
    // A long string gets memory of its own, so that the rest of the chunk is not lost.
    if (size > kLargestChunk / 4) {
      kept_.push_back(AllocateBytes(size, "strings"));
      return static_cast<char*>(kept_.back().get());
    }
    const uint64_t wanted = std::clamp(2 * size_, std::max(size, kFirstChunk), kLargestChunk);
    std::shared_ptr<void> chunk = AllocateBytes(wanted, "strings");
    if (chunk_) kept_.push_back(std::move(chunk_));
    chunk_ = std::move(chunk);
    size_ = wanted;
    at_ = 0;
  }
  at_ += size;
  return static_cast<char*>(chunk_.get()) + at_ - size;
}

StringRef StringArena::Add(std::string_view bytes) {
  if (bytes.empty()) return {};
  char* to = Take(bytes.size());
  std::memcpy(to, bytes.data(), bytes.size());
  return {to, bytes.size()};
}

void StringArena::Keep(std::shared_ptr<void> bytes) noexcept {
  used_ = true;
  try {
    kept_.push_back(bytes);
  } catch (const std::bad_alloc&) {
    // The bytes are lost for the process, which is better than elements that point to nothing.
    [[maybe_unused]] auto* lost = new (std::nothrow) std::shared_ptr<void>(std::move(bytes));
  }
}

void StringArena::Clear() {
  kept_.clear();
  at_ = 0;
  used_ = false;
}

namespace {

void Own(Tensor& tensor) {
  if (tensor.dtype() == DType::kString) tensor = tensor.Clone();
}

}  // namespace

void OwnStrings(VarValue& value) {
  if (auto* tensor = std::get_if<Tensor>(&value)) {
    Own(*tensor);
  } else if (auto* array = std::get_if<TensorArray>(&value)) {
    for (size_t i = 0; i < array->size(); ++i) {
      if (array->IsWritten(i) && (*array)[i].dtype() == DType::kString)
        array->Set(i, (*array)[i].Clone());
    }
  }
}

}  // namespace coracle::inline internal

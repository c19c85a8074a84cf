#pragma once
// MemoryUse: memory of an import that is not elements of tensors, in the thread's ResourceLimits.

#include <coracle/framework/base/resource_limits.h>
#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <memory>
#include <string_view>

namespace coracle::onnx {

// Bytes that are counted as in use for as long as the object lives.
class MemoryUse {
 public:
  MemoryUse() : limits_(ResourceLimits::Current()) {}
  ~MemoryUse() {
    if (limits_) limits_->Release(bytes_);
  }
  MemoryUse(const MemoryUse&) = delete;
  MemoryUse& operator=(const MemoryUse&) = delete;

  // Throws OutOfMemory where the limits do not allow them; `what` says what they are for.
  void Add(uint64_t bytes, const char* what);

 private:
  std::shared_ptr<ResourceLimits> limits_;
  uint64_t bytes_ = 0;
};

// About how many bytes a message takes once protobuf has parsed it, which may be a hundred times as
// many as in the file: an empty message is two bytes there. Any bytes will do.
uint64_t ParsedSize(std::string_view bytes, const google::protobuf::Descriptor& type);

}  // namespace coracle::onnx

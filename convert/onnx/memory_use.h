#pragma once
// MemoryUse: counts an import's memory, except elements of tensors, in the thread's ResourceLimits.

#include <coracle/framework/base/resource_limits.h>
#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <memory>
#include <string_view>

namespace coracle::onnx {

// Bytes that count as in use during the lifetime of the object.
class MemoryUse {
 public:
  MemoryUse() : limits_(ResourceLimits::Current()) {}
  ~MemoryUse() {
    if (limits_) limits_->Release(bytes_);
  }
  MemoryUse(const MemoryUse&) = delete;
  MemoryUse& operator=(const MemoryUse&) = delete;

  // Throws OutOfMemory if the limits are exceeded; `what` is the purpose of the memory.
  void Add(uint64_t bytes, const char* what);

 private:
  std::shared_ptr<ResourceLimits> limits_;
  uint64_t bytes_ = 0;
};

// The approximate size of a message after protobuf has parsed it, which may be a hundred times the
// size in the file: an empty message takes two bytes there. Accepts any bytes.
uint64_t ParsedSize(std::string_view bytes, const google::protobuf::Descriptor& type);

}  // namespace coracle::onnx

#pragma once
// Indices in tensors: int32 or int64 elements, checked against the dimension that they index.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Elements of an int32 or int64 tensor as int64.
class IndexReader {
 public:
  IndexReader(const Workspace& ws, const TensorArg& arg)
      : data_(ws.Data<const void>(arg)), wide_(arg.dtype == DType::kInt64) {}
  int64_t operator[](int64_t i) const {
    return wide_ ? static_cast<const int64_t*>(data_)[i] : static_cast<const int32_t*>(data_)[i];
  }

 private:
  const void* data_;
  bool wide_;
};

inline bool IsIndexType(DType dtype) { return dtype == DType::kInt32 || dtype == DType::kInt64; }

// Throws kOutOfRange: "gather: Index holds 7 at 3, outside [0, 5)".
[[noreturn]] void ThrowIndexRange(const std::string& op, const char* slot, int64_t at,
                                  int64_t value, int64_t limit);

// A short list of integers that a kernel needs at run time, from the first source that is given: a
// slot of one-element tensors, a slot of one tensor, or an attr.
class IntListArg {
 public:
  IntListArg(const PrepareContext& ctx, const char* list_slot, const char* tensor_slot,
             const char* attr);
  size_t size() const { return size_; }
  // REQUIRES: the list comes from the attr.
  int64_t GetFixed(size_t i) const { return values_[i]; }
  int64_t Get(const Workspace& ws, size_t i) const {
    if (!list_.empty()) return IndexReader(ws, list_[i])[0];
    if (tensor_) return IndexReader(ws, tensor_)[static_cast<int64_t>(i)];
    return values_[i];
  }

 private:
  std::vector<TensorArg> list_;
  TensorArg tensor_;
  std::vector<int64_t> values_;
  size_t size_ = 0;
};

}  // namespace coracle::inline internal

#pragma once
// Class labels as kernels read them: int32 or int64, each checked.

#include <coracle/framework/base/error.h>
#include <coracle/framework/op/kernel.h>

#include <cstdint>
#include <string>

namespace coracle {

class Labels {
 public:
  Labels(Workspace& ws, const TensorArg& arg)
      : data_(ws.Data<const void>(arg)), wide_(arg.dtype == DType::kInt64) {}
  int64_t operator[](int64_t i) const {
    return wide_ ? static_cast<const int64_t*>(data_)[i] : static_cast<const int32_t*>(data_)[i];
  }

 private:
  const void* data_;
  bool wide_;
};

// `op` names the constraint too: "cross_entropy.C4".
[[noreturn]] inline void ThrowLabel(const std::string& op, int64_t label, int64_t index,
                                    int64_t classes, int64_t ignore_index) {
  throw Error(ErrorCode::kOutOfRange,
              op.substr(0, op.find('.')) + ": label " + std::to_string(label) + " at index " +
                  std::to_string(index) + " lies outside [0, " + std::to_string(classes) +
                  ") and is not ignore_index " + std::to_string(ignore_index) + " [" + op + "]");
}

}  // namespace coracle

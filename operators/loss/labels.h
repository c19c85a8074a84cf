#pragma once
// The error of a class label out of range; kernels read labels by IndexReader and check each.

#include <coracle/framework/base/error.h>

#include <cstdint>
#include <string>

namespace coracle {

// `op` names the constraint too: "cross_entropy.C4".
[[noreturn]] inline void ThrowLabel(const std::string& op, int64_t label, int64_t index,
                                    int64_t classes, int64_t ignore_index) {
  throw Error(ErrorCode::kOutOfRange,
              op.substr(0, op.find('.')) + ": label " + std::to_string(label) + " at index " +
                  std::to_string(index) + " lies outside [0, " + std::to_string(classes) +
                  ") and is not ignore_index " + std::to_string(ignore_index) + " [" + op + "]");
}

}  // namespace coracle

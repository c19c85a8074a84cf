#pragma once
// The error of a class label out of range; kernels read labels by IndexReader and check each.

#include <coracle/framework/base/error.h>

#include <cstdint>
#include <string>

namespace coracle {

// `failure` tells the constraint (PrepareContext::Failure).
[[noreturn]] inline void ThrowLabel(const std::string& failure, int64_t label, int64_t index,
                                    int64_t classes, int64_t ignore_index) {
  throw Error(ErrorCode::kOutOfRange,
              failure + ", got label " + std::to_string(label) + " at index " +
                  std::to_string(index) + ", which lies outside [0, " + std::to_string(classes) +
                  ") and is not ignore_index " + std::to_string(ignore_index));
}

}  // namespace coracle

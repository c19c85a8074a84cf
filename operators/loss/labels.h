#pragma once
// The error for a class label out of range; kernels read labels with IndexReader and check
// each one.

#include <coracle/framework/base/error.h>

#include <cstdint>
#include <string>

namespace coracle::inline internal {

// `failure` has the op and the constraint (PrepareContext::Failure), and the label is inserted
// between them: "cross_entropy: label 7 at index 3 lies outside [0, 5) and is not ignore_index
// -100: ...".
[[noreturn]] inline void ThrowLabel(const std::string& failure, int64_t label, int64_t index,
                                    int64_t classes, int64_t ignore_index) {
  const size_t text = failure.find(": ") + 2;
  throw Error(ErrorCode::kOutOfRange,
              failure.substr(0, text) + "label " + std::to_string(label) + " at index " +
                  std::to_string(index) + " lies outside [0, " + std::to_string(classes) +
                  ") and is not ignore_index " + std::to_string(ignore_index) + ": " +
                  failure.substr(text));
}

}  // namespace coracle::inline internal

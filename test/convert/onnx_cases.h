#pragma once
// The node cases of ONNX that are known not to give their outputs, and why.

#include <map>
#include <string>

namespace coracle::onnx {

inline const std::map<std::string, std::string>& KnownFailures() {
  static const std::map<std::string, std::string> cases = {};
  return cases;
}

}  // namespace coracle::onnx

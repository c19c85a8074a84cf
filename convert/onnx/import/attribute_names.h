#pragma once

#include <string_view>

namespace coracle::onnx {

// Whether an operator of ONNX's own sets, in any version, has an attribute of this name. Other
// names mean nothing on such an operator: they are misspelt, or an exporter's own notes.
bool IsAttributeOfOnnx(std::string_view name);

}  // namespace coracle::onnx

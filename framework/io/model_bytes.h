#pragma once
// Inference models that are in memory.

#include <coracle/framework/io/tensor_io.h>

#include <string>
#include <string_view>

namespace coracle::inline internal {

// LoadCombined of bytes.
void ParseCombined(const ProgramDesc& program, const std::vector<std::string>& names,
                   std::string_view bytes, const std::string& source, Scope& scope);

// LoadInferenceModel of the bytes of a .pdmodel file (binary or text) and of its .pdiparams file.
InferenceModel ParseInferenceModel(std::string_view program, std::string_view parameters,
                                   const std::string& source, Scope& scope);

}  // namespace coracle::inline internal

#pragma once
// Registration of readers for models in other formats, which LoadInferenceModel calls.

#include <coracle/framework/io/tensor_io.h>

#include <string>

namespace coracle::inline internal {

// Like LoadInferenceModel: returns the program with its feed and fetch ops and puts the parameters
// into `scope`.
using ModelReader = InferenceModel (*)(const std::string& path, Scope& scope);

// Makes LoadInferenceModel use `reader` for files whose names end in `ending` (".onnx"). Any thread
// may call it.
void RegisterModelReader(const std::string& ending, ModelReader reader);

}  // namespace coracle::inline internal

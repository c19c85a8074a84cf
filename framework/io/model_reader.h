#pragma once
// Readers of models in other formats, which LoadInferenceModel calls.

#include <coracle/framework/io/tensor_io.h>

#include <string>

namespace coracle {

// As LoadInferenceModel: the program with its feed and fetch ops, its parameters in `scope`.
using ModelReader = InferenceModel (*)(const std::string& path, Scope& scope);

// From now on LoadInferenceModel reads files whose names end in `ending` (".onnx") with `reader`.
// No other thread may load a model meanwhile.
void RegisterModelReader(const std::string& ending, ModelReader reader);

}  // namespace coracle

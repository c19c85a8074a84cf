#pragma once
// Writes a finished Graph to a file.

#include <coracle/convert/onnx/export/graph.h>

#include <cstdint>
#include <string>

namespace coracle::onnx {

// Writes the model with its parameters, whose elements go directly from their tensors to the file.
// If the model would exceed `max_bytes`, they go to the file PATH.data. Both files are replaced
// atomically, the model last.
void WriteModel(Graph& graph, const std::string& path, uint64_t max_bytes);

}  // namespace coracle::onnx

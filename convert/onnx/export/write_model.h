#pragma once
// A finished Graph as a file.

#include <cstdint>
#include <string>

#include "graph.h"

namespace coracle::onnx {

// Writes the model with its parameters, whose elements go from their tensors to the file. If it
// would have more than `max_bytes`, they go to the file PATH.data. Both files appear whole, the
// model last.
void WriteModel(Graph& graph, const std::string& path, uint64_t max_bytes);

}  // namespace coracle::onnx

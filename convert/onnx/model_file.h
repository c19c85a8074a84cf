#pragma once
// Reads ONNX model files without a second copy of their weights.

#include <coracle/convert/onnx/external_data.h>
#include <coracle/convert/onnx/memory_use.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/proto/onnx.pb.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::onnx {

struct OnnxModelFile {
  // Initializers of its graph have names and types, but no elements; nodes are sorted.
  proto::onnx::ModelProto model;
  std::vector<Tensor> initializers;  // of model.graph(), in order
  TensorSource source;               // for tensors in attributes and inner graphs
  std::unique_ptr<MemoryUse> memory = std::make_unique<MemoryUse>();  // of the model
};

// The elements of the graph's initializers go from the file to their tensors, including external
// data. Safe for any bytes: invalid ones give one Error. Throws kUnimplemented for 2 GiB and more,
// which protobuf cannot read: such models store their weights as external data. Protobuf's copy of
// the model counts in the thread's ResourceLimits during the lifetime of the result.
OnnxModelFile ReadOnnxModel(const std::string& path);
// `source` names the bytes in errors.
OnnxModelFile ParseOnnxModel(std::string_view bytes, const std::string& source);

}  // namespace coracle::onnx

#pragma once
// ONNX models as files, without a second copy of their weights.

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
  proto::onnx::ModelProto model;     // initializers of its graph have names and types, no elements
  std::vector<Tensor> initializers;  // those of model.graph(), in its order
  TensorSource source;               // of tensors elsewhere: in attributes and inner graphs
  std::unique_ptr<MemoryUse> memory = std::make_unique<MemoryUse>();  // of the model
};

// The elements of the graph's initializers go from the file to their tensors, those of external
// data too. Safe on any bytes: what is no model gives one Error. Throws kUnimplemented for 2 GiB
// and more, which protobuf does not read: such models have their weights as external data. What
// protobuf makes of the model counts in the thread's ResourceLimits for as long as the result
// lives.
OnnxModelFile ReadOnnxModel(const std::string& path);
// `source` names the bytes in errors.
OnnxModelFile ParseOnnxModel(std::string_view bytes, const std::string& source);

}  // namespace coracle::onnx

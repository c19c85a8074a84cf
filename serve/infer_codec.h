#pragma once
// The bodies of infer requests and answers of the Open Inference Protocol (version 2, REST), with
// its extension for binary tensors. Sources: https://github.com/kserve/open-inference-protocol, and
// docs/protocol/extension_binary_data.md of Triton's server.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/serve/http_message.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle::serve {

// An input or output of a model. A dim of -1 may change from request to request.
struct Port {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
};

// "FP32", "INT64", "BYTES", ...; "" for a dtype that the protocol lacks (complex numbers).
std::string DatatypeOf(DType dtype);

struct WantedOutput {
  size_t index = 0;  // among the model's outputs
  bool binary = false;
};

struct InferRequest {
  std::string id;
  bool has_id = false;
  std::vector<Tensor> inputs;         // in the order of the model's
  std::vector<WantedOutput> outputs;  // in the order of the request
};

// Bytes of the body's JSON text, which binary tensors may follow. Throws HttpError with status 400.
size_t JsonSize(const Request& request);

// Throws HttpError with status 400 and a message that names the tensor. Memory stays below some
// times the size of the body.
InferRequest ParseInferRequest(const Request& request, const std::vector<Port>& inputs,
                               const std::vector<Port>& outputs);

// `results` are all outputs of the model. Throws HttpError with status 400 for a result that JSON
// cannot express (nan, infinities, 16-bit floats, bytes that are not UTF-8) unless it is binary.
Response InferResponse(const InferRequest& request, const std::string& model,
                       const std::string& version, const std::vector<Port>& outputs,
                       const std::vector<Tensor>& results);

}  // namespace coracle::serve

#pragma once
// TensorProto and Tensor: every way in which ONNX stores elements.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/proto/onnx.pb.h>

#include <string>
#include <utility>

namespace coracle::onnx {

// Where tensors with external data have their elements: in files of the model's folder.
class TensorSource {
 public:
  TensorSource() = default;  // a model without a folder; external data is refused
  explicit TensorSource(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

// The elements of `proto` as the dtype that FromDataType (dtypes.h) gives; those of UINT64 as int64
// if all of them fit. Throws an Error that names the tensor: kUnimplemented for types that no dtype
// holds, kDataLoss unless there are exactly as many elements as the dims say (checked before memory
// is taken), kOutOfRange for an element beyond the range of its type.
Tensor ParseTensorProto(const proto::onnx::TensorProto& proto, const TensorSource& source);

// Name, type, dims and elements (raw_data).
void FillTensorProto(const Tensor& tensor, const std::string& name,
                     proto::onnx::TensorProto* proto);

}  // namespace coracle::onnx

#pragma once
// TensorProto and Tensor: every way in which ONNX stores elements.

#include <coracle/convert/onnx/external_data.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/proto/onnx.pb.h>

#include <cstdint>
#include <functional>
#include <string>

namespace coracle::onnx {

// The elements of `proto` as the dtype that FromDataType (dtypes.h) gives; those of UINT64 as int64
// if all of them fit. Throws an Error that names the tensor: kUnimplemented for types that no dtype
// holds, kDataLoss unless there are exactly as many elements as the dims say (checked before memory
// is taken), kOutOfRange for an element beyond the range of its type, and what TensorSource throws.
Tensor ParseTensorProto(const proto::onnx::TensorProto& proto, const TensorSource& source);

// Bytes of the elements as raw_data. Throws for types and dims as ParseTensorProto does.
uint64_t RawSize(const proto::onnx::TensorProto& proto);

// The same of a tensor whose elements are elsewhere: `read` writes raw_data of `size` bytes to the
// address that it gets.
using ReadElementsFn = std::function<void(void* to)>;
Tensor ReadRawElements(const proto::onnx::TensorProto& proto, uint64_t size,
                       const ReadElementsFn& read);

// Name, type, dims and elements (raw_data).
void FillTensorProto(const Tensor& tensor, const std::string& name,
                     proto::onnx::TensorProto* proto);

}  // namespace coracle::onnx

#pragma once
// TensorProto and Tensor: every way in which ONNX stores elements.

#include <coracle/convert/onnx/external_data.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/proto/onnx.pb.h>

#include <cstdint>
#include <functional>
#include <string>

namespace coracle::onnx {

// The elements of `proto` in the dtype of HoldingDType (dtypes.h). Throws an Error that names the
// tensor: kUnimplemented for types that no dtype holds,
// kDataLoss if the number of elements does not match the dims (checked before memory is allocated),
// kOutOfRange for an element beyond the range of its type, and the errors of TensorSource.
Tensor ParseTensorProto(const proto::onnx::TensorProto& proto, const TensorSource& source);

// Bytes of the elements as raw_data. Throws for types and dims like ParseTensorProto, and kDataLoss
// for strings, which have no raw_data.
uint64_t RawSize(const proto::onnx::TensorProto& proto);

// The same for a tensor whose elements are stored elsewhere: `read` writes raw_data of `size` bytes
// to the given address.
using ReadElementsFn = std::function<void(void* to)>;
Tensor ReadRawElements(const proto::onnx::TensorProto& proto, uint64_t size,
                       const ReadElementsFn& read);

// Name, type, dims and elements (raw_data, for strings string_data).
void FillTensorProto(const Tensor& tensor, const std::string& name,
                     proto::onnx::TensorProto* proto);

}  // namespace coracle::onnx

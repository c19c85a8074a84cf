#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>

namespace coracle::onnx {
namespace {

using proto::onnx::TensorProto;

static_assert(std::endian::native == std::endian::little);  // as raw_data

std::string Describe(const TensorProto& proto) {
  return proto.name().empty() ? "a tensor without a name"
                              : fmt::format("tensor {}", Quote(proto.name()));
}

[[noreturn]] void Fail(ErrorCode code, const TensorProto& proto, const std::string& what) {
  throw Error(code, fmt::format("{}: {}", Describe(proto), what));
}

DType DTypeFor(const TensorProto& proto) {
  const int type = proto.data_type();
  if (type == TensorProto::UINT64) return DType::kInt64;
  if (const auto dtype = FromDataType(type)) return *dtype;
  if (type == TensorProto::UNDEFINED) Fail(ErrorCode::kDataLoss, proto, "it has no element type");
  Fail(ErrorCode::kUnimplemented, proto,
       fmt::format("elements of type {} are not taken", DataTypeName(type)));
}

Shape ShapeOf(const TensorProto& proto) {
  if (proto.dims_size() > Shape::kMaxRank) {
    Fail(ErrorCode::kUnimplemented, proto,
         fmt::format("its rank {} exceeds {}", proto.dims_size(), Shape::kMaxRank));
  }
  Shape shape;
  for (const int64_t dim : proto.dims()) shape.Append(dim);
  if (!shape.IsKnown() || shape.HasTooManyElements())
    Fail(ErrorCode::kDataLoss, proto, fmt::format("{} is not a shape", shape.ToString()));
  return shape;
}

// Bytes of one element in raw_data.
size_t RawWidth(int data_type, DType dtype) {
  switch (data_type) {
    case TensorProto::UINT16:
      return 2;
    case TensorProto::UINT32:
      return 4;
    default:
      return SizeOf(dtype);
  }
}

// The number of entries in the list field for elements of this type, if there is no raw_data.
int ListedNumbers(const TensorProto& proto) {
  switch (proto.data_type()) {
    case TensorProto::FLOAT:
    case TensorProto::COMPLEX64:
      return proto.float_data_size();
    case TensorProto::DOUBLE:
    case TensorProto::COMPLEX128:
      return proto.double_data_size();
    case TensorProto::INT64:
      return proto.int64_data_size();
    case TensorProto::UINT32:
    case TensorProto::UINT64:
      return proto.uint64_data_size();
    default:
      return proto.int32_data_size();
  }
}

void CheckCount(const TensorProto& proto, const Shape& shape, const char* unit, uint64_t needed,
                uint64_t there) {
  if (there == needed) return;
  Fail(ErrorCode::kDataLoss, proto,
       fmt::format("{}{} takes {} {}, but it has {}", DataTypeName(proto.data_type()),
                   shape.ToString(), needed, unit, there));
}

template <class Number>
[[noreturn]] void FailRange(const TensorProto& proto, Number value, const char* type) {
  Fail(ErrorCode::kOutOfRange, proto,
       fmt::format("the element {} is beyond the range of {}", value, type));
}

template <class From>
void Widen(std::string_view raw, auto* to) {
  for (size_t i = 0; i < raw.size() / sizeof(From); ++i) {
    From value;
    std::memcpy(&value, raw.data() + i * sizeof(From), sizeof(From));
    to[i] = value;
  }
}

void CheckUInt64(const TensorProto& proto, std::span<const int64_t> values) {
  for (const int64_t value : values) {
    if (value < 0) FailRange(proto, static_cast<uint64_t>(value), "int64, which holds UINT64 here");
  }
}

// Elements that are stored in a wider type.
void FillWidened(int data_type, std::string_view raw, Tensor* tensor) {
  if (data_type == TensorProto::UINT16)
    Widen<uint16_t>(raw, tensor->data<int32_t>());
  else
    Widen<uint32_t>(raw, tensor->data<int64_t>());
}

// Raw bytes may contain values that are not valid elements.
void CheckBytes(const TensorProto& proto, Tensor* tensor) {
  if (proto.data_type() == TensorProto::BOOL) {
    auto* bytes = static_cast<unsigned char*>(tensor->raw());
    for (int64_t i = 0; i < tensor->numel(); ++i) bytes[i] = bytes[i] != 0;
  } else if (proto.data_type() == TensorProto::UINT64) {
    CheckUInt64(proto, std::as_const(*tensor).span<int64_t>());
  }
}

// Elements as T, each of which must be within [low, high].
template <class T>
void Narrow(const TensorProto& proto, const auto& numbers, int64_t low, int64_t high, T* to) {
  for (const auto number : numbers) {
    if (std::cmp_less(number, low) || std::cmp_greater(number, high))
      FailRange(proto, number, DataTypeName(proto.data_type()).c_str());
    *to++ = static_cast<T>(number);
  }
}

template <class T>
void Narrow(const TensorProto& proto, const auto& numbers, T* to) {
  Narrow(proto, numbers, std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), to);
}

// Elements of up to 32 bits. 16-bit floats are stored as bits, which some writers sign-extend.
void FillFromInt32(const TensorProto& proto, Tensor* tensor) {
  const auto& numbers = proto.int32_data();
  switch (proto.data_type()) {
    case TensorProto::BOOL:
      std::transform(numbers.begin(), numbers.end(), tensor->data<bool>(),
                     [](int32_t number) { return number != 0; });
      return;
    case TensorProto::INT8:
      return Narrow(proto, numbers, tensor->data<int8_t>());
    case TensorProto::UINT8:
      return Narrow(proto, numbers, tensor->data<uint8_t>());
    case TensorProto::INT16:
      return Narrow(proto, numbers, tensor->data<int16_t>());
    case TensorProto::UINT16:
      return Narrow(proto, numbers, 0, UINT16_MAX, tensor->data<int32_t>());
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
      return Narrow(proto, numbers, INT16_MIN, UINT16_MAX, static_cast<uint16_t*>(tensor->raw()));
    default:
      return Narrow(proto, numbers, tensor->data<int32_t>());
  }
}

void FillFromLists(const TensorProto& proto, Tensor* tensor) {
  switch (proto.data_type()) {
    case TensorProto::FLOAT:
    case TensorProto::COMPLEX64:
      std::copy(proto.float_data().begin(), proto.float_data().end(),
                static_cast<float*>(tensor->raw()));
      return;
    case TensorProto::DOUBLE:
    case TensorProto::COMPLEX128:
      std::copy(proto.double_data().begin(), proto.double_data().end(),
                static_cast<double*>(tensor->raw()));
      return;
    case TensorProto::INT64:
      std::copy(proto.int64_data().begin(), proto.int64_data().end(), tensor->data<int64_t>());
      return;
    case TensorProto::UINT32:
      return Narrow(proto, proto.uint64_data(), 0, UINT32_MAX, tensor->data<int64_t>());
    case TensorProto::UINT64:
      std::copy(proto.uint64_data().begin(), proto.uint64_data().end(), tensor->data<int64_t>());
      return CheckBytes(proto, tensor);
    default:
      return FillFromInt32(proto, tensor);
  }
}

FileReader OpenExternal(const TensorProto& proto, const TensorSource& source) {
  const uint64_t size = RawSize(proto);
  try {
    return source.Open(ParseExternalRange(proto), size);
  } catch (const Error& e) {
    throw e.WithPrefix(Describe(proto));
  }
}

}  // namespace

uint64_t RawSize(const TensorProto& proto) {
  const DType dtype = DTypeFor(proto);
  return static_cast<uint64_t>(ShapeOf(proto).numel()) * RawWidth(proto.data_type(), dtype);
}

Tensor ReadRawElements(const TensorProto& proto, uint64_t size, const ReadElementsFn& read) {
  const DType dtype = DTypeFor(proto);
  const Shape shape = ShapeOf(proto);
  CheckCount(proto, shape, "bytes", RawSize(proto), size);
  Tensor tensor(dtype, shape);
  if (size == tensor.nbytes()) {
    if (size > 0) read(tensor.raw());
    CheckBytes(proto, &tensor);
  } else {
    std::string raw(size, '\0');
    read(raw.data());
    FillWidened(proto.data_type(), raw, &tensor);
  }
  return tensor;
}

Tensor ParseTensorProto(const TensorProto& proto, const TensorSource& source) {
  if (proto.data_location() == TensorProto::EXTERNAL) {
    FileReader file = OpenExternal(proto, source);
    const uint64_t size = RawSize(proto);
    return ReadRawElements(proto, size, [&](void* to) { file.Read(to, size); });
  }
  const DType dtype = DTypeFor(proto);
  const auto listed = static_cast<uint64_t>(ListedNumbers(proto));
  if (proto.has_raw_data() && listed == 0) {
    const std::string& raw = proto.raw_data();
    return ReadRawElements(proto, raw.size(),
                           [&](void* to) { std::memcpy(to, raw.data(), raw.size()); });
  }
  if (!proto.raw_data().empty()) Fail(ErrorCode::kDataLoss, proto, "it has its elements twice");
  const Shape shape = ShapeOf(proto);
  const auto numel = static_cast<uint64_t>(shape.numel());
  CheckCount(proto, shape, "numbers", IsComplex(dtype) ? 2 * numel : numel, listed);
  Tensor tensor(dtype, shape);
  if (numel > 0) FillFromLists(proto, &tensor);
  return tensor;
}

void FillTensorProto(const Tensor& tensor, const std::string& name, TensorProto* proto) {
  proto->Clear();
  proto->set_name(name);
  proto->set_data_type(ToDataType(tensor.dtype()));
  for (const int64_t dim : tensor.shape()) proto->add_dims(dim);
  proto->set_raw_data(tensor.raw(), tensor.nbytes());
}

}  // namespace coracle::onnx

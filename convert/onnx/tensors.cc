#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

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
  if (const auto dtype = HoldingDType(type)) return *dtype;
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

// The elements of small types are packed into bytes, the first one into the lowest bits.
uint64_t PackedBytes(uint64_t numel, int bits) {
  const uint64_t in_a_byte = 8 / static_cast<uint64_t>(bits);
  return (numel + in_a_byte - 1) / in_a_byte;
}

// The number that the bits of a float with this many bits of mantissa stand for, without its sign.
float DecodeFloat(int bits, int mantissa, int bias) {
  const int exponent = bits >> mantissa, fraction = bits & ((1 << mantissa) - 1);
  const float part = std::ldexp(static_cast<float>(fraction), -mantissa) + (exponent > 0 ? 1 : 0);
  return std::ldexp(part, std::max(exponent, 1) - bias);
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// One element of a small type of floats, as its page in ONNX's documentation defines it.
float SmallFloat(int data_type, int bits) {
  const int magnitude = bits & 0x7f;
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  switch (data_type) {
    case TensorProto::FLOAT8E4M3FN:
      return magnitude == 0x7f ? kNan : sign * DecodeFloat(magnitude, 3, 7);
    case TensorProto::FLOAT8E4M3FNUZ:
      return bits == 0x80 ? kNan : sign * DecodeFloat(magnitude, 3, 8);
    case TensorProto::FLOAT8E5M2:
      return magnitude > 0x7c    ? kNan
             : magnitude == 0x7c ? sign * kInf
                                 : sign * DecodeFloat(magnitude, 2, 15);
    case TensorProto::FLOAT8E5M2FNUZ:
      return bits == 0x80 ? kNan : sign * DecodeFloat(magnitude, 2, 16);
    case TensorProto::FLOAT8E8M0:
      return bits == 0xff ? kNan : std::ldexp(1.0f, bits - 127);
    default:  // FLOAT4E2M1
      return (bits & 8 ? -1.0f : 1.0f) * DecodeFloat(bits & 7, 1, 1);
  }
}

// All elements of a small type by their bits, as bytes of their dtype.
template <class T>
std::vector<T> SmallElements(int data_type) {
  const int bits = SmallBits(data_type), count = 1 << bits;
  std::vector<T> elements;
  for (int i = 0; i < count; ++i) {
    if constexpr (std::is_integral_v<T>)
      elements.push_back(
          static_cast<T>(IsSmallSigned(data_type) && i >= count / 2 ? i - count : i));
    else
      elements.push_back(static_cast<T>(SmallFloat(data_type, i)));
  }
  return elements;
}

template <class T>
void UnpackAs(int data_type, std::string_view bytes, Tensor* tensor) {
  const std::vector<T> elements = SmallElements<T>(data_type);
  const auto bits = static_cast<size_t>(SmallBits(data_type));
  const size_t in_a_byte = 8 / bits, mask = elements.size() - 1;
  T* to = tensor->data<T>();
  for (size_t i = 0; i < static_cast<size_t>(tensor->numel()); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i / in_a_byte]);
    to[i] = elements[byte >> (i % in_a_byte * bits) & mask];
  }
}

void UnpackSmall(int data_type, std::string_view bytes, Tensor* tensor) {
  switch (tensor->dtype()) {
    case DType::kInt8:
      return UnpackAs<int8_t>(data_type, bytes, tensor);
    case DType::kUInt8:
      return UnpackAs<uint8_t>(data_type, bytes, tensor);
    case DType::kFloat16:
      return UnpackAs<float16>(data_type, bytes, tensor);
    default:
      return UnpackAs<float>(data_type, bytes, tensor);
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
      std::copy(proto.uint64_data().begin(), proto.uint64_data().end(), tensor->data<uint64_t>());
      return;
    default:
      return FillFromInt32(proto, tensor);
  }
}

// Each entry is a byte; some writers sign-extend it.
void FillSmallFromLists(const TensorProto& proto, Tensor* tensor) {
  std::string bytes(static_cast<size_t>(proto.int32_data_size()), '\0');
  Narrow(proto, proto.int32_data(), INT8_MIN, UINT8_MAX, bytes.data());
  UnpackSmall(proto.data_type(), bytes, tensor);
}

Tensor ParseStrings(const TensorProto& proto) {
  const Shape shape = ShapeOf(proto);
  if (proto.has_raw_data()) Fail(ErrorCode::kDataLoss, proto, "strings have no raw data");
  CheckCount(proto, shape, "strings", static_cast<uint64_t>(shape.numel()),
             static_cast<uint64_t>(proto.string_data_size()));
  std::vector<StringRef> elements;
  elements.reserve(static_cast<size_t>(proto.string_data_size()));
  for (const std::string& text : proto.string_data())
    elements.push_back({text.data(), text.size()});
  return Tensor::View(DType::kString, shape, elements.data()).Clone();
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
  if (dtype == DType::kString) Fail(ErrorCode::kDataLoss, proto, "strings have no raw data");
  const auto numel = static_cast<uint64_t>(ShapeOf(proto).numel());
  if (const int bits = SmallBits(proto.data_type())) return PackedBytes(numel, bits);
  return numel * RawWidth(proto.data_type(), dtype);
}

Tensor ReadRawElements(const TensorProto& proto, uint64_t size, const ReadElementsFn& read) {
  const DType dtype = DTypeFor(proto);
  const Shape shape = ShapeOf(proto);
  CheckCount(proto, shape, "bytes", RawSize(proto), size);
  Tensor tensor(dtype, shape);
  const bool small = IsSmall(proto.data_type());
  if (!small && size == tensor.nbytes()) {
    if (size > 0) read(tensor.raw());
    CheckBytes(proto, &tensor);
  } else {
    std::string raw(size, '\0');
    read(raw.data());
    small ? UnpackSmall(proto.data_type(), raw, &tensor)
          : FillWidened(proto.data_type(), raw, &tensor);
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
  if (dtype == DType::kString) return ParseStrings(proto);
  const auto listed = static_cast<uint64_t>(ListedNumbers(proto));
  if (proto.has_raw_data() && listed == 0) {
    const std::string& raw = proto.raw_data();
    return ReadRawElements(proto, raw.size(),
                           [&](void* to) { std::memcpy(to, raw.data(), raw.size()); });
  }
  if (!proto.raw_data().empty()) Fail(ErrorCode::kDataLoss, proto, "it has its elements twice");
  const Shape shape = ShapeOf(proto);
  const auto numel = static_cast<uint64_t>(shape.numel());
  const int bits = SmallBits(proto.data_type());
  const uint64_t entries = IsComplex(dtype) ? 2 * numel : bits ? PackedBytes(numel, bits) : numel;
  CheckCount(proto, shape, "numbers", entries, listed);
  Tensor tensor(dtype, shape);
  if (numel > 0) bits ? FillSmallFromLists(proto, &tensor) : FillFromLists(proto, &tensor);
  return tensor;
}

void FillTensorProto(const Tensor& tensor, const std::string& name, TensorProto* proto) {
  proto->Clear();
  proto->set_name(name);
  proto->set_data_type(ToDataType(tensor.dtype()));
  for (const int64_t dim : tensor.shape()) proto->add_dims(dim);
  if (tensor.dtype() == DType::kString) {
    for (std::string& text : tensor.Strings()) proto->add_string_data(std::move(text));
    return;
  }
  proto->set_raw_data(tensor.raw(), tensor.nbytes());
}

}  // namespace coracle::onnx

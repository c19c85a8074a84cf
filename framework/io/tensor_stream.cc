// Paddle's LoDTensor and SelectedRows streams: little-endian, without padding or checksum.

#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/internal/byte_source.h>
#include <coracle/framework/io/internal/tensor_stream.h>
#include <coracle/framework/io/internal/var_codec.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace coracle {
namespace {

static_assert(std::endian::native == std::endian::little);

// Reads numbers and arrays, never past the end.
class Cursor {
 public:
  Cursor(ByteSource& bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  template <class T>
  T Read(const char* what) {
    T value;
    ReadArray(&value, sizeof(T), what);
    return value;
  }
  void ReadArray(void* to, uint64_t size, const char* what) {
    Require(size, what);
    if (size > 0) bytes_.Read(to, size);
  }
  // Throws unless `size` bytes are left; called before memory is allocated for them.
  void Require(uint64_t size, const char* what) const {
    if (size > left()) Fail(fmt::format("{} takes {} bytes where {} are left", what, size, left()));
  }
  uint64_t left() const { return bytes_.left(); }
  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: damaged at byte {}: {}", source_, bytes_.offset(), what));
  }

 private:
  ByteSource& bytes_;
  const std::string& source_;
};

void CheckVersion(Cursor& in, const char* what) {
  auto version = in.Read<uint32_t>(what);
  if (version != 0)
    in.Fail(fmt::format("{} {} is not known, only 0; is this a parameter file?", what, version));
}

LoD ReadLoD(Cursor& in) {
  auto levels = in.Read<uint64_t>("the number of LoD levels");
  if (levels > in.left() / 8)
    in.Fail(fmt::format("{} LoD levels where {} bytes are left", levels, in.left()));
  LoD lod;
  for (uint64_t i = 0; i < levels; ++i) {
    auto size = in.Read<uint64_t>("the size of a LoD level");
    if (size % 8 != 0) in.Fail(fmt::format("a LoD level of {} bytes", size));
    in.Require(size, "a LoD level");
    in.ReadArray(lod.emplace_back(size / 8).data(), size, "a LoD level");
  }
  return lod;
}

// Requires offsets that rise from 0 to the length of what they index: the sequences of the next
// level, or the rows.
void CheckLoD(const Cursor& in, const LoD& lod, const Shape& shape) {
  for (size_t i = 0; i < lod.size(); ++i) {
    const auto& level = lod[i];
    if (level.empty() || level[0] != 0 || !std::is_sorted(level.begin(), level.end()))
      in.Fail("a LoD level's offsets do not rise from 0");
    uint64_t end = i + 1 < lod.size() ? lod[i + 1].size() - 1
                   : shape.rank() > 0 ? static_cast<uint64_t>(shape[0])
                                      : 1;
    if (level.back() != end) {
      in.Fail(fmt::format("a LoD level ends at {} where {} is meant", level.back(), end));
    }
  }
}

Shape ReadShape(Cursor& in, const std::string& source, DType* dtype) {
  auto size = in.Read<int32_t>("the size of a tensor description");
  if (size < 0) in.Fail(fmt::format("a tensor description of {} bytes", size));
  in.Require(static_cast<uint64_t>(size), "a tensor description");
  std::string message(static_cast<size_t>(size), '\0');
  in.ReadArray(message.data(), message.size(), "a tensor description");
  wire::Source where{source + ", tensor description", message.data()};
  WireTensorDesc desc = DecodeTensorDesc(message, where);
  *dtype = static_cast<DType>(desc.dtype);
  if (!IsValid(*dtype)) in.Fail(fmt::format("a tensor of the unknown data type {}", desc.dtype));
  if (*dtype == DType::kString) in.Fail("a tensor of strings, whose format is not known");
  if (desc.dims.size() > static_cast<size_t>(Shape::kMaxRank))
    in.Fail(
        fmt::format("a tensor of rank {}; the highest is {}", desc.dims.size(), Shape::kMaxRank));
  for (int64_t dim : desc.dims) {
    if (dim < 0) in.Fail(fmt::format("a tensor with a dimension of {}", dim));
  }
  return Shape(desc.dims);
}

// Reads version, description and elements.
Tensor ReadDense(Cursor& in, const std::string& source) {
  CheckVersion(in, "tensor version");
  DType dtype;
  Shape shape = ReadShape(in, source, &dtype);
  if (shape.HasTooManyElements() || ByteSize(dtype, shape) > in.left()) {
    in.Fail(fmt::format("the elements of a {}{} where {} are left", ToString(dtype),
                        shape.ToString(), HumanBytes(in.left())));
  }
  Tensor tensor(dtype, shape);
  auto* elements = static_cast<unsigned char*>(tensor.raw());
  in.ReadArray(elements, tensor.nbytes(), "the elements of a tensor");
  if (dtype == DType::kBool) {  // normalises bytes other than 0 and 1
    for (size_t i = 0; i < tensor.nbytes(); ++i) elements[i] = elements[i] != 0;
  }
  return tensor;
}

template <class T>
void Append(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void AppendDense(const Tensor& tensor, std::string* bytes) {
  Append(uint32_t{0}, bytes);
  std::string desc;
  wire::Encoder out(&desc);
  EncodeTensorDesc(tensor.dtype(), tensor.shape(), out);
  Append(static_cast<int32_t>(desc.size()), bytes);
  bytes->append(desc);
  if (!tensor.empty()) bytes->append(static_cast<const char*>(tensor.raw()), tensor.nbytes());
}

Tensor ReadLoDTensor(ByteSource& bytes, const std::string& source) {
  Cursor in(bytes, source);
  CheckVersion(in, "LoDTensor version");
  LoD lod = ReadLoD(in);
  Tensor tensor = ReadDense(in, source);
  CheckLoD(in, lod, tensor.shape());
  tensor.lod() = std::move(lod);
  return tensor;
}

}  // namespace

Tensor ParseTensor(std::string_view bytes, size_t* offset, const std::string& source) {
  BytesInMemory memory(bytes, Required(offset, "the offset of ParseTensor"));
  Tensor tensor = ReadLoDTensor(memory, source);
  *offset = memory.offset();
  return tensor;
}

Tensor internal::ReadTensor(FileReader& file, const std::string& source) {
  BytesOfFile bytes(file);
  return ReadLoDTensor(bytes, source);
}

SelectedRows ParseSelectedRows(std::string_view bytes, size_t* offset, const std::string& source) {
  BytesInMemory memory(bytes, Required(offset, "the offset of ParseSelectedRows"));
  Cursor in(memory, source);
  CheckVersion(in, "SelectedRows version");
  auto count = in.Read<uint64_t>("the number of rows");
  if (count > in.left() / 8)
    in.Fail(fmt::format("{} rows where {} bytes are left", count, in.left()));
  SelectedRows rows;
  rows.rows.resize(count);
  in.ReadArray(rows.rows.data(), count * 8, "the rows");
  rows.height = in.Read<int64_t>("the height");
  for (int64_t row : rows.rows) {
    if (row < 0 || row >= rows.height)
      in.Fail(fmt::format("row {} of a matrix of {} rows", row, rows.height));
  }
  rows.value = ReadDense(in, source);
  const Shape& shape = rows.value.shape();
  if (shape.rank() < 1 || static_cast<uint64_t>(shape[0]) != count)
    in.Fail(fmt::format("{} rows with a value of shape {}", count, shape.ToString()));
  *offset = memory.offset();
  return rows;
}

void AppendTensor(const Tensor& tensor, std::string* bytes) {
  Required(bytes, "the bytes of AppendTensor");
  if (tensor.dtype() == DType::kString)
    ThrowInvalid(tensor.ToString() + " is no parameter that a file of Paddle's can hold");
  Append(uint32_t{0}, bytes);
  Append(static_cast<uint64_t>(tensor.lod().size()), bytes);
  for (const auto& level : tensor.lod()) {
    Append(static_cast<uint64_t>(level.size() * 8), bytes);
    for (uint64_t offset : level) Append(offset, bytes);
  }
  AppendDense(tensor, bytes);
}

void AppendSelectedRows(const SelectedRows& rows, std::string* bytes) {
  Required(bytes, "the bytes of AppendSelectedRows");
  Append(uint32_t{0}, bytes);
  Append(static_cast<uint64_t>(rows.rows.size()), bytes);
  for (int64_t row : rows.rows) Append(row, bytes);
  Append(rows.height, bytes);
  AppendDense(rows.value, bytes);
}

}  // namespace coracle

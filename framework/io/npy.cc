#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/internal/lod_arrays.h>
#include <coracle/framework/io/internal/zip.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <unordered_set>

namespace coracle {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;

[[noreturn]] void Fail(const std::string& source, const std::string& what) {
  throw Error(ErrorCode::kDataLoss, fmt::format("{}: not a readable .npy file: {}", source, what));
}

struct Header {
  std::string descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

// The header is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Header Run() {
    Header header;
    Expect('{');
    while (!Accept('}')) {
      std::string key = String();
      Expect(':');
      if (key == "descr")
        header.descr = Descr();
      else if (key == "fortran_order")
        header.fortran_order = Bool();
      else if (key == "shape")
        header.shape = Tuple();
      else
        Fail(source_, fmt::format("the header has the unknown key {}", Quote(key)));
      if (!Accept(',')) {
        Expect('}');
        break;
      }
    }
    if (header.descr.empty() || !header.fortran_order || !header.shape)
      Fail(source_, "the header lacks descr, fortran_order or shape");
    return header;
  }

 private:
  void SkipSpace() {
    while (!text_.empty() && std::isspace(static_cast<unsigned char>(text_[0])))
      text_.remove_prefix(1);
  }
  bool Accept(char c) {
    SkipSpace();
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void Expect(char c) {
    if (!Accept(c)) Fail(source_, fmt::format("the header lacks a '{}'", c));
  }
  std::string Descr() {
    SkipSpace();
    if (!text_.empty() && text_[0] == '[')
      Fail(source_, "it holds records; only plain numbers are taken");
    return String();
  }
  std::string String() {
    SkipSpace();
    char quote = text_.empty() ? '\0' : text_[0];
    size_t end = quote == '\'' || quote == '"' ? text_.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos) Fail(source_, "the header lacks a string");
    std::string value(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return value;
  }
  bool Bool() {
    SkipSpace();
    for (bool value : {true, false}) {
      std::string_view word = value ? "True" : "False";
      if (!text_.starts_with(word)) continue;
      text_.remove_prefix(word.size());
      return value;
    }
    Fail(source_, "the header's fortran_order is neither True nor False");
  }
  std::vector<int64_t> Tuple() {
    std::vector<int64_t> dims;
    Expect('(');
    while (!Accept(')')) {
      SkipSpace();
      size_t n = 0;
      while (n < text_.size() && std::isdigit(static_cast<unsigned char>(text_[n]))) ++n;
      int64_t dim;
      if (!ParseInt64(text_.substr(0, n), &dim)) Fail(source_, "the header's shape is damaged");
      text_.remove_prefix(n);
      Accept('L');  // written by Python 2 for long integers
      if (dims.size() == static_cast<size_t>(Shape::kMaxRank))
        Fail(source_, fmt::format("its rank exceeds {}", Shape::kMaxRank));
      dims.push_back(dim);
      if (!Accept(',')) {
        Expect(')');
        break;
      }
    }
    return dims;
  }

  std::string_view text_;
  const std::string& source_;
};

struct ElementType {
  char kind = 0;  // b, i, u, f, c
  size_t size = 0;
  bool big_endian = false;
};

ElementType ParseDescr(const std::string& descr, const std::string& source) {
  std::string_view text = descr;
  ElementType type;
  if (text == "?") return {'b', 1, false};
  if (!text.empty() && std::string_view("<>|=").find(text[0]) != std::string_view::npos) {
    type.big_endian = text[0] == '>';
    text.remove_prefix(1);
  }
  if (text.size() == 2) {
    type.kind = text[0];
    type.size = static_cast<size_t>(text[1] - '0');
  }
  if (text == "c16") {
    type.kind = 'c';
    type.size = 16;
  }
  static constexpr std::string_view kKnown[] = {"b1", "i1", "i2", "i4", "i8", "u1", "u2",
                                                "u4", "u8", "f2", "f4", "f8", "c8", "c16"};
  if (std::find(std::begin(kKnown), std::end(kKnown), text) == std::end(kKnown)) {
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: elements of type {} are not taken; convert them to a plain number "
                            "type before saving",
                            source, Quote(descr)));
  }
  return type;
}

// Unsigned types without a dtype become the next wider signed one.
DType DTypeFor(const ElementType& type) {
  switch (type.kind) {
    case 'b':
      return DType::kBool;
    case 'f':
      return type.size == 2 ? DType::kFloat16 : type.size == 4 ? DType::kFloat32 : DType::kFloat64;
    case 'c':
      return type.size == 8 ? DType::kComplex64 : DType::kComplex128;
    case 'i':
      return type.size == 1   ? DType::kInt8
             : type.size == 2 ? DType::kInt16
             : type.size == 4 ? DType::kInt32
                              : DType::kInt64;
    default:
      return type.size == 1 ? DType::kUInt8 : type.size == 2 ? DType::kInt32 : DType::kInt64;
  }
}

uint64_t LoadWord(const char* at, const ElementType& type) {
  uint64_t word = 0;
  for (size_t i = 0; i < type.size; ++i) {
    size_t shift = 8 * (type.big_endian ? type.size - 1 - i : i);
    word |= static_cast<uint64_t>(static_cast<uint8_t>(at[i])) << shift;
  }
  return word;
}

// Converts element by element: other byte orders, bools, and widened unsigned numbers. A complex
// number is handled as two floats.
void ConvertElements(std::string_view data, ElementType type, const std::string& source,
                     Tensor* tensor) {
  size_t width = SizeOf(tensor->dtype());
  if (type.kind == 'c') {
    type.size /= 2;
    width /= 2;
  }
  auto* out = static_cast<char*>(tensor->raw());
  for (size_t i = 0; i < data.size() / type.size; ++i) {
    uint64_t word = LoadWord(data.data() + i * type.size, type);
    if (type.kind == 'b') word = word != 0;
    if (type.kind == 'u' && type.size == 8 && word > INT64_MAX) {
      throw Error(ErrorCode::kOutOfRange,
                  fmt::format("{}: the element {} exceeds int64's range", source, word));
    }
    std::memcpy(out + i * width, &word, width);
  }
}

// Converts column-major to row-major order.
Tensor Reordered(const Tensor& fortran) {
  Tensor result(fortran.dtype(), fortran.shape());
  if (result.numel() == 0) return result;  // with one dim 0, the others may have any size
  const Shape& shape = result.shape();
  size_t width = SizeOf(result.dtype());
  int64_t index[Shape::kMaxRank] = {}, stride[Shape::kMaxRank] = {};
  int64_t step = 1;
  for (int k = 0; k < shape.rank(); ++k) {
    stride[k] = step;
    step *= shape[k];
  }
  const auto* from = static_cast<const char*>(fortran.raw());
  auto* to = static_cast<char*>(result.raw());
  int64_t offset = 0;
  for (int64_t i = 0; i < result.numel(); ++i) {
    std::memcpy(to + static_cast<size_t>(i) * width, from + static_cast<size_t>(offset) * width,
                width);
    for (int k = shape.rank() - 1; k >= 0; --k) {
      offset += stride[k];
      if (++index[k] < shape[k]) break;
      offset -= index[k] * stride[k];
      index[k] = 0;
    }
  }
  return result;
}

const char* DescrOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "|b1";
    case DType::kInt8:
      return "|i1";
    case DType::kUInt8:
      return "|u1";
    case DType::kInt16:
      return "<i2";
    case DType::kInt32:
      return "<i4";
    case DType::kInt64:
      return "<i8";
    case DType::kFloat16:
      return "<f2";
    case DType::kFloat64:
      return "<f8";
    case DType::kComplex64:
      return "<c8";
    case DType::kComplex128:
      return "<c16";
    default:
      return "<f4";
  }
}

// Splits `bytes` into the text of the header and the rest.
std::string_view ReadHeader(std::string_view* bytes, const std::string& source) {
  if (!bytes->starts_with(kMagic) || bytes->size() < 10) Fail(source, "it does not start like one");
  auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>((*bytes)[i])); };
  size_t major = byte(6);
  if (major < 1 || major > 3) Fail(source, fmt::format("its format {} is not known", major));
  size_t start = major == 1 ? 10 : 12;
  if (bytes->size() < start) Fail(source, "it is cut off");
  size_t size = byte(8) | byte(9) << 8;
  if (major > 1) size |= byte(10) << 16 | byte(11) << 24;
  if (size > bytes->size() - start) Fail(source, "its header is cut off");
  std::string_view header = bytes->substr(start, size);
  bytes->remove_prefix(start + size);
  return header;
}

}  // namespace

Tensor ParseNpy(std::string_view bytes, const std::string& source) {
  std::string_view text = ReadHeader(&bytes, source);
  Header header = HeaderParser(text, source).Run();
  ElementType type = ParseDescr(header.descr, source);
  Shape shape(*header.shape);
  int64_t numel = 0;
  try {
    numel = shape.numel();
  } catch (const Error& e) {
    Fail(source, e.message());
  }
  if (static_cast<uint64_t>(numel) > bytes.size() / type.size ||
      static_cast<uint64_t>(numel) * type.size != bytes.size()) {
    Fail(source, fmt::format("shape {} of {} does not take the {} bytes that follow",
                             shape.ToString(), Quote(header.descr), bytes.size()));
  }
  Tensor tensor(DTypeFor(type), shape);
  bool same = !type.big_endian && type.kind != 'b' && SizeOf(tensor.dtype()) == type.size &&
              !(type.kind == 'u' && type.size == 8);
  if (!same)
    ConvertElements(bytes, type, source, &tensor);
  else if (!bytes.empty())
    std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  return *header.fortran_order && shape.rank() > 1 ? Reordered(tensor) : tensor;
}

std::string SerializeNpy(const Tensor& tensor) {
  if (tensor.dtype() == DType::kBFloat16) return SerializeNpy(tensor.Cast(DType::kFloat32));
  const Shape& shape = tensor.shape();
  std::string header = fmt::format(
      "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", DescrOf(tensor.dtype()),
      fmt::join(shape.begin(), shape.end(), ", "), shape.rank() == 1 ? "," : "");
  size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes += {'\x01', '\x00', static_cast<char>(header.size() & 255),
            static_cast<char>(header.size() >> 8)};
  bytes += header;
  if (!tensor.empty()) bytes.append(static_cast<const char*>(tensor.raw()), tensor.nbytes());
  return bytes;
}

Tensor ReadNpy(const std::string& path) { return ParseNpy(ReadFile(path), path); }

void WriteNpy(const Tensor& tensor, const std::string& path) {
  WriteFileAtomic(path, SerializeNpy(tensor));
}

NamedTensors ParseNpz(std::string_view bytes, const std::string& source) {
  NamedTensors tensors;
  ReadZip(bytes, source, [&](const ZipFile& file) {
    std::string name =
        file.name.ends_with(".npy") ? file.name.substr(0, file.name.size() - 4) : file.name;
    Tensor tensor = ParseNpy(file.contents, fmt::format("{}, {}", source, Quote(file.name)));
    tensors.emplace_back(std::move(name), std::move(tensor));
  });
  return TakeLodArrays(std::move(tensors), source);
}

NamedTensors ReadNpz(const std::string& path) { return ParseNpz(ReadFile(path), path); }

void WriteNpz(const NamedTensors& tensors, const std::string& path, bool compressed) {
  std::vector<ZipFile> files;
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : WithLodArrays(tensors)) {
    if (!names.insert(name).second)
      ThrowInvalid(fmt::format("an npz file holds one {}, and there are two", Quote(name, 300)));
    files.push_back({name + ".npy", SerializeNpy(tensor)});
  }
  WriteFileAtomic(path, WriteZip(files, compressed));
}

}  // namespace coracle

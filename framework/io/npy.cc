#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/utf8.h>
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
  char kind = 0;  // b, i, u, f, c, S (bytes), U (characters of 4 bytes)
  size_t size = 0;
  bool big_endian = false;

  bool is_text() const { return kind == 'S' || kind == 'U'; }
};

// Texts of a fixed length: "S12", "U12".
bool ParseTextType(std::string_view text, ElementType* type) {
  if (text.size() < 2 || (text[0] != 'S' && text[0] != 'U')) return false;
  int64_t length = 0;
  constexpr int64_t kMostCharacters = int64_t{1} << 30;
  if (text[1] == '-' || text[1] == '+' || !ParseInt64(text.substr(1), &length)) return false;
  if (length > kMostCharacters) return false;
  type->kind = text[0];
  type->size = static_cast<size_t>(length) * (text[0] == 'U' ? 4 : 1);
  return true;
}

ElementType ParseDescr(const std::string& descr, const std::string& source) {
  std::string_view text = descr;
  ElementType type;
  if (text == "?") return {'b', 1, false};
  if (!text.empty() && std::string_view("<>|=").find(text[0]) != std::string_view::npos) {
    type.big_endian = text[0] == '>';
    text.remove_prefix(1);
  }
  if (ParseTextType(text, &type)) return type;
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
                            "type, or texts to 'U' with astype, before saving",
                            source, Quote(descr)));
  }
  return type;
}

// Unsigned types without a dtype become the next wider signed one.
DType DTypeFor(const ElementType& type) {
  switch (type.kind) {
    case 'S':
    case 'U':
      return DType::kString;
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
      return type.size == 1   ? DType::kUInt8
             : type.size == 2 ? DType::kInt32
             : type.size == 4 ? DType::kInt64
                              : DType::kUInt64;
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
void ConvertElements(std::string_view data, ElementType type, Tensor* tensor) {
  size_t width = SizeOf(tensor->dtype());
  if (type.kind == 'c') {
    type.size /= 2;
    width /= 2;
  }
  auto* out = static_cast<char*>(tensor->raw());
  for (size_t i = 0; i < data.size() / type.size; ++i) {
    uint64_t word = LoadWord(data.data() + i * type.size, type);
    if (type.kind == 'b') word = word != 0;
    std::memcpy(out + i * width, &word, width);
  }
}

// Texts without the zeros at their end, with which NumPy fills them up.
Tensor TextsOf(std::string_view data, const ElementType& type, const Shape& shape,
               const std::string& source) {
  const auto numel = static_cast<size_t>(shape.numel());
  std::string bytes;  // of all texts, if they must be converted
  std::vector<size_t> ends;
  std::vector<StringRef> elements(numel);
  const ElementType character{'U', 4, type.big_endian};
  for (size_t i = 0; i < numel; ++i) {
    std::string_view text = data.substr(i * type.size, type.size);
    if (type.kind == 'S') {
      const size_t last = text.find_last_not_of('\0');
      elements[i] = {text.data(), last == text.npos ? 0 : last + 1};
      continue;
    }
    while (text.size() >= 4 && LoadWord(&text[text.size() - 4], character) == 0)
      text.remove_suffix(4);
    for (; !text.empty(); text.remove_prefix(4)) {
      const uint64_t code = LoadWord(text.data(), character);
      if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        Fail(source, fmt::format("text {} holds {:#x}, which is no character", i, code));
      AppendUtf8(static_cast<int>(code), &bytes);
    }
    ends.push_back(bytes.size());
  }
  for (size_t i = 0, at = 0; i < ends.size(); at = ends[i++])
    elements[i] = {bytes.data() + at, ends[i] - at};
  return Tensor::View(DType::kString, shape, elements.data()).Clone();
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
    case DType::kUInt64:
      return "<u8";
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
  if (type.size == 0 ? numel > 0 || !bytes.empty()
                     : static_cast<uint64_t>(numel) > bytes.size() / type.size ||
                           static_cast<uint64_t>(numel) * type.size != bytes.size()) {
    Fail(source, fmt::format("shape {} of {} does not take the {} bytes that follow",
                             shape.ToString(), Quote(header.descr), bytes.size()));
  }
  const bool columns = *header.fortran_order && shape.rank() > 1;
  if (type.is_text()) {
    const Tensor texts = TextsOf(bytes, type, shape, source);
    return columns ? Reordered(texts).Clone() : texts;
  }
  Tensor tensor(DTypeFor(type), shape);
  bool same = !type.big_endian && type.kind != 'b' && SizeOf(tensor.dtype()) == type.size;
  if (!same)
    ConvertElements(bytes, type, &tensor);
  else if (!bytes.empty())
    std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  return columns ? Reordered(tensor) : tensor;
}

namespace {

// The header of a file, from the magic number to the elements.
std::string HeaderOf(const std::string& descr, const Shape& shape) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                  fmt::join(shape.begin(), shape.end(), ", "), shape.rank() == 1 ? "," : "");
  size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes += {'\x01', '\x00', static_cast<char>(header.size() & 255),
            static_cast<char>(header.size() >> 8)};
  return bytes + header;
}

// The characters of a text of UTF-8; nullopt for other bytes.
std::optional<std::u32string> CharactersOf(std::string_view text) {
  std::u32string characters;
  while (!text.empty()) {
    const Utf8Piece piece = FirstPiece(text);
    if (piece.code < 0) return std::nullopt;
    characters += static_cast<char32_t>(piece.code);
    text.remove_prefix(static_cast<size_t>(piece.size));
  }
  return characters;
}

// Each text filled up with zeros to the length of the longest one: characters, or bytes if a text
// is not UTF-8.
std::string SerializeTexts(const Tensor& tensor) {
  const auto texts = tensor.span<StringRef>();
  bool utf8 = true;
  size_t longest = 1, longest_bytes = 1;
  for (const StringRef& text : texts) {
    if (text.view().ends_with('\0'))
      ThrowInvalid("a text ends with a zero byte, which no npy file keeps; json does");
    const auto characters = CharactersOf(text.view());
    utf8 &= characters.has_value();
    if (characters) longest = std::max(longest, characters->size());
    longest_bytes = std::max(longest_bytes, static_cast<size_t>(text.size));
  }
  const size_t width = utf8 ? 4 * longest : longest_bytes;
  constexpr size_t kMostBytes = size_t{1} << 32;
  if (texts.size() > kMostBytes / width)
    ThrowInvalid(
        fmt::format("{} texts of up to {} bytes are too many for an npy file, which fills "
                    "all up to one length; use json",
                    texts.size(), longest_bytes));
  std::string bytes =
      HeaderOf(utf8 ? fmt::format("<U{}", longest) : fmt::format("|S{}", width), tensor.shape());
  const size_t begin = bytes.size();
  bytes.resize(begin + texts.size() * width, '\0');
  for (size_t i = 0; i < texts.size(); ++i) {
    char* to = bytes.data() + begin + i * width;
    if (utf8) {
      const std::u32string characters = *CharactersOf(texts[i].view());
      std::memcpy(to, characters.data(), characters.size() * sizeof(char32_t));
    } else if (texts[i].size > 0) {
      std::memcpy(to, texts[i].data, texts[i].size);
    }
  }
  return bytes;
}

}  // namespace

std::string SerializeNpy(const Tensor& tensor) {
  if (tensor.dtype() == DType::kBFloat16) return SerializeNpy(tensor.Cast(DType::kFloat32));
  if (tensor.dtype() == DType::kString) return SerializeTexts(tensor);
  std::string bytes = HeaderOf(DescrOf(tensor.dtype()), tensor.shape());
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

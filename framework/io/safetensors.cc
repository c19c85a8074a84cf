#include <coracle/framework/base/file_pieces.h>
#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/internal/byte_source.h>
#include <coracle/framework/io/internal/lod_arrays.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/slab.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

namespace coracle {
namespace {

static_assert(std::endian::native == std::endian::little);  // like the format

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr uint64_t kAlignment = 8;                 // of the elements after the header
constexpr const char* kMetadata = "__metadata__";

[[noreturn]] void Fail(const std::string& source, const std::string& what) {
  throw Error(ErrorCode::kDataLoss, fmt::format("{}: no safetensors file: {}", source, what));
}

struct ElementType {
  const char* name;
  size_t size;
  DType dtype;
};

// Writing uses the first row that has the dtype.
constexpr ElementType kTypes[] = {
    {"BOOL", 1, DType::kBool},  {"U8", 1, DType::kUInt8},      {"I8", 1, DType::kInt8},
    {"I16", 2, DType::kInt16},  {"U16", 2, DType::kInt32},     {"F16", 2, DType::kFloat16},
    {"I32", 4, DType::kInt32},  {"BF16", 2, DType::kBFloat16}, {"F32", 4, DType::kFloat32},
    {"I64", 8, DType::kInt64},  {"U32", 4, DType::kInt64},     {"F64", 8, DType::kFloat64},
    {"U64", 8, DType::kUInt64}, {"C64", 8, DType::kComplex64},
};

struct Entry {
  std::string name;
  const ElementType* type = nullptr;
  Shape shape;
  uint64_t begin = 0, end = 0;  // of the elements, relative to the first element
};

Shape ShapeOf(const JsonReader& json) {
  const std::vector<JsonReader> dims = json.Items();
  if (dims.size() > static_cast<size_t>(Shape::kMaxRank))
    json.Fail(fmt::format("has rank {}; the highest is {}", dims.size(), Shape::kMaxRank));
  Shape shape;
  for (const JsonReader& dim : dims) shape.Append(dim.Integer(0));
  if (shape.HasTooManyElements()) json.Fail("has too many elements");
  return shape;
}

Entry ReadEntry(const std::string& name, const JsonReader& json) {
  Entry entry;
  entry.name = name;
  const std::string type = json.At("dtype").Text();
  entry.type = std::find_if(std::begin(kTypes), std::end(kTypes),
                            [&](const ElementType& known) { return known.name == type; });
  if (entry.type == std::end(kTypes)) {
    throw Error(
        ErrorCode::kUnimplemented,
        fmt::format("tensor {}: elements of type {} are not taken", Quote(name), Quote(type)));
  }
  entry.shape = ShapeOf(json.At("shape"));
  const std::vector<JsonReader> offsets = json.At("data_offsets").Items();
  if (offsets.size() != 2) json.Fail("data_offsets must be two numbers");
  entry.begin = offsets[0].Unsigned();
  entry.end = offsets[1].Unsigned();
  const uint64_t bytes = static_cast<uint64_t>(entry.shape.numel()) * entry.type->size;
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    json.Fail(fmt::format("has its elements in [{}, {}), and {}{} takes {} bytes", entry.begin,
                          entry.end, type, entry.shape.ToString(), bytes));
  }
  return entry;
}

// The tensors in the order of their elements, which must be contiguous and fill all `bytes`.
std::vector<Entry> ReadEntries(const JsonReader& header, const std::string& source,
                               uint64_t bytes) {
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.Members()) {
    if (name != kMetadata) entries.push_back(ReadEntry(name, json));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != end) {
      Fail(source,
           fmt::format("the elements of {} begin at {}, but the elements before it end at {}",
                       Quote(entry.name), entry.begin, end));
    }
    end = entry.end;
  }
  if (end != bytes) {
    Fail(source, fmt::format("its tensors take {} bytes, and {} follow the header", end, bytes));
  }
  return entries;
}

template <class From, class To>
void Widen(const std::string& raw, To* to) {
  for (size_t i = 0; i < raw.size() / sizeof(From); ++i) {
    From value;
    std::memcpy(&value, raw.data() + i * sizeof(From), sizeof(From));
    to[i] = value;
  }
}

// Normalises bools, since the bytes may hold any bits.
void CheckElements(Tensor* tensor) {
  if (tensor->dtype() == DType::kBool) {
    auto* bytes = static_cast<unsigned char*>(tensor->raw());
    for (int64_t i = 0; i < tensor->numel(); ++i) bytes[i] = bytes[i] != 0;
  }
}

Tensor ReadElements(ByteSource& bytes, const Entry& entry) {
  Tensor tensor(entry.type->dtype, entry.shape);
  if (tensor.empty()) return tensor;
  const uint64_t size = entry.end - entry.begin;
  if (size == tensor.nbytes()) {
    bytes.Read(tensor.raw(), size);
    CheckElements(&tensor);
    return tensor;
  }
  std::string raw(size, '\0');
  bytes.Read(raw.data(), size);
  if (entry.type->size == 2)
    Widen<uint16_t>(raw, tensor.data<int32_t>());
  else
    Widen<uint32_t>(raw, tensor.data<int64_t>());
  return tensor;
}

std::string ReadHeader(ByteSource& bytes, const std::string& source) {
  uint64_t size = 0;
  if (bytes.left() < sizeof size) Fail(source, "it is cut off");
  bytes.Read(&size, sizeof size);
  if (size > kMaxHeaderBytes)
    Fail(source, fmt::format("its header would take {} bytes; 100 MB are the most", size));
  if (size > bytes.left())
    Fail(source, fmt::format("its header takes {} bytes where {} are left", size, bytes.left()));
  std::string header(size, '\0');
  bytes.Read(header.data(), size);
  if (!header.starts_with('{')) Fail(source, "its header is not a JSON object");
  return header;
}

NamedTensors ReadAll(ByteSource& bytes, const std::string& source) {
  const std::string text = ReadHeader(bytes, source);
  const JsonReader header(text, source + ", header");
  NamedTensors tensors;
  try {
    const TensorSlab slab(bytes.left());
    for (const Entry& entry : ReadEntries(header, source, bytes.left()))
      tensors.emplace_back(entry.name, ReadElements(bytes, entry));
  } catch (const Error& e) {
    if (e.message().starts_with(source)) throw;
    throw e.WithPrefix(source);
  }
  return TakeLodArrays(std::move(tensors), source);
}

const ElementType& TypeOf(const std::string& name, const Tensor& tensor) {
  for (const ElementType& type : kTypes) {
    if (type.dtype == tensor.dtype() && type.size == SizeOf(tensor.dtype())) return type;
  }
  ThrowInvalid(fmt::format("{} is {}, which no safetensors file holds; npz does", Quote(name),
                           ToString(tensor.dtype())));
}

void CheckName(const std::string& name, std::set<std::string_view>* names) {
  if (!names->insert(name).second)
    ThrowInvalid(fmt::format("a safetensors file holds one {}, and there are two", Quote(name)));
  bool valid = name != kMetadata;
  for (std::string_view rest = name; valid && !rest.empty();) {
    const size_t size = Utf8CharacterBytes(rest);
    valid = size > 0;
    rest.remove_prefix(size);
  }
  if (valid) return;
  ThrowInvalid(fmt::format("{} cannot be the name of a tensor in a safetensors file", Quote(name)));
}

// The length and the header for tensors whose elements follow in this order.
std::string HeaderOf(const NamedTensors& tensors) {
  auto json = nlohmann::ordered_json::object();
  std::set<std::string_view> names;
  uint64_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    CheckName(name, &names);
    const uint64_t begin = end;
    end += tensor.nbytes();
    // json[name] would search all names before it.
    json.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        name, nlohmann::ordered_json{{"dtype", TypeOf(name, tensor).name},
                                     {"shape", tensor.shape().ToVector()},
                                     {"data_offsets", {begin, end}}});
  }
  std::string text = json.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  if (text.size() > kMaxHeaderBytes) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("the header of {} tensors would take more than 100 MB", names.size()));
  }
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
}

}  // namespace

NamedTensors ParseSafetensors(std::string_view bytes, const std::string& source) {
  BytesInMemory memory(bytes);
  return ReadAll(memory, source);
}

NamedTensors ReadSafetensors(const std::string& path) {
  FileReader file(path);
  BytesOfFile bytes(file);
  return ReadAll(bytes, path);
}

void WriteSafetensors(const NamedTensors& tensors, const std::string& path) {
  NamedTensors ordered = WithLodArrays(tensors);
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return SizeOf(a.second.dtype()) > SizeOf(b.second.dtype());
  });
  const std::string header = HeaderOf(ordered);
  WriteFileInPieces(path, [&](const WritePieceFn& write) {
    write(header);
    for (const auto& entry : ordered) {
      const Tensor& tensor = entry.second;
      if (!tensor.empty()) write({static_cast<const char*>(tensor.raw()), tensor.nbytes()});
    }
  });
}

bool LooksLikeSafetensors(std::string_view bytes) {
  uint64_t size = 0;
  if (bytes.size() < sizeof size + 2 || bytes[sizeof size] != '{') return false;
  std::memcpy(&size, bytes.data(), sizeof size);
  return size <= kMaxHeaderBytes && size <= bytes.size() - sizeof size;
}

bool IsTensorArchive(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".npz");
}

NamedTensors ReadTensorArchive(const std::string& path) {
  return path.ends_with(".npz") ? ReadNpz(path) : ReadSafetensors(path);
}

void WriteTensorArchive(const NamedTensors& tensors, const std::string& path) {
  path.ends_with(".safetensors") ? WriteSafetensors(tensors, path) : WriteNpz(tensors, path);
}

}  // namespace coracle

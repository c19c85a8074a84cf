#include "hdf5_file.h"

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file_reader.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

namespace coracle {

bool LooksLikeHdf5(std::string_view bytes) { return bytes.starts_with("\x89HDF\r\n\x1a\n"); }

namespace {

constexpr int kMaxDepth = 16;         // of groups in groups
constexpr size_t kMaxName = 1024;     // bytes of one name
constexpr uint64_t kSlack = 1 << 16;  // bytes that may be read twice
constexpr uint64_t kUndefined = ~uint64_t{0};

// Types of messages in object headers.
enum Message : uint16_t {
  kDataspace = 0x1,
  kLinkInfo = 0x2,
  kDatatype = 0x3,
  kLink = 0x6,
  kExternalFiles = 0x7,
  kLayout = 0x8,
  kFilters = 0xb,
  kContinuation = 0x10,
  kSymbolTable = 0x11,
};

using ReadAtFn = std::function<void(uint64_t offset, void* to, uint64_t size)>;

// Numbers of a part of the file, never past its end.
class Part {
 public:
  Part(std::string bytes, const std::string& source) : bytes_(std::move(bytes)), source_(source) {}

  uint64_t Number(size_t size) {
    Require(size);
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + at_, size);
    at_ += size;
    return value;
  }
  uint8_t Byte() { return static_cast<uint8_t>(Number(1)); }
  uint64_t Word() { return Number(8); }
  void Skip(size_t size) {
    Require(size);
    at_ += size;
  }
  std::string Bytes(size_t size) {
    Require(size);
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  void Expect(std::string_view signature) {
    if (Bytes(signature.size()) != signature) Fail(fmt::format("{} is missing", Quote(signature)));
  }
  size_t left() const { return bytes_.size() - at_; }
  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(ErrorCode::kDataLoss, fmt::format("{}: damaged HDF5 file: {}", source_, what));
  }

 private:
  void Require(size_t size) const {
    if (size > left()) Fail("a part of it is cut off");
  }
  std::string bytes_;
  size_t at_ = 0;
  const std::string& source_;
};

struct Member {
  std::string name;
  uint64_t address;  // of its object header
};

// What the messages of an object header say.
struct Object {
  std::optional<uint64_t> tree, heap;  // of a group
  std::optional<Shape> shape;          // of a dataset
  std::optional<DType> dtype;
  bool is_dataset = false;
  uint64_t address = kUndefined, size = 0;  // of the elements
  std::string compact;                      // or the elements themselves
};

class Reader {
 public:
  Reader(ReadAtFn read, uint64_t size, const std::string& source)
      : read_(std::move(read)), size_(size), budget_(size + kSlack), source_(source) {}

  NamedTensors Read(const std::string& group) {
    const std::vector<Member> members = Members(ReadObject(RootHeader()));
    const auto found = std::find_if(members.begin(), members.end(),
                                    [&](const Member& member) { return member.name == group; });
    if (found == members.end()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}: it has no group {}", source_, Quote(group)));
    }
    const Object object = ReadObject(found->address);
    if (!object.tree) Fail(fmt::format("{} is no group", Quote(group)));
    ReadGroup(object, "", 0);
    return std::move(tensors_);
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(ErrorCode::kDataLoss, fmt::format("{}: damaged HDF5 file: {}", source_, what));
  }
  [[noreturn]] void Refuse(const std::string& what) const {
    const std::string at = place_.empty() ? "" : Quote(place_, 200) + ": ";
    throw Error(ErrorCode::kUnimplemented, fmt::format("{}: {}{}", source_, at, what));
  }

  void Charge(uint64_t offset, uint64_t size) {
    if (offset > size_ || size > size_ - offset) Fail("an address lies outside of the file");
    if (size > budget_) Fail("its parts overlap");
    budget_ -= size;
  }
  Part At(uint64_t offset, uint64_t size) {
    Charge(offset, size);
    std::string bytes(size, '\0');
    read_(offset, bytes.data(), size);
    return Part(std::move(bytes), source_);
  }

  // Section II.A.
  uint64_t RootHeader() {
    if (size_ < 96) Fail("it is too short");
    Part in = At(0, 24);
    if (!LooksLikeHdf5(in.Bytes(kHdf5SignatureBytes))) Fail("it does not begin as one");
    const int version = in.Byte();
    if (version > 1) {
      Refuse(
          fmt::format("superblock version {} is not read: save the file in HDF5's default "
                      "(earliest) format",
                      version));
    }
    in.Skip(4);
    if (in.Byte() != 8 || in.Byte() != 8) Refuse("offsets and lengths must have 8 bytes");
    Part rest = At(version == 0 ? 24 : 28, 32 + 40);
    if (rest.Word() != 0) Refuse("a base address other than 0 is not read");
    rest.Skip(24);
    rest.Skip(8);  // the name of the root group
    return rest.Word();
  }

  // Section IV.A.1.a: version 1.
  Object ReadObject(uint64_t address) {
    Part prefix = At(address, 16);
    const uint8_t version = prefix.Byte();
    if (version == 'O') Refuse("an object header of a newer format is not read");
    if (version != 1) prefix.Fail("an object header has no known version");
    prefix.Skip(1);
    uint64_t messages = prefix.Number(2);
    prefix.Skip(4);
    Object object;
    std::vector<std::pair<uint64_t, uint64_t>> blocks = {{address + 16, prefix.Number(4)}};
    while (!blocks.empty()) {
      const auto [begin, size] = blocks.back();
      blocks.pop_back();
      Part in = At(begin, size);
      while (messages > 0 && in.left() >= 8) {
        --messages;
        const auto type = static_cast<uint16_t>(in.Number(2));
        const size_t length = in.Number(2);
        const uint8_t flags = in.Byte();
        in.Skip(3);
        Part message(in.Bytes(length), source_);
        if (type == kContinuation) {
          const uint64_t offset = message.Word();
          blocks.emplace_back(offset, message.Word());
        } else {
          ReadMessage(type, flags, &message, &object);
        }
      }
    }
    return object;
  }

  void ReadMessage(uint16_t type, uint8_t flags, Part* in, Object* object) {
    const bool shared = flags & 2;
    switch (type) {
      case kSymbolTable:
        object->tree = in->Word();
        object->heap = in->Word();
        return;
      case kDataspace:
        if (shared) Refuse("shared dataspaces are not read");
        object->shape = ReadDataspace(in);
        return;
      case kDatatype:
        if (shared) Refuse("named datatypes are not read");
        object->dtype = ReadDatatype(in);
        return;
      case kLayout:
        object->is_dataset = true;
        return ReadLayout(in, object);
      case kFilters:
        Refuse("compressed and otherwise filtered datasets are not read: save it without filters");
      case kExternalFiles:
        Refuse("elements in other files are not read");
      case kLinkInfo:
      case kLink:
        Refuse(
            "groups of the newer format are not read: save the file in HDF5's default (earliest) "
            "format");
      default:
        return;
    }
  }

  // Section IV.A.2.b.
  Shape ReadDataspace(Part* in) {
    const int version = in->Byte(), rank = in->Byte();
    in->Skip(1);
    const int kind = in->Byte();  // of version 2: scalar, simple, null
    if (version != 1 && version != 2) in->Fail("a dataspace has no known version");
    if (version == 2 && kind == 2) Refuse("a dataset without elements is not read");
    if (version == 1) in->Skip(4);
    if (rank > Shape::kMaxRank)
      Refuse(fmt::format("its rank {} exceeds {}", rank, Shape::kMaxRank));
    Shape shape;
    for (int i = 0; i < rank; ++i) {
      const uint64_t dim = in->Word();
      if (dim > static_cast<uint64_t>(Shape::kMaxElements)) in->Fail("a dim is too large");
      shape.Append(static_cast<int64_t>(dim));
    }
    if (shape.HasTooManyElements()) in->Fail("a dataset has too many elements");
    return shape;
  }

  // Section IV.A.2.d: IEEE floats, little-endian.
  DType ReadDatatype(Part* in) {
    const int kind = in->Byte() & 15;
    const uint64_t bits = in->Number(3);
    const uint64_t size = in->Number(4);
    if (kind != 1 || (size != 4 && size != 8)) Refuse("only float32 and float64 are read");
    in->Skip(2);  // bit offset
    const uint64_t precision = in->Number(2);
    const int exponent_at = in->Byte(), exponent_size = in->Byte();
    const int mantissa_at = in->Byte(), mantissa_size = in->Byte();
    const uint64_t bias = in->Number(4);
    const bool ieee =
        size == 4 ? exponent_at == 23 && exponent_size == 8 && mantissa_size == 23 && bias == 127
                  : exponent_at == 52 && exponent_size == 11 && mantissa_size == 52 && bias == 1023;
    if ((bits & 0x41) != 0 || precision != 8 * size || mantissa_at != 0 || !ieee)
      Refuse("only little-endian IEEE floats are read");
    return size == 4 ? DType::kFloat32 : DType::kFloat64;
  }

  // Section IV.A.2.i.
  void ReadLayout(Part* in, Object* object) {
    const int version = in->Byte();
    if (version != 3) Refuse(fmt::format("data layout version {} is not read", version));
    const int kind = in->Byte();
    if (kind == 0) {
      object->size = in->Number(2);
      object->compact = in->Bytes(object->size);
    } else if (kind == 1) {
      object->address = in->Word();
      object->size = in->Word();
    } else {
      Refuse("chunked datasets are not read: save it contiguous");
    }
  }

  std::vector<Member> Members(const Object& group) {
    if (!group.tree) Fail("the root is no group");
    const std::string names = HeapOf(*group.heap);
    std::vector<Member> members;
    ReadTree(*group.tree, 256, names, &members);
    return members;
  }

  // Section III.D.
  std::string HeapOf(uint64_t address) {
    Part in = At(address, 32);
    in.Expect("HEAP");
    in.Skip(4);
    const uint64_t size = in.Word();
    in.Skip(8);
    const uint64_t begin = in.Word();
    return At(begin, size).Bytes(size);
  }

  // Section III.A.1: `level` must be lower than that of the node above.
  void ReadTree(uint64_t address, int above, const std::string& names,
                std::vector<Member>* members) {
    Part head = At(address, 24);
    head.Expect("TREE");
    if (head.Byte() != 0) head.Fail("a group's tree is none of groups");
    const int level = head.Byte();
    if (level >= above) head.Fail("a group's tree has no order");
    const uint64_t entries = head.Number(2);
    Part in = At(address + 24, entries * 16);
    for (uint64_t i = 0; i < entries; ++i) {
      in.Skip(8);  // the key
      const uint64_t child = in.Word();
      if (level > 0)
        ReadTree(child, level, names, members);
      else
        ReadSymbols(child, names, members);
    }
  }

  std::string NameAt(const std::string& names, uint64_t at) const {
    if (at >= names.size()) Fail("a name lies outside of its group");
    const std::string_view most = std::string_view(names).substr(at, kMaxName + 1);
    const size_t end = most.find('\0');
    if (end == most.npos) Fail(fmt::format("a name has no end, or more than {} bytes", kMaxName));
    return std::string(most.substr(0, end));
  }

  // Sections III.B and III.C.
  void ReadSymbols(uint64_t address, const std::string& names, std::vector<Member>* members) {
    Part head = At(address, 8);
    head.Expect("SNOD");
    head.Skip(2);
    const uint64_t count = head.Number(2);
    Part in = At(address + 8, count * 40);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t name = in.Word();
      const uint64_t object = in.Word();
      const uint64_t kind = in.Number(4);
      in.Skip(20);
      members->push_back({NameAt(names, name), object});
      place_ = members->back().name;
      if (kind == 2) Refuse("symbolic links are not read");
    }
    place_.clear();
  }

  void ReadGroup(const Object& group, const std::string& prefix, int depth) {
    if (depth > kMaxDepth) Refuse(fmt::format("groups lie more than {} deep", kMaxDepth));
    for (const Member& member : Members(group)) {
      const std::string path = prefix + member.name;
      place_ = path;
      const Object object = ReadObject(member.address);
      if (object.tree) {
        ReadGroup(object, path + "/", depth + 1);
      } else if (object.is_dataset) {
        tensors_.emplace_back(path, ReadElements(object));
      } else {
        Refuse("it is neither a group nor a dataset");
      }
    }
    place_.clear();
  }

  Tensor ReadElements(const Object& object) {
    if (!object.shape || !object.dtype) Fail(Quote(place_, 200) + " has no shape or no type");
    const uint64_t bytes = ByteSize(*object.dtype, *object.shape);
    const bool missing = object.compact.empty() && object.address == kUndefined && bytes > 0;
    if (missing) Refuse("its elements were never written");
    if (object.size != bytes && bytes > 0) {
      Fail(fmt::format("{} has {} bytes, and {}{} takes {}", Quote(place_, 200), object.size,
                       ToString(*object.dtype), object.shape->ToString(), bytes));
    }
    const bool in_file = object.compact.empty() && bytes > 0;
    if (in_file) Charge(object.address, bytes);
    Tensor tensor(*object.dtype, *object.shape);
    if (in_file)
      read_(object.address, tensor.raw(), bytes);
    else if (bytes > 0)
      std::memcpy(tensor.raw(), object.compact.data(), bytes);
    return tensor;
  }

  ReadAtFn read_;
  uint64_t size_, budget_;
  std::string source_;
  std::string place_;  // what is being read
  NamedTensors tensors_;
};

}  // namespace

NamedTensors ReadHdf5(const std::string& path, const std::string& group) {
  FileReader file(path);
  const auto read = [&](uint64_t offset, void* to, uint64_t size) {
    file.Seek(offset);
    file.Read(to, size);
  };
  return Reader(read, file.left(), path).Read(group);
}

NamedTensors ParseHdf5(std::string_view bytes, const std::string& source,
                       const std::string& group) {
  const auto read = [&](uint64_t offset, void* to, uint64_t size) {
    if (size > 0) std::memcpy(to, bytes.data() + offset, size);
  };
  return Reader(read, bytes.size(), source).Read(group);
}

}  // namespace coracle

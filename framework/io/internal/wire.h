#pragma once
// Protocol buffers' wire format at the level of single fields. Private to framework/io: the codec
// works on it directly, so that unknown parts keep their exact bytes and a large program is read
// without a second copy in the form of messages.

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace coracle::wire {

enum Type : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kGroupStart = 3,
  kGroupEnd = 4,
  kFixed32 = 5,
};

// The tag that precedes a field: its number and wire type.
constexpr uint32_t Tag(int number, Type type) { return static_cast<uint32_t>(number) << 3 | type; }

// The source of the bytes, for errors.
struct Source {
  std::string name;
  const char* begin = nullptr;  // offsets in errors count from here
};

struct Field {
  uint32_t tag = 0;
  uint64_t value = 0;      // for kVarint, kFixed32, kFixed64
  std::string_view bytes;  // for kBytes
  std::string_view whole;  // including the tag

  int number() const { return static_cast<int>(tag >> 3); }
  Type type() const { return static_cast<Type>(tag & 7); }
  int32_t Int32() const { return static_cast<int32_t>(value); }
  int64_t Int64() const { return static_cast<int64_t>(value); }
  bool Bool() const { return value != 0; }
  float Float() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
  double Double() const { return std::bit_cast<double>(value); }
  std::string String() const { return std::string(bytes); }
};

// Reads the fields of one message in order. Throws Error(kDataLoss) naming source and byte.
class Reader {
 public:
  Reader(std::string_view message, const Source& source)
      : at_(message.data()), end_(at_ + message.size()), source_(source) {}

  bool Next(Field* field) {  // false at the end of the message
    if (at_ == end_) return false;
    ReadField(field);
    return true;
  }
  // These read the elements of packed lists.
  bool done() const { return at_ == end_; }
  uint64_t Varint() {
    if (at_ != end_ && static_cast<signed char>(*at_) >= 0) return static_cast<uint8_t>(*at_++);
    return LongVarint();
  }
  uint64_t Fixed(int width);  // little-endian, `width` bytes

 private:
  void ReadField(Field* field);
  void SkipGroup(int number);
  uint64_t LongVarint();
  uint32_t ReadTag();
  std::string_view Bytes();
  [[noreturn]] void Fail(const char* at, const std::string& what) const;

  const char* at_;
  const char* end_;
  const Source& source_;
};

// Appends fields to a string.
class Encoder {
 public:
  explicit Encoder(std::string* out) : out_(*out) {}

  void Varint(int number, uint64_t value) {
    Raw(Tag(number, kVarint));
    Raw(value);
  }
  void Int(int number, int64_t value) { Varint(number, static_cast<uint64_t>(value)); }
  void Float(int number, float value) {
    Raw(Tag(number, kFixed32));
    Fixed(std::bit_cast<uint32_t>(value), 4);
  }
  void Double(int number, double value) {
    Raw(Tag(number, kFixed64));
    Fixed(std::bit_cast<uint64_t>(value), 8);
  }
  void Bytes(int number, std::string_view bytes) {
    Raw(Tag(number, kBytes));
    Raw(bytes.size());
    out_.append(bytes);
  }
  void Verbatim(std::string_view fields) { out_.append(fields); }
  // Appends a message whose fields `body` writes with this Encoder.
  template <class Body>
  void Message(int number, Body&& body) {
    Raw(Tag(number, kBytes));
    size_t start = out_.size();
    out_.push_back(0);
    body();
    SetLength(start);
  }

 private:
  void Raw(uint64_t varint) {
    while (varint >= 128) {
      out_.push_back(static_cast<char>(varint | 128));
      varint >>= 7;
    }
    out_.push_back(static_cast<char>(varint));
  }
  void Fixed(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) out_.push_back(static_cast<char>(value >> (8 * i)));
  }
  void SetLength(size_t start);  // of the message that follows the byte at `start`

  std::string& out_;
};

}  // namespace coracle::wire

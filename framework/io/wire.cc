#include <coracle/framework/base/error.h>
#include <coracle/framework/io/internal/wire.h>
#include <fmt/format.h>

namespace coracle::wire {
namespace {
constexpr int kMaxGroupDepth = 32;
}

void Reader::Fail(const char* at, const std::string& what) const {
  throw Error(ErrorCode::kDataLoss,
              fmt::format("{}: damaged at byte {}: {}", source_.name, at - source_.begin, what));
}

uint64_t Reader::LongVarint() {
  const char* start = at_;
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_ == end_) Fail(start, "a number is cut off");
    auto byte = static_cast<uint8_t>(*at_++);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
  Fail(start, "a number has more than ten bytes");
}

uint64_t Reader::Fixed(int width) {
  if (end_ - at_ < width) Fail(at_, "a number is cut off");
  uint64_t value = 0;
  for (int i = 0; i < width; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(at_[i])) << (8 * i);
  }
  at_ += width;
  return value;
}

std::string_view Reader::Bytes() {
  const char* start = at_;
  uint64_t size = Varint();
  auto left = static_cast<uint64_t>(end_ - at_);
  if (size > left) Fail(start, fmt::format("a field of {} bytes where {} are left", size, left));
  std::string_view bytes(at_, size);
  at_ += size;
  return bytes;
}

uint32_t Reader::ReadTag() {
  const char* start = at_;
  uint64_t tag = Varint();
  if (tag > UINT32_MAX || tag >> 3 == 0) Fail(start, "no field has such a number");
  return static_cast<uint32_t>(tag);
}

void Reader::ReadField(Field* field) {
  const char* start = at_;
  field->tag = ReadTag();
  switch (field->type()) {
    case kVarint:
      field->value = Varint();
      break;
    case kFixed64:
      field->value = Fixed(8);
      break;
    case kBytes:
      field->bytes = Bytes();
      break;
    case kGroupStart:
      SkipGroup(field->number());
      break;
    case kFixed32:
      field->value = Fixed(4);
      break;
    default:
      Fail(start, fmt::format("a field of the unknown wire type {}", field->tag & 7));
  }
  field->whole = {start, static_cast<size_t>(at_ - start)};
}

// Groups occur only in unknown fields, which are kept as bytes.
void Reader::SkipGroup(int number) {
  const char* start = at_;
  int open[kMaxGroupDepth];
  int depth = 0;
  open[depth++] = number;
  while (depth > 0) {
    if (at_ == end_) Fail(start, "a group has no end");
    const char* here = at_;
    uint32_t tag = ReadTag();
    switch (tag & 7) {
      case kVarint:
        Varint();
        break;
      case kFixed64:
        Fixed(8);
        break;
      case kBytes:
        Bytes();
        break;
      case kFixed32:
        Fixed(4);
        break;
      case kGroupStart:
        if (depth == kMaxGroupDepth) Fail(here, "groups are nested too deeply");
        open[depth++] = static_cast<int>(tag >> 3);
        break;
      case kGroupEnd:
        if (open[--depth] != static_cast<int>(tag >> 3)) Fail(here, "another group ends");
        break;
      default:
        Fail(here, fmt::format("a field of the unknown wire type {}", tag & 7));
    }
  }
}

void Encoder::SetLength(size_t start) {
  size_t size = out_.size() - start - 1;
  char bytes[10];
  size_t n = 0;
  for (; size >= 128; size >>= 7) bytes[n++] = static_cast<char>(size | 128);
  bytes[n++] = static_cast<char>(size);
  out_[start] = bytes[0];
  if (n > 1) out_.insert(start + 1, bytes + 1, n - 1);
}

}  // namespace coracle::wire

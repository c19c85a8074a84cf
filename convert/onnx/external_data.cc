#include <coracle/convert/onnx/external_data.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace coracle::onnx {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  throw Error(ErrorCode::kDataLoss, "external data: " + what);
}

int64_t ParseBytes(const proto::onnx::StringStringEntryProto& entry) {
  int64_t value;
  if (!ParseInt64(entry.value(), &value) || value < 0)
    Fail(fmt::format("the {} {} is not a number of bytes", entry.key(), Quote(entry.value())));
  return value;
}

}  // namespace

ExternalRange ParseExternalRange(const proto::onnx::TensorProto& proto) {
  ExternalRange range;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") range.location = entry.value();
    if (entry.key() == "offset") range.offset = ParseBytes(entry);
    if (entry.key() == "length") range.length = ParseBytes(entry);
  }
  if (range.location.empty()) Fail("it has no location");
  return range;
}

FileReader TensorSource::Open(const ExternalRange& range, uint64_t bytes) const {
  if (folder_.empty()) {
    ThrowInvalid(
        fmt::format("external data: its elements are in the file {}, and this model was not read "
                    "from a folder",
                    Quote(range.location, 300)));
  }
  if (range.length && static_cast<uint64_t>(*range.length) != bytes)
    Fail(fmt::format("its length is {} bytes, and the elements take {}", *range.length, bytes));
  FileReader file = files_.Open(range.location);
  const uint64_t size = file.left();
  const auto offset = static_cast<uint64_t>(range.offset.value_or(0));
  if (offset > size || bytes > size - offset) {
    Fail(fmt::format("{} bytes from {} on do not lie in {}, which has {}", bytes, offset,
                     Quote(range.location, 300), size));
  }
  if (!range.offset && !range.length && bytes != size) {
    Fail(fmt::format("{} has {} bytes, the elements take {}, and no offset says which",
                     Quote(range.location, 300), size, bytes));
  }
  file.Seek(offset);
  return file;
}

void CheckOverlaps(std::vector<ExternalRange> ranges) {
  const auto begin = [](const ExternalRange& range) { return range.offset.value_or(0); };
  std::erase_if(ranges, [](const ExternalRange& range) { return range.length.value_or(0) == 0; });
  std::sort(ranges.begin(), ranges.end(), [&](const ExternalRange& a, const ExternalRange& b) {
    return std::tuple(a.location, begin(a), a.length) < std::tuple(b.location, begin(b), b.length);
  });
  for (size_t i = 1; i < ranges.size(); ++i) {
    const ExternalRange &a = ranges[i - 1], &b = ranges[i];
    const bool same = begin(a) == begin(b) && a.length == b.length;
    if (a.location != b.location || same || begin(b) - begin(a) >= *a.length) continue;
    Fail(fmt::format("in {}, {} bytes from {} on and {} bytes from {} on overlap",
                     Quote(a.location, 300), *a.length, begin(a), *b.length, begin(b)));
  }
}

}  // namespace coracle::onnx

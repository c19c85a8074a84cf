// Reads metadata_props of an ONNX file without its graph, which may be large. Source of the field
// numbers: onnx.proto, messages ModelProto and StringStringEntryProto.

#include <coracle/framework/base/file_reader.h>
#include <coracle/train/run/predict/predictor_core.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

using google::protobuf::internal::WireFormatLite;
using Stream = google::protobuf::io::CodedInputStream;

class FileBytes : public google::protobuf::io::CopyingInputStream {
 public:
  explicit FileBytes(const std::string& path) : file_(path) {}
  int Read(void* to, int size) override {
    const auto bytes = std::min<uint64_t>(static_cast<uint64_t>(size), file_.left());
    file_.Read(to, bytes);
    return static_cast<int>(bytes);
  }
  int Skip(int count) override {
    const auto bytes = std::min<uint64_t>(static_cast<uint64_t>(count), file_.left());
    file_.Seek(file_.offset() + bytes);
    return static_cast<int>(bytes);
  }

 private:
  FileReader file_;
};

constexpr int kMetadataProps = 14, kKey = 1, kValue = 2;
constexpr uint32_t kMaxEntry = uint32_t{256} << 20;

bool ReadText(Stream& in, std::string* text) {
  uint32_t size = 0;
  return in.ReadVarint32(&size) && size <= kMaxEntry && in.ReadString(text, static_cast<int>(size));
}

bool Skip(Stream& in, uint32_t tag) { return WireFormatLite::SkipField(&in, tag); }

bool IsText(uint32_t tag, int field) {
  return WireFormatLite::GetTagFieldNumber(tag) == field &&
         WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
}

bool ReadEntry(const std::string& bytes, std::string* key, std::string* value) {
  Stream in(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  while (const uint32_t tag = in.ReadTag()) {
    const bool read = IsText(tag, kKey)     ? ReadText(in, key)
                      : IsText(tag, kValue) ? ReadText(in, value)
                                            : Skip(in, tag);
    if (!read) return false;
  }
  return true;
}

}  // namespace

// A damaged file has no metadata here; the importer reports the damage.
std::string OnnxMetadata(const std::string& path, const std::string& key) {
  FileBytes file(path);
  google::protobuf::io::CopyingInputStreamAdaptor bytes(&file);
  Stream in(&bytes);
  in.SetTotalBytesLimit(INT32_MAX);
  while (const uint32_t tag = in.ReadTag()) {
    std::string entry, found, value;
    if (!IsText(tag, kMetadataProps)) {
      if (!Skip(in, tag)) return "";
      continue;
    }
    if (!ReadText(in, &entry) || !ReadEntry(entry, &found, &value)) return "";
    if (found == key) return value;
  }
  return "";
}

}  // namespace coracle::inline internal

#include <coracle/convert/onnx/memory_use.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

namespace coracle::onnx {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kMaxDepth = 400;  // above protobuf's limit

// Memory of protobuf's message, string and number, including list entries.
constexpr uint64_t kMessageBytes = 256, kStringBytes = 48, kNumberBytes = 16;

// A number of a packed list may take a single byte in the file.
uint64_t BytesOfOne(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
      return 8;
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_ENUM:
      return 4;
    default:
      return 1;  // floats, and the bytes of strings
  }
}

uint64_t SizeOfMessage(CodedInputStream& in, const Descriptor& type) {
  uint64_t size = kMessageBytes;
  while (const uint32_t tag = in.ReadTag()) {
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      size += kNumberBytes;
      if (!WireFormatLite::SkipField(&in, tag)) return size;
      continue;
    }
    int length = 0;
    if (!in.ReadVarintSizeAsInt(&length)) return size;
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const auto [limit, depth] = in.IncrementRecursionDepthAndPushLimit(length);
      if (depth < 0) return size;
      size += SizeOfMessage(in, *field->message_type());
      if (!in.DecrementRecursionDepthAndPopLimit(limit)) return size;
    } else {
      size += kStringBytes + static_cast<uint64_t>(length) * (field ? BytesOfOne(*field) : 1);
      if (!in.Skip(length)) return size;
    }
  }
  return size;
}

}  // namespace

void MemoryUse::Add(uint64_t bytes, const char* what) {
  if (!limits_) return;
  limits_->Reserve(bytes, [&] { return std::string(what); });
  bytes_ += bytes;
}

uint64_t ParsedSize(std::string_view bytes, const Descriptor& type) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  in.SetRecursionLimit(kMaxDepth);
  return SizeOfMessage(in, type);
}

}  // namespace coracle::onnx

// Walks the wire format down to the initializers of the graph; protobuf reads the rest.

#include <coracle/convert/file_stream.h>
#include <coracle/convert/onnx/model_file.h>
#include <coracle/convert/onnx/sort_nodes.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/framework/base/file_reader.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

namespace coracle::onnx {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;
using proto::onnx::GraphProto;
using proto::onnx::ModelProto;
using proto::onnx::TensorProto;

// Limit of nested messages: deeper than any exporter nests graphs, and shallow enough for
// the stack.
constexpr int kMaxDepth = 300;

constexpr uint64_t kInitializerBytes = 1024;  // message, tensor and value without their elements

constexpr uint32_t BytesTag(int field) {
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

// Whether the field with this tag may hold elements whose bytes equal those of raw_data.
bool MayBeRaw(uint32_t tag) {
  return tag == BytesTag(TensorProto::kRawDataFieldNumber) ||
         tag == BytesTag(TensorProto::kFloatDataFieldNumber) ||
         tag == BytesTag(TensorProto::kDoubleDataFieldNumber);
}

bool IsRaw(uint32_t tag, int data_type) {
  if (tag == BytesTag(TensorProto::kFloatDataFieldNumber))
    return data_type == TensorProto::FLOAT || data_type == TensorProto::COMPLEX64;
  if (tag == BytesTag(TensorProto::kDoubleDataFieldNumber))
    return data_type == TensorProto::DOUBLE || data_type == TensorProto::COMPLEX128;
  return tag == BytesTag(TensorProto::kRawDataFieldNumber) && data_type != TensorProto::UNDEFINED;
}

bool HasElements(const TensorProto& proto) {
  return proto.has_raw_data() || proto.float_data_size() > 0 || proto.int32_data_size() > 0 ||
         proto.int64_data_size() > 0 || proto.double_data_size() > 0 ||
         proto.uint64_data_size() > 0 || proto.string_data_size() > 0 ||
         proto.data_location() == TensorProto::EXTERNAL;
}

void ClearElements(TensorProto* proto) {
  proto->clear_raw_data();
  proto->clear_float_data();
  proto->clear_int32_data();
  proto->clear_int64_data();
  proto->clear_double_data();
  proto->clear_uint64_data();
  proto->clear_string_data();
}

bool SameType(const TensorProto& a, const TensorProto& b) {
  return a.data_type() == b.data_type() &&
         std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end());
}

class ModelReader {
 public:
  ModelReader(CodedInputStream& in, OnnxModelFile& file) : in_(in), file_(file) {
    in_.SetRecursionLimit(kMaxDepth);
  }

  void Run() {
    ReadFields(&file_.model, [&](uint32_t tag) {
      if (tag != BytesTag(ModelProto::kGraphFieldNumber)) return false;
      ReadMessage([&] { ReadGraph(file_.model.mutable_graph()); });
      return true;
    });
    if (file_.model.has_graph()) {
      SortNodes(&file_.model);
      return CheckOverlaps(std::move(external_));
    }
    throw Error(ErrorCode::kDataLoss, "not an ONNX model: it has no graph");
  }

 private:
  // Reads fields up to the limit; protobuf reads those that `read_field` does not.
  template <class Message, class ReadField>
  void ReadFields(Message* message, ReadField&& read_field) {
    std::string rest;
    for (uint64_t count = 1; const uint32_t tag = in_.ReadTag(); ++count) {
      if (!read_field(tag)) CopyField(tag, &rest);
      if (count % 1024 == 0) CheckTimeLimit("reading an ONNX model");
    }
    Require(in_.ConsumedEntireMessage());
    Merge(&rest, message);
  }

  // A stream on `fields` itself would zero all of its spare capacity for each field.
  void CopyField(uint32_t tag, std::string* fields) {
    if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED)
      return AppendField(tag, ReadLength(), fields);
    std::string field;
    {
      StringOutputStream stream(&field);
      CodedOutputStream out(&stream);
      Require(WireFormatLite::SkipField(&in_, tag, &out));
    }
    fields->append(field);
  }

  // Appends the tag, the length and the next `length` bytes.
  void AppendField(uint32_t tag, int length, std::string* fields) {
    uint8_t head[2 * 5];
    uint8_t* end = CodedOutputStream::WriteVarint32ToArray(tag, head);
    end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(length), end);
    fields->append(reinterpret_cast<const char*>(head), static_cast<size_t>(end - head));
    std::string bytes;
    Require(in_.ReadString(&bytes, length));
    fields->append(bytes);
  }

  template <class Message>
  void Merge(std::string* fields, Message* message) {
    file_.memory->Add(ParsedSize(*fields, *Message::descriptor()), "the parts of an ONNX model");
    CodedInputStream in(reinterpret_cast<const uint8_t*>(fields->data()),
                        static_cast<int>(fields->size()));
    in.SetRecursionLimit(kMaxDepth);
    Require(message->MergeFromCodedStream(&in) && in.ConsumedEntireMessage());
    fields->clear();
  }

  // Calls `read` with the limit at the end of the next message.
  template <class Read>
  void ReadMessage(Read&& read) {
    const auto [limit, depth] = in_.IncrementRecursionDepthAndPushLimit(ReadLength());
    Require(depth >= 0);
    read();
    Require(in_.DecrementRecursionDepthAndPopLimit(limit));
  }

  int ReadLength() {
    int length = 0;
    Require(in_.ReadVarintSizeAsInt(&length) && length <= in_.BytesUntilLimit());
    return length;
  }

  void ReadGraph(GraphProto* graph) {
    ReadFields(graph, [&](uint32_t tag) {
      if (tag == BytesTag(GraphProto::kNodeFieldNumber)) {
        Require(in_.ReadString(&node_, ReadLength()));
        Merge(&node_, graph->add_node());
      } else if (tag == BytesTag(GraphProto::kInitializerFieldNumber)) {
        file_.memory->Add(kInitializerBytes, "the initializers of an ONNX model");
        ReadMessage([&] { ReadInitializer(graph->add_initializer()); });
      } else {
        return false;
      }
      return true;
    });
  }

  // If the preceding fields describe the elements, as in files written by protobuf, they go
  // directly to their tensor. In any other order, they go through the message.
  void ReadInitializer(TensorProto* proto) {
    std::optional<Tensor> tensor;
    TensorProto before;  // fields known when the tensor was created
    std::string rest;
    while (const uint32_t tag = in_.ReadTag()) {
      if (!tensor && MayBeRaw(tag)) {
        Merge(&rest, proto);
        before = *proto;
        tensor = ReadElements(tag, *proto, &rest);
      } else {
        CopyField(tag, &rest);
      }
    }
    Require(in_.ConsumedEntireMessage());
    Merge(&rest, proto);
    if (!tensor) {
      tensor = ReadLater(proto);
    } else if (HasElements(*proto) || !SameType(before, *proto)) {
      throw Error(ErrorCode::kDataLoss, fmt::format("tensor {} has its elements or its dims twice",
                                                    Quote(proto->name())));
    }
    file_.initializers.push_back(*std::move(tensor));
  }

  // The tensor of the next elements. If the description in `proto` does not match (yet), there is
  // no tensor, and `fields` gets the elements.
  std::optional<Tensor> ReadElements(uint32_t tag, const TensorProto& proto, std::string* fields) {
    const int length = ReadLength();
    const auto size = static_cast<uint64_t>(length);
    if (IsRaw(tag, proto.data_type()) && !HasElements(proto) && RawSize(proto) == size)
      return ReadRawElements(proto, size, [&](void* to) { Require(in_.ReadRaw(to, length)); });
    AppendField(tag, length, fields);
    return std::nullopt;
  }

  Tensor ReadLater(TensorProto* proto) {
    Tensor tensor = ParseTensorProto(*proto, file_.source);
    if (proto->data_location() == TensorProto::EXTERNAL) {
      ExternalRange& range = external_.emplace_back(ParseExternalRange(*proto));
      range.length = RawSize(*proto);
    }
    ClearElements(proto);
    return tensor;
  }

  void Require(bool condition) const {
    if (condition) return;
    throw Error(
        ErrorCode::kDataLoss,
        fmt::format("not an ONNX model: damaged or cut off at byte {}, or nested more than {} deep",
                    in_.CurrentPosition(), kMaxDepth));
  }

  CodedInputStream& in_;
  OnnxModelFile& file_;
  std::vector<ExternalRange> external_;  // of the initializers
  std::string node_;                     // the bytes of one node
};

void RequireSize(uint64_t bytes, const std::string& source) {
  if (bytes <= std::numeric_limits<int>::max()) return;
  throw Error(ErrorCode::kUnimplemented,
              fmt::format("{}: {} in one file, of which protobuf reads less than 2 GiB; save the "
                          "model with its weights as external data",
                          source, HumanBytes(bytes)));
}

OnnxModelFile Read(CodedInputStream& in, TensorSource source, const std::string& name) {
  OnnxModelFile file;
  file.source = std::move(source);
  try {
    ModelReader(in, file).Run();
  } catch (const Error& e) {
    throw e.WithPrefix(name);
  }
  return file;
}

}  // namespace

OnnxModelFile ReadOnnxModel(const std::string& path) {
  FileReader reader(path);
  RequireSize(reader.left(), path);
  const auto size = static_cast<int>(reader.left());
  FileStream stream(reader);
  CodedInputStream in(stream.get());
  in.PushLimit(size);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return Read(in, TensorSource(folder.empty() ? "." : folder), path);
}

OnnxModelFile ParseOnnxModel(std::string_view bytes, const std::string& source) {
  RequireSize(bytes.size(), source);
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  return Read(in, TensorSource(), source);
}

}  // namespace coracle::onnx

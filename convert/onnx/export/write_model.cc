#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/export/write_model.h>
#include <coracle/framework/base/file_pieces.h>

#include <filesystem>
#include <optional>
#include <string_view>

namespace coracle::onnx {
namespace {

using proto::onnx::GraphProto;
using proto::onnx::ModelProto;
using proto::onnx::TensorProto;

// Smaller parameters stay in the model; larger ones begin at a page of PATH.data, so that the file
// can be mapped.
constexpr uint64_t kSmall = 1024;
constexpr uint64_t kPage = 4096;

std::string_view ElementsOf(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), tensor.nbytes()};
}

TensorProto Header(const Parameter& parameter) {
  TensorProto proto;
  proto.set_name(parameter.name);
  const bool packed = parameter.data_type != 0;
  proto.set_data_type(packed ? parameter.data_type : ToDataType(parameter.tensor->dtype()));
  for (int64_t dim : packed ? parameter.dims : parameter.tensor->shape()) proto.add_dims(dim);
  return proto;
}

void AppendVarint(uint64_t value, std::string* bytes) {
  for (; value >= 0x80; value >>= 7) bytes->push_back(static_cast<char>(value | 0x80));
  bytes->push_back(static_cast<char>(value));
}

// The beginning of a field of `size` bytes: a message or bytes.
void AppendFieldHead(int field, uint64_t size, std::string* bytes) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | 2, bytes);
  AppendVarint(size, bytes);
}

// A parameter as an initializer of the graph: the bytes before its elements.
std::string InitializerHead(const Parameter& parameter) {
  std::string head = Header(parameter).SerializeAsString();
  AppendFieldHead(TensorProto::kRawDataFieldNumber, parameter.tensor->nbytes(), &head);
  std::string bytes;
  AppendFieldHead(GraphProto::kInitializerFieldNumber, head.size() + parameter.tensor->nbytes(),
                  &bytes);
  return bytes + head;
}

// Writes the elements of large parameters, and adds their positions to the graph.
void WriteData(Graph& graph, const std::string& location, StagedFile& file) {
  uint64_t offset = 0;
  for (const Parameter& parameter : graph.parameters()) {
    TensorProto* proto = graph.model().mutable_graph()->add_initializer();
    *proto = Header(parameter);
    const std::string_view elements = ElementsOf(*parameter.tensor);
    if (elements.size() < kSmall) {
      proto->set_raw_data(elements.data(), elements.size());
      continue;
    }
    const uint64_t padding = (kPage - offset % kPage) % kPage;
    file.Write(std::string(padding, '\0'));
    file.Write(elements);
    offset += padding;
    proto->set_data_location(TensorProto::EXTERNAL);
    const auto say = [&](const char* key, const std::string& value) {
      auto* entry = proto->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    say("location", location);
    say("offset", std::to_string(offset));
    say("length", std::to_string(elements.size()));
    offset += elements.size();
  }
}

}  // namespace

// Writes a model as the message without its graph, with the graph as an additional field; a graph
// as the message without the parameters, with these as additional fields.
void WriteModel(Graph& graph, const std::string& path, uint64_t max_bytes) {
  std::vector<std::string> heads;
  uint64_t size = 0;
  for (const Parameter& parameter : graph.parameters()) {
    heads.push_back(InitializerHead(parameter));
    size += heads.back().size() + parameter.tensor->nbytes();
  }
  const bool external = size + graph.model().ByteSizeLong() > max_bytes;
  std::optional<StagedFile> data;
  if (external) {
    const std::string data_path = path + ".data";
    WriteData(graph, std::filesystem::path(data_path).filename().string(), data.emplace(data_path));
    heads.clear();
    size = 0;
  }
  const std::string nodes = graph.model().graph().SerializeAsString();
  graph.model().clear_graph();
  std::string head = graph.model().SerializeAsString();
  AppendFieldHead(ModelProto::kGraphFieldNumber, nodes.size() + size, &head);
  StagedFile file(path);
  file.Write(head);
  file.Write(nodes);
  for (size_t i = 0; i < heads.size(); ++i) {
    file.Write(heads[i]);
    file.Write(ElementsOf(*graph.parameters()[i].tensor));
  }
  // Both are written before the first takes its place, so that a full disk leaves both old ones.
  if (data) data->Sync();
  file.Sync();
  if (data) data->Publish();
  file.Publish();
}

}  // namespace coracle::onnx

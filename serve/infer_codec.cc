#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/serve/infer_body.h>
#include <coracle/serve/infer_codec.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>

namespace coracle::serve {
namespace {

using nlohmann::json;

constexpr const char* kHeaderLength = "inference-header-content-length";
constexpr size_t kCheck = 4096;  // elements between two looks at the time

const std::map<std::string, DType>& Datatypes() {
  static const std::map<std::string, DType> types = {
      {"BOOL", DType::kBool},    {"UINT8", DType::kUInt8},   {"UINT64", DType::kUInt64},
      {"INT8", DType::kInt8},    {"INT16", DType::kInt16},   {"INT32", DType::kInt32},
      {"INT64", DType::kInt64},  {"FP16", DType::kFloat16},  {"FP32", DType::kFloat32},
      {"FP64", DType::kFloat64}, {"BF16", DType::kBFloat16}, {"BYTES", DType::kString},
  };
  return types;
}

[[noreturn]] void Refuse(std::string message) { throw HttpError(400, std::move(message)); }

// The binary tensors of a body, one after the other.
class BinaryReader {
 public:
  explicit BinaryReader(std::string_view bytes) : left_(bytes) {}

  std::string_view Take(const std::string& name, uint64_t size) {
    if (size > left_.size()) {
      Refuse(fmt::format("input {}: it has {} binary bytes, but {} are left in the body",
                         Quote(name), size, left_.size()));
    }
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  size_t left() const { return left_.size(); }

 private:
  std::string_view left_;
};

// BYTES: for each element a length of four bytes, then the bytes.
Tensor TextsOf(const std::string& name, const Shape& shape, std::string_view bytes) {
  const auto count = static_cast<uint64_t>(shape.numel());
  std::vector<StringRef> texts;
  texts.reserve(std::min<uint64_t>(count, bytes.size() / sizeof(uint32_t)));
  while (!bytes.empty() && texts.size() < count) {
    uint32_t size = 0;
    if (bytes.size() < sizeof size) break;
    std::memcpy(&size, bytes.data(), sizeof size);
    bytes.remove_prefix(sizeof size);
    if (size > bytes.size()) {
      Refuse(fmt::format("input {}: element {} has {} bytes, but {} are left", Quote(name),
                         texts.size(), size, bytes.size()));
    }
    if (texts.size() % kCheck == 0) CheckTimeLimit("a request is read");
    texts.push_back({bytes.data(), size});
    bytes.remove_prefix(size);
  }
  if (texts.size() != count || !bytes.empty()) {
    Refuse(fmt::format("input {}: a tensor of shape {} has {} elements, got {} and {} bytes more",
                       Quote(name), shape.ToString(), count, texts.size(), bytes.size()));
  }
  CheckTimeLimit("a request is read");
  return Tensor::View(DType::kString, shape, texts.data()).Clone();
}

Tensor BinaryTensor(const std::string& name, DType dtype, const Shape& shape,
                    std::string_view bytes) {
  if (dtype == DType::kString) return TextsOf(name, shape, bytes);
  if (ByteSize(dtype, shape) != bytes.size()) {
    Refuse(fmt::format("input {}: {} of shape {} has {} bytes, got {}", Quote(name),
                       DatatypeOf(dtype), shape.ToString(), ByteSize(dtype, shape), bytes.size()));
  }
  Tensor tensor(dtype, shape);
  if (!bytes.empty()) std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  if (dtype == DType::kBool) {
    for (unsigned char byte : bytes)
      if (byte > 1) Refuse(fmt::format("input {}: a BOOL is {}", Quote(name), byte));
  }
  return tensor;
}

const json* Field(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string NameIn(const json& object, const char* what) {
  if (!object.is_object()) Refuse(fmt::format("each element of {}s must be an object", what));
  const json* name = Field(object, "name");
  if (!name || !name->is_string()) Refuse(fmt::format("an {} has no name", what));
  return name->get<std::string>();
}

// Parameter `name` of an object, if it is there.
const json* Parameter(const json& object, const char* name) {
  const json* parameters = Field(object, "parameters");
  if (!parameters) return nullptr;
  if (!parameters->is_object()) Refuse("parameters must be an object");
  return Field(*parameters, name);
}

bool Flag(const json* value, const char* name, bool otherwise) {
  if (!value) return otherwise;
  if (!value->is_boolean()) Refuse(fmt::format("the parameter {} must be true or false", name));
  return value->get<bool>();
}

Shape ShapeOf(const json& input, const Port& port) {
  const json* dims = Field(input, "shape");
  const std::string name = Quote(port.name);
  if (!dims || !dims->is_array()) Refuse(fmt::format("input {}: it has no shape", name));
  if (dims->size() > static_cast<size_t>(Shape::kMaxRank))
    Refuse(fmt::format("input {}: its shape has {} dims", name, dims->size()));
  Shape shape;
  for (const json& dim : *dims) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > uint64_t{Shape::kMaxElements})
      Refuse(fmt::format("input {}: the dim {} must be a whole number from 0 on", name,
                         Quote(dim.dump(-1, ' ', true), 40)));
    shape.Append(static_cast<int64_t>(dim.get<uint64_t>()));
  }
  if (shape.HasTooManyElements() || !shape.CompatibleWith(port.shape)) {
    Refuse(fmt::format("input {}: the model takes the shape {}, got {}", name,
                       port.shape.ToString(), shape.ToString()));
  }
  return shape;
}

size_t IndexOf(const std::vector<Port>& ports, const std::string& name, const char* what) {
  for (size_t i = 0; i < ports.size(); ++i)
    if (ports[i].name == name) return i;
  std::vector<std::string> names;
  for (const Port& port : ports) names.push_back(port.name);
  Refuse(fmt::format("the model has no {} {}; it has {}", what, Quote(name),
                     Quote(Join(names, ", "), 400)));
}

// One element of "inputs".
Tensor InputOf(const json& input, const Port& port, const JsonElements& elements,
               BinaryReader& binary) {
  const json* datatype = Field(input, "datatype");
  const std::string name = Quote(port.name), wanted = DatatypeOf(port.dtype);
  if (!datatype || !datatype->is_string())
    Refuse(fmt::format("input {}: it has no datatype; the model takes {}", name, wanted));
  if (datatype->get<std::string>() != wanted) {
    Refuse(fmt::format("input {}: the model takes {}, got {}", name, wanted,
                       Quote(datatype->get<std::string>(), 40)));
  }
  const Shape shape = ShapeOf(input, port);
  const json* data = Field(input, "data");
  const json* size = Parameter(input, "binary_data_size");
  if (data && size) Refuse(fmt::format("input {}: it has data and binary_data_size", name));
  if (data) return elements.ToTensor(port.name, port.dtype, shape);
  if (!size) Refuse(fmt::format("input {}: it has no data", name));
  if (!size->is_number_unsigned())
    Refuse(fmt::format("input {}: binary_data_size must be a whole number from 0 on", name));
  return BinaryTensor(port.name, port.dtype, shape, binary.Take(port.name, size->get<uint64_t>()));
}

void ReadInputs(InferBody& body, const std::vector<Port>& ports, BinaryReader& binary,
                InferRequest* request) {
  const json* inputs = Field(body.fields, "inputs");
  if (!inputs || !inputs->is_array()) Refuse("the request needs an array of inputs");
  std::vector<std::optional<Tensor>> given(ports.size());
  for (size_t i = 0; i < inputs->size(); ++i) {
    const std::string name = NameIn((*inputs)[i], "input");
    const size_t index = IndexOf(ports, name, "input");
    if (given[index]) Refuse(fmt::format("the input {} is given twice", Quote(name)));
    given[index] = InputOf((*inputs)[i], ports[index], body.data[i], binary);
    body.data[i] = {};
  }
  for (size_t i = 0; i < ports.size(); ++i) {
    if (!given[i]) Refuse(fmt::format("the input {} is missing", Quote(ports[i].name)));
    request->inputs.push_back(std::move(*given[i]));
  }
}

void ReadOutputs(const json& fields, const std::vector<Port>& ports, InferRequest* request) {
  const bool binary = Flag(Parameter(fields, "binary_data_output"), "binary_data_output", false);
  const json* outputs = Field(fields, "outputs");
  if (!outputs) {
    for (size_t i = 0; i < ports.size(); ++i) request->outputs.push_back({i, binary});
    return;
  }
  if (!outputs->is_array()) Refuse("outputs must be an array");
  for (const json& output : *outputs) {
    const std::string name = NameIn(output, "output");
    const size_t index = IndexOf(ports, name, "output");
    for (const WantedOutput& other : request->outputs)
      if (other.index == index)
        Refuse(fmt::format("the output {} is asked for twice", Quote(name)));
    request->outputs.push_back(
        {index, Flag(Parameter(output, "binary_data"), "binary_data", binary)});
  }
}

// A body without JSON: it is the data of the only input.
InferRequest RawRequest(std::string_view body, const std::vector<Port>& inputs,
                        const std::vector<Port>& outputs) {
  if (inputs.size() != 1) Refuse("a request without JSON needs a model with one input");
  const Port& port = inputs[0];
  Shape shape = port.shape;
  int unknown = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] >= 0) continue;
    if (unknown >= 0) Refuse("a request without JSON needs a model with at most one open dim");
    unknown = i;
    shape[i] = 1;
  }
  const int64_t known = shape.numel();
  InferRequest request;
  for (size_t i = 0; i < outputs.size(); ++i) request.outputs.push_back({i, true});
  if (port.dtype == DType::kString) {
    if (known != 1)
      Refuse(fmt::format("a request without JSON is one text, but input {} has the shape {}",
                         Quote(port.name), port.shape.ToString()));
    StringRef text = {body.data(), body.size()};
    request.inputs.push_back(Tensor::View(DType::kString, shape, &text).Clone());
    return request;
  }
  const auto elements = static_cast<int64_t>(body.size() / SizeOf(port.dtype));
  if (unknown >= 0) shape[unknown] = known > 0 ? elements / known : 0;
  request.inputs.push_back(BinaryTensor(port.name, port.dtype, shape, body));
  return request;
}

// --- answers ---

[[noreturn]] void RefuseResult(const Port& port, const std::string& what) {
  Refuse(fmt::format("output {}: {}; ask for it as a binary tensor (\"binary_data\": true)",
                     Quote(port.name), what));
}

void AppendElements(const Port& port, const Tensor& tensor, std::string* json_text) {
  auto out = std::back_inserter(*json_text);
  const char* comma = "";
  size_t count = 0;
  const auto append = [&](const auto& value) {
    if (count++ % kCheck == 0) CheckTimeLimit("an answer is written");
    fmt::format_to(out, "{}{}", comma, value);
    comma = ",";
  };
  if (tensor.dtype() == DType::kString) {
    for (const StringRef& text : tensor.span<StringRef>()) {
      try {
        append(json(text.view()).dump());
      } catch (const json::exception&) {
        RefuseResult(port, "JSON has no bytes that are not UTF-8");
      }
    }
  } else if (tensor.dtype() == DType::kUInt64) {
    for (uint64_t value : tensor.span<uint64_t>()) append(value);
  } else {
    DispatchDType(tensor.dtype(), [&]<class T>() {
      for (const T& value : tensor.span<T>()) {
        if constexpr (std::is_floating_point_v<T>) {
          if (!std::isfinite(value)) RefuseResult(port, fmt::format("JSON has no {}", value));
          append(value);
        } else if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) {
          RefuseResult(port, "JSON has no 16-bit floats");
        } else if constexpr (std::is_same_v<T, bool>) {
          append(value ? "true" : "false");
        } else {
          append(static_cast<int64_t>(value));
        }
      }
    });
  }
}

void AppendBytes(const Tensor& tensor, std::string* bytes) {
  if (tensor.dtype() != DType::kString) {
    bytes->append(static_cast<const char*>(tensor.raw()), tensor.nbytes());
    return;
  }
  for (const StringRef& text : tensor.span<StringRef>()) {
    const auto size = static_cast<uint32_t>(text.size);
    bytes->append(reinterpret_cast<const char*>(&size), sizeof size);
    *bytes += text.view();
  }
}

}  // namespace

std::string DatatypeOf(DType dtype) {
  for (const auto& [name, type] : Datatypes())
    if (type == dtype) return name;
  return "";
}

size_t JsonSize(const Request& request) {
  const auto header = request.headers.find(kHeaderLength);
  if (header == request.headers.end()) return request.body.size();
  const std::string& text = header->second;
  size_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() ||
      size > request.body.size()) {
    Refuse(
        fmt::format("Inference-Header-Content-Length must be a whole number up to the {} bytes "
                    "of the body, got {}",
                    request.body.size(), Quote(text, 40)));
  }
  return size;
}

InferRequest ParseInferRequest(const Request& request, const std::vector<Port>& inputs,
                               const std::vector<Port>& outputs) {
  const size_t json_bytes = JsonSize(request);
  const std::string_view all = request.body;
  if (json_bytes == 0 && request.headers.count(kHeaderLength))
    return RawRequest(all, inputs, outputs);
  InferBody body = ParseInferBody(all.substr(0, json_bytes));
  BinaryReader binary(all.substr(json_bytes));
  InferRequest made;
  if (const json* id = Field(body.fields, "id")) {
    if (!id->is_string()) Refuse("id must be a text");
    made.id = id->get<std::string>();
    made.has_id = true;
  }
  ReadInputs(body, inputs, binary, &made);
  ReadOutputs(body.fields, outputs, &made);
  if (binary.left() > 0)
    Refuse(fmt::format("{} bytes are left over after the binary tensors", binary.left()));
  return made;
}

Response InferResponse(const InferRequest& request, const std::string& model,
                       const std::string& version, const std::vector<Port>& outputs,
                       const std::vector<Tensor>& results) {
  Response response;
  std::string& text = response.body;
  text = fmt::format("{{\"model_name\":{},\"model_version\":{}", json(model).dump(),
                     json(version).dump());
  if (request.has_id) text += ",\"id\":" + json(request.id).dump();
  text += ",\"outputs\":[";
  std::string blobs;
  bool binary = false;
  for (const WantedOutput& wanted : request.outputs) {
    const Tensor& tensor = results[wanted.index];
    if (&wanted != request.outputs.data()) text += ',';
    text += fmt::format("{{\"name\":{},\"datatype\":\"{}\",\"shape\":[{}],",
                        json(outputs[wanted.index].name).dump(), DatatypeOf(tensor.dtype()),
                        fmt::join(tensor.shape().ToVector(), ","));
    std::vector<std::string> parameters;
    const size_t before = blobs.size();
    if (wanted.binary) {
      AppendBytes(tensor, &blobs);
      parameters.push_back(fmt::format("\"binary_data_size\":{}", blobs.size() - before));
      binary = true;
    }
    if (!tensor.lod().empty()) parameters.push_back("\"lod\":" + json(tensor.lod()).dump());
    if (!parameters.empty())
      text += fmt::format("\"parameters\":{{{}}}{}", fmt::join(parameters, ","),
                          wanted.binary ? "" : ",");
    if (!wanted.binary) {
      text += "\"data\":[";
      AppendElements(outputs[wanted.index], tensor, &text);
      text += ']';
    }
    text += '}';
  }
  text += "]}";
  if (!binary) return response;
  response.type = "application/octet-stream";
  response.headers["Inference-Header-Content-Length"] = std::to_string(text.size());
  text += blobs;
  return response;
}

Response ErrorResponse(int status, const std::string& message) {
  Response response;
  response.status = status;
  response.body = json{{"error", message}}.dump(-1, ' ', false, json::error_handler_t::replace);
  if (status == 503) response.headers["Retry-After"] = "1";
  return response;
}

}  // namespace coracle::serve

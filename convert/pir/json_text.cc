#include <coracle/convert/pir/json_text.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace coracle::pir {
namespace {

[[noreturn]] void Unsayable(const std::string& what) {
  throw Error(ErrorCode::kUnimplemented, "the format of Paddle 3 has no " + what);
}

Json Typed(const char* kind, Json data) {
  Json json = Json::object();
  json["#"] = kind;
  json["D"] = std::move(data);
  return json;
}

// JSON has no inf and nan: they are texts under another key.
Json Float(const char* kind, double value) {
  if (std::isfinite(value)) return Typed(kind, value);
  Json json = Typed(kind, "null");
  json["VD"] = std::isnan(value) ? "NAN" : value > 0 ? "INF" : "-INF";
  return json;
}

template <class T, class Item>
Json List(const std::vector<T>& values, const Item& item) {
  Json items = Json::array();
  for (const T& value : values) items.push_back(item(value));
  return Typed("0.a_array", std::move(items));
}

std::string DataTypeName(int32_t dtype) {
  if (dtype < 0) return "Undefined(ALL_DTYPE)";
  if (!IsValid(static_cast<DType>(dtype))) Unsayable(fmt::format("data type {}", dtype));
  return ToString(static_cast<DType>(dtype));
}

// A text of Paddle is UTF-8, as JSON is.
Json Text(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = Utf8CharacterBytes(std::string_view(text).substr(at));
    if (bytes == 0) Unsayable("text that is not UTF-8: " + Quote(text, 100));
    at += bytes;
  }
  return text;
}

// Elements of values: bool, integers or floats.
Json Scalars(const Attribute& value) {
  Json items = Json::array();
  const auto add = [&](const char* type, const Json& item) {
    items.push_back(Typed("1.a_scalar", Json::array({type, item})));
  };
  if (const auto* list = std::get_if<std::vector<bool>>(&value))
    for (const bool item : *list) add("bool", item);
  if (const auto* list = std::get_if<std::vector<int32_t>>(&value))
    for (const int32_t item : *list) add("int32", item);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value))
    for (const int64_t item : *list) add("int64", item);
  const auto add_float = [&](const char* type, double item) {
    if (!std::isfinite(item)) Unsayable("infinite or nan element of a list");
    add(type, item);
  };
  if (const auto* list = std::get_if<std::vector<float>>(&value))
    for (const float item : *list) add_float("float32", static_cast<double>(item));
  if (const auto* list = std::get_if<std::vector<double>>(&value))
    for (const double item : *list) add_float("float64", item);
  return Typed("0.a_array", std::move(items));
}

Json Value(char kind, const Attribute& value) {
  switch (kind) {
    case 'b':
      return Typed("0.a_bool", AttributeAs<bool>(value));
    case 'i':
      return Typed("0.a_i32", AttributeAs<int32_t>(value));
    case 'l':
      return Typed("0.a_i64", AttributeAs<int64_t>(value));
    case 'f':
      return Float("0.a_f32", static_cast<double>(AttributeAs<float>(value)));
    case 'd':
      return Float("0.a_f64", AttributeAs<double>(value));
    case 's':
      return Typed("0.a_str", Text(AttributeAs<std::string>(value)));
    case 't':
      return Typed("1.a_dtype", DataTypeName(AttributeAs<int32_t>(value)));
    case 'p':
      return Typed("1.a_place", Json::array({0, 0, ""}));
    case 'I':
      return List(AttributeAs<std::vector<int32_t>>(value),
                  [](int32_t item) { return Typed("0.a_i32", item); });
    case 'L':
      return List(AttributeAs<std::vector<int64_t>>(value),
                  [](int64_t item) { return Typed("0.a_i64", item); });
    case 'F':
      return List(AttributeAs<std::vector<float>>(value),
                  [](float item) { return Float("0.a_f32", static_cast<double>(item)); });
    case 'A':
      return Typed("1.a_intarray", AttributeAs<std::vector<int64_t>>(value));
    case 'v':
      return Scalars(value);
    default:
      throw InternalError(fmt::format("an attribute of the kind {}", kind));
  }
}

const char* ElementName(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "0.t_bool";
    case DType::kInt8:
      return "0.t_i8";
    case DType::kUInt8:
      return "0.t_ui8";
    case DType::kInt16:
      return "0.t_i16";
    case DType::kInt32:
      return "0.t_i32";
    case DType::kInt64:
      return "0.t_i64";
    case DType::kFloat16:
      return "0.t_f16";
    case DType::kBFloat16:
      return "0.t_bf16";
    case DType::kFloat32:
      return "0.t_f32";
    case DType::kFloat64:
      return "0.t_f64";
    case DType::kComplex64:
      return "0.t_c64";
    case DType::kComplex128:
      return "0.t_c128";
    default:
      Unsayable(fmt::format("tensor of {}", ToString(dtype)));
  }
}

Json ResultJson(const Result& result) {
  Json json = Json::object();
  json["%"] = result.id;
  json["TT"] = TypeJson(result.type);
  return json;
}

}  // namespace

Type TensorType(DType dtype, const Shape& shape) {
  return {Type::Kind::kTensor, dtype, shape, {}, "0.t_dtensor"};
}

Type ListType(std::vector<Type> items) {
  return {Type::Kind::kList, DType::kFloat32, {}, std::move(items), "0.t_vec"};
}

Json TypeJson(const Type& type) {
  Json json = Json::object();
  if (type.kind == Type::Kind::kNone) {
    json["#"] = "NULL";
    return json;
  }
  if (type.kind == Type::Kind::kList) {
    Json items = Json::array();
    for (const Type& item : type.items) items.push_back(TypeJson(item));
    return Typed("0.t_vec", std::move(items));
  }
  Json element = Json::object();
  element["#"] = ElementName(type.dtype);
  Json dims = Json::array();
  for (const int64_t dim : type.shape) dims.push_back(dim);
  return Typed("0.t_dtensor", Json::array({element, dims, "NCHW", Json::array(), 0}));
}

Json AttrJson(const std::string& name, char kind, const Attribute& value) {
  Json json = Json::object();
  try {
    json["AT"] = Value(kind, value);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInternal) throw;
    throw Error(ErrorCode::kUnimplemented, fmt::format("the attribute {}: {}", name, e.message()));
  }
  json["N"] = name;
  return json;
}

Json OpJson(const WrittenOp& op) {
  Json json = Json::object();
  json["#"] = op.name;
  Json attrs = op.attrs;
  if (!op.layer.empty()) attrs.push_back(AttrJson("struct_name", 's', op.layer));
  json["A"] = attrs.is_null() ? Json::array() : std::move(attrs);
  Json operands = Json::array(), results = Json::array(), stops = Json::array();
  for (const int64_t id : op.operands) operands.push_back(Json{{"%", id}});
  for (const Result& result : op.results) results.push_back(ResultJson(result));
  for (const bool stop : op.stop_gradients) stops.push_back(Typed("0.a_bool", stop));
  json["I"] = std::move(operands);
  json["O"] = std::move(results);
  Json stop_gradient = Json::object();
  stop_gradient["AT"] = Typed("0.a_array", std::move(stops));
  stop_gradient["N"] = "stop_gradient";
  json["OA"] = op.stop_gradients.empty() ? Json::array() : Json::array({stop_gradient});
  return json;
}

Json ParameterJson(const std::string& name, const Result& result, bool stop_gradient,
                   bool trainable) {
  Json json = Json::object();
  json["#"] = "p";
  json["A"] = Json::array({0, 1, 1, Text(name)});
  json["DA"] = Json::array();
  json["O"] = ResultJson(result);
  json["OA"] = Json::array({1, stop_gradient ? 1 : 0, trainable ? 1 : 0});
  json["QA"] = Json::array();
  return json;
}

}  // namespace coracle::pir

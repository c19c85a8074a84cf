#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/tools/tensor_json.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace coracle::tools {
namespace {

using Json = nlohmann::ordered_json;

// --- writing ---

// Writes just enough digits to identify the number in its own type: 0.1f is 0.1.
double Shortest(double value) { return value; }
double Shortest(float value) {
  double number = 0;
  ParseDouble(fmt::format("{}", value), &number);
  return number;
}

template <class T>
Json NumberJson(T value) {
  if constexpr (std::is_same_v<T, complex64> || std::is_same_v<T, complex128>) {
    return Json::array({NumberJson(value.real()), NumberJson(value.imag())});
  } else if constexpr (std::is_integral_v<T>) {
    return value;
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    return Shortest(value);
  } else {
    return NumberJson(static_cast<float>(value));
  }
}

// Texts that are not UTF-8 cannot be in json.
Json TextsJson(const std::string& name, const Tensor& tensor) {
  Json data = Json::array();
  for (std::string& text : tensor.Strings()) {
    for (std::string_view rest = text; !rest.empty();
         rest.remove_prefix(Utf8CharacterBytes(rest))) {
      if (Utf8CharacterBytes(rest) == 0)
        ThrowInvalid(
            fmt::format("{} holds {}, which is not UTF-8 and so in no json file; npz "
                        "holds it",
                        Quote(name), Quote(text)));
    }
    data.push_back(std::move(text));
  }
  return data;
}

Json JsonOf(const std::string& name, const Tensor& tensor) {
  Json json = {
      {"name", name}, {"dtype", ToString(tensor.dtype())}, {"shape", tensor.shape().ToVector()}};
  if (!tensor.lod().empty()) json["lod"] = tensor.lod();
  if (tensor.dtype() == DType::kString) {
    json["data"] = TextsJson(name, tensor);
    return json;
  }
  Json data = Json::array();
  DispatchAnyDType(tensor.dtype(), [&]<class T>() {
    for (const T& value : tensor.span<T>()) data.push_back(NumberJson(value));
  });
  json["data"] = std::move(data);
  return json;
}

// --- reading ---

template <class T>
bool Parse(const Json& json, T* value) {
  if constexpr (std::is_same_v<T, complex64> || std::is_same_v<T, complex128>) {
    typename T::value_type real = 0, imaginary = 0;
    if (!json.is_array() || json.size() != 2) return false;
    if (!Parse(json[0], &real) || !Parse(json[1], &imaginary)) return false;
    *value = T(real, imaginary);
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) return false;
    *value = json.get<bool>();
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    if (!json.is_number_unsigned()) return false;
    *value = json.get<uint64_t>();
  } else if constexpr (std::is_integral_v<T>) {
    if (!json.is_number_integer()) return false;
    if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) return false;
    const auto number = json.get<int64_t>();
    if (!std::in_range<T>(number)) return false;
    *value = static_cast<T>(number);
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    double number = 0;
    if (json.is_number())
      number = json.get<double>();
    else if (!json.is_string() || !ParseDouble(json.get_ref<const std::string&>(), &number))
      return false;
    *value = static_cast<T>(number);
    return std::isfinite(number) == std::isfinite(*value);
  } else {
    float number = 0;
    if (!Parse(json, &number)) return false;
    *value = T(number);
    return std::isfinite(number) == std::isfinite(static_cast<float>(*value));
  }
  return true;
}

Shape ShapeOf(const JsonReader& reader) {
  std::vector<int64_t> dims;
  for (const JsonReader& dim : reader.Items()) dims.push_back(dim.Integer(0));
  if (dims.size() > static_cast<size_t>(Shape::kMaxRank))
    reader.Fail(fmt::format("has {} dimensions; the most are {}", dims.size(), Shape::kMaxRank));
  const Shape shape(dims);
  if (shape.HasTooManyElements()) reader.Fail("has too many elements");
  return shape;
}

Tensor TextsIn(const JsonReader& data, const Shape& shape) {
  std::vector<StringRef> elements;
  for (const Json& text : data.json()) {
    if (!text.is_string())
      data.Fail(fmt::format("[{}] must be a text, got {}", elements.size(),
                            Quote(text.dump(-1, ' ', false, Json::error_handler_t::replace))));
    const auto& bytes = text.get_ref<const std::string&>();
    elements.push_back({bytes.data(), bytes.size()});
  }
  return Tensor::View(DType::kString, shape, elements.data()).Clone();
}

Tensor TensorOf(const JsonReader& reader) {
  DType dtype{};
  const std::string type = reader.At("dtype").Text();
  if (!ParseDType(type, &dtype))
    reader.At("dtype").Fail(fmt::format("must be a dtype such as float32, got {}", Quote(type)));
  const Shape shape = ShapeOf(reader.At("shape"));
  const JsonReader data = reader.At("data");
  const Json& numbers = data.json();
  if (!numbers.is_array() || static_cast<int64_t>(numbers.size()) != shape.numel())
    data.Fail(fmt::format("must be a list of {} elements, as the shape {} says", shape.numel(),
                          shape.ToString()));
  if (dtype == DType::kString) return TextsIn(data, shape);
  Tensor tensor(dtype, shape);
  DispatchAnyDType(dtype, [&]<class T>() {
    T* out = tensor.data<T>();
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!Parse(numbers[i], out + i))
        data.Fail(
            fmt::format("[{}] must be a {}, got {}", i, ToString(dtype),
                        Quote(numbers[i].dump(-1, ' ', false, Json::error_handler_t::replace))));
    }
  });
  return tensor;
}

LoD LodOf(const JsonReader& reader) {
  LoD lod;
  for (const JsonReader& level : reader.Items()) {
    std::vector<uint64_t>& offsets = lod.emplace_back();
    for (const JsonReader& offset : level.Items()) offsets.push_back(offset.Unsigned());
  }
  return lod;
}

}  // namespace

std::string TensorJson(const NamedTensors& tensors) {
  Json list = Json::array();
  for (const auto& [name, tensor] : tensors) list.push_back(JsonOf(name, tensor));
  const Json json = {{"format", "coracle.tensors"}, {"version", 1}, {"tensors", std::move(list)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

NamedTensors ParseTensorJson(std::string_view text, const std::string& source) {
  const JsonReader reader(text, source);
  if (reader.At("format").Text() != "coracle.tensors")
    reader.At("format").Fail("must be \"coracle.tensors\"");
  reader.At("version").Integer(1, 1);
  NamedTensors tensors;
  for (const JsonReader& item : reader.At("tensors").Items()) {
    Tensor tensor = TensorOf(item);
    if (item.Has("lod")) tensor.lod() = LodOf(item.At("lod"));
    const std::string name = item.At("name").Text();
    CheckLod(name, tensor);
    tensors.emplace_back(name, std::move(tensor));
  }
  return tensors;
}

}  // namespace coracle::tools

#include <coracle/convert/narrow.h>
#include <coracle/convert/pir/model_json.h>
#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace coracle::pir {
namespace {

// Six levels for each block inside a block, eight for the deepest attribute.
constexpr size_t kMaxDepth = 256;
// Keeps a name from a file that lies from filling messages.
constexpr size_t kMaxName = 1 << 16;

[[noreturn]] void RefuseKind(const JsonReader& at, const char* what, const std::string& name) {
  try {
    at.Fail(fmt::format("holds {} {}, which is unknown", what, Quote(name)));
  } catch (const Error& e) {
    throw Error(ErrorCode::kUnimplemented, e.message());
  }
}

std::string Name(const JsonReader& text) {
  std::string name = text.Text();
  if (name.size() > kMaxName) text.Fail("is longer than any name");
  return name;
}

// "1.conv2d" as "pd_op.conv2d".
std::string FullName(const std::string& name) {
  static const std::unordered_map<std::string, std::string> dialects = {
      {"0", "builtin"}, {"1", "pd_op"}, {"2", "cf"}, {"3", "custom_op"}, {"4", "dist"}};
  if (name == "p") return "builtin.parameter";
  const size_t dot = name.find('.');
  const auto found = dialects.find(name.substr(0, dot));
  return dot == name.npos || found == dialects.end() ? name : found->second + name.substr(dot);
}

// --- types ---

DType ElementType(const JsonReader& json) {
  static const std::unordered_map<std::string, DType> types = {
      {"0.t_bool", DType::kBool},     {"0.t_i8", DType::kInt8},
      {"0.t_ui8", DType::kUInt8},     {"0.t_i16", DType::kInt16},
      {"0.t_i32", DType::kInt32},     {"0.t_i64", DType::kInt64},
      {"0.t_f16", DType::kFloat16},   {"0.t_bf16", DType::kBFloat16},
      {"0.t_f32", DType::kFloat32},   {"0.t_f64", DType::kFloat64},
      {"0.t_c64", DType::kComplex64}, {"0.t_c128", DType::kComplex128},
      {"0.t_index", DType::kInt64}};
  const std::string name = Name(json.At("#"));
  const auto found = types.find(name);
  if (found == types.end()) RefuseKind(json, "the element type", name);
  return found->second;
}

Shape Dims(const JsonReader& json) {
  const std::vector<JsonReader> items = json.Items();
  if (items.size() > Shape::kMaxRank)
    json.Fail(fmt::format("has {} dims, more than {}", items.size(), Shape::kMaxRank));
  Shape shape;
  for (const JsonReader& dim : items) {
    const int64_t value = dim.Integer(INT64_MIN);
    shape.Append(value < 0 ? -1 : value);
  }
  return shape;
}

Type ReadType(const JsonReader& json) {
  Type type;
  type.name = Name(json.At("#"));
  if (type.name == "NULL") return type;
  if (type.name == "0.t_vec") {
    type.kind = Type::Kind::kList;
    for (const JsonReader& item : json.At("D").Items()) type.items.push_back(ReadType(item));
  } else if (type.name == "0.t_dtensor" || type.name == "1.t_dtensor_array") {
    const std::vector<JsonReader> data = json.At("D").Items();
    if (data.size() < 2) json.Fail("needs an element type and dims");
    type.kind = type.name == "0.t_dtensor" ? Type::Kind::kTensor : Type::Kind::kArray;
    type.dtype = ElementType(data[0]);
    type.shape = Dims(data[1]);
  } else {
    type.kind = Type::Kind::kOther;
  }
  return type;
}

// --- attributes ---

double FloatData(const JsonReader& json) {
  // JSON has no inf and nan: the writer puts a text under another key.
  for (const auto& [key, value] : json.Members()) {
    if (key == "#" || key == "D" || !value.json().is_string()) continue;
    const std::string text = value.Text();
    if (text == "NAN") return std::numeric_limits<double>::quiet_NaN();
    if (text == "INF") return std::numeric_limits<double>::infinity();
    if (text == "-INF") return -std::numeric_limits<double>::infinity();
  }
  const JsonReader data = json.At("D");
  if (!data.json().is_number()) data.Fail("must be a number");
  return data.Number();
}

float ToFloat(const JsonReader& json, double value) {
  const float narrow = static_cast<float>(value);
  if (std::isinf(narrow) && !std::isinf(value)) json.Fail("is beyond the range of float");
  return narrow;
}

int32_t DTypeNumber(const JsonReader& json) {
  const std::string name = Name(json);
  if (name == "Undefined(ALL_DTYPE)" || name == "undefined" || name == "UNDEFINED") return -1;
  DType dtype;
  if (!ParseDType(name, &dtype)) RefuseKind(json, "the data type", name);
  return static_cast<int32_t>(dtype);
}

std::vector<int64_t> Integers(const JsonReader& list) {
  std::vector<int64_t> values;
  for (const JsonReader& item : list.Items()) values.push_back(item.Integer(INT64_MIN));
  return values;
}

// A scalar: a data type and its value.
Attribute ScalarData(const JsonReader& json) {
  const std::vector<JsonReader> data = json.At("D").Items();
  if (data.size() != 2) RefuseKind(json, "a scalar of", fmt::format("{} parts", data.size()));
  const std::string kind = Name(data[0]);
  if (data[1].json().is_boolean()) return data[1].Bool();
  if (kind == "float32" || kind == "float64") return data[1].Number();
  if (kind == "float16" || kind == "bfloat16")  // written as its bits
    RefuseKind(json, "a scalar of type", kind);
  return data[1].Integer(INT64_MIN);
}

Attribute ReadAttribute(const JsonReader& json);

// A list of one kind of numbers or texts. Integers and floats of any width are held as 64 bits.
Attribute ListData(const JsonReader& json) {
  std::vector<bool> bools;
  std::vector<int64_t> integers;
  std::vector<double> floats;
  std::vector<std::string> texts;
  const std::vector<JsonReader> items = json.At("D").Items();
  for (const JsonReader& item : items) {
    const Attribute value = ReadAttribute(item);
    if (const auto* b = std::get_if<bool>(&value)) bools.push_back(*b);
    if (const auto* i = std::get_if<int32_t>(&value)) integers.push_back(*i);
    if (const auto* l = std::get_if<int64_t>(&value)) integers.push_back(*l);
    if (const auto* f = std::get_if<float>(&value)) floats.push_back(static_cast<double>(*f));
    if (const auto* d = std::get_if<double>(&value)) floats.push_back(*d);
    if (const auto* s = std::get_if<std::string>(&value)) texts.push_back(*s);
  }
  if (bools.size() == items.size() && !items.empty()) return bools;
  if (integers.size() == items.size()) return integers;
  if (floats.size() == items.size()) return floats;
  if (texts.size() == items.size()) return texts;
  json.Fail("is a list of several kinds");
}

// An attribute that has no counterpart here is an empty RawAttr.
Attribute ReadAttribute(const JsonReader& json) {
  using Reader = std::function<Attribute(const JsonReader&)>;
  static const std::unordered_map<std::string, Reader> readers = {
      {"0.a_bool", [](const JsonReader& j) { return j.At("D").Bool(); }},
      {"0.a_i32",
       [](const JsonReader& j) { return ToInt32(j.At("D").Integer(INT32_MIN, INT32_MAX), "D"); }},
      {"0.a_i64", [](const JsonReader& j) { return j.At("D").Integer(INT64_MIN); }},
      {"0.a_index", [](const JsonReader& j) { return j.At("D").Integer(INT64_MIN); }},
      {"0.a_f32", [](const JsonReader& j) { return ToFloat(j, FloatData(j)); }},
      {"0.a_f64", [](const JsonReader& j) { return FloatData(j); }},
      {"0.a_str", [](const JsonReader& j) { return j.At("D").Text(); }},
      {"0.a_tensorname", [](const JsonReader& j) { return j.At("D").Text(); }},
      {"0.a_array", ListData},
      {"1.a_intarray", [](const JsonReader& j) { return Integers(j.At("D")); }},
      {"1.a_scalar", ScalarData},
      {"1.a_dtype", [](const JsonReader& j) { return DTypeNumber(j.At("D")); }},
      {"1.a_layout", [](const JsonReader& j) { return j.At("D").Text(); }},
      {"1.a_place", [](const JsonReader&) { return RawAttr{}; }},
      {"NULL", [](const JsonReader&) { return RawAttr{}; }},
  };
  const std::string kind = Name(json.At("#"));
  const auto found = readers.find(kind);
  if (found == readers.end()) RefuseKind(json, "an attribute of kind", kind);
  return found->second(json);
}

// --- ops ---

Result ReadResult(const JsonReader& json) {
  // Older writers name a block's argument "#".
  const JsonReader id = json.Has("%") ? json.At("%") : json.At("#");
  return {id.Integer(INT64_MIN), ReadType(json.At("TT"))};
}

Block ReadBlock(const JsonReader& json);

// A parameter is written in short: lists of 0 and 1, and its name.
void ReadParameter(const JsonReader& json, Op* op) {
  const std::vector<JsonReader> data = json.At("A").Items();
  if (data.size() < 4) json.Fail("has no name in A");
  op->attrs.push_back({"parameter_name", Name(data[3])});
  op->results.push_back(ReadResult(json.At("O")));
  const std::vector<JsonReader> flags =
      json.Has("OA") ? json.At("OA").Items() : std::vector<JsonReader>();
  if (flags.size() > 1) op->stop_gradients.push_back(flags[1].Integer(0, 1) != 0);
  if (flags.size() > 2) op->trainable = flags[2].Integer(0, 1) != 0;
}

void ReadAttributes(const JsonReader& json, const char* key, Op* op) {
  if (!json.Has(key)) return;
  for (const JsonReader& item : json.At(key).Items()) {
    const std::string name = Name(item.At("N"));
    // Only a cluster reads what these say of an op.
    if (name == "op_dist_attr" || name == "op_callstack" || name == "place") continue;
    Attribute value = ReadAttribute(item.At("AT"));
    if (std::holds_alternative<RawAttr>(value)) continue;
    const auto* text = std::get_if<std::string>(&value);
    if (name == "struct_name" && text)
      op->layer = *text;
    else if (name == "stop_gradient" && std::holds_alternative<std::vector<bool>>(value))
      op->stop_gradients = std::get<std::vector<bool>>(value);
    else if (name != "stop_gradient" && name != "persistable" && name != "op_role")
      op->attrs.push_back({name, std::move(value)});
  }
}

Op ReadOp(const JsonReader& json) {
  Op op;
  const std::string name = Name(json.At("#"));
  op.name = FullName(name);
  if (name == "p") {
    ReadParameter(json, &op);
    return op;
  }
  for (const JsonReader& operand : json.At("I").Items())
    op.operands.push_back(
        (operand.Has("%") ? operand.At("%") : operand.At("#")).Integer(INT64_MIN));
  for (const JsonReader& result : json.At("O").Items()) op.results.push_back(ReadResult(result));
  for (const char* key : {"A", "OA", "QA"}) ReadAttributes(json, key, &op);
  if (!json.Has("regions")) return op;
  for (const JsonReader& region : json.At("regions").Items()) {
    const std::vector<JsonReader> blocks = region.At("blocks").Items();
    if (blocks.size() != 1) region.Fail(fmt::format("has {} blocks, not one", blocks.size()));
    op.blocks.push_back(ReadBlock(blocks[0]));
  }
  return op;
}

Block ReadBlock(const JsonReader& json) {
  Block block;
  if (json.Has("args")) {
    for (const JsonReader& argument : json.At("args").Items())
      block.arguments.push_back(ReadResult(argument));
  }
  if (json.Has("kwargs") && !json.At("kwargs").Items().empty())
    RefuseKind(json, "arguments with", "keywords");
  for (const JsonReader& op : json.At("ops").Items()) block.ops.push_back(ReadOp(op));
  return block;
}

}  // namespace

const Attribute* Op::Find(std::string_view wanted) const {
  const auto found =
      std::find_if(attrs.begin(), attrs.end(), [&](const Attr& a) { return a.name == wanted; });
  return found == attrs.end() ? nullptr : &found->value;
}

std::string Op::ShortName() const {
  std::string text = name.substr(name.find('.') + 1);
  if (text.size() > 1 && text.ends_with('_')) text.pop_back();
  return text;
}

Block ParseModelJson(std::string_view text, const std::string& source) {
  const JsonReader json(text, source, kMaxDepth);
  const JsonReader code = json.At("base_code");
  if (code.At("magic").Text() != "pir") code.Fail("does not name a program of Paddle 3");
  code.At("version").Integer(0, INT32_MAX);
  const std::vector<JsonReader> regions = json.At("program").At("regions").Items();
  if (regions.size() != 1) json.Fail(fmt::format("has {} regions, not one", regions.size()));
  const std::vector<JsonReader> blocks = regions[0].At("blocks").Items();
  if (blocks.size() != 1) json.Fail(fmt::format("has {} blocks, not one", blocks.size()));
  return ReadBlock(blocks[0]);
}

}  // namespace coracle::pir

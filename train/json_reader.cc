#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/internal/json_reader.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace coracle {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxDepth = 32;

// The depth of a text's lists and objects, as far as it is JSON. What builds and writes values
// recurses into them.
size_t DepthOf(std::string_view text) {
  size_t depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

[[noreturn]] void Throw(const std::string& message) { throw Error(ErrorCode::kDataLoss, message); }

// What stands there, for messages.
std::string Brief(const Json& json) {
  if (json.is_object()) return "an object";
  if (json.is_array()) return "a list";
  if (json.is_string()) return Quote(json.get_ref<const std::string&>());
  return json.dump();
}

}  // namespace

JsonReader::JsonReader(std::string_view text, const std::string& source) : source_(source) {
  if (DepthOf(text) > kMaxDepth)
    Throw(fmt::format("{}: lists and objects lie more than {} deep", source, kMaxDepth));
  try {
    root_ = std::make_shared<const Json>(Json::parse(text));
  } catch (const Json::parse_error& e) {
    Throw(fmt::format("{}: no JSON from byte {} on", source, e.byte));
  } catch (const Json::exception&) {
    Throw(fmt::format("{}: a number in it is out of range", source));
  }
  json_ = root_.get();
}

JsonReader::JsonReader(const JsonReader& parent, const Json& json, const std::string& key)
    : root_(parent.root_),
      json_(&json),
      source_(parent.source_),
      path_(parent.path_ + (parent.path_.empty() || key.starts_with('[') ? "" : ".") + key) {}

void JsonReader::Fail(const std::string& what) const {
  Throw(source_ + ": " + path_.substr(0, 200) + (path_.empty() ? "" : " ") + what);
}

void JsonReader::FailKind(const char* wanted) const {
  Fail(fmt::format("must be {}, got {}", wanted, Brief(*json_)));
}

bool JsonReader::Has(const std::string& key) const {
  return json_->is_object() && json_->contains(key);
}

JsonReader JsonReader::At(const std::string& key) const {
  if (!json_->is_object()) FailKind("an object");
  const auto found = json_->find(key);
  if (found == json_->end()) Fail(fmt::format("lacks the key {}", Quote(key)));
  return JsonReader(*this, *found, key);
}

std::vector<JsonReader> JsonReader::Items() const {
  if (!json_->is_array()) FailKind("a list");
  std::vector<JsonReader> items;
  for (const Json& item : *json_)
    items.push_back(JsonReader(*this, item, fmt::format("[{}]", items.size())));
  return items;
}

std::vector<std::pair<std::string, JsonReader>> JsonReader::Members() const {
  if (!json_->is_object()) FailKind("an object");
  std::vector<std::pair<std::string, JsonReader>> members;
  for (const auto& [key, value] : json_->items())
    members.emplace_back(key, JsonReader(*this, value, key));
  return members;
}

std::string JsonReader::Text() const {
  if (!json_->is_string()) FailKind("text");
  return json_->get<std::string>();
}

bool JsonReader::Bool() const {
  if (!json_->is_boolean()) FailKind("true or false");
  return json_->get<bool>();
}

int64_t JsonReader::Integer(int64_t min, int64_t max) const {
  if (!json_->is_number_integer()) FailKind("a whole number");
  const bool large = json_->is_number_unsigned() && json_->get<uint64_t>() > INT64_MAX;
  const int64_t value = large ? INT64_MAX : json_->get<int64_t>();
  if (large || value < min || value > max)
    Fail(fmt::format("must lie in [{}, {}], got {}", min, max, json_->dump()));
  return value;
}

uint64_t JsonReader::Unsigned() const {
  if (!json_->is_number_unsigned()) FailKind("a whole number that is not negative");
  return json_->get<uint64_t>();
}

double JsonReader::Number() const {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (json_->is_number()) return json_->get<double>();
  if (json_->is_null() || *json_ == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (*json_ == "inf" || *json_ == "-inf") return *json_ == "inf" ? kInf : -kInf;
  FailKind("a number");
}

}  // namespace coracle

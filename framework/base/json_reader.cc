#include <coracle/framework/base/error.h>
#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

using Json = nlohmann::ordered_json;

// The nesting depth of lists and objects, up to the first byte that is not JSON. Building and
// writing values recurses into them.
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

// Removes all values inside of `json`. Its own destructor would allocate a list of them, and the
// process would end if memory has run out. DepthOf limits the recursion.
void Clear(Json& json) {
  if (json.is_array()) {
    for (Json& item : json.get_ref<Json::array_t&>()) Clear(item);
    json.get_ref<Json::array_t&>().clear();
  } else if (json.is_object()) {
    for (auto& [key, item] : json.get_ref<Json::object_t&>()) Clear(item);
    json.get_ref<Json::object_t&>().clear();
  }
}

// A value that is destroyed without an allocation.
struct Tree {
  Json json;

  Tree() = default;
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  ~Tree() { Clear(json); }
};

// Builds the same value as Json::parse, which would search all keys of an object for each new one.
class Builder : public nlohmann::json_sax<Json> {
 public:
  // Shares its value with the Tree that owns it.
  std::shared_ptr<const Json> Root() const { return {tree_, &tree_->json}; }

  size_t error_byte = 0;             // where the text stops being JSON, counted from 1
  std::optional<std::string> twice;  // a key that its object already has

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return Open(Json::object());
  }
  bool key(std::string& key) override {
    const bool fresh = keys_.back().insert(key).second;
    if (!fresh) twice = key;
    key_ = std::move(key);
    return fresh;
  }
  bool end_object() override {
    keys_.pop_back();
    open_.pop_back();
    return true;
  }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    if (const auto* e = dynamic_cast<const Json::parse_error*>(&error)) error_byte = e->byte;
    return false;
  }

 private:
  using Members = std::vector<std::pair<const std::string, Json>>;

  // Members have constant keys, so that a vector that grows would copy their values, and destroy
  // the old ones. Values move after everything that needs memory: the destructor of a value that is
  // not null may need some itself, and ends the process without it.
  static void MakeRoom(Members& members) {
    if (members.size() < members.capacity()) return;
    Members more;
    more.reserve(2 * members.size() + 1);
    for (const auto& [key, value] : members) more.emplace_back(key, Json());
    for (size_t i = 0; i < members.size(); ++i) more[i].second.swap(members[i].second);
    members.swap(more);
  }

  bool Add(Json value) {
    if (++values_ % 4096 == 0) CheckTimeLimit("a JSON text is read");
    added_ = &tree_->json;
    if (open_.empty()) {
      tree_->json = std::move(value);
    } else if (open_.back()->is_array()) {
      auto& items = open_.back()->get_ref<Json::array_t&>();
      added_ = &items.emplace_back(std::move(value));
    } else {
      Members& members = open_.back()->get_ref<Json::object_t&>();
      MakeRoom(members);
      added_ = &members.emplace_back(std::move(key_), std::move(value)).second;
    }
    return true;
  }
  bool Open(Json value) {
    Add(std::move(value));
    open_.push_back(added_);
    return true;
  }

  std::shared_ptr<Tree> tree_ = std::make_shared<Tree>();
  Json* added_ = nullptr;
  // Each is the last child of the one before, which does not grow meanwhile.
  std::vector<Json*> open_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects in open_
  std::string key_;
  size_t values_ = 0;
};

[[noreturn]] void Throw(const std::string& message) { throw Error(ErrorCode::kDataLoss, message); }

// The value as shown in messages.
std::string Brief(const Json& json) {
  if (json.is_object()) return "an object";
  if (json.is_array()) return "a list";
  if (json.is_string()) return Quote(json.get_ref<const std::string&>());
  return json.dump();
}

}  // namespace

JsonReader::JsonReader(std::string_view text, const std::string& source, size_t max_depth)
    : source_(source) {
  if (DepthOf(text) > max_depth)
    Throw(fmt::format("{}: lists and objects are nested more than {} deep", source, max_depth));
  Builder builder;
  if (!Json::sax_parse(text, &builder)) {
    if (builder.twice)
      Throw(fmt::format("{}: an object has the key {} twice", source, Quote(*builder.twice)));
    if (builder.error_byte > 0)
      Throw(fmt::format("{}: no JSON from byte {} on", source, builder.error_byte));
    Throw(fmt::format("{}: a number in it is out of range", source));
  }
  root_ = builder.Root();
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

}  // namespace coracle::inline internal

#pragma once
// JsonReader: a value in a JSON text from an untrusted source. Each access checks kind and range.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// Errors are kDataLoss and name the source, the key and the value found: "manifest.json:
// data.drop_last must be true or false, got 3".
class JsonReader {
 public:
  // Throws if the text is not JSON, is nested deeper than `max_depth`, or repeats a key.
  JsonReader(std::string_view text, const std::string& source, size_t max_depth = 32);

  JsonReader At(const std::string& key) const;  // a member of an object, which must exist
  bool Has(const std::string& key) const;       // whether the object has the member
  std::vector<JsonReader> Items() const;        // the items of a list
  std::vector<std::pair<std::string, JsonReader>> Members() const;  // of an object, in file order

  std::string Text() const;
  bool Bool() const;
  int64_t Integer(int64_t min, int64_t max = INT64_MAX) const;
  uint64_t Unsigned() const;
  // A number, or "nan", "inf", "-inf", which JSON lacks. null reads as nan, since writers use it
  // for numbers that are not finite.
  double Number() const;

  const nlohmann::ordered_json& json() const { return *json_; }
  [[noreturn]] void Fail(const std::string& what) const;

 private:
  JsonReader(const JsonReader& parent, const nlohmann::ordered_json& json, const std::string& key);
  [[noreturn]] void FailKind(const char* wanted) const;

  std::shared_ptr<const nlohmann::ordered_json> root_;
  const nlohmann::ordered_json* json_;
  std::string source_, path_;  // path_: "files.main.pb.bytes"
};

}  // namespace coracle::inline internal

#pragma once
// JsonReader: a value of a JSON text that anybody may have written. Each look at it checks
// kind and range.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

// Errors are kDataLoss and name the source, the key and what stands there instead:
// "manifest.json: data.drop_last must be true or false, got 3".
class JsonReader {
 public:
  // Throws for what is no JSON, nested deeper than any of our files, or has a key twice.
  JsonReader(std::string_view text, const std::string& source);

  JsonReader At(const std::string& key) const;  // of an object that must have it
  bool Has(const std::string& key) const;       // an object that has it
  std::vector<JsonReader> Items() const;        // of a list
  std::vector<std::pair<std::string, JsonReader>> Members() const;  // of an object, in its order

  std::string Text() const;
  bool Bool() const;
  int64_t Integer(int64_t min, int64_t max = INT64_MAX) const;
  uint64_t Unsigned() const;
  // A number, or "nan", "inf", "-inf", which JSON lacks; null, where a number was not
  // finite, is nan.
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

}  // namespace coracle

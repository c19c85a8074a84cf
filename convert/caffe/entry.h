#pragma once
// Writes entries of a model or job text as a person would write them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::caffe {

// "text" with escapes for protobuf's text format.
std::string Quoted(std::string_view text);
// The shortest text that reads back as this float: 0.1, 1e-05.
std::string Number(float value);
// "[2, 3]", or "2" if all are equal.
std::string SizeText(const std::vector<int64_t>& sizes);
std::string ListText(const std::vector<int64_t>& numbers);  // always with brackets

// One message: `conv2d { input: "data" num_filters: 20 }`.
class Entry {
 public:
  explicit Entry(std::string kind) : kind_(std::move(kind)) {}

  Entry& Field(const std::string& name, const std::string& text) {  // NAME: TEXT
    parts_.push_back(name + ": " + text);
    return *this;
  }
  Entry& Text(const std::string& name, std::string_view text) { return Field(name, Quoted(text)); }
  Entry& Texts(const std::string& name, const std::vector<std::string>& texts);
  Entry& Float(const std::string& name, float value) { return Field(name, Number(value)); }
  Entry& Int(const std::string& name, int64_t value) { return Field(name, std::to_string(value)); }
  Entry& Bool(const std::string& name, bool value) { return Field(name, value ? "true" : "false"); }
  // NAME { TEXT }; nothing if TEXT is empty.
  Entry& Message(const std::string& name, const std::string& text);

  std::string Body() const;  // only the fields, on one line
  // `HEAD { KIND { ... } TAIL }`, in lines of at most 100 characters if possible.
  std::string Layer(const std::string& head = "layer", const std::string& tail = "") const;

 private:
  std::string kind_;
  std::vector<std::string> parts_;
};

}  // namespace coracle::caffe

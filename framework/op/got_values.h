#pragma once
// GotValues: what a failed constraint got, as text: "64 vs 32", "min 2, max 1".

#include <coracle/framework/ir/var.h>

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// Values, each of which may follow its name: GotValues("min", 2, "max", 1). A std::string is a text
// that is already made; a literal and a string_view are names.
class GotValues {
 public:
  template <class... T>
  explicit GotValues(const T&... items) {
    (Add(items), ...);
  }
  const std::string& text() const { return text_; }

 private:
  void Add(const char* name) { name_ = name; }
  void Add(std::string_view name) { name_ = name; }
  void Add(const std::string& text);
  void Add(bool value) { Add(std::string(value ? "true" : "false")); }
  void Add(float value);
  void Add(double value);
  template <std::integral T>
  void Add(T value) {
    Add(std::to_string(value));
  }
  void Add(DType dtype) { Add(std::string(ToString(dtype))); }
  void Add(const Shape& shape) { Add(shape.ToString()); }
  void Add(const VarMeta& meta) { Add(meta.ToString()); }
  template <class T>
  void Add(const std::vector<T>& list) {
    std::string text;
    for (const T& item : list) text += (text.empty() ? "" : ", ") + GotValues(item).text();
    Add("[" + text + "]");
  }

  std::string text_;
  std::string_view name_;
};

}  // namespace coracle

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/serve/http_message.h>
#include <coracle/serve/infer_body.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace coracle::serve {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 100;
constexpr int kMaxFields = 10'000;
constexpr size_t kCheck = 4096;  // elements between two looks at the time

// The float nearest to the text, whose nearest double is `value`. The double rounds to another
// float only if it lies halfway between two.
float NearestFloat(const std::string& text, double value) {
  auto nearest = static_cast<float>(value);
  const double above = value - static_cast<double>(nearest);
  if (above == 0 || !std::isfinite(nearest)) return nearest;
  const float other = std::nextafter(nearest, above > 0 ? INFINITY : -INFINITY);
  if (static_cast<double>(nearest) + static_cast<double>(other) == 2 * value)
    std::from_chars(text.data(), text.data() + text.size(), nearest);
  return nearest;
}

// Called by the parser for each value of the text. Elements of inputs go straight to their tensor.
class BodyReader : public nlohmann::json_sax<json> {
 public:
  InferBody Take() { return std::move(body_); }

  bool null() override { return Scalar(nullptr, "null"); }
  bool boolean(bool value) override {
    if (!InData()) return Scalar(value, "");
    data().AddBool(value);
    return true;
  }
  bool number_integer(number_integer_t value) override {
    if (!InData()) return Scalar(value, "");
    if (value == 0)  // without a sign, it would be unsigned
      data().AddNegativeZero();
    else
      data().AddInteger(value);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!InData()) return Scalar(value, "");
    if (std::in_range<int64_t>(value))
      data().AddInteger(static_cast<int64_t>(value));
    else
      data().AddUnsigned(value);
    return true;
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!InData()) return Scalar(value, "");
    data().AddFloat(value, NearestFloat(text, value));
    return true;
  }
  bool string(string_t& value) override {
    if (!InData()) return Scalar(std::move(value), "");
    data().AddText(value);
    return true;
  }
  bool binary(binary_t&) override { throw HttpError(400, "the body is not JSON"); }

  bool start_object(size_t) override {
    if (InData()) throw HttpError(400, "an element of data is an object");
    Open(json::object());
    return true;
  }
  bool key(string_t& name) override {
    if (open_.back()->contains(name))
      throw HttpError(400, fmt::format("the name {} occurs twice in an object", Quote(name)));
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override {
    CheckDepth();
    if (InData()) {
      if (++arrays_ % kCheck == 0) CheckTimeLimit("a request is read");
      ++data_depth_;
    } else if (IsDataOfAnInput()) {
      (*open_.back())[key_] = true;
      body_.data.resize(open_[1]->size());
      data_depth_ = 1;
    } else {
      Open(json::array());
    }
    return true;
  }
  bool end_array() override {
    if (!InData()) return Close();
    --data_depth_;
    return true;
  }
  bool parse_error(size_t position, const std::string& near,
                   const nlohmann::detail::exception&) override {
    throw HttpError(
        400, fmt::format("the body is not JSON: byte {}, near {}", position, Quote(near, 40)));
  }

 private:
  bool InData() const { return data_depth_ > 0; }
  JsonElements& data() {
    JsonElements& elements = body_.data.back();
    if (elements.size() % kCheck == 0) CheckTimeLimit("a request is read");
    return elements;
  }
  void CheckDepth() const {
    if (open_.size() + static_cast<size_t>(data_depth_) >= kMaxDepth)
      throw HttpError(400, fmt::format("the JSON text has more than {} levels", kMaxDepth));
  }

  // Whether an array that begins here is the data of an input: {"inputs": [..., {"data": [
  bool IsDataOfAnInput() const {
    return key_ == "data" && open_.size() == 3 && open_[2]->is_object() && open_[1]->is_array() &&
           in_inputs_;
  }

  json* Place(json value) {
    // Only start_array, which does not come here with data, writes this field.
    if (IsDataOfAnInput()) throw HttpError(400, "data must be an array");
    if (++fields_ > kMaxFields)
      throw HttpError(400, fmt::format("the request has more than {} fields", kMaxFields));
    if (open_.empty()) {
      body_.fields = std::move(value);
      return &body_.fields;
    }
    json& parent = *open_.back();
    if (open_.size() == 1) in_inputs_ = key_ == "inputs";
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    json& place = parent[key_];
    place = std::move(value);
    return &place;
  }
  bool Scalar(json value, const char* refused) {
    if (InData()) throw HttpError(400, fmt::format("an element of data is {}", refused));
    Place(std::move(value));
    return true;
  }
  void Open(json value) {
    CheckDepth();
    open_.push_back(Place(std::move(value)));
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  InferBody body_;
  std::vector<json*> open_;  // objects and arrays that have begun, from the outermost one
  std::string key_;
  bool in_inputs_ = false;
  int data_depth_ = 0;
  int fields_ = 0;
  size_t arrays_ = 0;  // in data
};

}  // namespace

InferBody ParseInferBody(std::string_view text) {
  BodyReader reader;
  json::sax_parse(text, &reader);
  InferBody body = reader.Take();
  if (!body.fields.is_object()) throw HttpError(400, "the body must be a JSON object");
  if (body.fields.contains("inputs") && body.fields["inputs"].is_array())
    body.data.resize(body.fields["inputs"].size());
  return body;
}

}  // namespace coracle::serve

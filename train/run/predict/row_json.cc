#include <coracle/framework/base/text.h>
#include <coracle/train/run/predict/row_json.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace coracle::inline internal {
namespace {

using Json = nlohmann::ordered_json;

std::string CellOf(const JsonReader& value, bool nested) {
  const Json& json = value.json();
  if (json.is_null()) return "";
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number() || json.is_boolean()) return json.dump();
  if (!json.is_array() || nested) value.Fail("must be a text, a number, or a list of these");
  std::vector<std::string> cells;
  for (const JsonReader& item : value.Items()) cells.push_back(CellOf(item, true));
  return Join(cells, " ");
}

Json Number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

// A float32 becomes the double with the fewest digits that reads as the same float32.
Json Score(double value) {
  if (!std::isfinite(value) || static_cast<double>(static_cast<float>(value)) != value)
    return Number(value);
  double shortest = value;
  ParseDouble(fmt::format("{}", static_cast<float>(value)), &shortest);
  return shortest;
}

Json Values(const Tensor& values) {
  Json list = Json::array();
  if (IsInteger(values.dtype())) {
    const Tensor wide = values.Cast(DType::kInt64);
    for (const int64_t v : wide.span<int64_t>()) list.push_back(v);
    return list;
  }
  const Tensor wide = values.Cast(DType::kFloat64);
  for (const double v : wide.span<double>()) list.push_back(Score(v));
  return list;
}

void AddAnswer(const RowAnswer& answer, bool all_scores, Json* object) {
  Json& own = (*object)[answer.output];
  if (answer.number) {
    own = Score(*answer.number);
    return;
  }
  own = answer.in_words ? Json(answer.text) : Values(answer.values);
  if (answer.classes.empty()) return;
  (*object)[answer.output + "_score"] = Score(answer.classes[0].score);
  if (answer.classes.size() < 2 && !all_scores) return;
  Json top = Json::array();
  for (const ScoredClass& c : answer.classes)
    top.push_back({{"class", c.name}, {"score", Score(c.score)}});
  (*object)[answer.output + "_top"] = std::move(top);
}

}  // namespace

RawRow RowOfJson(const JsonReader& object) {
  if (!object.json().is_object()) object.Fail("must be an object with a value for each column");
  RawRow row;
  for (const auto& [name, value] : object.Members()) row.cells[name] = CellOf(value, false);
  return row;
}

std::string AnswersToJson(const std::vector<RowAnswer>& answers, bool all_scores) {
  Json object = Json::object();
  for (const RowAnswer& answer : answers) AddAnswer(answer, all_scores, &object);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace coracle::inline internal

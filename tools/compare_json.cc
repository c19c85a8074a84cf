#include <coracle/framework/base/text.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "compare_text.h"

namespace coracle::tools {
namespace {

using Json = nlohmann::ordered_json;
using Kind = TensorDifference::Kind;

Json NumberJson(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}
Json NumberJson(const complex128& value, bool complex) {
  if (!complex) return NumberJson(value.real());
  return Json::array({NumberJson(value.real()), NumberJson(value.imag())});
}

const char* WordOf(Kind kind) {
  switch (kind) {
    case Kind::kEqual:
      return "equal";
    case Kind::kValues:
      return "values";
    case Kind::kShape:
      return "shape";
    case Kind::kDType:
      return "dtype";
    case Kind::kLod:
      return "lod";
    case Kind::kOnlyInA:
      return "only_in_a";
    case Kind::kOnlyInB:
      break;
  }
  return "only_in_b";
}

Json TypeJson(const std::optional<VarMeta>& meta) {
  if (!meta) return nullptr;
  return {{"dtype", ToString(meta->dtype)}, {"shape", meta->shape.ToVector()}};
}

Json JsonOf(const TensorDifference& difference) {
  Json json = {{"name", difference.name},
               {"status", WordOf(difference.kind)},
               {"a", TypeJson(difference.a)},
               {"b", TypeJson(difference.b)}};
  if (!difference.worst) return json;
  const WorstElement& worst = *difference.worst;
  const bool complex = HoldsComplex(difference);
  json["elements"] = difference.a->shape.numel();
  json["outside"] = difference.outside;
  json["non_finite"] = difference.non_finite;
  json["max_absolute"] = NumberJson(difference.max_absolute);
  json["worst"] = {{"index", worst.index},
                   {"a", NumberJson(worst.a, complex)},
                   {"b", NumberJson(worst.b, complex)},
                   {"absolute", NumberJson(worst.absolute)},
                   {"relative", NumberJson(worst.relative)}};
  return json;
}

Json Head(bool equal, const Tolerance& tolerance, const Sides& sides) {
  return {{"format", "coracle.compare"},
          {"version", 1},
          {"a", sides.a},
          {"b", sides.b},
          {"rtol", tolerance.relative},
          {"atol", tolerance.absolute},
          {"same_dtype", tolerance.same_dtype},
          {"equal", equal}};
}

std::string Text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json PlaceJson(const OpPlace& place) {
  return {{"block", 0}, {"op", place.op}, {"type", place.type}};
}

Json FirstJson(const RunsDifference& runs) {
  if (runs.first < 0) return nullptr;
  const ComparedVariable& first = runs.compared[static_cast<size_t>(runs.first)];
  Json json = PlaceJson(first.writer);
  json["variable"] = first.difference.name;
  json["inputs"] = runs.inputs;
  json["between"] = Json::array();
  for (const OpPlace& place : runs.between) json["between"].push_back(PlaceJson(place));
  return json;
}

}  // namespace

std::string CompareJson(const std::vector<TensorDifference>& differences,
                        const Tolerance& tolerance, const Sides& sides) {
  Json json = Head(!AnyDiffers(differences), tolerance, sides);
  json["variables"] = Json::array();
  for (const TensorDifference& difference : differences)
    json["variables"].push_back(JsonOf(difference));
  return Text(json);
}

std::string RunsJson(const RunsDifference& runs, const Tolerance& tolerance, const Sides& sides) {
  Json json = Head(runs.first < 0, tolerance, sides);
  json["first"] = FirstJson(runs);
  json["hidden"] = runs.hidden;
  json["not_compared"] = runs.not_compared;
  json["renamed"] = runs.renamed;
  json["variables"] = Json::array();
  for (const ComparedVariable& variable : runs.compared) {
    Json entry = JsonOf(variable.difference);
    entry["writer"] = PlaceJson(variable.writer);
    json["variables"].push_back(std::move(entry));
  }
  return Text(json);
}

}  // namespace coracle::tools

#include <coracle/framework/base/text.h>
#include <coracle/inspect/json.h>
#include <coracle/tools/compare_text.h>

namespace coracle::tools {
namespace {

using Kind = TensorDifference::Kind;

// Strings and large uint64 have a text.
Json ElementJson(const std::string& text, const Complex& value,
                 const std::optional<int64_t>& integer, bool complex) {
  if (!text.empty()) return JsonString(text);
  if (integer && !complex) return *integer;
  if (!complex) return JsonNumber(value.real);
  return Json::array({JsonNumber(value.real), JsonNumber(value.imag)});
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
  Json json = {{"name", JsonString(difference.name)},
               {"status", WordOf(difference.kind)},
               {"a", TypeJson(difference.a)},
               {"b", TypeJson(difference.b)}};
  if (!difference.worst) return json;
  const WorstElement& worst = *difference.worst;
  const bool complex = HoldsComplex(difference);
  json["elements"] = difference.a->shape.numel();
  json["outside"] = difference.outside;
  json["non_finite"] = difference.non_finite;
  json["max_absolute"] = JsonNumber(difference.max_absolute);
  json["worst"] = {{"index", worst.index},
                   {"a", ElementJson(worst.text_a, worst.a, worst.integer_a, complex)},
                   {"b", ElementJson(worst.text_b, worst.b, worst.integer_b, complex)},
                   {"absolute", JsonNumber(worst.absolute)},
                   {"relative", JsonNumber(worst.relative)}};
  return json;
}

Json NamesJson(const std::vector<std::string>& names) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(JsonString(name));
  return list;
}

Json Head(bool equal, const Tolerance& tolerance, const Sides& sides) {
  Json json = JsonDocument("compare");
  json["a"] = JsonString(sides.a);
  json["b"] = JsonString(sides.b);
  json["rtol"] = JsonNumber(tolerance.relative);
  json["atol"] = JsonNumber(tolerance.absolute);
  json["same_dtype"] = tolerance.same_dtype;
  json["exact_integers"] = tolerance.exact_integers;
  json["equal"] = equal;
  return json;
}

Json PlaceJson(const OpPlace& place) {
  return {{"block", 0}, {"op", place.op}, {"type", JsonString(place.type)}};
}

Json FirstJson(const RunsDifference& runs) {
  if (runs.first < 0) return nullptr;
  const ComparedVariable& first = runs.compared[static_cast<size_t>(runs.first)];
  Json json = PlaceJson(first.writer);
  json["variable"] = JsonString(first.difference.name);
  json["inputs"] = NamesJson(runs.inputs);
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
  return JsonText(json);
}

std::string RunsJson(const RunsDifference& runs, const Tolerance& tolerance, const Sides& sides) {
  Json json = Head(!runs.Differs(), tolerance, sides);
  json["first"] = FirstJson(runs);
  json["hidden"] = runs.hidden;
  json["not_compared"] = runs.not_compared;
  json["renamed"] = NamesJson(runs.renamed);
  json["untried"] = NamesJson(runs.untried);
  json["variables"] = Json::array();
  for (const ComparedVariable& variable : runs.compared) {
    Json entry = JsonOf(variable.difference);
    entry["writer"] = PlaceJson(variable.writer);
    json["variables"].push_back(std::move(entry));
  }
  for (const TensorDifference& result : runs.other_results)
    json["variables"].push_back(JsonOf(result));
  return JsonText(json);
}

}  // namespace coracle::tools

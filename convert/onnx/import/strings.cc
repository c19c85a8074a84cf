// Text and tables: ops on strings, and maps from labels to numbers.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/casts.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace coracle::onnx {
namespace {

using Strings = std::vector<std::string>;
using Ints = std::vector<int64_t>;

// --- ops on strings ---

// The languages whose letters change their case by rules of their own.
bool HasOwnCase(const std::string& locale) {
  const std::string language = locale.substr(0, locale.find_first_of("_-."));
  return language == "tr" || language == "az" || language == "lt";
}

void ImportStringNormalizer(NodeContext& node) {
  std::string change = node.OneOf("case_change_action", "NONE", {"NONE", "LOWER", "UPPER"});
  std::transform(change.begin(), change.end(), change.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string locale = node.String("locale", "en_US");
  if (HasOwnCase(locale))
    node.Refuse(fmt::format("the upper and lower case of the locale {}", Quote(locale)));
  const Variable x = node.In(0);
  node.Set(0,
           node.Unary("string_normalize", x,
                      {{"case_change", change},
                       {"is_case_sensitive", node.Flag("is_case_sensitive", false)},
                       {"stopwords", node.attributes().Strings("stopwords").value_or(Strings())}}));
}

void ImportStringConcat(NodeContext& node) {
  node.Set(0, node.Binary("string_concat", node.In(0), node.In(1)),
           node.IsScalar(0) && node.IsScalar(1));
}

// The parts of a scalar are a vector.
void ImportStringSplit(NodeContext& node) {
  const Variable x = node.In(0);
  const std::string out = node.NewName("parts"), count = node.NewName("count");
  node.writer().Append(
      "string_split", {{"X", {x.name()}}}, {{"Out", {out}}, {"Count", {count}}},
      {{"delimiter", node.String("delimiter", "")}, {"maxsplit", node.Int("maxsplit", -1)}});
  Variable parts = node.writer().Var(out);
  if (node.IsScalar(0)) parts = node.Reshape(parts, {-1});
  node.Set(0, parts);
  node.Set(1, node.writer().Var(count), node.IsScalar(0));
}

void ImportRegexFullMatch(NodeContext& node) {
  const std::string pattern = node.String("pattern", "");
  node.Set(0, node.Unary("regex_full_match", node.In(0), {{"pattern", pattern}}), node.IsScalar(0));
}

void ImportTfIdfVectorizer(NodeContext& node) {
  Variable x = node.In(0);
  const AttrList attrs = {
      {"mode", node.OneOf("mode", "", {"TF", "IDF", "TFIDF"})},
      {"min_gram_length", node.Int("min_gram_length")},
      {"max_gram_length", node.Int("max_gram_length")},
      {"max_skip_count", node.Int("max_skip_count")},
      {"ngram_counts", node.Ints("ngram_counts", {})},
      {"ngram_indexes", node.Ints("ngram_indexes", {})},
      {"pool_int64s", node.Ints("pool_int64s", {})},
      {"pool_strings", node.attributes().Strings("pool_strings").value_or(Strings())},
      {"weights", node.Floats("weights", {})}};
  node.Set(0, node.Unary("tfidf_vectorizer", x, attrs));
}

// --- tables ---

// Keys or values of the op map_values: one list, of strings, integers or floats.
struct Labels {
  DType dtype = DType::kInt64;
  Strings strings = {};
  Ints integers = {};
  std::vector<double> floats = {};

  size_t size() const { return strings.size() + integers.size() + floats.size(); }
};

Labels LabelsIn(const Tensor& tensor) {
  Labels labels{.dtype = tensor.dtype()};
  if (tensor.dtype() == DType::kString) {
    labels.strings = tensor.Strings();
  } else if (IsFloating(tensor.dtype())) {
    const Tensor wide = tensor.Cast(DType::kFloat64);
    labels.floats.assign(wide.span<double>().begin(), wide.span<double>().end());
  } else {
    const Tensor wide = tensor.Cast(DType::kInt64);
    labels.integers.assign(wide.span<int64_t>().begin(), wide.span<int64_t>().end());
  }
  return labels;
}

Labels OfStrings(Strings values) { return {.dtype = DType::kString, .strings = std::move(values)}; }
Labels OfIntegers(Ints values) { return {.dtype = DType::kInt64, .integers = std::move(values)}; }

Tensor TensorAttr(NodeContext& node, const std::string& name) {
  return ParseTensorProto(*node.attributes().Tensor(name), node.graph().state().tensors);
}

// The only one of the attributes keys_strings, keys_int64s, keys_floats and keys_tensor (values_*).
Labels LabelAttr(NodeContext& node, const std::string& prefix) {
  std::vector<Labels> given;
  if (auto strings = node.attributes().Strings(prefix + "_strings"))
    given.push_back(OfStrings(*strings));
  if (auto integers = node.attributes().Ints(prefix + "_int64s"))
    given.push_back(OfIntegers(*integers));
  if (auto floats = node.attributes().Floats(prefix + "_floats"))
    given.push_back({.dtype = DType::kFloat32, .floats = {floats->begin(), floats->end()}});
  if (node.HasAttr(prefix + "_tensor"))
    given.push_back(LabelsIn(TensorAttr(node, prefix + "_tensor")));
  node.Require(given.size() == 1, fmt::format("one of the attributes {}_* must be given, got {}",
                                              prefix, given.size()));
  return given[0];
}

AttrList MapAttrs(const Labels& keys, const Labels& values) {
  return {{"out_dtype", static_cast<int32_t>(values.dtype)},
          {"keys_strings", keys.strings},
          {"keys_int64s", keys.integers},
          {"keys_float64s", keys.floats},
          {"values_strings", values.strings},
          {"values_int64s", values.integers},
          {"values_float64s", values.floats}};
}

void SetMapped(NodeContext& node, const Labels& keys, const Labels& values,
               const AttrList& others) {
  node.Require(keys.size() == values.size(),
               fmt::format("there must be a value for each key, got {} keys and {} values",
                           keys.size(), values.size()));
  AttrList attrs = MapAttrs(keys, values);
  attrs.insert(attrs.end(), others.begin(), others.end());
  node.Set(0, node.Unary("map_values", node.In(0), attrs), node.IsScalar(0));
}

// Attributes default_string and default_int64, of which the table needs one.
AttrList Defaults(NodeContext& node) {
  return {{"default_string", node.String("default_string", "_Unused")},
          {"default_int64", node.Int("default_int64", -1)}};
}

// Strings become their index in a list, and integers the string at that index.
void ImportClassLabels(NodeContext& node) {
  const Labels names = OfStrings(node.attributes().Strings("classes_strings").value_or(Strings()));
  Ints indices(names.size());
  std::iota(indices.begin(), indices.end(), 0);
  const bool encodes = node.dtype(0) == DType::kString;
  const Labels numbers = OfIntegers(std::move(indices));
  SetMapped(node, encodes ? names : numbers, encodes ? numbers : names, Defaults(node));
}

void ImportLabelEncoder(NodeContext& node) {
  const Labels keys = LabelAttr(node, "keys"), values = LabelAttr(node, "values");
  AttrList defaults = Defaults(node);
  defaults.push_back({"default_float64", static_cast<double>(node.Float("default_float", -0.0f))});
  if (node.HasAttr("default_tensor")) {
    const Labels one = LabelsIn(TensorAttr(node, "default_tensor"));
    node.Require(one.size() == 1 && one.dtype == values.dtype,
                 "attribute default_tensor must have one element of the type of the values");
    if (!one.strings.empty()) defaults[0] = {"default_string", one.strings[0]};
    if (!one.integers.empty()) defaults[1] = {"default_int64", one.integers[0]};
    if (!one.floats.empty()) defaults[2] = {"default_float64", one.floats[0]};
  }
  SetMapped(node, keys, values, defaults);
}

void ImportCategoryMapper(NodeContext& node) {
  const Labels names = OfStrings(node.attributes().Strings("cats_strings").value_or(Strings()));
  const Labels numbers = OfIntegers(node.Ints("cats_int64s", {}));
  const bool encodes = node.dtype(0) == DType::kString;
  SetMapped(node, encodes ? names : numbers, encodes ? numbers : names, Defaults(node));
}

// A new last dimension, with 1 at the index of the element's category. An unknown category gives
// zeros, unless attribute zeros is 0: then the run fails.
void ImportOneHotEncoder(NodeContext& node) {
  const bool zeros = node.Flag("zeros", true);
  const bool text = node.dtype(0) == DType::kString;
  const Labels keys = text
                          ? OfStrings(node.attributes().Strings("cats_strings").value_or(Strings()))
                          : OfIntegers(node.Ints("cats_int64s", {}));
  node.attributes().Ignore(text ? "cats_int64s" : "cats_strings");
  node.Require(keys.size() > 0,
               fmt::format("attribute {} is missing", text ? "cats_strings" : "cats_int64s"));
  Variable x = node.In(0);
  if (!text) x = node.Cast(x, DType::kInt64);
  Ints columns(keys.size());
  std::iota(columns.begin(), columns.end(), 0);
  AttrList attrs = MapAttrs(keys, OfIntegers(columns));
  attrs.push_back({"has_default", zeros});
  attrs.push_back({"default_int64", int64_t{-1}});
  Variable index = node.Unary("map_values", x, attrs);
  if (!node.IsScalar(0))
    index = node.WithXShape("unsqueeze2", index, {{"axes", std::vector<int32_t>{node.rank(0)}}});
  const Variable hit = node.Binary("equal", index, node.ConstantVar(columns));
  node.Set(0, node.Cast(hit, DType::kFloat32));
}

}  // namespace

void AddStringImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, int since, int until, const char* takes,
                       void (*import)(NodeContext&), const char* maps_to, const char* domain = "") {
    importers.Add({.op_type = type,
                   .since = since,
                   .until = until,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .domain = domain});
  };
  add("StringNormalizer", 10, kNewestOpset, "s1-2", ImportStringNormalizer, "string_normalize");
  add("StringConcat", 20, kNewestOpset, "s s", ImportStringConcat, "string_concat");
  add("StringSplit", 20, kNewestOpset, "s", ImportStringSplit, "string_split");
  add("RegexFullMatch", 20, kNewestOpset, "s", ImportRegexFullMatch, "regex_full_match");
  add("TfIdfVectorizer", 9, kNewestOpset, "T1-2", ImportTfIdfVectorizer, "tfidf_vectorizer");
  const char* ml = "ai.onnx.ml";
  add("LabelEncoder", 1, 1, "T", ImportClassLabels, "map_values", ml);
  add("LabelEncoder", 2, kNewestOpset, "T", ImportLabelEncoder, "map_values", ml);
  add("CategoryMapper", 1, kNewestOpset, "T", ImportCategoryMapper, "map_values", ml);
  add("OneHotEncoder", 1, kNewestOpset, "T", ImportOneHotEncoder, "map_values, equal, cast", ml);
}

}  // namespace coracle::onnx

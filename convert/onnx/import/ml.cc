// ai.onnx.ml: preprocessing and postprocessing of classic models.

#include <coracle/convert/onnx/import/casts.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/ml_scores.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle::onnx {
namespace {

// The input as floats; integers are accepted too.
Variable FloatsIn(NodeContext& node) {
  const Variable x = node.In(0);
  return IsFloating(x.dtype()) ? x : node.Cast(x, DType::kFloat32);
}

// An attribute with one number, or one number for each element of the last dimension of x.
Variable PerFeature(NodeContext& node, const char* name, const Variable& x) {
  const std::vector<float> values = node.Floats(name, {});
  const Shape& shape = x.shape();
  const int64_t features = shape[shape.rank() - 1], given = static_cast<int64_t>(values.size());
  node.Require(given == 1 || (given > 0 && (features < 0 || features == given)),
               fmt::format("attribute {} must have one number, or one for each of {} features, got "
                           "{}",
                           name, features, given));
  return node.Cast(node.ConstantVar(values), x.dtype());
}

void ImportScaler(NodeContext& node) {
  const Variable x = FloatsIn(node);
  const Variable offset = PerFeature(node, "offset", x), scale = PerFeature(node, "scale", x);
  node.Set(0, node.Cast((x - offset) * scale, DType::kFloat32));
}

void ImportBinarizer(NodeContext& node) {
  const Variable x = node.In(0);
  const auto threshold = static_cast<double>(node.Float("threshold", 0.0f));
  node.Set(0, node.Cast(Greater(x, threshold), x.dtype()), node.IsScalar(0));
}

// Rows divided by their norm; rows of norm 0 are unchanged.
void ImportNormalizer(NodeContext& node) {
  const std::string norm = node.OneOf("norm", "MAX", {"MAX", "L1", "L2"});
  const Variable x = node.Cast(FloatsIn(node), DType::kFloat32);
  node.Require(node.rank(0) == 1 || node.rank(0) == 2, "the input must be a row, or rows");
  const AttrList last = {{"dim", std::vector<int32_t>{node.rank(0) - 1}}, {"keep_dim", true}};
  Variable by;
  if (norm == "MAX")
    by = node.Unary("reduce_max", x, last);
  else if (norm == "L1")
    by = node.Unary("reduce_sum", Abs(x), last);
  else
    by = Sqrt(node.Unary("reduce_sum", Square(x), last));
  node.Set(0, x / (by + node.Cast(Equal(by, ZerosLike(by)), x.dtype())));
}

// Selects elements of the last axis; a vector counts as a row.
void ImportArrayFeatureExtractor(NodeContext& node) {
  Variable x = node.In(0);
  if (node.rank(0) == 1) x = node.Reshape(x, {1, -1});
  const Variable index = node.Reshape(node.Cast(node.In(1), DType::kInt64), {-1});
  node.Set(0, node.Make("gather", {{"X", {x.name()}}, {"Index", {index.name()}}},
                        {{"axis", x.shape().rank() - 1}}));
}

// Elements that equal a value (a nan: all nans) become another one, or that of their column.
void ImportImputer(NodeContext& node) {
  const Variable x = node.In(0);
  const bool floats = IsFloating(x.dtype());
  const auto integers = node.Ints("imputed_value_int64s", {});
  const auto given = static_cast<int64_t>(floats ? node.Floats("imputed_value_floats", {}).size()
                                                 : integers.size());
  const char* name = floats ? "imputed_value_floats" : "imputed_value_int64s";
  node.attributes().Ignore("imputed_value_floats");
  node.attributes().Ignore(floats ? "replaced_value_int64" : "replaced_value_float");
  const Shape& shape = x.shape();
  const int64_t features = shape[shape.rank() - 1];
  node.Require(given == 1 || (given > 0 && (features < 0 || given == features)),
               fmt::format("attribute {} must have one number, or one for each of {} features, got "
                           "{}",
                           name, features, given));
  const Variable imputed = node.Cast(
      floats ? node.ConstantVar(node.Floats(name, {})) : node.ConstantVar(integers), x.dtype());
  const float replaced = node.Float("replaced_value_float", 0.0f);
  Variable hit;
  if (floats && std::isnan(replaced)) {
    hit = Not(Equal(x, x));
  } else {
    const Variable value =
        floats ? node.ConstantVar(std::vector<float>{replaced})
               : node.ConstantVar(std::vector<int64_t>{node.Int("replaced_value_int64", 0)});
    hit = Equal(x, node.Cast(value, x.dtype()));
  }
  node.Set(0, Where(hit, ZerosLike(x) + imputed, x));
}

// Rows of all inputs next to each other. inputdimensions gives each input's number of columns: the
// others are left out, and missing ones are 0.
void ImportFeatureVectorizer(NodeContext& node) {
  const std::vector<int64_t> dims = node.Ints("inputdimensions", {});
  node.Require(dims.empty() || dims.size() == node.NumInputs(),
               fmt::format("attribute inputdimensions has {} numbers for {} inputs", dims.size(),
                           node.NumInputs()));
  std::vector<Variable> parts;
  for (size_t i = 0; i < node.NumInputs(); ++i) {
    Variable x = node.Cast(node.In(i), DType::kFloat32);
    if (node.rank(i) == 1) x = node.Reshape(x, {1, -1});
    if (node.rank(i) > 2) x = node.WithXShape("flatten2", x, {{"axis", 1}});
    if (!dims.empty() && x.shape()[1] != dims[i]) {
      node.Require(dims[i] >= 0, fmt::format("attribute inputdimensions has {}", dims[i]));
      const int32_t width = ToInt32(dims[i], "attribute inputdimensions");
      const Variable zeros =
          node.Make("fill_constant_batch_size_like", {{"Input", {x.name()}}},
                    {{"shape", std::vector<int32_t>{1, width}}, {"dtype", 5}, {"value", 0.0f}});
      const Variable longer = variable_functions::Concat({x, zeros}, 1);
      x = node.Make("slice", {{"Input", {longer.name()}}},
                    {{"axes", std::vector<int32_t>{1}},
                     {"starts", std::vector<int32_t>{0}},
                     {"ends", std::vector<int32_t>{width}}});
    }
    parts.push_back(x);
  }
  node.Set(0, parts.size() == 1 ? parts[0] : variable_functions::Concat(parts, 1));
}

// A map for each row, whose keys are the labels, is a row of the tensor here. The labels are kept:
// if the maps are an output of the model, the labels are one more.
void ImportZipMap(NodeContext& node) {
  const ClassLabels labels = LabelsAttr(node, "classlabels_int64s");
  const Variable x = RowsIn(node, node.dtype(0));
  const int64_t columns = x.shape()[1];
  node.Require(columns < 0 || columns == labels.size(),
               fmt::format("there must be a label for each column, got {} labels and {} columns",
                           labels.size(), columns));
  auto keys = std::make_shared<Value>();
  keys->constant = LabelTensor(labels);
  node.SetValue(0, {.var = x, .keys = std::move(keys)});
}

// --- maps as inputs ---

// The keys of the map that is input 0, whose values are the tensor itself.
Variable KeysIn(NodeContext& node) {
  const std::shared_ptr<Value>& keys = node.InValue(0).keys;
  node.Require(keys != nullptr, "the input must be a map that is an input of the model");
  const Variable var = node.graph().state().VarOf(*keys, node.NewName("keys"));
  return node.writer().Var(var.block(), var.desc());
}

// One element: 0, or an empty string.
Variable EmptyElement(NodeContext& node, DType dtype) {
  return node.ConstantVar(dtype == DType::kString ? Tensor::OfStrings({1}, {{""}})
                                                  : Tensor::Zeros(dtype, {1}));
}

// The keys of a vocabulary without repetitions, and where each column's key is among them.
struct Vocabulary {
  ClassLabels keys;
  std::vector<int64_t> places;
};

template <class T>
void AddKeys(const std::vector<T>& given, std::vector<T>& keys, std::vector<int64_t>& places) {
  std::unordered_map<T, int64_t> known;
  for (const T& key : given) {
    const auto [found, is_new] = known.emplace(key, static_cast<int64_t>(keys.size()));
    if (is_new) keys.push_back(key);
    places.push_back(found->second);
  }
}

Vocabulary VocabularyOf(NodeContext& node) {
  const std::vector<int64_t> integers = node.Ints("int64_vocabulary", {});
  const std::vector<std::string> strings =
      node.attributes().Strings("string_vocabulary").value_or(std::vector<std::string>());
  node.Require(integers.empty() != strings.empty(),
               "one of the attributes int64_vocabulary and string_vocabulary must have keys");
  Vocabulary vocabulary;
  AddKeys(integers, vocabulary.keys.integers, vocabulary.places);
  AddKeys(strings, vocabulary.keys.strings, vocabulary.places);
  return vocabulary;
}

// For each key that is fed, its place in the vocabulary; for others, the vocabulary's size.
Variable PlacesOfKeys(NodeContext& node, const Vocabulary& vocabulary, const Variable& keys) {
  std::vector<int64_t> places(static_cast<size_t>(vocabulary.keys.size()));
  std::iota(places.begin(), places.end(), 0);
  return node.Unary("map_values", keys,
                    {{"out_dtype", static_cast<int32_t>(DType::kInt64)},
                     {"keys_strings", vocabulary.keys.strings},
                     {"keys_int64s", vocabulary.keys.integers},
                     {"values_int64s", places},
                     {"default_int64", vocabulary.keys.size()}});
}

// The value of each key of the vocabulary, [1, C]; of a key that the map lacks, 0 or an empty
// string. Of a key that is fed twice, the last value counts. Other keys are not read.
void ImportDictVectorizer(NodeContext& node) {
  const Vocabulary vocabulary = VocabularyOf(node);
  const Variable keys = KeysIn(node), values = node.In(0);
  const DType dtype = vocabulary.keys.strings.empty() ? DType::kInt64 : DType::kString;
  node.Require(keys.dtype() == dtype,
               fmt::format("the vocabulary must have the type of the keys, {}, got {}",
                           ToString(keys.dtype()), ToString(dtype)));
  // Values are counted from 1; 0 is the empty element, and one more place takes the other keys.
  const Variable places = PlacesOfKeys(node, vocabulary, keys);
  const Variable numbers = Counted(node, DimOf(node, keys, 0)) + 1.0;
  const Variable zeros =
      node.ConstantVar(Tensor::Zeros(DType::kInt64, {vocabulary.keys.size() + 1}));
  const Variable at = node.Make(
      "scatter", {{"X", {zeros.name()}}, {"Ids", {places.name()}}, {"Updates", {numbers.name()}}},
      {{"overwrite", true}});
  const Variable all = variable_functions::Concat({EmptyElement(node, values.dtype()), values}, 0);
  const auto gathered = [&](const Variable& x, const Variable& index) {
    return node.Make("gather", {{"X", {x.name()}}, {"Index", {index.name()}}}, {{"axis", 0}});
  };
  const Variable found = gathered(all, gathered(at, node.ConstantVar(vocabulary.places)));
  node.Set(0, node.Reshape(found, {1, static_cast<int64_t>(vocabulary.places.size())}));
}

// The values by increasing key, [1, n], or, if SPARSE, the value of key k in column k. There, keys
// from max_map on are left out, as in ONNX Runtime; a negative key is an error of the run.
void ImportCastMap(NodeContext& node) {
  const std::string to = node.OneOf("cast_to", "TO_FLOAT", {"TO_FLOAT", "TO_STRING", "TO_INT64"});
  const std::string form = node.OneOf("map_form", "DENSE", {"DENSE", "SPARSE"});
  const int64_t columns = node.Int("max_map", 1);
  const DType dtype = to == "TO_FLOAT"    ? DType::kFloat32
                      : to == "TO_STRING" ? DType::kString
                                          : DType::kInt64;
  const Variable keys = KeysIn(node);
  node.Require(keys.dtype() == DType::kInt64, "the keys must be int64");
  if (dtype == DType::kString && node.In(0).dtype() != dtype)
    node.Refuse("numbers as texts, whose form ONNX does not define");
  Variable y = ExactCast(node, node.In(0), dtype);
  if (form == "SPARSE") {
    if (dtype == DType::kString)
      node.Refuse("map_form SPARSE of strings, whose missing elements ONNX does not name");
    node.Require(columns > 0, "attribute max_map must be positive");
    RequireSmallConstant(node, {columns}, "attribute max_map");
    const Variable zeros = node.ConstantVar(Tensor::Zeros(dtype, {columns + 1}));
    const Variable places = Min(keys, node.ScalarVar(DType::kInt64, static_cast<double>(columns)));
    y = node.Make("scatter",
                  {{"X", {zeros.name()}}, {"Ids", {places.name()}}, {"Updates", {y.name()}}},
                  {{"overwrite", true}});
    y = SliceOf(node, y, 0, 0, columns);
  } else {
    const Variable order =
        node.Make("argsort", {{"X", {keys.name()}}}, {{"axis", int32_t{0}}}, "Indices");
    y = node.Make("gather", {{"X", {y.name()}}, {"Index", {order.name()}}}, {{"axis", 0}});
  }
  node.Set(0, node.Reshape(y, {1, -1}));
}

}  // namespace

void AddMlImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = 1,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .domain = "ai.onnx.ml"});
  };
  add("ArrayFeatureExtractor", "T1+ i", ImportArrayFeatureExtractor, "gather");
  add("Binarizer", "n", ImportBinarizer, "greater_than, cast");
  add("FeatureVectorizer", "n1+*", ImportFeatureVectorizer, "concat");
  add("Imputer", "n1+", ImportImputer, "equal, where");
  add("Normalizer", "n1-2", ImportNormalizer, "reduce_max or reduce_sum, elementwise_div");
  add("Scaler", "n1+", ImportScaler, "elementwise_sub, elementwise_mul");
  const auto add_map = [&](const char* type, void (*import)(NodeContext&), const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = 1,
                   .takes = "T",
                   .import = import,
                   .maps_to = maps_to,
                   .foldable = false,
                   .domain = "ai.onnx.ml"});
  };
  add_map("CastMap", ImportCastMap, "argsort, gather; scatter");
  add_map("DictVectorizer", ImportDictVectorizer, "map_values, scatter, gather");
  add("ZipMap", "f1-2", ImportZipMap, "no op: the tensor, and the labels");
}

}  // namespace coracle::onnx

// Examples of layers. If neither the layer's declaration nor this file has one, it is searched:
// inputs of usual shapes and types, and small numbers, are tried until the layer's own shape rule
// accepts them.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/initializer/initializer.h>
#include <coracle/layers/internal/layer_defs.h>
#include <coracle/layers/internal/schema_help.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace coracle {
namespace {

using Kind = FieldDef::Kind;

// Examples of arrays, and of entries that contain entries.
const std::map<std::string, std::string>& Written() {
  static const std::map<std::string, std::string> written = {
      {"array_write", R"(data { name: "x" shape: [-1, 8] }
layer { fill_constant { shape: 1 dtype: int64 value: 0 output: "i" } }
layer { create_array { output: "all" } }
layer { array_write { x: "x" i: "i" array: "all" } }
)"},
      {"array_read", R"(data { name: "x" shape: [-1, 8] }
layer { fill_constant { shape: 1 dtype: int64 value: 0 output: "i" } }
layer { create_array { output: "all" } }
layer { array_write { x: "x" i: "i" array: "all" } }
layer { array_read { array: "all" i: "i" output: "out" } }
)"},
      {"array_length", R"(layer { create_array { output: "all" } }
layer { array_length { array: "all" output: "out" } }
)"},
      {"lod_array_length", R"(layer { create_array { output: "all" } }
layer { lod_array_length { input: "all" output: "out" } }
)"},
      {"tensor_array_to_tensor", R"(data { name: "x" shape: [-1, 8] }
layer { fill_constant { shape: 1 dtype: int64 value: 0 output: "i" } }
layer { create_array { output: "all" } }
layer { array_write { x: "x" i: "i" array: "all" } }
layer { tensor_array_to_tensor { input: "all" output: "out" } }
)"},
      {"repeat", R"(data { name: "x_0" shape: [-1, 8] }
layer { repeat { times: 3 layer { fc { input: "x_$i" size: 8 act: "relu" output: "x_${i+1}" } } } }
)"},
      {"while", R"(data { name: "n" shape: [1] dtype: int64 }
layer { fill_constant { shape: 1 dtype: int64 value: 0 output: "i" } }
layer { less_than { x: "i" y: "n" output: "more" } }
layer { while { condition: "more"
  layer { increment_by { var: "i" } }
  layer { less_than { x: "i" y: "n" output: "again" } }
  layer { assign_to { x: "again" var: "more" } } } }
)"},
      {"if", R"(data { name: "p" shape: [1] dtype: bool }
data { name: "x" shape: [2] }
layer { scale { input: "x" scale: 1 output: "y" } }
layer { if { condition: "p" layer { assign_to { x: "x" var: "y" } } } }
)"},
      {"cond", R"(data { name: "p" shape: [1] dtype: bool }
data { name: "x" shape: [2] }
layer { cond { pred: "p" output: "out"
  then { layer { scale { input: "x" scale: 2 output: "a" } } result: "a" }
  otherwise { layer { scale { input: "x" scale: 3 output: "b" } } result: "b" } } }
)"},
      {"switch", R"(data { name: "p" shape: [1] dtype: bool }
data { name: "x" shape: [2] }
layer { scale { input: "x" scale: 1 output: "y" } }
layer { switch { case { condition: "p" layer { assign_to { x: "x" var: "y" } } } } }
)"},
      {"static_rnn", R"(data { name: "x" shape: [-1, 2, 1] }
data { name: "h0" shape: [2, 1] }
layer { static_rnn { step_input: "x"
  memory { name: "h" init: "h0" next: "sum" }
  layer { elementwise_add { x: "h" y: "x" output: "sum" } }
  step_output { var: "sum" output: "sums" } } }
)"},
  };
  return written;
}

// Layers whose attrs must agree with each other or with the inputs: the types of the required
// inputs, and the fields.
struct Hint {
  const char *layer, *inputs, *fields;
};
constexpr const char* kBigger = "out_h: 16 out_w: 16";
constexpr Hint kHints[] = {
    {"bicubic_interp", "[-1, 3, 8, 8]", kBigger},
    {"bicubic_interp_v2", "[-1, 3, 8, 8]", kBigger},
    {"bilinear_interp", "[-1, 3, 8, 8]", kBigger},
    {"bilinear_interp_v2", "[-1, 3, 8, 8]", kBigger},
    {"nearest_interp", "[-1, 3, 8, 8]", kBigger},
    {"nearest_interp_v2", "[-1, 3, 8, 8]", kBigger},
    {"interpolate", "[-1, 3, 8, 8]", "interp_method: \"bilinear\" out_h: 16 out_w: 16"},
    {"linear_interp", "[-1, 3, 8]", "out_w: 16"},
    {"linear_interp_v2", "[-1, 3, 8]", "out_w: 16"},
    {"trilinear_interp", "[-1, 3, 4, 8, 8]", "out_d: 8 out_h: 16 out_w: 16"},
    {"trilinear_interp_v2", "[-1, 3, 4, 8, 8]", "out_d: 8 out_h: 16 out_w: 16"},
    {"bmm", "[-1, 4, 8]; [-1, 8, 2]", ""},
    {"clip_by_norm", "[-1, 8]", "max_norm: 1"},
    {"conv_shift", "[-1, 8]; [-1, 3]", ""},
    {"crop", "[4, 8]", "shape: [2, 3] offsets: [0, 1]"},
    {"crop_tensor", "[4, 8]", "shape: [2, 3] offsets: [0, 1]"},
    {"expand", "[-1, 8]", "expand_times: [1, 2]"},
    {"expand_as_v2", "[1, 8]", "target_shape: [4, 8]"},
    {"expand_v2", "[1, 8]", "shape: [4, 8]"},
    {"fused_elemwise_activation", "[-1, 8]; [-1, 8]",
     "functor_list: [\"relu\", \"elementwise_add\"]"},
    {"fused_elemwise_add_activation", "[-1, 8]; [-1, 8]",
     "functor_list: [\"relu\", \"elementwise_add\"]"},
    {"iou_similarity", "[-1, 4]; [10, 4]", ""},
    {"lod_reset", "[6, 8]", "target_lod: [0, 2, 6]"},
    {"one_hot_v2", "[-1] dtype: int64", "depth: 10"},
    {"pool3d", "[-1, 3, 8, 8, 8]", "pooling_type: \"max\" ksize: [2, 2, 2] strides: [2, 2, 2]"},
    {"randint", "", "shape: [4, 8] low: 0 high: 10"},
    {"regex_full_match", "[-1] dtype: string", "pattern: \"a.*\""},
    {"roll", "[-1, 8]", "shifts: 1 axis: 1"},
    {"round_to_format", "[-1, 8]", "format: \"float8e4m3fn\""},
    {"shard_index", "[-1, 1] dtype: int64", "index_num: 20 nshards: 2 shard_id: 0"},
    {"spp", "[-1, 3, 32, 32]", "pyramid_height: 3 pooling_type: \"max\""},
    {"string_concat", "[-1] dtype: string; [-1] dtype: string", ""},
    {"string_normalize", "[-1] dtype: string", ""},
    {"string_split", "[-1] dtype: string", ""},
    {"svm", "[-1, 2]", "support_vectors: [1, 2] coefficients: 1 rho: 0"},
    {"tfidf_vectorizer", "[-1, 8] dtype: int64",
     "ngram_counts: 0 ngram_indexes: [0, 1] pool_int64s: [4, 7]"},
};

// Possible types of an input, the most usual first.
constexpr const char* kInputs[] = {
    "[-1, 8]",
    "[-1, 1] dtype: int64",
    "[-1, 3, 32, 32]",
    "[-1, 4, 8]",
    "[1]",
    "[8]",
    "[-1, 8] dtype: int64",
    "[-1, 8] dtype: bool",
    "[-1, 8] lod_level: 1",
    "[-1, 1] dtype: int64 lod_level: 1",
    "[8, 8]",
    "[-1, 8] dtype: int32",
    "[8] dtype: int64",
    "[1] dtype: int64",
    "[-1, 4, 8, 8]",
    "[-1, 3, 8, 8, 8]",
    "[-1, 8] dtype: complex64",
    "[4]",
};
// Number of alternative values for required fields.
constexpr size_t kAlternatives = 4;

// The statement that gives a required value; "" for kinds that need none.
std::string Given(const FieldDef& field, size_t alternative) {
  if (field.kind == Kind::kDType)
    return fmt::format("{}: {} ", field.name, alternative % 2 ? "int64" : "float32");
  if (field.kind != Kind::kAttr) return "";
  if (!IsList(field.type))
    return fmt::format("{}: {} ", field.name, ExampleValue(field.type, field.range, alternative));
  constexpr const char* kLists[kAlternatives] = {"[1]", "[0]", "[4, 8]", "[0, 1]"};
  const bool texts = field.type == AttrType::kStrings;
  const bool truths = field.type == AttrType::kBooleans;
  return fmt::format("{}: {} ", field.name,
                     texts    ? "[\"x\"]"
                     : truths ? "[true]"
                              : kLists[alternative]);
}

// The fields that must name variables.
std::vector<const FieldDef*> RequiredInputs(const LayerDef& layer) {
  std::vector<const FieldDef*> inputs;
  for (const FieldDef& field : layer.fields)
    if (field.required && (field.kind == Kind::kVar || field.kind == Kind::kVars))
      inputs.push_back(&field);
  return inputs;
}

// `types` are for the required inputs.
std::string TextOf(const LayerDef& layer, const std::vector<std::string>& types,
                   std::string_view values) {
  std::string data, fields;
  const std::vector<const FieldDef*> inputs = RequiredInputs(layer);
  for (size_t i = 0; i < std::min(inputs.size(), types.size()); ++i) {
    const std::string& name = inputs[i]->name;
    const std::string var = name == "input" ? "x" : name;
    data += fmt::format("{}{}: {}", i > 0 ? ";" : "", var, Trim(types[i]));
    fields += fmt::format("{}: \"{}\" ", name, var);
  }
  fields += values;
  if (layer.result != LayerDef::Result::kSeveral) fields += "output: \"out\"";
  return MakeLayerExample(layer.name, data, Trim(fields));
}

// The values of the required fields.
std::string ValuesOf(const LayerDef& layer, size_t alternative) {
  std::string values;
  for (const FieldDef& field : layer.fields)
    if (field.required) values += Given(field, alternative);
  return values;
}

// `combination` encodes the types of the inputs, as a number with one digit per input.
std::vector<std::string> TypesOf(size_t inputs, size_t combination) {
  std::vector<std::string> types;
  for (size_t i = 0; i < inputs; ++i, combination /= std::size(kInputs))
    types.push_back(kInputs[combination % std::size(kInputs)]);
  return types;
}

bool Builds(const std::string& text, const OpRegistry& ops) {
  try {
    ParseModelText(text, "example", ".", ops);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Combinations in which all inputs have the same type come first.
std::vector<size_t> Combinations(size_t inputs) {
  const size_t n = std::size(kInputs);
  size_t all = 1, equal = 0;  // equal: the number 1, 11 or 111 in that encoding
  for (size_t i = 0; i < std::min<size_t>(inputs, 3); ++i) equal += all, all *= n;
  std::vector<size_t> combinations;
  for (size_t i = 0; inputs > 0 && i < n; ++i) combinations.push_back(i * equal);
  const size_t most = inputs > 2 ? 0 : all;  // for more than two inputs, only equal types
  for (size_t i = 0; i < most; ++i) combinations.push_back(i);
  if (inputs == 0) combinations = {0};
  return combinations;
}

std::string Found(const LayerDef& layer, const OpRegistry& ops) {
  for (const Hint& hint : kHints) {
    const std::string space = *hint.fields ? " " : "";
    if (layer.name == hint.layer)
      return TextOf(layer, Split(hint.inputs, ';'), hint.fields + space);
  }
  const size_t inputs = RequiredInputs(layer).size();
  const bool has_values = !ValuesOf(layer, 0).empty();
  for (size_t alternative = 0; alternative < (has_values ? kAlternatives : 1); ++alternative) {
    const std::string values = ValuesOf(layer, alternative);
    for (const size_t combination : Combinations(inputs)) {
      std::string text = TextOf(layer, TypesOf(inputs, combination), values);
      if (Builds(text, ops)) return text;
    }
  }
  return "";
}

std::string InitializerExample(const std::string& name, const OpRegistry& ops) {
  for (const auto& [kind, fields] : InitializerFields()) {
    if (kind != name) continue;
    for (size_t alternative = 0; alternative < kAlternatives; ++alternative) {
      std::string given;
      for (const FieldSpec& field : fields.fields()) {
        if (!field.required) continue;
        given +=
            Given({field.name, Kind::kAttr, field.member.type, std::nullopt, true, "", field.range},
                  alternative);
      }
      const std::string text = fmt::format(
          "data {{ name: \"x\" shape: [-1, 8] }}\n"
          "layer {{ fc {{ input: \"x\" size: 4 param {{ initializer {{ {} {{ {}}} }} }} }} }}\n",
          name, given);
      if (Builds(text, ops)) return text;
    }
  }
  return "";
}

}  // namespace

std::string MakeLayerExample(std::string_view layer, std::string_view inputs,
                             std::string_view fields) {
  std::string text;
  for (const std::string& input : Split(std::string(inputs), ';')) {
    const size_t colon = input.find(':');
    if (colon == std::string::npos) continue;
    text += fmt::format("data {{ name: \"{}\" shape{} }}\n",
                        Trim(std::string_view(input).substr(0, colon)), input.substr(colon));
  }
  return text + fmt::format("layer {{ {} {{ {} }} }}\n", layer, fields);
}

std::string internal::LayerExample(const std::string& name, const OpRegistry& ops) {
  const auto written = Written().find(name);
  if (written != Written().end()) return written->second;
  for (const LayerDef& layer : LayerDefs(ops))
    if (layer.name == name) return layer.example.empty() ? Found(layer, ops) : layer.example;
  return InitializerExample(name, ops);
}

}  // namespace coracle

// Examples of layers. If none is written here, one is searched: inputs of usual shapes and types,
// and small numbers, are tried until the layer's own shape rule accepts them.

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

// Examples of layers for which a found one would not show their purpose.
const std::map<std::string, std::string>& Written() {
  static const std::map<std::string, std::string> written = {
      {"concat", R"(data { name: "x" shape: [-1, 8] }
data { name: "y" shape: [-1, 4] }
layer { concat { input: ["x", "y"] axis: 1 output: "out" } }
)"},
      {"stack", R"(data { name: "x" shape: [-1, 8] }
data { name: "y" shape: [-1, 8] }
layer { stack { input: ["x", "y"] axis: 1 output: "out" } }
)"},
      {"sum", R"(data { name: "x" shape: [-1, 8] }
data { name: "y" shape: [-1, 8] }
layer { sum { input: ["x", "y"] output: "out" } }
)"},
      {"conv2d", R"(data { name: "image" shape: [-1, 3, 32, 32] }
layer { conv2d { input: "image" num_filters: 8 filter_size: 3 padding: 1 output: "out" } }
)"},
      {"pool2d", R"(data { name: "image" shape: [-1, 3, 32, 32] }
layer { pool2d { input: "image" pool_size: 2 pool_stride: 2 output: "out" } }
)"},
      {"reshape", R"(data { name: "x" shape: [-1, 3, 8] }
layer { reshape { input: "x" shape: [-1, 24] output: "out" } }
)"},
      {"transpose", R"(data { name: "x" shape: [-1, 3, 8] }
layer { transpose { input: "x" axis: [0, 2, 1] output: "out" } }
)"},
      {"split", R"(data { name: "x" shape: [-1, 8] }
layer { split { input: "x" num: 2 axis: 1 output: ["left", "right"] } }
)"},
      {"program", R"(data { name: "x" shape: [-1, 8] }
layer { program { input: "x" file: "encoder.pdmodel" output: "out" } }
)"},
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
data { name: "x" shape: [2] }
layer { fill_constant { shape: 1 dtype: int64 value: 0 output: "i" } }
layer { scale { input: "x" scale: 0 output: "h" } }
layer { less_than { x: "i" y: "n" output: "more" } }
layer { while { condition: "more"
  layer { elementwise_add { x: "h" y: "x" output: "next" } }
  layer { assign_to { x: "next" var: "h" } }
  layer { increment_by { var: "i" } }
  layer { less_than { x: "i" y: "n" output: "again" } }
  layer { assign_to { x: "again" var: "more" } } } }
)"},
      {"if", R"(data { name: "p" shape: [1] dtype: bool }
data { name: "x" shape: [2] }
layer { scale { input: "x" scale: 1 output: "y" } }
layer { if { condition: "p"
  layer { scale { input: "x" scale: 10 output: "ten" } }
  layer { assign_to { x: "ten" var: "y" } } } }
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
layer { switch {
  case { condition: "p" layer { assign_to { x: "x" var: "y" } } }
  default { layer { scale { input: "x" scale: 2 output: "two" } }
            layer { assign_to { x: "two" var: "y" } } } } }
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

// Layers whose attrs must agree with each other or with the input: the type of each input by name,
// and the fields.
struct Hint {
  const char *layer, *inputs, *fields;
};
constexpr const char* kBigger = "out_h: 16 out_w: 16";
constexpr Hint kHints[] = {
    {"bicubic_interp", "input: [-1, 3, 8, 8]", kBigger},
    {"bicubic_interp_v2", "input: [-1, 3, 8, 8]", kBigger},
    {"bilinear_interp", "input: [-1, 3, 8, 8]", kBigger},
    {"bilinear_interp_v2", "input: [-1, 3, 8, 8]", kBigger},
    {"nearest_interp", "input: [-1, 3, 8, 8]", kBigger},
    {"nearest_interp_v2", "input: [-1, 3, 8, 8]", kBigger},
    {"interpolate", "input: [-1, 3, 8, 8]", "interp_method: \"bilinear\" out_h: 16 out_w: 16"},
    {"linear_interp", "input: [-1, 3, 8]", "out_w: 16"},
    {"linear_interp_v2", "input: [-1, 3, 8]", "out_w: 16"},
    {"trilinear_interp", "input: [-1, 3, 4, 8, 8]", "out_d: 8 out_h: 16 out_w: 16"},
    {"trilinear_interp_v2", "input: [-1, 3, 4, 8, 8]", "out_d: 8 out_h: 16 out_w: 16"},
    {"bmm", "x: [-1, 4, 8];y: [-1, 8, 2]", ""},
    {"clip_by_norm", "input: [-1, 8]", "max_norm: 1"},
    {"conv_shift", "x: [-1, 8];y: [-1, 3]", ""},
    {"crop", "x: [4, 8]", "shape: [2, 3] offsets: [0, 1]"},
    {"crop_tensor", "input: [4, 8]", "shape: [2, 3] offsets: [0, 1]"},
    {"expand", "input: [-1, 8]", "expand_times: [1, 2]"},
    {"expand_as_v2", "input: [1, 8]", "target_shape: [4, 8]"},
    {"expand_v2", "input: [1, 8]", "shape: [4, 8]"},
    {"fused_elemwise_activation", "x: [-1, 8];y: [-1, 8]",
     "functor_list: [\"relu\", \"elementwise_add\"]"},
    {"fused_elemwise_add_activation", "x: [-1, 8];y: [-1, 8]",
     "functor_list: [\"relu\", \"elementwise_add\"]"},
    {"iou_similarity", "x: [-1, 4];y: [10, 4]", ""},
    {"lod_reset", "x: [6, 8]", "target_lod: [0, 2, 6]"},
    {"one_hot_v2", "input: [-1] dtype: int64", "depth: 10"},
    {"pool3d", "input: [-1, 3, 8, 8, 8]",
     "pooling_type: \"max\" ksize: [2, 2, 2] strides: [2, 2, 2]"},
    {"randint", "", "shape: [4, 8] low: 0 high: 10"},
    {"roll", "input: [-1, 8]", "shifts: 1 axis: 1"},
    {"shard_index", "input: [-1, 1] dtype: int64", "index_num: 20 nshards: 2 shard_id: 0"},
    {"spp", "input: [-1, 3, 32, 32]", "pyramid_height: 3 pooling_type: \"max\""},
};

std::string VarOf(std::string_view field) { return field == "input" ? "x" : std::string(field); }

// The text of a hint; "" if there is none.
std::string Hinted(const std::string& layer) {
  for (const Hint& hint : kHints) {
    if (layer != hint.layer) continue;
    std::string data, fields;
    for (const std::string& input : Split(hint.inputs, ';')) {
      const size_t colon = input.find(": ");
      const std::string name = input.substr(0, colon);
      data += fmt::format("data {{ name: \"{}\" shape{} }}\n", VarOf(name), input.substr(colon));
      fields += fmt::format("{}: \"{}\" ", name, VarOf(name));
    }
    fields += hint.fields;
    fields += *hint.fields ? " " : "";
    return data + fmt::format("layer {{ {} {{ {}output: \"out\" }} }}\n", layer, fields);
  }
  return "";
}

// Possible types of an input, the most usual first.
constexpr const char* kInputs[] = {
    "shape: [-1, 8]",
    "shape: [-1, 1] dtype: int64",
    "shape: [-1, 3, 32, 32]",
    "shape: [-1, 4, 8]",
    "shape: [1]",
    "shape: [8]",
    "shape: [-1, 8] dtype: int64",
    "shape: [-1, 8] dtype: bool",
    "shape: [-1, 8] lod_level: 1",
    "shape: [-1, 1] dtype: int64 lod_level: 1",
    "shape: [8, 8]",
    "shape: [-1, 8] dtype: int32",
    "shape: [8] dtype: int64",
    "shape: [1] dtype: int64",
    "shape: [-1, 4, 8, 8]",
    "shape: [-1, 3, 8, 8, 8]",
    "shape: [-1, 8] dtype: complex64",
    "shape: [4]",
};
// Number of alternative values for required fields.
constexpr size_t kAlternatives = 4;

// The statement that gives a required value; "" for kinds that need none.
std::string Given(const FieldDef& field, size_t alternative) {
  if (field.kind == Kind::kDType)
    return fmt::format(" {}: {}", field.name, alternative % 2 ? "int64" : "float32");
  if (field.kind != Kind::kAttr) return "";
  if (!IsList(field.type))
    return fmt::format(" {}: {}", field.name, ExampleValue(field.type, field.range, alternative));
  constexpr const char* kLists[kAlternatives] = {"[1]", "[0]", "[4, 8]", "[0, 1]"};
  const bool texts = field.type == AttrType::kStrings;
  const bool truths = field.type == AttrType::kBooleans;
  return fmt::format(" {}: {}", field.name,
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

// `combination` encodes the types of the inputs, as a number with one digit per input.
std::string TextOf(const LayerDef& layer, size_t combination, size_t alternative) {
  std::string data, fields;
  for (const FieldDef* input : RequiredInputs(layer)) {
    data += fmt::format("data {{ name: \"{}\" {} }}\n", VarOf(input->name),
                        kInputs[combination % std::size(kInputs)]);
    combination /= std::size(kInputs);
    fields += fmt::format(" {}: \"{}\"", input->name, VarOf(input->name));
  }
  for (const FieldDef& field : layer.fields)
    if (field.required) fields += Given(field, alternative);
  if (layer.result != LayerDef::Result::kSeveral) fields += " output: \"out\"";
  return data + fmt::format("layer {{ {} {{{} }} }}\n", layer.name, fields);
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
  size_t all = 1, alike = 0;  // alike: the number 1, 11 or 111 in that encoding
  for (size_t i = 0; i < std::min<size_t>(inputs, 3); ++i) alike += all, all *= n;
  std::vector<size_t> combinations;
  for (size_t i = 0; inputs > 0 && i < n; ++i) combinations.push_back(i * alike);
  const size_t most = inputs > 2 ? 0 : all;  // for more than two inputs, only equal types
  for (size_t i = 0; i < most; ++i) combinations.push_back(i);
  if (inputs == 0) combinations = {0};
  return combinations;
}

std::string Found(const LayerDef& layer, const OpRegistry& ops) {
  const bool has_values =
      std::any_of(layer.fields.begin(), layer.fields.end(),
                  [](const FieldDef& field) { return field.required && !Given(field, 0).empty(); });
  const std::vector<size_t> combinations = Combinations(RequiredInputs(layer).size());
  for (size_t alternative = 0; alternative < (has_values ? kAlternatives : 1); ++alternative) {
    for (const size_t combination : combinations) {
      std::string text = TextOf(layer, combination, alternative);
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
          "layer {{ fc {{ input: \"x\" size: 4 param {{ initializer {{ {} {{{} }} }} }} }} }}\n",
          name, given);
      if (Builds(text, ops)) return text;
    }
  }
  return "";
}

}  // namespace

std::string LayerExample(const std::string& name, const OpRegistry& ops) {
  const auto written = Written().find(name);
  if (written != Written().end()) return written->second;
  if (std::string hinted = Hinted(name); !hinted.empty()) return hinted;
  for (const LayerDef& layer : LayerDefs(ops))
    if (layer.name == name) return Found(layer, ops);
  return InitializerExample(name, ops);
}

}  // namespace coracle

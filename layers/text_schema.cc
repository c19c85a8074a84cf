#include <coracle/clip/clip.h>
#include <coracle/framework/base/registry.h>
#include <coracle/layers/internal/text_schema.h>
#include <coracle/regularizer/regularizer.h>
#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <mutex>
#include <set>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

using Proto = SchemaWriter::Proto;

// Paddle's names of element types, and lower-case ones.
constexpr std::pair<const char*, int> kDTypes[] = {
    {"float32", 5},     {"float64", 6},     {"float16", 4},    {"bfloat16", 22},
    {"int64", 3},       {"int32", 2},       {"int16", 1},      {"int8", 21},
    {"uint8", 20},      {"bool", 0},        {"FP32", 5},       {"FP64", 6},
    {"FP16", 4},        {"BF16", 22},       {"INT64", 3},      {"INT32", 2},
    {"INT16", 1},       {"INT8", 21},       {"UINT8", 20},     {"BOOL", 0},
    {"uint64", 19},     {"SIZE_T", 19},     {"string", 25},    {"STRING", 25},
    {"complex64", 23},  {"complex128", 24}, {"COMPLEX64", 23}, {"COMPLEX128", 24},
    {"unspecified", -1}};

const char* DTypeName(int32_t number) {
  for (const auto& entry : kDTypes) {
    if (entry.second == number) return entry.first;
  }
  return nullptr;
}

std::string Identifier(std::string name) {
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name.insert(0, "_");
  return name;
}

using Message = SchemaWriter::Message;

void AddAttr(Message& message, const std::string& name, const FieldDef& field) {
  if (field.kind == FieldDef::Kind::kDType) {
    const int32_t* number =
        field.default_value ? std::get_if<int32_t>(&*field.default_value) : nullptr;
    const char* otherwise = number ? DTypeName(*number) : "";
    if (otherwise) {
      message.Enum(name, "DType", otherwise, field.doc, field.required);
      return;
    }
  }
  message.Value(name, field.type, field.default_value, field.required, field.doc, field.range);
}

void AddSettings(SchemaWriter& schema) {
  Message array = schema.Add("Array", "The elements, row by row, or a file with them.");
  array.List("values", Proto::TYPE_FLOAT, "");
  array.Scalar("npy", Proto::TYPE_STRING, "", "a .npy file, relative to this text");
  Message initializer = schema.Add("Initializer", "How a parameter starts.");
  schema.AddKinds(initializer, "initializer", InitializerFields(), {"array"});
  initializer.Choice(initializer.Nested("array", "Array", ""));
  Message multiplied = schema.Add("Multiplied", "");
  multiplied.Scalar("by", Proto::TYPE_DOUBLE, "1", "");
  Message regularizer = schema.Add("Regularizer", "Added to the gradient before the update.");
  schema.AddKinds(regularizer, "regularizer", RegularizerFields(), {"multiplied"});
  regularizer.Choice(
      regularizer.Nested("multiplied", "Multiplied", "the optimizer's, with its coeff times `by`"));
}

void AddClips(SchemaWriter& schema) {
  Message value =
      schema.Add("Value", "A named parameter of a registered class; one of the values.");
  value.Required("name", Proto::TYPE_STRING, "");
  value.Choice(value.Field("i", Proto::TYPE_INT64, false, "", {}));
  value.Choice(value.Field("f", Proto::TYPE_DOUBLE, false, "", {}));
  value.Choice(value.Field("s", Proto::TYPE_STRING, false, "", {}));
  value.Choice(value.Field("b", Proto::TYPE_BOOL, false, "", {}));
  Message custom = schema.Add("Custom", "A class that was registered under that kind.");
  custom.Required("kind", Proto::TYPE_STRING, "");
  custom.NestedList("attr", "Value", "");
  Message gradient_clip =
      schema.Add("GradientClip", "Clips a parameter's gradient just before the update.");
  schema.AddKinds(gradient_clip, "clip", GradientClipFields(), {"custom"});
  gradient_clip.Choice(gradient_clip.Nested("custom", "Custom", ""));
  Message by_norm = schema.Add("ByNorm", "Scaled down to an L2 norm of max_norm.");
  by_norm.Value("max_norm", AttrType::kFloat64, std::nullopt, true, "");
  Message error_clip = schema.Add("ErrorClip", "Clips the gradient of a variable inside backward.");
  error_clip.Choice(error_clip.Nested("by_value", "by_value_clip", ""));
  error_clip.Choice(error_clip.Nested("by_norm", "ByNorm", ""));
  error_clip.Choice(error_clip.Nested("custom", "Custom", ""));
}

void AddParam(SchemaWriter& schema) {
  Message param = schema.Add("Param", "A parameter of a layer.");
  param.Scalar("name", Proto::TYPE_STRING, "",
               "name of the parameter; the name of an existing parameter shares it");
  param.Nested("initializer", "Initializer", "");
  param.Scalar("learning_rate", Proto::TYPE_DOUBLE, "1", "multiplies the optimizer's");
  param.Nested("regularizer", "Regularizer", "in place of the optimizer's");
  param.Scalar("trainable", Proto::TYPE_BOOL, "true", "");
  param.Nested("gradient_clip", "GradientClip", "in place of the optimizer's");
}

void AddLayerMessage(SchemaWriter& schema, const LayerDef& layer) {
  Message message = schema.Add(layer.name + "_layer", layer.doc);
  for (const FieldDef& field : layer.fields) {
    switch (field.kind) {
      case FieldDef::Kind::kVar:
        message.Value(field.name, AttrType::kString, std::nullopt, field.required, field.doc);
        break;
      case FieldDef::Kind::kVars:
        message.Value(field.name, AttrType::kStrings, std::nullopt, field.required, field.doc);
        break;
      case FieldDef::Kind::kParam:
        message.Nested(field.name, "Param", field.doc);
        break;
      default:
        AddAttr(message, field.name, field);
    }
  }
  if (layer.result == LayerDef::Result::kSeveral) {
    message.List("output", Proto::TYPE_STRING, "names of the results");
  } else {
    message.Scalar("output", Proto::TYPE_STRING, "", "name of the result");
  }
  message.Scalar("name", Proto::TYPE_STRING, "",
                 "of the layer: its parameters and temporaries are named after it");
  if (layer.result == LayerDef::Result::kMetric) return;
  if (layer.result == LayerDef::Result::kOne) {
    message.Scalar("act", Proto::TYPE_STRING, "", "activation op applied to the result");
  }
  message.Nested("error_clip", "ErrorClip", "of the result");
  message.Scalar("stop_gradient", Proto::TYPE_BOOL, "false", "no gradient flows back from here");
}

std::string Unique(std::string name, const char* suffix, std::unordered_set<std::string>& taken) {
  while (!taken.insert(name).second) name += suffix;
  return name;
}

OpEntry AddOpMessage(SchemaWriter& schema, const std::string& name, const OpSpec& def) {
  Message message = schema.Add(name, def.Documentation());
  OpEntry entry{&def, {}};
  std::unordered_set<std::string> taken;
  auto add_slots = [&](const std::vector<SlotDef>& slots, OpField::Kind kind, const char* suffix) {
    for (const SlotDef& slot : slots) {
      message.List(Unique(Identifier(slot.name), suffix, taken), Proto::TYPE_STRING, slot.doc,
                   !slot.optional);
      entry.fields.push_back({kind, slot.name, AttrType::kStrings});
    }
  };
  add_slots(def.inputs, OpField::Kind::kInput, "_in");
  add_slots(def.outputs, OpField::Kind::kOutput, "_out");
  for (const FieldDef& field : AttrFields(def)) {
    AddAttr(message, Unique(Identifier(field.name), "_attr", taken), field);
    entry.fields.push_back({OpField::Kind::kAttr, field.name, field.type});
  }
  return entry;
}

std::vector<OpEntry> AddOps(SchemaWriter& schema, const OpRegistry& ops) {
  std::vector<OpEntry> entries;
  std::vector<std::pair<std::string, std::string>> names;
  // Fields that an op entry can have besides the op keep their names; an op named stop_gradient
  // becomes stop_gradient_.
  std::unordered_set<std::string> taken = {"error_clip", "stop_gradient", "op_role", kChoiceName};
  for (const std::string& type : ops.Types()) {
    const std::string field = Unique(Identifier(type), "_", taken);
    names.push_back({field, field + "_op"});
    entries.push_back(AddOpMessage(schema, names.back().second, ops.Get(type)));
  }
  Message op = schema.Add("Op", "One raw op of the registry.");
  for (const auto& name : names) op.Choice(op.Nested(name.first, name.second, ""));
  op.Nested("error_clip", "ErrorClip", "of its outputs");
  op.Scalar("stop_gradient", Proto::TYPE_BOOL, "false", "of its outputs");
  op.Scalar("op_role", Proto::TYPE_INT32, "0", "Paddle's role of the op");
  return entries;
}

// Entries that contain entries. A body can read the outer variables; assign_to writes one.
void AddControlFlow(SchemaWriter& schema) {
  Message body = schema.Add("Body", "Layers that are run or not.");
  body.NestedList("layer", "Layer", "");
  Message loop = schema.Add("While", "Runs the layers as long as condition is true.");
  loop.Required("condition", Proto::TYPE_STRING, "one bool, which a layer of the body writes");
  loop.Scalar("is_test", Proto::TYPE_BOOL, "false", "no gradient will be taken through the loop");
  loop.NestedList("layer", "Layer", "");
  Message branch = schema.Add("If", "The layers, if condition is true.");
  branch.Required("condition", Proto::TYPE_STRING, "one bool");
  branch.NestedList("layer", "Layer", "");
  Message side = schema.Add("Branch", "One side of a cond.");
  side.NestedList("layer", "Layer", "");
  side.List("result", Proto::TYPE_STRING, "its results: variables made inside or around it");
  Message cond = schema.Add("Cond", "The results of one side or the other.");
  cond.Required("pred", Proto::TYPE_STRING, "one bool");
  cond.Nested("then", "Branch", "if it is true");
  cond.Nested("otherwise", "Branch", "if it is false");
  cond.List("output", Proto::TYPE_STRING, "names of the results", true);
  Message choice = schema.Add("Case", "One case of a switch.");
  choice.Required("condition", Proto::TYPE_STRING, "one bool");
  choice.NestedList("layer", "Layer", "");
  Message selection = schema.Add("Switch", "The layers of the first case whose condition is true.");
  selection.NestedList("case", "Case", "");
  selection.Nested("default", "Body", "if none is");
  Message memory =
      schema.Add("Memory", "A value that one step of a static_rnn passes to the next.");
  memory.Required("name", Proto::TYPE_STRING, "in the step: its value from the previous step");
  memory.Required("init", Proto::TYPE_STRING, "its value at the first step");
  memory.Required("next", Proto::TYPE_STRING, "in the step: its value for the next one");
  Message step_output = schema.Add("StepOutput", "A result of a static_rnn.");
  step_output.Required("var", Proto::TYPE_STRING, "in the step");
  step_output.Required("output", Proto::TYPE_STRING, "name for all steps together, [steps, ...]");
  Message rnn =
      schema.Add("StaticRnn", "The layers, once for each step of sequences [steps, ...].");
  rnn.List("step_input", Proto::TYPE_STRING, "sequences; in the step the name means the slice");
  rnn.NestedList("memory", "Memory", "");
  rnn.NestedList("layer", "Layer", "");
  rnn.NestedList("step_output", "StepOutput", "");
  rnn.Scalar("lengths", Proto::TYPE_STRING, "", "int64 [N]: the number of steps of each sequence");
  rnn.Scalar("reverse", Proto::TYPE_BOOL, "false", "from the last step to the first");
}

void AddModel(SchemaWriter& schema, const std::vector<LayerDef>& layers) {
  Message repeat =
      schema.Add("Repeat",
                 "The layers several times. In their strings $i or ${i} is the number "
                 "of the round, ${i+1} and ${i-1} the numbers of its neighbours, and $$ a dollar.");
  repeat.Required("times", Proto::TYPE_INT64, "");
  repeat.Scalar("index", Proto::TYPE_STRING, "i",
                "name for the number of the round; an inner repeat may use another");
  repeat.Scalar("start", Proto::TYPE_INT64, "0", "number of the first round");
  repeat.NestedList("layer", "Layer", "");
  AddControlFlow(schema);
  Message rule = schema.Add(
      "Rule", "Holds if all of its conditions hold for the state that the text is read for.");
  rule.Field("phase", Proto::TYPE_ENUM, false, "Phase", {});
  rule.Scalar("min_level", Proto::TYPE_INT64, "", "");
  rule.Scalar("max_level", Proto::TYPE_INT64, "", "");
  rule.List("stage", Proto::TYPE_STRING, "the state must have each");
  rule.List("not_stage", Proto::TYPE_STRING, "the state must have none");
  auto add_rules = [](Message& message) {
    message.NestedList("include_if", "Rule", "included only if one of these holds");
    message.NestedList("exclude_if", "Rule", "included only if none of these holds");
  };
  Message layer =
      schema.Add("Layer", "One entry: a layer, a raw op, or an entry that shortens text.");
  for (const LayerDef& def : layers) {
    layer.Choice(layer.Nested(def.name, def.name + "_layer", ""));
  }
  layer.Choice(layer.Nested("op", "Op", ""));
  layer.Choice(layer.Field("include", Proto::TYPE_STRING, false, "",
                           {"the entries of another file, relative to this one"}));
  layer.Choice(layer.Nested("repeat", "Repeat", ""));
  layer.Choice(layer.Nested("while", "While", ""));
  layer.Choice(layer.Nested("if", "If", ""));
  layer.Choice(layer.Nested("cond", "Cond", ""));
  layer.Choice(layer.Nested("switch", "Switch", ""));
  layer.Choice(layer.Nested("static_rnn", "StaticRnn", ""));
  add_rules(layer);
  Message data = schema.Add("Data", "A variable that is fed.");
  data.Required("name", Proto::TYPE_STRING, "");
  data.List("shape", Proto::TYPE_INT64, "-1 for a dim known only at run time");
  data.Enum("dtype", "DType", "float32", "");
  data.Scalar("lod_level", Proto::TYPE_INT32, "0", "levels of nested sequences");
  data.Scalar("stop_gradient", Proto::TYPE_BOOL, "true", "");
  data.Nested("error_clip", "ErrorClip", "has an effect only if stop_gradient is false");
  add_rules(data);
  Message model = schema.Add("Model", "A network: the feeds, then the layers in order.");
  model.Scalar("name", Proto::TYPE_STRING, "", "");
  model.NestedList("data", "Data", "");
  model.NestedList("layer", "Layer", "");
}

}  // namespace

TextSchema::TextSchema(const OpRegistry& ops) : layers_(LayerDefs(ops)) {
  SchemaWriter schema("coracle/model.proto", "coracle.model", "Value");
  schema.AddEnum("DType", {std::begin(kDTypes), std::end(kDTypes)});
  schema.AddEnum("Phase", {{"TRAIN", 0}, {"TEST", 1}});
  AddClips(schema);
  AddSettings(schema);
  AddParam(schema);
  for (const LayerDef& layer : layers_) AddLayerMessage(schema, layer);
  ops_ = AddOps(schema, ops);
  AddModel(schema, layers_);
  pool_ = std::make_unique<SchemaPool>(schema, "Model");
}

const LayerDef* TextSchema::Layer(int index) const {
  auto i = static_cast<size_t>(index);
  return i < layers_.size() ? &layers_[i] : nullptr;
}

const OpEntry* TextSchema::Op(int index) const {
  auto i = static_cast<size_t>(index);
  return i < ops_.size() ? &ops_[i] : nullptr;
}

std::shared_ptr<const TextSchema> CurrentTextSchema(const OpRegistry& ops) {
  if (&ops != &DefaultOps()) return std::make_shared<const TextSchema>(ops);
  static std::mutex mutex;
  static std::shared_ptr<const TextSchema> kept;
  static size_t kept_count = 0;
  const size_t count = ops.Types().size() + NumRegisteredLayers() + GradientClipFields().size() +
                       RegularizerFields().size();
  std::lock_guard<std::mutex> lock(mutex);
  if (!kept || kept_count != count) {
    kept = std::make_shared<const TextSchema>(ops);
    kept_count = count;
  }
  return kept;
}

}  // namespace coracle::inline internal

#include <coracle/framework/base/file.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/layers/internal/schema_writer.h>
#include <coracle/layers/layer.h>
#include <coracle/regularizer/regularizer.h>
#include <coracle/test/error_of.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace coracle::model_schema_test {

OpDef Strange(const std::string& type) {
  return OpDef(type).Doc("A strange op.\nOf two lines.").NoGradient("a test");
}

// protoc's answer to a schema; "" when it has nothing to say.
std::string Compile(const std::string& schema) {
  char name[] = "/tmp/coracle_schema_XXXXXX";
  std::string directory = mkdtemp(name);
  WriteFileAtomic(directory + "/model.proto", schema);
  std::string command = "protoc -I " + directory + " --descriptor_set_out=/dev/null " + directory +
                        "/model.proto > " + directory + "/out 2>&1";
  int status = std::system(command.c_str());
  std::string out = ReadFile(directory + "/out");
  std::filesystem::remove_all(directory);
  if (status != 0 && out.empty()) out = "protoc failed";
  return out;
}

bool HasProtoc() { return std::system("protoc --version > /dev/null 2>&1") == 0; }

TEST(ModelSchema, CompilesWithProtoc) {
  if (!HasProtoc()) GTEST_SKIP() << "protoc is not installed";
  EXPECT_EQ(Compile(ModelSchema()), "");
}

TEST(ModelSchema, HasDocsAndDefaults) {
  const std::string schema = ModelSchema();
  for (const char* part :
       {"message conv2d_layer {", "// channels of the result (required)",
        "optional int32 num_filters", "optional float dropout_prob = 2 [default = 0.5];",
        "// height and width (default [1])", "message clip_grad_op {", "Out_GRAD",
        "message Repeat"}) {
    EXPECT_NE(schema.find(part), std::string::npos) << part;
  }
}

TEST(ModelSchema, NamesThatClashAreKeptApart) {
  OpRegistry ops;
  // One name as input, output and attr; names that are not identifiers; the names of entries.
  ops.Add(Strange("clash")
              .Input("X", "in")
              .Output("X", "out")
              .Attr<float>("X", 1.f, "attr")
              .Attr<std::vector<int64_t>>("l", {1, 2}, "list")
              .Attr<std::string>("s", "a\"b\n", "text"));
  ops.Add(Strange("my.op").OptionalInput("1@A", "in").OptionalInput("_1_A", "in"));
  for (const char* type : {"op", "include", "repeat", "error_clip", "op_role", "fc"}) {
    ops.Add(Strange(type).Input("X", "in").Output("Out", "out"));
  }
  const std::string schema = ModelSchema(ops);
  EXPECT_NE(schema.find("X_out"), std::string::npos);
  EXPECT_NE(schema.find("X_attr"), std::string::npos);
  EXPECT_NE(schema.find("my_op_op"), std::string::npos);
  if (HasProtoc()) {
    EXPECT_EQ(Compile(schema), "");
  }
  BuiltModel model = ParseModelText(
      "data { name: \"v\" } layer { op { clash { X: \"v\" X_out: \"o\" X_attr: 2 } } }", "m", ".",
      ops);
  EXPECT_EQ(model.main.Root().op(0).GetAttr<float>("X", 0), 2);
  EXPECT_EQ(model.main.Root().op(0).Output("X").front(), "o");
  model = ParseModelText(
      "data { name: \"v\" } layer { op { op_role_ { X: \"v\" Out: \"o\" } op_role: 1 } }", "m", ".",
      ops);
  EXPECT_EQ(model.main.Root().op(0).type(), "op_role");
  EXPECT_EQ(model.main.Root().op(0).role(), kBackward);
}

struct HalvesOptions {
  float factor = 0.5f;
  int32_t count = 1;
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};
Variable Halves(Builder& net, const Variable& x, const HalvesOptions& options) {
  Variable result = x;
  for (int32_t i = 0; i < options.count; ++i)
    result = net.Scale(result, {.scale = options.factor, .output = options.output});
  return result;
}

// A program's own layer, clip and regularizer are in the schema and are read as the library's are.
TEST(ModelSchema, WhatUsersRegister) {
  EXPECT_EQ(ModelSchema().find("message halves"), std::string::npos);
  using O = HalvesOptions;
  const LayerFields<O> layer = LayerFields<O>("halves", "A test's layer.")
                                   .Input("input", "tensor of any shape")
                                   .Field("factor", &O::factor, "multiplies it")
                                   .Field("count", &O::count, "so often", PositiveRange());
  RegisterLayer(layer.Build(Halves));
  EXPECT_THROW(RegisterLayer(layer.Build(Halves)), Error);
  EXPECT_THROW(RegisterLayer(LayerFields<O>("fc", "").Input("x", "").Build(Halves)), Error);
  EXPECT_THROW(RegisterLayer(LayerFields<O>("a b", "").Input("x", "").Build(Halves)), Error);
  EXPECT_THROW(RegisterLayer(LayerFields<O>("named", "").Input("name", "").Build(Halves)), Error);
  RegisterGradientClip(
      "schema_clip", Fields<O>("A test's clip.").Add("factor", &O::factor, "by that"),
      [](BlockDesc&, ProgramDesc&, const std::vector<ClipMember>&) { return ClippedGradients(); });
  RegisterRegularizer("schema_decay", Fields<O>("A test's.").Add("factor", &O::factor, ""),
                      [](const UpdateContext& update, const Setting&) { return update.grad; });
  const std::string schema = ModelSchema();
  for (const char* part : {"message halves_layer {", "// A test's layer.", "[default = 0.5]",
                           "// so often; must be positive", "message schema_clip_clip {",
                           "message schema_decay_regularizer {"})
    EXPECT_NE(schema.find(part), std::string::npos) << part;
  const std::string help = DescribeLayer("halves");
  EXPECT_EQ(help.find("layer halves: A test's layer.\n  input"), 0u) << help;
  EXPECT_NE(help.find("factor         float [0.5]  multiplies it"), std::string::npos) << help;

  const BuiltModel model = ParseModelText(R"(
data { name: "v" shape: [-1, 4] }
layer { halves { input: "v" factor: 0.25 output: "o" } }
layer { fc { input: "o" size: 2 param {
  gradient_clip { schema_clip { factor: 3 } } regularizer { schema_decay { } } } } })");
  EXPECT_EQ(model.main.Root().op(0).GetAttr<float>("scale", 0), 0.25f);
  const VarDesc& w = *model.main.Root().FindVar("fc_0.w_0");
  EXPECT_EQ(w.training().gradient_clip, (Setting{"schema_clip", {{"factor", 3.0f}}}));
  EXPECT_EQ(w.training().regularizer, (Setting{"schema_decay", {{"factor", 0.5f}}}));
  try {
    ParseModelText("data { name: \"v\" }\nlayer { halves { input: \"v\" facto: 1 } }", "m");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "m:2:29: facto: no such field in halves; did you mean factor?");
  }
}

std::string TextError(const std::string& text) {
  return ErrorOf([&] { ParseModelText(text, "m"); });
}

// The range of a table holds in a text, whether the layer is built in or registered.
TEST(ModelSchema, RangesHold) {
  static const LayerFields<HalvesOptions> layer =
      LayerFields<HalvesOptions>("at_least_once", "A test's layer.")
          .Input("input", "tensor of any shape")
          .Field("count", &HalvesOptions::count, "so often", PositiveRange());
  RegisterLayer(layer.Build(Halves));
  const std::string data = "data { name: \"v\" shape: [-1, 4] }\n";
  EXPECT_EQ(TextError(data + "layer { at_least_once { input: \"v\" count: -1 } }"),
            "m:2:9: at_least_once: count must be positive, got -1");
  EXPECT_THROW(layer.Check({.count = 0}), Error);
  LayerDef by_hand = layer.Build(Halves);
  by_hand.name = "by_hand";
  by_hand.build = [](Builder&, const LayerArgs& args) { return args.Vars("input"); };
  RegisterLayer(by_hand);
  EXPECT_EQ(TextError(data + "layer { by_hand { input: \"v\" count: 0 } }"),
            "m:2:9: by_hand: count must be positive, got 0");
  EXPECT_EQ(TextError(data + "layer { fc { input: \"v\" size: 2 param { regularizer { l2_decay { "
                             "coeff: -1 } } } } }"),
            "m:2:55: l2_decay: coeff must be finite and not negative, got -1");
}

struct AttrOptions {
  std::string attr = "x";
};

TEST(ModelSchema, FieldsAndKindsNamedAsTheSchemasOwn) {
  RegisterRegularizer("attr_decay",
                      Fields<AttrOptions>("A test's.").Add("attr", &AttrOptions::attr, ""),
                      [](const UpdateContext& update, const Setting&) { return update.grad; });
  const BuiltModel model = ParseModelText(R"(
data { name: "v" shape: [-1, 4] }
layer { fc { input: "v" size: 2 param { regularizer { attr_decay { attr: "y" } } } } })");
  EXPECT_EQ(model.main.Root().FindVar("fc_0.w_0")->training().regularizer,
            (Setting{"attr_decay", {{"attr", std::string("y")}}}));
  EXPECT_THROW(RegisterLayer(LayerFields<HalvesOptions>("kind", "").Input("x", "").Build(Halves)),
               Error);
  OpRegistry ops;
  ops.Add(Strange("kind").Input("X", "in").Output("Out", "out"));
  EXPECT_NE(ModelSchema(ops).find("kind__op kind_ ="), std::string::npos);
}

TEST(ModelSchema, ValuesOfRepeatedEnums) {
  using Proto = google::protobuf::FieldDescriptorProto;
  google::protobuf::FileDescriptorProto file;
  file.set_name("colors");
  auto& color = *file.add_enum_type();
  color.set_name("Color");
  for (int number : {3, 5}) {
    auto& value = *color.add_value();
    value.set_name("C" + std::to_string(number));
    value.set_number(number);
  }
  auto& type = *file.add_message_type();
  type.set_name("Colors");
  Proto& field = *type.add_field();
  field.set_name("color");
  field.set_number(1);
  field.set_type(Proto::TYPE_ENUM);
  field.set_label(Proto::LABEL_REPEATED);
  field.set_type_name("Color");
  google::protobuf::DescriptorPool pool;
  const auto& colors = *pool.BuildFile(file)->message_type(0);
  google::protobuf::DynamicMessageFactory factory;
  const std::unique_ptr<google::protobuf::Message> message(factory.GetPrototype(&colors)->New());
  const auto& repeated = *colors.field(0);
  for (int number : {5, 3, 5})
    message->GetReflection()->AddEnumValue(message.get(), &repeated, number);
  EXPECT_EQ(FieldValue(*message, repeated), Attribute(std::vector<int32_t>{5, 3, 5}));
}

TEST(ModelSchema, HelpOfALayer) {
  EXPECT_NE(DescribeLayer("while").find("condition"), std::string::npos);
  EXPECT_NE(DescribeLayer("repeat").find("times"), std::string::npos);
  const std::string help = DescribeLayer("conv2d");
  for (const char* part : {"layer conv2d: Convolution", "num_filters",
                           "int32  channels of the result (required); must be positive",
                           "(required)", "height and width (default [1])", "string [EXPLICIT]"})
    EXPECT_NE(help.find(part), std::string::npos) << part << "\n" << help;
  EXPECT_NE(DescribeLayer("uniform").find("double [-1]"), std::string::npos);
  EXPECT_EQ(DescribeLayer("momentum_of_none"), "");
}

TEST(ModelSchema, NumbersOfMoreThanTwentyThousandOps) {
  OpRegistry ops;
  for (int i = 0; i < 20100; ++i) ops.Add(Strange("op" + std::to_string(i)));
  EXPECT_NE(ModelSchema(ops).find("op20099_op"), std::string::npos);
}
}  // namespace coracle::model_schema_test

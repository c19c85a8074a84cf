#include <coracle/framework/base/file.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/layers/model_text.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace coracle {
namespace {

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
  // One name as input, output and attr; names that are no identifiers; the names of entries.
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

TEST(ModelSchema, NumbersOfMoreThanTwentyThousandOps) {
  OpRegistry ops;
  for (int i = 0; i < 20100; ++i) ops.Add(Strange("op" + std::to_string(i)));
  EXPECT_NE(ModelSchema(ops).find("op20099_op"), std::string::npos);
}

}  // namespace
}  // namespace coracle

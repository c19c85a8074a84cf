#include <coracle/edit/paddle_fields.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

namespace coracle::paddle_fields_test {

// As bytes on the wire: field 1005 (an extension) with the number 7, and Paddle's field 9
// with "ab".
const std::string kExtension = "\xE8\x3E\x07", kPaddles =
                                                   "\x4A\x02"
                                                   "ab";

ProgramDesc WithEverything() {
  ProgramDesc program;
  program.random_seed = 5;
  program.version = 1008004;
  program.version_in_legacy_field = true;
  FileFields::SetUnknown(program, kPaddles + kExtension);
  BlockDesc& root = program.Root();
  FileFields::SetUnknown(root, kExtension);
  VarDesc& h = root.Var("h");
  h.SetErrorClip(ErrorClipByValue(2));
  h.MutableTraining().creation_site = "net.pbtxt:3:5";
  VarDesc& w = root.Var("w");
  w.SetPersistable(true);
  w.SetIsParameter(true);
  w.MutableTraining().learning_rate = 0.5;
  w.MutableTraining().trainable = false;
  w.MutableTraining().regularizer = Setting{"l2_decay", {{"coeff", 0.25}}};
  FileFields::MutableWire(w).unknown_fields = kPaddles + kExtension;
  root.Var("y");
  OpDesc& op = root.AppendOp("mean_grad", {{"X", {"h"}}}, {{"Out", {"y"}}},
                             {{"forward_op", std::string("h")}, {"op_role", int32_t{1}}});
  SetMark(op, {TrainingStage::kErrorClip, TrainingPart::kFinite, "h"});
  FileFields::SetUnknown(op, kExtension);
  return program;
}

const LeftOut* Find(const std::vector<LeftOut>& all, const std::string& what) {
  for (const LeftOut& lost : all) {
    if (lost.what == what) return &lost;
  }
  return nullptr;
}

TEST(PaddleFields, OnlyPaddlesRemain) {
  ProgramDesc program = WithEverything();
  const std::vector<LeftOut> left_out = KeepPaddleFields(program);
  ASSERT_EQ(left_out.size(), 9u);
  for (const auto& [what, of] : std::vector<std::pair<std::string, std::string>>{
           {"error clip", "h"},
           {"place in the text", "h"},
           {"learning rate", "w"},
           {"trainable = false", "w"},
           {"regularizer", "w"},
           {"attr forward_op", "mean_grad"},
           {"mark of the training step", "mean_grad"}}) {
    const LeftOut* lost = Find(left_out, what);
    ASSERT_TRUE(lost) << what;
    EXPECT_EQ(lost->of, std::vector<std::string>{of});
  }
  ASSERT_TRUE(Find(left_out, "random seed of the program"));
  ASSERT_TRUE(Find(left_out, "fields of unknown extensions"));
  EXPECT_TRUE(Find(left_out, "error clip")->matters);
  EXPECT_FALSE(Find(left_out, "place in the text")->matters);

  EXPECT_EQ(FileFields::Unknown(program), kPaddles);
  EXPECT_EQ(FileFields::WireOf(*program.Root().FindVar("w"))->unknown_fields, kPaddles);
  EXPECT_EQ(program.version, 1008004);
  EXPECT_TRUE(program.Root().FindVar("w")->is_parameter());
  EXPECT_FALSE(program.Root().op(0).HasAttr("forward_op"));
  EXPECT_TRUE(program.Root().op(0).HasAttr("op_role"));
  const std::string text = ProgramToText(program);
  for (const char* own : {"coracle", "legacy_version", "forward_op", "training_", "1005"})
    EXPECT_EQ(text.find(own), std::string::npos) << own << "\n" << text;
  // The version's field 4 with 1008004, as a varint.
  EXPECT_NE(SerializeProgram(program).find("\x22\x04\x08\x84\xC3\x3D"), std::string::npos);
  EXPECT_TRUE(KeepPaddleFields(program).empty());
}

TEST(PaddleFields, NothingOfPaddlesIsLost) {
  ProgramDesc program;
  program.version = 2002002;
  program.SetOpVersions({{{"conv2d", 1}}});
  BlockDesc& root = program.Root();
  root.Var("x").SetNeedCheckFeed(true);
  root.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"x"}}}, {{"op_namescope", std::string("/")}});
  const std::string before = SerializeProgram(program);
  EXPECT_TRUE(KeepPaddleFields(program).empty());
  EXPECT_EQ(SerializeProgram(program), before);
}

TEST(PaddleFields, OpsUnknownToPaddle) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* type : {"relu", "call", "lion", "call", "scaled_dot_product_attention_grad",
                           "mean_grad", "no_such_type"})
    root.AppendOp(type, {}, {});
  using Counts = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(OpsUnknownToPaddle(program),
            (Counts{{"call", 2}, {"lion", 1}, {"scaled_dot_product_attention_grad", 1}}));
  // Coracle has all sixteen.
  size_t own = 0;
  for (const std::string& type : DefaultOps().Types()) {
    ProgramDesc one;
    one.Root().AppendOp(type, {}, {});
    own += !type.ends_with("_grad") && !OpsUnknownToPaddle(one).empty();
  }
  EXPECT_EQ(own, 16u);
}

// Paddle's clip_by_norm has one limit, an attr, and one norm.
TEST(PaddleFields, ClipByNormOfOurOwn) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  const AttrList rows = {{"axis", int32_t{0}}}, all = {{"axis", int32_t{-1}}};
  root.AppendOp("clip_by_norm", {{"X", {"x"}}}, {{"Out", {"x"}}}, {{"max_norm", 1.0f}});
  root.AppendOp("clip_by_norm", {{"X", {"x"}}, {"MaxNorm", {"n"}}}, {{"Out", {"x"}}}, all);
  root.AppendOp("clip_by_norm", {{"X", {"x"}}, {"MaxNorm", {"n"}}}, {{"Out", {"x"}}}, rows);
  using Counts = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(OpsUnknownToPaddle(program),
            (Counts{{"clip_by_norm with MaxNorm", 1}, {"clip_by_norm with an axis", 1}}));
}

TEST(PaddleFields, DrawsOfAShareAreOurOwn) {
  ProgramDesc program;
  for (const Attribute& share : {Attribute(1.f), Attribute(0.5f), Attribute(std::string("half"))})
    program.Root().AppendOp("gaussian_random", {}, {{"Out", {"x"}}}, {{"share", share}});
  using Counts = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(OpsUnknownToPaddle(program), (Counts{{"gaussian_random with a share", 1}}));
}

// Programs come here unverified.
TEST(PaddleFields, AnAxisOfAnotherTypeIsNone) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const Attribute& axis : {Attribute(std::string("rows")), Attribute(int64_t{1} << 40),
                                Attribute(std::vector<int32_t>{0, 1}), Attribute(0.5f)})
    root.AppendOp("clip_by_norm", {{"X", {"x"}}}, {{"Out", {"x"}}}, {{"axis", axis}});
  EXPECT_TRUE(OpsUnknownToPaddle(program).empty());
  root.AppendOp("clip_by_norm", {{"X", {"x"}}}, {{"Out", {"x"}}}, {{"axis", int64_t{1}}});
  EXPECT_EQ(OpsUnknownToPaddle(program).size(), 1u);
}

}  // namespace coracle::paddle_fields_test

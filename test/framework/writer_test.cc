#include <coracle/framework/ir/file_fields.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/writer.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <functional>

namespace coracle::writer_test {

using Names = std::vector<std::string>;

class WriterTest : public ::testing::Test {
 protected:
  WriterTest() {
    VarDesc& x = block.Var("x");
    x.SetShape({2, 3});
    block.Var("ids").SetMeta({VarType::kLoDTensor, DType::kInt64, {2}, 0});
  }
  Writer MakeWriter(WriterOptions options = {}) {
    return Writer(block, DefaultOps(), std::move(options));
  }
  static std::string MessageOf(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& error) {
      return error.message();
    }
    return "nothing";
  }
  const OpDesc& LastOp() const { return block.op(block.NumOps() - 1); }

  ProgramDesc program;
  BlockDesc& block = program.Root();
};

TEST_F(WriterTest, MakesTypedOutputs) {
  const Variable mean = MakeWriter().Make("mean", {{"X", {"x"}}});
  EXPECT_EQ(mean.name(), "mean_0");
  EXPECT_EQ(mean.shape(), Shape({1}));
  const Variable parts =
      MakeWriter().Make("cast", {{"X", {"x"}}}, CastAttrs(DType::kFloat32, DType::kFloat64));
  EXPECT_EQ(parts.dtype(), DType::kFloat64);
  EXPECT_FALSE(FileFields::StopGradient(parts.desc()).has_value());
  VerifyOrThrow(program, DefaultOps());
}

TEST_F(WriterTest, RefusesWhatTheDeclarationRefuses) {
  const Writer w = MakeWriter();
  const ProgramDesc before = program;
  EXPECT_NE(MessageOf([&] {
              w.Make("no_such_op", {{"X", {"x"}}});
            }).find("no_such_op"),
            std::string::npos);
  EXPECT_NE(MessageOf([&] {
              w.Make("relu", {{"Y", {"x"}}});
            }).find("relu: has no input 'Y'"),
            std::string::npos);
  EXPECT_NE(MessageOf([&] {
              w.Make("scale", {{"X", {"x"}}}, {{"scale", std::string("two")}});
            }).find("scale: attr scale must be"),
            std::string::npos);
  // The shape rule, after the op and its output were made.
  EXPECT_NE(MessageOf([&] {
              w.Make("concat", {{"X", {"x", "ids"}}});
            }).find("[concat.C"),
            std::string::npos);
  EXPECT_NE(MessageOf([&] {
              w.Make("relu", {{"X", {"nobody"}}});
            }).find("'nobody'"),
            std::string::npos);
  EXPECT_TRUE(program == before);
}

TEST_F(WriterTest, RoleSiteAndDefaults) {
  Writer w = MakeWriter({.role = kOptimize, .stop_gradient = true});
  w.SetSite({"net.pbtxt:3:1"});
  const Variable scaled = w.Make("scale", {{"X", {"x"}}}, {{"scale", 2.0f}});
  EXPECT_TRUE(scaled.desc().stop_gradient());
  ASSERT_EQ(LastOp().attrs().size(), 3u);
  EXPECT_EQ(LastOp().attrs()[0].name, "scale");
  EXPECT_EQ(LastOp().attrs()[1].name, kOpCallstackAttr);
  EXPECT_EQ(LastOp().attrs()[2].name, kOpRoleAttr);
  EXPECT_EQ(LastOp().role(), kOptimize);
  EXPECT_EQ(LastOp().creation_site(), "net.pbtxt:3:1");
  w.Into("x", "scale", {{"X", {"x"}}}, {{kOpRoleAttr, int32_t{kLoss}}});
  EXPECT_EQ(LastOp().role(), kLoss);

  w = MakeWriter({.mark = {.stage = TrainingStage::kClip}});
  w.Into("x", "scale", {{"X", {"x"}}}, {{kTrainingStageAttr, std::string("weight decay")}});
  EXPECT_EQ(StageOf(LastOp()), TrainingStage::kDecay);
  w.Part(TrainingPart::kNorm, "all").Into("x", "scale", {{"X", {"x"}}});
  EXPECT_EQ(StageOf(LastOp()), TrainingStage::kClip);
  EXPECT_EQ(MarkOf(LastOp()).part, TrainingPart::kNorm);
  EXPECT_EQ(MarkOf(LastOp()).of, "all");
  for (const NamedAttr& attr : LastOp().attrs())
    EXPECT_TRUE(attr.name == "scale" || IsBookkeepingAttr(attr.name)) << attr.name;
  w.Into("x", "scale", {{"X", {"x"}}});
  EXPECT_EQ(LastOp().attrs().size(), 1u);  // the stage; Part is for one Writer

  MakeWriter({.all_attrs = true}).Make("scale", {{"X", {"x"}}}, {{"bias", 1.0f}});
  ASSERT_EQ(LastOp().attrs().size(), 3u);  // in the declaration's order
  EXPECT_EQ(LastOp().attrs()[0].name, "scale");
  EXPECT_EQ(std::get<float>(LastOp().attrs()[1].value), 1.0f);
  EXPECT_EQ(LastOp().attrs()[2].name, "bias_after_scale");
}

TEST_F(WriterTest, Names) {
  const Writer w = MakeWriter({.prefix = "clip"});
  EXPECT_EQ(w.Make("mean", {{"X", {"x"}}}).name(), "clip.mean_0");
  const Variable norm = w.Named("norm", Sqrt(w.Var("x")));
  EXPECT_EQ(norm.name(), "clip.norm_0");
  EXPECT_EQ(norm.shape(), Shape({2, 3}));
  EXPECT_EQ(LastOp().Output("Out"), Names{"clip.norm_0"});
  EXPECT_EQ(block.FindVar("clip.sqrt_0"), nullptr);
  EXPECT_EQ(w.Named("norm", Sqrt(norm)).name(), "clip.norm_1");
  EXPECT_EQ(w.Named("sqrt", Sqrt(norm)).name(), "clip.sqrt_2");  // no number is left out for it
  EXPECT_THROW(w.Named("x", norm), InternalError);               // another op came after it
  const Writer fixed = MakeWriter({.name = [](const std::string& hint) { return "my_" + hint; }});
  EXPECT_EQ(fixed.Make("mean", {{"X", {"x"}}}).name(), "my_mean");
  // The index of uses refers to deleted ops until it is rebuilt.
  EXPECT_EQ(block.Uses("clip.norm_0").readers.size(), 2u);
  fixed.Named("again", fixed.Make("abs", {{"X", {"clip.norm_0"}}}));
  EXPECT_EQ(block.Uses("clip.norm_0").readers.size(), 3u);
  EXPECT_EQ(block.Uses("my_again").writers.size(), 1u);
  EXPECT_TRUE(block.Uses("my_abs").writers.empty());
  VerifyOrThrow(program, DefaultOps());
}

// A handle on what was renamed is one on what it is called now; and only what Make made last has
// its name by itself.
TEST_F(WriterTest, NamedKeepsHandles) {
  const Writer w = MakeWriter();
  const Variable root = Sqrt(w.Var("x"));
  const Variable named = w.Named("norm", root);
  EXPECT_EQ(root.name(), "norm_0");
  EXPECT_EQ((root * named).shape(), Shape({2, 3}));
  EXPECT_EQ(LastOp().Input("X"), Names{"norm_0"});
  w.Make("sqrt", {{"X", {"x"}}});
  const Variable into = w.Into("chosen", "sqrt", {{"X", {"x"}}});
  EXPECT_EQ(w.Named("sqrt", into).name(), "sqrt_2");
  EXPECT_EQ(block.FindVar("chosen"), nullptr);
  VerifyOrThrow(program, DefaultOps());
}

// The index of uses looks into ops that are gone until it is made anew.
TEST_F(WriterTest, RenamedAfterOpsWent) {
  const size_t before = block.NumOps();
  block.AppendOp("relu", {{"X", {"a_name_too_long_to_lie_in_the_string"}}}, {{"Out", {"x"}}});
  EXPECT_EQ(block.Uses("a_name_too_long_to_lie_in_the_string").readers.size(), 1u);
  block.TruncateOps(before);
  block.RenameVar(*block.FindVar("x"), "a_name_too_long_to_lie_in_the_string");
  EXPECT_TRUE(block.Uses("a_name_too_long_to_lie_in_the_string").readers.empty());
  EXPECT_EQ(block.FindVar("x"), nullptr);
}

TEST_F(WriterTest, OfOtherRoles) {
  const Writer forward = MakeWriter(), update = MakeWriter({.role = kOptimize});
  EXPECT_NE(MessageOf([&] { forward.Var("x") + update.Var("x"); }).find("ops of different roles"),
            std::string::npos);
  EXPECT_EQ(block.NumOps(), 0u);
}

TEST_F(WriterTest, OfItsVariables) {
  const Writer w = MakeWriter();
  const Variable with = w.Var("x"), without = Variable::Of(block, "x");
  EXPECT_EQ((without + with).name(), "elementwise_add_0");
  EXPECT_EQ((with + without).name(), "elementwise_add_1");
  EXPECT_EQ(
      MessageOf([&] { without + without; }),
      "'x' has no Writer, so it is unknown where ops on it belong; Writer(block, ops).Var('x') "
      "or a Builder's Var returns one with a Writer");
  EXPECT_NE(MessageOf([&] { with + Variable(); }).find("empty Variable"), std::string::npos);
  BlockDesc& inner = program.AppendBlock(block);
  const Writer other(inner, DefaultOps());
  EXPECT_NE(MessageOf([&] { with + other.Var("x"); }).find("different blocks"), std::string::npos);
  EXPECT_EQ(inner.NumOps(), 0u);
  EXPECT_EQ(Abs(other.Var("x")).name(), "abs_0");
  EXPECT_EQ(inner.NumOps(), 1u);
}

// Copies are one Writer, and Variables outlive the Builder that gave them.
TEST_F(WriterTest, ActsAsOne) {
  Writer w = MakeWriter(), copy = w;
  BlockDesc& inner = program.AppendBlock(block);
  copy.SetBlock(inner);
  w.Make("mean", {{"X", {"x"}}});
  EXPECT_EQ(inner.NumOps(), 1u);
  ProgramDesc startup;
  Variable y;
  {
    Builder net(program, startup);
    y = net.Data("y", {2, 3});
    EXPECT_EQ((y + y).name(), "elementwise_add_0.tmp_0");
  }
  EXPECT_EQ((y * y).name(), "elementwise_mul_0.tmp_0");
}
}  // namespace coracle::writer_test

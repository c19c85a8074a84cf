// Programs in DOT, letter by letter.

#include <coracle/coracle.h>
#include <coracle/inspect/inspect.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <ctime>

namespace coracle::dot_test {

void AddVar(BlockDesc& block, const char* name, const Shape& shape, bool persistable = false) {
  VarDesc& var = block.Var(name);
  var.SetShape(shape);
  if (persistable) var.SetPersistable(true);
}

// x -> mul by w -> h -> relu -> y
ProgramDesc Small() {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  AddVar(root, "w", {4, 2}, true);
  AddVar(root, "x", {-1, 4});
  AddVar(root, "fc_0.tmp_0", {-1, 2});
  AddVar(root, "y", {-1, 2});
  root.AppendOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"fc_0.tmp_0"}}});
  root.AppendOp("relu", {{"X", {"fc_0.tmp_0"}}}, {{"Out", {"y"}}});
  return program;
}

// Without the lines that are the same in all graphs.
std::string Body(const ProgramDesc& program, const DotOptions& options = {}) {
  const std::string dot = ProgramDot(program, DefaultOps(), options);
  const size_t edge = dot.find("  edge [");
  return dot.substr(dot.find('\n', edge) + 1);
}

std::string Small(const std::string& text) {
  return "<font point-size=\"9\" color=\"#555555\">" + text + "</font>";
}

TEST(Dot, WholeGraph) {
  EXPECT_EQ(Body(Small()), "  b0_0 [label=<<b>mul</b><br/>" + Small("fc_0") + "<br/>" +
                               Small("Y: w float32[4, 2]") + ">, fillcolor=\"#dbe9f8\"];\n" +
                               "  b0_1 [label=<<b>relu</b>>, fillcolor=\"#dbe9f8\"];\n" +
                               "  v0 [label=<x<br/>" + Small("float32[-1, 4]") +
                               ">, shape=ellipse, style=filled, fillcolor=\"#ffffff\"];\n" +
                               "  v0 -> b0_0;\n"
                               "  b0_0 -> b0_1 [label=<fc_0.tmp_0<br/>" +
                               Small("float32[-1, 2]") + ">];\n" + "  v1 [label=<y<br/>" +
                               Small("float32[-1, 2]") +
                               ">, shape=ellipse, style=filled, fillcolor=\"#ffffff\"];\n"
                               "  b0_1 -> v1;\n}\n");
}

TEST(Dot, SubBlocksAreFrames) {
  ProgramDesc program = Small();
  BlockDesc& inner = program.AppendBlock(program.Root());
  AddVar(inner, "z", {2});
  inner.AppendOp("relu", {{"X", {"y"}}}, {{"Out", {"z"}}});
  program.Root().AppendOp("while", {{"X", {"y"}}}, {}, {{"sub_block", BlockRef{1}}});
  const std::string dot = Body(program);
  EXPECT_NE(dot.find("  subgraph cluster_1 {\n    label=\"block 1\";"), dot.npos) << dot;
  EXPECT_NE(dot.find("    b1_0 [label=<<b>relu</b>>"), dot.npos) << dot;
  // The block reads variables from around it; a dotted line leads to its frame.
  EXPECT_NE(dot.find("  b0_1 -> b1_0 [label=<y<br/>"), dot.npos) << dot;
  EXPECT_NE(dot.find("  b0_2 -> b1_0 [style=dotted, arrowhead=none, lhead=cluster_1];\n"), dot.npos)
      << dot;
  DotOptions root_only;
  root_only.block = 0;
  EXPECT_EQ(Body(program, root_only).find("cluster_1"), std::string::npos);
  EXPECT_EQ(OpsInDot(program, root_only), 3u);
  EXPECT_EQ(OpsInDot(program), 4u);
}

// Each read leads back to the write before it.
TEST(Dot, OverwrittenVariables) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  AddVar(root, "x", {2});
  for (int i = 0; i < 3; ++i) root.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"x"}}});
  const std::string dot = Body(program);
  EXPECT_NE(dot.find("  v0 -> b0_0;\n"), dot.npos) << dot;
  EXPECT_NE(dot.find("  b0_0 -> b0_1 ["), dot.npos) << dot;
  EXPECT_NE(dot.find("  b0_1 -> b0_2 ["), dot.npos) << dot;
  EXPECT_EQ(dot.find("  b0_0 -> b0_2 ["), dot.npos) << dot;
}

TEST(Dot, StagesAndSurroundings) {
  ProgramDesc program = Small();
  BlockDesc& root = program.Root();
  root.AppendOp("relu_grad", {{"Out", {"y"}}}, {{"X@GRAD", {"fc_0.tmp_0@GRAD"}}},
                {{"op_role", int32_t{kBackward}}});
  DotOptions options;
  options.stages = {TrainingStage::kBackward};
  std::string dot = Body(program, options);
  EXPECT_EQ(dot.find("b0_0"), dot.npos) << dot;
  EXPECT_NE(
      dot.find("b0_2 [label=<<b>relu_grad</b><br/>" + Small("fc_0") + ">, fillcolor=\"#fde6c8\"];"),
      dot.npos)
      << dot;
  // Its input comes from an op that is left out.
  EXPECT_NE(dot.find("style=dashed"), dot.npos) << dot;
  options = {};
  options.around = "x";
  options.depth = 1;
  EXPECT_EQ(OpsInDot(program, options), 1u);
  options.depth = 2;
  EXPECT_EQ(OpsInDot(program, options), 2u);
  options.depth = 3;
  EXPECT_EQ(OpsInDot(program, options), 3u);
  options.around = "w";  // a persistable variable leads somewhere when it is asked for
  options.depth = 1;
  EXPECT_EQ(OpsInDot(program, options), 1u);
}

// Labels of edges that cross many ranks would take Graphviz for ever.
TEST(Dot, LongEdgesHaveNoLabels) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  const int ops = 200;
  for (int i = 0; i < ops; ++i) {
    const std::string in = "v" + std::to_string(i), out = "v" + std::to_string(i + 1);
    AddVar(root, out.c_str(), {2});
    root.AppendOp("sum", {{"X", {in, i < 100 ? in : "v" + std::to_string(ops - i)}}},
                  {{"Out", {out}}});
  }
  const std::string dot = Body(program);
  EXPECT_EQ(dot.find("-> b0_7 ["), dot.npos) << dot;
  EXPECT_NE(dot.find("  b0_7 [label=<<b>sum</b><br/>" + Small("&#8594; v8 float32[2]") + ">,"),
            dot.npos)
      << dot;
  EXPECT_NE(dot.find("  b0_6 -> b0_7;\n"), dot.npos) << dot;
  DotOptions part;
  part.around = "v8";
  EXPECT_NE(Body(program, part).find("  b0_7 -> b0_8 [label=<v8<br/>"), dot.npos);
}

TEST(Dot, UnknownNames) {
  DotOptions options;
  options.around = "fc_0.tmp_1";
  EXPECT_EQ(ErrorOf([&] { OpsInDot(Small(), options); }),
            "the program has no variable 'fc_0.tmp_1'; did you mean fc_0.tmp_0?");
  options = {};
  options.block = 1;
  EXPECT_EQ(ErrorOf([&] { OpsInDot(Small(), options); }), "no block 1: the program has 1");
  EXPECT_EQ(StageFromText("gradient_clip"), TrainingStage::kClip);
  EXPECT_EQ(StageFromText("learning-rate schedule"), TrainingStage::kSchedule);
  EXPECT_NE(ErrorOf([] { StageFromText("forwards"); }).find("did you mean forward?"),
            std::string::npos);
}

TEST(Dot, HostileNames) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  const std::string evil = "<b>\"&\x1b\n\\" + std::string(1000, 'x');
  root.Var(evil);
  root.AppendOp("</b>\"]; a -> b", {{"X", {evil}}}, {{"Out", {""}}});
  root.AppendOp("", {}, {});
  program.AppendBlock(2);  // each inside of the other
  program.AppendBlock(1);
  const std::string dot = Body(program);
  EXPECT_NE(dot.find("<b>&lt;/b&gt;&quot;]; a -&gt; b</b>"), dot.npos) << dot;
  EXPECT_NE(dot.find("&lt;b&gt;&quot;&amp;\\x1b\\x0a"), dot.npos) << dot;
  EXPECT_NE(dot.find("<b>&#39;&#39;</b>"), dot.npos) << dot;
  EXPECT_LT(dot.size(), 1500u) << dot;
}

double SecondsToDraw(int ops) {
  ProgramDesc program;
  for (int i = 0; i < ops; ++i) {
    const std::string in = "v" + std::to_string(i), out = "v" + std::to_string(i + 1);
    program.Root().Var(out).SetShape({-1, 16});
    // One variable that all read, and one that all write again.
    program.Root().AppendOp("sum", {{"X", {in, "v1", "state"}}}, {{"Out", {out, "state"}}});
  }
  const std::clock_t start = std::clock();
  EXPECT_GT(ProgramDot(program, DefaultOps()).size(), static_cast<size_t>(ops) * 50);
  DotOptions options;
  options.around = "v1";
  EXPECT_GT(OpsInDot(program, options), 0u);
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(Dot, LinearInTheNumberOfOps) {
  SecondsToDraw(1000);
  const double small = SecondsToDraw(10000), large = SecondsToDraw(100000);
  RecordProperty("seconds_100000_ops", std::to_string(large));
  EXPECT_LT(large, 50 * small + 0.1);
}
}  // namespace coracle::dot_test

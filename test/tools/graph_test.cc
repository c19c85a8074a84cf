// `coracle graph`.

#include <coracle/coracle.h>
#include <coracle/test/test_data.h>
#include <coracle/test/tools/cli.h>
#include <fmt/format.h>

namespace coracle::graph_test {

class GraphCommand : public Cli {
 protected:
  static bool HasDot() { return Shell("command -v dot").code == 0; }
  // Whether Graphviz reads the text; -Tcanon lays nothing out.
  void ExpectAccepted(const std::string& file) {
    const Result result = Shell("cd " + dir_ + " && timeout 60 dot -Tcanon " + file + " > c.dot");
    EXPECT_EQ(result.code, 0) << result.text;
    EXPECT_EQ(result.text, "") << "a warning of dot";
  }
};

TEST_F(GraphCommand, WritesDot) {
  Expect("coracle graph model.pbtxt", 0,
         {"digraph program {", "<b>mul</b>", "Y: fc_0.w_0", "\n}\n"});
  Expect(
      "coracle graph model.pbtxt -o g.dot && coracle graph model.pbtxt > h.dot && cmp g.dot h.dot",
      0, {});
  Expect("coracle graph model.pbtxt --around=loss --depth=1", 0, {"<b>mean</b>"});
  const Result near = Shell("cd " + dir_ + " && coracle graph model.pbtxt --around=loss --depth=1");
  EXPECT_EQ(near.text.find("<b>mul</b>"), std::string::npos);
}

TEST_F(GraphCommand, WrongUse) {
  Expect("coracle graph", 2, {"one PROGRAM"});
  Expect("coracle graph model.pbtxt --format=png", 2,
         {"--format of graph is dot or svg, got 'png'"});
  Expect("coracle graph model.pbtxt -o g.png", 2, {"--out must end in .dot or .gv or .svg"});
  Expect("coracle graph model.pbtxt --format=svg -o g.dot", 2, {"--out must end in .svg"});
  Expect("coracle graph model.pbtxt --stage=foward", 2,
         {"unknown stage 'foward'; did you mean forward?"});
  Expect("coracle graph model.pbtxt --depth=2", 2, {"--around=VAR names"});
  Expect("coracle graph model.pbtxt --depth=0", 2, {"--depth must be at least 1, got 0"});
  Expect("coracle graph model.pbtxt --block=3", 1, {"no block 3: the program has 1"});
  Expect("coracle graph model.pbtxt --around=los", 1, {"no variable 'los'; did you mean loss?"});
  Expect("coracle graph model.pbtxt --stage=update", 1, {"there is no op to draw"});
  Expect("coracle graph nowhere.pb", 1, {"nowhere.pb"});
  Expect("head -c 130 model.pbtxt > half.pbtxt; coracle graph half.pbtxt", 1, {"half.pbtxt"});
  EXPECT_FALSE(FileExists(Path("g.png")));
  EXPECT_FALSE(FileExists(Path("g.dot")));
}

TEST_F(GraphCommand, SvgNeedsGraphviz) {
  // Without a PATH there is no dot on any machine.
  Expect("PATH=/nowhere coracle graph model.pbtxt -o g.svg", 1,
         {"Graphviz's dot, which draws svg, is not installed"});
  EXPECT_FALSE(FileExists(Path("g.svg")));
  WriteFileAtomic(Path("bin/dot"), "#!/bin/sh\nsleep 100\n");
  Expect(
      "chmod +x bin/dot; PATH=$PWD/bin:$PATH coracle graph model.pbtxt -o g.svg --time_limit=0.5",
      1, {"dot took longer than 0.5 s"});
  WriteFileAtomic(Path("bin/dot"), "#!/bin/sh\necho 'Error: no memory' >&2\nexit 3\n");
  Expect("chmod +x bin/dot; PATH=$PWD/bin:$PATH coracle graph model.pbtxt -o g.svg", 1,
         {"dot failed: Error: no memory"});
  EXPECT_FALSE(FileExists(Path("g.svg")));
}

TEST_F(GraphCommand, DrawsSvg) {
  if (!HasDot()) GTEST_SKIP() << "Graphviz's dot is not installed";
  Expect("coracle graph model.pbtxt -o g.svg && tail -n 1 g.svg", 0, {"</svg>"});
  Expect("coracle graph model.pbtxt --format=svg", 0, {"<svg ", ">mean<"});
}

TEST_F(GraphCommand, DotReadsHostileNames) {
  if (!HasDot()) GTEST_SKIP() << "Graphviz's dot is not installed";
  ProgramDesc program;
  const std::string evil = "a\"b<c>&amp;\\N\n\x1b\xff]->{}" + std::string(500, 'z');
  program.Root().Var(evil);
  program.Root().AppendOp(evil, {{evil, {evil}}}, {{"Out", {"&#x;"}}});
  program.Root().AppendOp("", {{"", {"&#x;"}}}, {{"Out", {"\xc3\xa4"}}});
  WriteProgram(program, Path("evil.pb"));
  Expect("coracle graph evil.pb -o evil.dot", 0, {});
  ExpectAccepted("evil.dot");
}

TEST_F(GraphCommand, SvgOfTooManyOps) {
  ProgramDesc program;
  for (int i = 0; i < 2001; ++i) program.Root().AppendOp("relu", {}, {});
  WriteProgram(program, Path("large.pb"));
  Expect("coracle graph large.pb -o large.svg", 1,
         {"2001 ops are too many to draw as svg (at most 2000); draw less with --stage"});
  Expect("coracle graph large.pb -o large.dot", 0, {});
}

// A test for development: it needs the data.
TEST_F(GraphCommand, DotReadsAllRealPrograms) {
  namespace fs = std::filesystem;
  if (TestDataDirectory().empty()) GTEST_SKIP() << "no data: set CORACLE_DATA";
  if (!HasDot()) GTEST_SKIP() << "Graphviz's dot is not installed";
  int programs = 0;
  for (const auto& entry : fs::recursive_directory_iterator(TestDataDirectory() + "/paddle")) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".pdmodel") && name != "__model__") continue;
    Expect(fmt::format("coracle graph {} -o real.dot", entry.path().string()), 0, {});
    ExpectAccepted("real.dot");
    ++programs;
  }
  EXPECT_GE(programs, 12);
}
}  // namespace coracle::graph_test

// `coracle ops` and `coracle check` about the ops of a program, and the pages of docs/ops.

#include <coracle/coracle.h>
#include <coracle/test/tools/cli.h>

#include <nlohmann/json.hpp>
#include <set>

namespace coracle::ops_test {

namespace fs = std::filesystem;

using Json = nlohmann::json;

class OpsCommand : public Cli {
 protected:
  // Two of relu, and ops that do without a gradient, without a kernel, or are refused.
  void WriteMixed() {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    root.Var("x").SetShape({2, 3});
    for (const char* name : {"a", "b", "k", "i", "c"}) root.Var(name);
    root.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"a"}}});
    root.AppendOp("relu", {{"X", {"a"}}}, {{"Out", {"b"}}});
    root.AppendOp("c_allreduce_max", {{"X", {"b"}}}, {{"Out", {"c"}}});
    root.AppendOp("shape", {{"Input", {"b"}}}, {{"Out", {"i"}}});
    root.AppendOp("send", {{"X", {"c"}}}, {}, {{"endpoints", std::vector<std::string>{"a:1"}}});
    root.AppendOp("no_such_op", {}, {});
    WriteProgram(program, Path("mixed.pb"));
  }
};

TEST_F(OpsCommand, ElementsOfOpsOnTexts) {
  Expect("coracle ops regex_full_match --json", 0, {R"("elements": "string")"});
  Expect("coracle ops reshape2 --json", 0, {R"("elements": "any")"});
}

TEST_F(OpsCommand, TellsWhatAProgramNeeds) {
  WriteMixed();
  Expect("coracle ops mixed.pb", 0,
         {"    ops  type             forward  gradient   fast kernel\n",
          "      2  relu             yes      yes        ", "c_allreduce_max  yes      no ",
          "shape            yes      constant   no\n", "send             refused  no         no\n",
          "needs other processes (parameter server)\n", "no_such_op       missing  no ",
          "6 ops of 5 types: 2 cannot run, 3 without a gradient\n"});
  const Result result = Shell("cd " + dir_ + " && coracle ops mixed.pb --json");
  ASSERT_EQ(result.code, 0) << result.text;
  const Json ops = Json::parse(result.text)["types"];
  ASSERT_EQ(ops.size(), 5u);
  EXPECT_EQ(ops[0]["type"], "relu");
  EXPECT_EQ(ops[0]["count"], 2);
  EXPECT_EQ(ops[0]["forward"], "yes");
  EXPECT_EQ(ops[0]["gradient"], "yes");
  for (const Json& op : ops) {
    if (op["type"] == "send") {
      EXPECT_EQ(op["reason"], "needs other processes (parameter server)");
      EXPECT_EQ(op["forward"], "refused");
    }
  }
  Expect("coracle ops model.pbtxt", 0, {"0 cannot run, 0 without a gradient"});
  Expect("coracle ops no/such/file.pb", 1, {"no/such/file.pb"});
}

TEST_F(OpsCommand, RefusedTypesAreKnown) {
  WriteMixed();
  Expect("coracle ops send", 1,
         {"op type 'send' is refused: needs other processes (parameter server)"});
  Expect("coracle ops --all", 0, {"\nrelu_grad ", "\nsend ", "refused   needs other processes"});
  Expect("coracle check mixed.pb", 1,
         {"error: 2 op types are missing (2 ops)", "1  no_such_op\n",
          "1  send: needs other processes (parameter server)\n"});
  Expect("coracle run mixed.pb --fetch=c", 1, {"op type 'send' is refused"});
  WriteFileAtomic(Path("send.pbtxt"),
                  "data { name: \"x\" shape: [1] }\n"
                  "layer { op { send { X: [\"x\"] } } }\n");
  Expect("coracle build send.pbtxt --out=m.pb", 1,
         {"send.pbtxt:2:", "op type 'send' is refused: needs other processes"});
}

TEST_F(OpsCommand, CheckCountsMissingGradients) {
  WriteMixed();
  Expect("coracle check mixed.pb --gradients", 1,
         {"gradients: 3 ops of 3 types have none (c_allreduce_max 1, no_such_op 1, send 1)\n"});
  Expect("coracle check model.pbtxt --gradients", 0, {"gradients: no op lacks one\n"});
}

TEST_F(OpsCommand, JsonHasAllDeclarations) {
  const Result result = Shell("coracle ops --json");
  ASSERT_EQ(result.code, 0);
  const Json all = Json::parse(result.text);
  EXPECT_EQ(all["ops"].size(), DefaultOps().Types().size());
  EXPECT_GT(all["refused"].size(), 50u);
  const Json clip = Json::parse(Shell("coracle ops clip --json").text);
  EXPECT_EQ(clip["constraints"]["C1"], "min must not exceed max");
  EXPECT_EQ(clip["inputs"][0]["name"], "X");
  EXPECT_EQ(clip["fast"], DefaultOps().Get("clip").HasFastKernel());
}

// The reference of operators is made from the declarations.
TEST_F(OpsCommand, PagesAreCurrent) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  Expect("coracle ops --markdown --out=pages", 0, {});
  const fs::path kept = fs::path(sources) / "docs/ops";
  const char* command = "run `coracle ops --markdown --out=docs/ops` in the source directory";
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(Path("pages"))) {
    const std::string name = entry.path().filename();
    names.insert(name);
    ASSERT_TRUE(FileExists((kept / name).string())) << "docs/ops/" << name << " lacks; " << command;
    EXPECT_TRUE(ReadFile(entry.path().string()) == ReadFile((kept / name).string()))
        << "docs/ops/" << name << " is not current; " << command;
  }
  EXPECT_GT(names.size(), 10u);
  for (const auto& entry : fs::directory_iterator(kept)) {
    EXPECT_TRUE(names.count(entry.path().filename()))
        << entry.path() << " belongs to no family; remove it";
  }
}

TEST_F(OpsCommand, MarkdownNeedsADirectory) {
  Expect("coracle ops --markdown", 2, {"--markdown needs --out=DIR"});
}
}  // namespace coracle::ops_test

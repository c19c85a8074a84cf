// `coracle ops` and `coracle check` about the ops of a program, and the pages of docs/ops.

#include <coracle/coracle.h>
#include <coracle/test/tools/cli.h>

#include <algorithm>
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

std::set<std::string> TextsOf(const Json& list) { return list.get<std::set<std::string>>(); }

// What a build for a program has: its ops, their gradients, and the files of both.
TEST_F(OpsCommand, NeededOpsOfAProgram) {
  WriteFileAtomic(Path("net.pbtxt"),
                  "data { name: 'x' shape: [-1, 3] } "
                  "layer { fc { input: 'x' size: 2 act: 'tanh' output: 'h' } } "
                  "layer { softmax { input: 'h' output: 'y' } }");
  const Result result = Shell("cd " + dir_ + " && coracle ops --needed net.pbtxt --json");
  ASSERT_EQ(result.code, 0) << result.text;
  const Json json = Json::parse(result.text);
  const std::set<std::string> needed = TextsOf(json["ops"]), left = TextsOf(json["left_out"]);
  for (const char* type : {"mul", "mul_grad", "tanh", "tanh_grad", "softmax", "softmax_grad",
                           "elementwise_add", "elementwise_add_grad", "feed", "fetch"})
    EXPECT_EQ(needed.count(type), 1u) << type;
  for (const char* type : {"conv2d", "conv2d_grad", "lstm", "yolo_box", "while"})
    EXPECT_EQ(left.count(type), 1u) << type;
  std::set<std::string> all = left;
  for (const Json& file : json["files"]) {
    std::set<std::string> of_file = TextsOf(file["ops"]);
    EXPECT_TRUE(std::any_of(of_file.begin(), of_file.end(), [&](const std::string& type) {
      return needed.count(type) > 0;
    })) << file;
    all.merge(of_file);
    EXPECT_TRUE(of_file.empty()) << file;
  }
  const std::vector<std::string> known = DefaultOps().Types();
  EXPECT_EQ(all, std::set<std::string>(known.begin(), known.end()));
  EXPECT_TRUE(std::includes(all.begin(), all.end(), needed.begin(), needed.end()));
  // As lines; of several programs; an unknown op is an error, and what has no gradient is noted.
  Expect("coracle ops --needed net.pbtxt model.pbtxt", 0, {"\nmean\n", "\nmul\n", "\ntanh\n"});
  // The gradients of the other results count where one result, as an accuracy, has none.
  WriteFileAtomic(Path("lenet.pbtxt"),
                  "data { name: 'x' shape: [-1, 4] } data { name: 'l' shape: [-1, 1] dtype: INT64 }"
                  "layer { softmax { input: 'x' output: 'p' } } "
                  "layer { cross_entropy { input: 'p' label: 'l' output: 'ce' } } "
                  "layer { accuracy { input: 'p' label: 'l' output: 'acc' } }");
  Expect("coracle ops --needed lenet.pbtxt", 0, {"\ncross_entropy_grad\n", "softmax_grad\n"});
  WriteMixed();
  Expect("coracle ops --needed mixed.pb", 1, {"op type 'send' is refused"});
  Expect("coracle ops --needed", 2, {"one or more PROGRAMs with --needed"});
  for (const char* flag : {"--all", "--names", "--markdown", "--out=ops"})
    Expect(std::string("coracle ops --needed net.pbtxt ") + flag, 2,
           {"--needed goes with --json only"});
}

// A net of a quantized product, and softmax of its quantized result.
ProgramDesc QuantizedNet(Scope* scope) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  const auto declare = [&](const char* name, const Shape& shape, DType dtype) -> VarDesc& {
    VarDesc& var = root.Var(name);
    var.SetShape(shape);
    var.SetDType(dtype);
    return var;
  };
  const auto parameter = [&](const char* name, const Tensor& value) {
    declare(name, value.shape(), value.dtype()).SetPersistable(true);
    scope->Set(name, value);
  };
  parameter("w", Tensor::Zeros(DType::kInt8, {3, 2}));
  Tensor step = Tensor::Zeros(DType::kFloat32, {1});
  step.data<float>()[0] = 0.5f;
  parameter("step", step);
  declare("x", {-1, 3}, DType::kFloat32);
  for (const char* name : {"qd", "wd", "h", "hd", "y"})
    declare(name, {-1, name[0] == 'q' ? 3 : 2}, DType::kFloat32);
  declare("q", {-1, 3}, DType::kInt8);
  declare("hq", {-1, 2}, DType::kInt8);
  const auto append = [&](const char* type, const char* x, const char* out) {
    root.AppendOp(type, {{"X", {x}}, {"Scale", {"step"}}}, {{"Out", {out}}});
  };
  append("affine_quantize", "x", "q");
  append("affine_dequantize", "q", "qd");
  append("affine_dequantize", "w", "wd");
  root.AppendOp("mul", {{"X", {"qd"}}, {"Y", {"wd"}}}, {{"Out", {"h"}}});
  append("affine_quantize", "h", "hq");
  append("affine_dequantize", "hq", "hd");
  root.AppendOp("softmax", {{"X", {"hd"}}}, {{"Out", {"y"}}});
  return program;
}

TEST_F(OpsCommand, CheckShowsWhatComputesInIntegers) {
  Scope scope;
  const ProgramDesc program = QuantizedNet(&scope);
  WriteProgram(program, Path("net.pdmodel"));
  Expect("coracle check net.pdmodel --quantization", 1, {"no parameters next to 'net.pdmodel'"});
  SaveParameters(scope, PersistableNames(program), Path("net.pdiparams"));
  const Result text = Shell("cd " + dir_ + " && coracle check net.pdmodel --quantization");
  ASSERT_EQ(text.code, 0) << text.text;
  EXPECT_NE(text.text.find("softmax"), std::string::npos) << text.text;
  const Result result = Shell("cd " + dir_ + " && coracle check net.pdmodel --quantization --json");
  ASSERT_EQ(result.code, 0) << result.text;
  const Json json = Json::parse(result.text);
  ASSERT_FALSE(json["ops"].empty());
  const Json& last = json["ops"].back();
  EXPECT_EQ(last["type"], "softmax");
  EXPECT_EQ(last["computes"], "float");
  EXPECT_NE(last["reason"], "");
  // The product depends on the machine.
  EXPECT_EQ(json["int8_ops"] != 0, text.text.find("quantized_matmul") != std::string::npos);
  Expect("coracle check net.pdmodel --params=net.pdiparams", 2, {"--params is for"});
  Expect("coracle check net.pdmodel --quantization --gradients", 2, {"two reports"});
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

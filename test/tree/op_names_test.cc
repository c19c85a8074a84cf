// The properties of an op (its precision, how rows pass, ...) are traits of its declaration: no
// other code compares op types with names or keeps lists of names, although it may append ops. Only
// operators/, convert/ and a pass know types: their own, those of the other format, and those of
// the pass's pattern.

#include <coracle/operators/op_families.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

namespace coracle::op_names_test {

namespace fs = std::filesystem;

const std::vector<std::string> kDirectories = {
    "framework", "backward", "clip",        "communication", "distribute", "edit",
    "executor",  "inspect",  "layers",      "initializer",   "optimizer",  "passes",
    "capi",      "tools",    "regularizer", "train"};
// A pass knows the ops of its pattern.
bool IsOfAPass(const std::string& path) {
  return path.rfind("passes/", 0) == 0 && path.rfind("passes/pass.", 0) != 0 &&
         path.rfind("passes/pipeline.", 0) != 0;
}

struct Exception {
  std::string path, name, reason;
};
constexpr const char* kLayer = "the name of a layer or of a field";
constexpr const char* kMistake = "the pattern of a likely mistake";
constexpr const char* kPaddle = "the form that Paddle knows";
constexpr const char* kShapes = "the pattern of a shape that ops compute";
const std::vector<Exception> kExceptions = {
    {"framework/ir/infer_parameters.cc", "fetch", "a file is read without a registry"},
    {"framework/ir/infer_parameters.cc", "save", "a file is read without a registry"},
    {"framework/io/npy.cc", "shape", "a key of npy files"},
    {"inspect/page/js/scene.js", "feed", "the page draws the ends of a program by their variables"},
    {"inspect/page/js/scene.js", "fetch",
     "the page draws the ends of a program by their variables"},
    {"inspect/page/js/groups.js", "fetch",
     "the page draws the ends of a program by their variables"},
    {"backward/backward.cc", "sum", "a way of adding up gradients"},
    {"optimizer/mixed_precision.cc", "cast", "appends and patches casts"},
    {"distribute/exchange_ops.cc", "fill_constant", "looks for constants of the startup program"},
    {"distribute/rank_values.cc", "isfinite", "the flag means: all finite, so ranks agree by and"},
    {"distribute/rank_values.cc", "logical_and", "joins such flags: ranks agree by and, too"},
    {"tools/needed_ops.cc", "assign", "ops that the compiler adds on some machines only"},
    {"tools/needed_ops.cc", "cast", "ops that the compiler adds on some machines only"},
    {"edit/optimize.cc", "scale", kPaddle},
    {"edit/optimize.cc", "transpose2", kPaddle},
    {"edit/written_shapes.cc", "cast", kShapes},
    {"edit/written_shapes.cc", "concat", kShapes},
    {"edit/written_shapes.cc", "gather", kShapes},
    {"edit/written_shapes.cc", "shape", kShapes},
    {"edit/written_shapes.cc", "slice", kShapes},
    {"edit/paddle_fields.cc", "call", kPaddle},
    {"edit/paddle_fields.cc", "clip_by_norm", kPaddle},
    {"edit/paddle_fields.cc", "clip_statistics", kPaddle},
    {"edit/paddle_fields.cc", "gaussian_random", kPaddle},
    {"inspect/mistakes.cc", "dropout", kMistake},
    {"inspect/mistakes.cc", "log", kMistake},
    {"inspect/mistakes.cc", "log_softmax", kMistake},
    {"inspect/mistakes.cc", "logsigmoid", kMistake},
    {"inspect/mistakes.cc", "sigmoid", kMistake},
    {"inspect/mistakes.cc", "softmax", kMistake},
    {"layers/math.cc", "mean", kLayer},
    {"layers/math.cc", "sum", kLayer},
    {"layers/control_flow_reader.cc", "while", kLayer},
    {"layers/program_layer.cc", "reshape", "a saved program's batch size is opened"},
    {"layers/rnn.cc", "lstm", kLayer},
    {"layers/rnn.cc", "relu", kLayer},
    {"layers/rnn.cc", "tanh", kLayer},
    {"train/job/job_fields.cc", "accuracy", "the name of a metric"},
    {"train/job/job_fields.cc", "auc", "the name of a metric"},
    {"train/data/source_fields.cc", "fill", kLayer},
    {"train/data/source_fields.cc", "mean", kLayer},
    {"tools/commands/graph.cc", "dot", "the format of a drawing"},
    {"tools/commands/sweep.cc", "quantize", kLayer},
};

bool IsException(const std::string& path, const std::string& name) {
  for (const Exception& e : kExceptions) {
    if (path == e.path && name == e.name) return true;
  }
  return false;
}

bool IsOp(const std::string& name) { return DefaultOps().Find(name) != nullptr; }

// Names of ops in comparisons and in lists of names, of a text without comments.
std::set<std::string> ComparedOps(const std::string& text) {
  static const std::regex patterns[] = {
      std::regex(R"rx([=!]=\s*"([a-z0-9_]+)")rx"), std::regex(R"rx("([a-z0-9_]+)"\s*[=!]=)rx"),
      std::regex(
          R"rx((?:count|contains|starts_with|ends_with|rfind|find)\(\s*"([a-z0-9_]+)"\s*[,)])rx")};
  std::set<std::string> found;
  for (const std::regex& pattern : patterns) {
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
      if (IsOp((*it)[1])) found.insert((*it)[1]);
    }
  }
  // A list that begins with two names of ops.
  static const std::regex list(R"rx(\{\s*"([a-z0-9_]+)",\s*"([a-z0-9_]+)"\s*[,}])rx");
  for (std::sregex_iterator it(text.begin(), text.end(), list), end; it != end; ++it) {
    if (IsOp((*it)[1]) && IsOp((*it)[2])) found.insert({(*it)[1], (*it)[2]});
  }
  return found;
}

std::string CodeOf(const fs::path& file) {
  std::ifstream in(file);
  std::string code;
  for (std::string line; std::getline(in, line);) code += line.substr(0, line.find("//")) + "\n";
  return code;
}

// Scripts compare by ===, quote names by ', and have regular expressions: /^(sgd|momentum)/.
std::set<std::string> ComparedOpsOfScript(std::string code) {
  std::replace(code.begin(), code.end(), '\'', '"');
  std::set<std::string> found = ComparedOps(std::regex_replace(code, std::regex("==="), "=="));
  static const std::regex choice(R"rx([(|/^]([a-z0-9_]+)\|([a-z0-9_]+)[)|/])rx");
  for (std::sregex_iterator it(code.begin(), code.end(), choice), end; it != end; ++it) {
    if (IsOp((*it)[1]) && IsOp((*it)[2])) found.insert({(*it)[1], (*it)[2]});
  }
  return found;
}

TEST(OpNames, ComparisonsAndListsAreFound) {
  using Names = std::set<std::string>;
  EXPECT_EQ(ComparedOps(R"(if (op.type() == "while") f();)"), Names{"while"});
  EXPECT_EQ(ComparedOps(R"(return "call" != type;)"), Names{"call"});
  EXPECT_EQ(ComparedOps(R"(kTypes = {"mul", "conv2d"};)"), (Names{"conv2d", "mul"}));
  EXPECT_EQ(ComparedOps(R"(type.starts_with("silu"))"), Names{"silu"});
  EXPECT_EQ(ComparedOps(R"(block.AppendOp("scale", {{"X", {x}}}, {{"Out", {y}}});)"), Names{});
  EXPECT_EQ(ComparedOps(R"(if (text == "none") f("sum");)"), Names{});
  EXPECT_EQ(ComparedOpsOfScript("if (type === 'while') f();"), Names{"while"});
  EXPECT_EQ(ComparedOpsOfScript("const updates = /^(sgd|momentum)/;"), (Names{"momentum", "sgd"}));
}

TEST(OpNames, InfrastructureAsksTraits) {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  const fs::path source_dir = directory ? directory : ".";
  int files = 0;
  for (const std::string& place : kDirectories) {
    for (const auto& entry : fs::recursive_directory_iterator(source_dir / place)) {
      const std::string path = fs::relative(entry.path(), source_dir).string();
      const std::string extension = entry.path().extension();
      const bool script = extension == ".js";
      if (IsOfAPass(path) || (extension != ".cc" && extension != ".h" && !script)) continue;
      ++files;
      const std::string code = CodeOf(entry.path());
      for (const std::string& name : script ? ComparedOpsOfScript(code) : ComparedOps(code))
        EXPECT_TRUE(IsException(path, name)) << path << " knows the op type " << name;
    }
  }
  EXPECT_GT(files, 400);
}

// The page of `coracle view` colours ops by family.
TEST(OpNames, FamiliesHaveColours) {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  const fs::path source_dir = directory ? directory : ".";
  const std::string script = CodeOf(source_dir / "inspect/page/js/colors.js");
  for (const OpFamily& family : OpFamilies())
    EXPECT_NE(script.find("'" + family.name + "'"), script.npos) << family.name;
}

}  // namespace coracle::op_names_test

// What an op is (how precise it computes, whether it runs a block, ...) is a trait of its
// declaration: framework, backward, executor, optimizer and what passes share compare no op type
// with a name and keep no list of names. (They may append ops.)

#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

namespace coracle::op_names_test {

namespace fs = std::filesystem;

const std::vector<std::string> kDirectories = {"framework", "backward", "executor", "optimizer",
                                               "passes"};
// A pass knows the ops of its pattern.
bool IsOfAPass(const std::string& path) {
  return path.rfind("passes/", 0) == 0 && path.rfind("passes/pass.", 0) != 0 &&
         path.rfind("passes/pipeline.", 0) != 0;
}

struct Exception {
  std::string path, name, reason;
};
const std::vector<Exception> kExceptions = {
    {"framework/ir/infer_parameters.cc", "fetch", "a file is read without a registry"},
    {"framework/ir/infer_parameters.cc", "save", "a file is read without a registry"},
    {"framework/io/npy.cc", "shape", "a key of npy files"},
    {"backward/backward.cc", "sum", "a way of adding up gradients"},
    {"optimizer/mixed_precision.cc", "cast", "appends and patches casts"},
    {"optimizer/lr_schedule.cc", "increment", "finds the counter that it appended"},
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

TEST(OpNames, ComparisonsAndListsAreFound) {
  using Names = std::set<std::string>;
  EXPECT_EQ(ComparedOps(R"(if (op.type() == "while") f();)"), Names{"while"});
  EXPECT_EQ(ComparedOps(R"(return "call" != type;)"), Names{"call"});
  EXPECT_EQ(ComparedOps(R"(kTypes = {"mul", "conv2d"};)"), (Names{"conv2d", "mul"}));
  EXPECT_EQ(ComparedOps(R"(type.starts_with("silu"))"), Names{"silu"});
  EXPECT_EQ(ComparedOps(R"(block.AppendOp("scale", {{"X", {x}}}, {{"Out", {y}}});)"), Names{});
  EXPECT_EQ(ComparedOps(R"(if (text == "none") f("sum");)"), Names{});
}

TEST(OpNames, InfrastructureAsksTraits) {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  const fs::path source_dir = directory ? directory : ".";
  int files = 0;
  for (const std::string& place : kDirectories) {
    for (const auto& entry : fs::recursive_directory_iterator(source_dir / place)) {
      const std::string path = fs::relative(entry.path(), source_dir).string();
      const std::string extension = entry.path().extension();
      if (IsOfAPass(path) || (extension != ".cc" && extension != ".h")) continue;
      ++files;
      for (const std::string& name : ComparedOps(CodeOf(entry.path())))
        EXPECT_TRUE(IsException(path, name)) << path << " knows the op type " << name;
    }
  }
  EXPECT_GT(files, 150);
}
}  // namespace coracle::op_names_test

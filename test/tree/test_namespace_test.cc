// Test files and op files are compiled several at a time, so their names must not collide: each has
// a namespace with the file's name.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

namespace test_namespace_test {

namespace fs = std::filesystem;

TEST(TestNamespace, IsCalledLikeTheFile) {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  const fs::path tests = fs::path(directory ? directory : ".") / "test";
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(tests)) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() != ".cc" || !stem.ends_with("_test")) continue;
    if (fs::exists(entry.path().parent_path() / (stem + ".h"))) continue;  // what tests use
    ++files;
    std::ifstream in(entry.path());
    const std::string text = {std::istreambuf_iterator<char>(in), {}};
    EXPECT_NE(text.find(stem + " {\n"), text.npos)
        << entry.path() << ": lacks namespace coracle::" << stem;
    EXPECT_EQ(text.find("\nnamespace {\n"), text.npos)
        << entry.path() << ": an anonymous namespace is that of all files compiled with it";
  }
  EXPECT_GT(files, 300);
}

// Without its namespace an op does not link: its Register is looked for there.
TEST(TestNamespace, OpsHaveNoAnonymousOne) {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  const fs::path operators = fs::path(directory ? directory : ".") / "operators";
  std::ifstream list(operators / "ops.list");
  int files = 0;
  for (std::string op; std::getline(list, op); ++files) {
    std::ifstream in(operators / (op + ".cc"));
    const std::string text = {std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(text.find("\nnamespace {\n"), text.npos)
        << op << ": an anonymous namespace is that of all files compiled with it";
  }
  EXPECT_GT(files, 200);
}

// A header that is not installed declares nothing in coracle itself: its names are those of
// coracle::internal, or of its room (coracle::onnx). The namespace is inline, so that the tree
// needs no prefix.
TEST(TestNamespace, InternalHeadersDeclareInternalNames) {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  const fs::path tree = directory ? directory : ".";
  std::set<std::string> installed;
  std::ifstream list(tree / "cmake/public_headers.txt");
  for (std::string line; std::getline(list, line);) installed.insert(line);
  // Forward declarations of public classes are the only exception.
  const std::regex forward("namespace coracle \\{\n((class|struct) \\w+;\n)+\\}");
  int headers = 0;
  for (const std::string room : {"framework", "communication", "operators", "passes", "executor",
                                 "backward", "clip", "initializer", "regularizer", "optimizer",
                                 "distribute", "layers", "inspect", "edit", "train", "convert"}) {
    for (const auto& entry : fs::recursive_directory_iterator(tree / room)) {
      const std::string name = fs::relative(entry.path(), tree).string();
      if (entry.path().extension() != ".h" || installed.count(name)) continue;
      std::ifstream in(entry.path());
      const std::string text =
          std::regex_replace(std::string{std::istreambuf_iterator<char>(in), {}}, forward, "");
      EXPECT_EQ(text.find("\nnamespace coracle {"), text.npos)
          << name << ": is not installed, so open namespace coracle::inline internal";
      ++headers;
    }
  }
  EXPECT_GT(headers, 300);
}

}  // namespace test_namespace_test

// Test files and op files are compiled several at a time, so their names must not collide: each has
// a namespace with the file's name.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

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

}  // namespace test_namespace_test

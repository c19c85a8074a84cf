// Numbers of 64 bits that come from a file become 32 bits in one place, convert/narrow.h, which
// refuses numbers that do not fit: a cast would drop bits, and a clamp would silently change them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

namespace narrow_rule_test {

namespace fs = std::filesystem;

// The mistake in a line of an importer; "" if there is none.
std::string WrongNarrowing(const std::string& line) {
  // The number of a dtype, which is one of a list, may be cast.
  static const std::regex cast(R"(static_cast<int32_t>\((?![^()]*(DType::|dtype)))");
  static const std::regex attribute(
      R"(static_cast<(int|float|uint32_t)>\(\w+(\.|->)(Int\(|i\(\)))");
  static const std::regex clamp(R"(std::clamp(<int64_t>)?\(\w+(\.|->)Int\()");
  static const std::regex list(R"(vector<int32_t>\(\w+\.begin\(\))");
  if (std::regex_search(line, cast)) return "a cast to int32_t; ToInt32 checks the number";
  if (std::regex_search(line, attribute)) return "a cast of an attribute; Int32 checks the number";
  if (std::regex_search(line, clamp)) return "an attribute clamped; Int32 refuses the number";
  if (std::regex_search(line, list)) return "a list cut to int32_t; ToInt32 checks its numbers";
  return "";
}

TEST(NarrowRule, NumbersOfFilesAreChecked) {
  const char* root = std::getenv("CORACLE_SOURCE_DIR");
  size_t lines = 0;
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(root ? root : ".") / "convert")) {
    const fs::path& path = entry.path();
    if ((path.extension() != ".cc" && path.extension() != ".h") || path.filename() == "narrow.cc")
      continue;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line); ++lines)
      EXPECT_EQ(WrongNarrowing(line), "") << path.filename().string() << ": " << line;
  }
  EXPECT_GT(lines, 10000u) << "is CORACLE_SOURCE_DIR right?";
}

TEST(NarrowRule, TheTestSeesThem) {
  EXPECT_NE(WrongNarrowing("x = static_cast<int32_t>(node.Int(\"axis\"));"), "");
  EXPECT_NE(WrongNarrowing("x = static_cast<int32_t>(size);"), "");
  EXPECT_NE(WrongNarrowing("x = static_cast<int>(node.Int(\"to\"));"), "");
  EXPECT_NE(WrongNarrowing("n = std::clamp<int64_t>(node.Int(\"size\"), 0, 1 << 30);"), "");
  EXPECT_NE(WrongNarrowing("v = std::vector<int32_t>(size.begin(), size.end());"), "");
  EXPECT_EQ(WrongNarrowing("x = static_cast<int32_t>(DType::kInt64);"), "");
  EXPECT_EQ(WrongNarrowing("x = static_cast<int32_t>(x.dtype());"), "");
  EXPECT_EQ(WrongNarrowing("x = ToInt32(size, \"a size\");"), "");
}

}  // namespace narrow_rule_test

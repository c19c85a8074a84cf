// Products of sizes that could wrap. A shape has at most Shape::kMaxElements elements, so the bytes
// of a tensor cannot; they come from ByteSize, Tensor::nbytes and TensorArg::nbytes, and what an op
// computes for memory of its own from CheckedMul.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace size_products_test {

namespace fs = std::filesystem;

struct Line {
  std::string where, text;
};

// The lines of what the executor runs, each with those that follow it up to a semicolon.
std::vector<Line> Statements() {
  const char* root = std::getenv("CORACLE_SOURCE_DIR");
  std::vector<Line> statements;
  for (const char* directory : {"executor", "framework/op", "operators", "passes"}) {
    for (const auto& entry :
         fs::recursive_directory_iterator(fs::path(root ? root : ".") / directory)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      std::ifstream in(entry.path());
      std::string text;
      int number = 0;
      for (std::string line; std::getline(in, line);) {
        ++number;
        text += line.substr(0, line.find("//"));
        if (line.find(';') == std::string::npos && line.find('{') == std::string::npos) continue;
        statements.push_back(
            {entry.path().filename().string() + ":" + std::to_string(number), text});
        text.clear();
      }
    }
  }
  return statements;
}

// The mistake in a statement; "" if there is none.
std::string WrongProduct(const std::string& text) {
  static const std::regex bytes(
      R"(\*\s*(static_cast<\w+>\()?(SizeOf|sizeof)\(|(SizeOf|sizeof)\([^)]*\)+\s*\*[^)>])");
  static const std::regex scratch(R"(Scratch\([^;]*\{[^}]*[a-z_\])]\s\*\s[a-z])");
  if (std::regex_search(text, scratch)) return "a product that CheckedMul should make";
  if (text.find("SizeOf(") != std::string::npos && std::regex_search(text, bytes))
    return "bytes that ByteSize or nbytes() should count";
  return "";
}

TEST(SizeProducts, AreChecked) {
  const std::vector<Line> statements = Statements();
  EXPECT_GT(statements.size(), 5000u) << "is CORACLE_SOURCE_DIR right?";
  for (const Line& statement : statements)
    EXPECT_EQ(WrongProduct(statement.text), "") << statement.where << ": " << statement.text;
}

TEST(SizeProducts, TheTestSeesThem) {
  EXPECT_NE(WrongProduct("bytes = x.numel * static_cast<int64_t>(SizeOf(x.dtype));"), "");
  EXPECT_NE(WrongProduct("bytes = static_cast<uint64_t>(numel) * SizeOf(dtype);"), "");
  EXPECT_NE(WrongProduct("bytes = SizeOf(dtype) * numel;"), "");
  EXPECT_NE(WrongProduct("s = ctx.Scratch(DType::kFloat32, {d.g.batch * d.image});"), "");
  EXPECT_EQ(WrongProduct("s = ctx.Scratch(DType::kFloat32, {2 * groups});"), "");
  EXPECT_EQ(WrongProduct("s = ctx.Scratch(DType::kFloat32, {CheckedMul(a, b)});"), "");
}

}  // namespace size_products_test

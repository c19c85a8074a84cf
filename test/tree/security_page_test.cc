// docs/security.md names the test of each promise: the tests exist, and no promise is without one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace security_page_test {

namespace fs = std::filesystem;

std::string TextOf(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// "Suite.Name" of all tests below the directory.
std::set<std::string> TestsBelow(const fs::path& directory) {
  static const std::regex declaration(R"(TEST(?:_F|_P)?\((\w+),\s*(\w+)\))");
  std::set<std::string> tests;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.path().extension() != ".cc") continue;
    const std::string text = TextOf(entry.path());
    for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it)
      tests.insert((*it)[1].str() + "." + (*it)[2].str());
  }
  return tests;
}

TEST(SecurityPage, EveryPromiseHasATest) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  const std::set<std::string> tests = TestsBelow(fs::path(sources) / "test");
  static const std::regex mention(R"(`([A-Z]\w+\.[A-Z]\w+)`)");
  std::ifstream page(fs::path(sources) / "docs/security.md");
  bool promises = false;  // in a table of promises
  int rows = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("|")) promises = false;
    if (line == "| promise | tests |") promises = true;
    if (!promises || line.starts_with("| promise") || line.starts_with("|---")) continue;
    ++rows;
    int named = 0;
    for (std::sregex_iterator it(line.begin(), line.end(), mention), end; it != end; ++it) {
      ++named;
      EXPECT_TRUE(tests.count((*it)[1].str())) << "no test " << (*it)[1] << " in: " << line;
    }
    EXPECT_GT(named, 0) << line;
  }
  EXPECT_GT(rows, 15);
}

}  // namespace security_page_test

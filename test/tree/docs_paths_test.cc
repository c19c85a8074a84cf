// Source files that a page names exist: what moves takes its mentions along.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace docs_paths_test {

namespace fs = std::filesystem;

const std::vector<std::string> kSources = {
    "tools",         "convert",     "train",     "edit",     "inspect",  "layers", "optimizer",
    "regularizer",   "initializer", "clip",      "backward", "executor", "passes", "operators",
    "communication", "distribute",  "framework", "test",     "bench",    "cmake",  "proto"};

// Every file of the tree, with a slash before its path.
std::string AllPaths(const fs::path& root) {
  std::string all = "/coracle.h\n/train.h\n/convert.h\n";
  for (const std::string& directory : kSources) {
    for (const auto& entry : fs::recursive_directory_iterator(root / directory))
      all += "/" + fs::relative(entry.path(), root).string() + "\n";
  }
  return all;
}

std::vector<fs::path> Pages(const fs::path& root) {
  std::vector<fs::path> pages = {root / "README.md"};
  for (const auto& entry : fs::directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  return pages;
}

TEST(DocsPaths, NameFilesThatExist) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  const std::string all = AllPaths(sources);
  static const std::regex mention("`(?:coracle/)?([A-Za-z0-9_/-]+\\.(?:h|cc|proto|cmake|list))`");
  int mentions = 0;
  for (const fs::path& page : Pages(sources)) {
    std::stringstream text;
    text << std::ifstream(page).rdbuf();
    const std::string words = text.str();
    for (std::sregex_iterator it(words.begin(), words.end(), mention), end; it != end; ++it) {
      ++mentions;
      EXPECT_NE(all.find("/" + (*it)[1].str() + "\n"), std::string::npos)
          << page.filename() << " names " << (*it)[1];
    }
  }
  EXPECT_GT(mentions, 60);
}

}  // namespace docs_paths_test

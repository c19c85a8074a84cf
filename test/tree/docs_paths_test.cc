// Source files that a page names exist: what moves takes its mentions along. docs/ir.md lists all
// rules of the verifier.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace docs_paths_test {

namespace fs = std::filesystem;

const std::vector<std::string> kSources = {
    "capi",       "serve",     "quantize", "tools",     "convert",     "train",
    "edit",       "inspect",   "layers",   "optimizer", "regularizer", "initializer",
    "clip",       "backward",  "executor", "passes",    "operators",   "communication",
    "distribute", "framework", "test",     "bench",     "cmake",       "proto"};

// Every file of the tree, with a slash before its path.
std::string AllPaths(const fs::path& root) {
  std::string all = "/coracle.h\n/coracle_c.h\n/train.h\n/convert.h\n";
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

std::string TextOf(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(DocsPaths, NameFilesThatExist) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  const std::string all = AllPaths(sources);
  static const std::regex mention("`(?:coracle/)?([A-Za-z0-9_/-]+\\.(?:h|cc|proto|cmake|list))`");
  int mentions = 0;
  for (const fs::path& page : Pages(sources)) {
    const std::string words = TextOf(page);
    for (std::sregex_iterator it(words.begin(), words.end(), mention), end; it != end; ++it) {
      ++mentions;
      EXPECT_NE(all.find("/" + (*it)[1].str() + "\n"), std::string::npos)
          << page.filename() << " names " << (*it)[1];
    }
  }
  EXPECT_GT(mentions, 60);
}

std::set<std::string> FoundIn(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
    found.insert((*it)[1]);
  return found;
}

TEST(DocsPaths, ListTheRulesOfTheVerifier) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  const fs::path root = sources, check = root / "framework/op/check";
  static const std::regex reported(
      "(?:nullptr|&op|[kp]Error|kNote|severity|name|var|runner|rule =[^;]*|\\? \"internal\" "
      ":),?\\s+"
      "\"([a-z_]+)\"[,;]");
  std::set<std::string> rules = FoundIn(TextOf(check / "verifier.cc"), reported);
  rules.merge(FoundIn(TextOf(check / "op_checker.cc"), reported));
  rules.insert({"internal", "shape"});
  std::string page = TextOf(root / "docs/ir.md");
  page = page.substr(page.find("| rule |"));
  std::set<std::string> listed;
  std::stringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    const std::string cell = line.substr(0, line.find(" | "));
    listed.merge(FoundIn(cell, std::regex("`([a-z_]+)`")));
  }
  EXPECT_EQ(listed, rules);
}

// The site of `ninja docs` has only the pages that its navigation lists.
TEST(DocsPaths, SiteListsEveryPage) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  const std::string nav = TextOf(fs::path(sources) / "cmake/docs/mkdocs.yml");
  for (const fs::path& page : Pages(sources)) {
    const std::string name = fs::relative(page, sources).string();
    EXPECT_NE(nav.find(": " + name + "\n"), std::string::npos)
        << "cmake/docs/mkdocs.yml does not list " << name;
  }
}

}  // namespace docs_paths_test

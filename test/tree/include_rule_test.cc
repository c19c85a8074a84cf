// A directory may include from those below it in the list, never above (docs/architecture.md).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kTopDown = {
    "tools",        "train",        "layers",           "optimizer",      "clip",
    "backward",     "executor",     "passes",           "operators",      "framework/io",
    "framework/op", "framework/ir", "framework/tensor", "framework/base", "proto"};

fs::path SourceDir() {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  return directory ? directory : ".";
}

// Rank in the list of the directory that holds the path; -1 when none does.
int RankOf(const std::string& path) {
  for (size_t i = 0; i < kTopDown.size(); ++i) {
    if (path.rfind(kTopDown[i] + "/", 0) == 0) return static_cast<int>(i);
  }
  return -1;
}

std::vector<fs::path> Sources(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.path().extension() == ".cc" || entry.path().extension() == ".h")
      files.push_back(entry.path());
  }
  return files;
}

std::vector<std::string> Includes(const fs::path& file) {
  static const std::regex pattern("^\\s*#\\s*include\\s*[<\"]([^>\"]+)[>\"]");
  std::vector<std::string> found;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (std::regex_search(line, match, pattern)) found.push_back(match[1]);
  }
  return found;
}

TEST(IncludeRule, NoUpwardEdge) {
  int edges = 0;
  for (const std::string& directory : kTopDown) {
    for (const fs::path& file : Sources(SourceDir() / directory)) {
      int from = RankOf(fs::relative(file, SourceDir()).string());
      for (const std::string& include : Includes(file)) {
        if (include.rfind("coracle/", 0) != 0) continue;
        int to = RankOf(include.substr(8));
        if (include.rfind("coracle/proto", 0) == 0) to = RankOf("proto/x");
        ASSERT_GE(to, 0) << file << " includes <" << include
                         << ">, which is in no directory of the list";
        EXPECT_GE(to, from) << file << " includes <" << include << ">, which stands above it";
        ++edges;
      }
    }
  }
  EXPECT_GT(edges, 100) << "the walk found hardly any include: is CORACLE_SOURCE_DIR right?";
}

// Which third-party headers a public header would leak.
TEST(IncludeRule, PublicHeadersIncludeOnlyStandardAndCoracle) {
  const std::set<std::string> optional = {
      "framework/io/proto.h"};  // <coracle/proto.h>, for those who want protobuf
  for (const std::string& directory : kTopDown) {
    if (directory == "tools" || directory == "proto") continue;
    for (const fs::path& file : Sources(SourceDir() / directory)) {
      std::string name = fs::relative(file, SourceDir()).string();
      bool internal =
          name.find("/internal/") != std::string::npos || name.rfind("operators/common/", 0) == 0;
      if (file.extension() != ".h" || internal || optional.count(name)) continue;
      for (const std::string& include : Includes(file)) {
        bool standard =
            include.find('/') == std::string::npos && include.find('.') == std::string::npos;
        EXPECT_TRUE(standard || include.rfind("coracle/", 0) == 0)
            << name << " includes <" << include << ">";
        EXPECT_EQ(include.find("/internal/"), std::string::npos)
            << name << " includes <" << include << ">";
        EXPECT_NE(include.rfind("coracle/proto", 0), 0u) << name << " includes <" << include << ">";
      }
    }
  }
}

}  // namespace

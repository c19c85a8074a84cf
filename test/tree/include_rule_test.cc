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

// Headers that directories share and a user does not need. Everything else is in coracle.h.
const std::set<std::string> kNotPublic = {"backward/forward_graph.h",
                                          "backward/gradient_ops.h",
                                          "backward/open_types.h",
                                          "backward/outer_path.h",
                                          "backward/saved_values.h",
                                          "backward/slice.h",
                                          "backward/sub_block_gradient.h",
                                          "backward/verify_program.h",
                                          "framework/base/blocked_signals.h",
                                          "framework/base/checked.h",
                                          "framework/base/crc32c.h",
                                          "framework/base/file.h",
                                          "framework/base/regex.h",
                                          "framework/base/text.h",
                                          "framework/ir/mismatch.h",
                                          "framework/op/block_use.h",
                                          "framework/op/file_use.h",
                                          "framework/op/half_kernel.h",
                                          "framework/op/out_of_memory.h",
                                          "framework/op/inner_gradient.h",
                                          "framework/op/recomputed.h",
                                          "framework/tensor/half_array.h",
                                          "train/format.h",
                                          "train/progress.h",
                                          "train/stop_signal.h"};

TEST(IncludeRule, OneHeaderHasThePublicInterface) {
  std::set<std::string> reached = {"coracle.h"};
  std::vector<std::string> queue = {"coracle.h"};
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const std::string& include : Includes(SourceDir() / std::string(queue[i]))) {
      if (include.rfind("coracle/", 0) != 0 || !reached.insert(include.substr(8)).second) continue;
      queue.push_back(include.substr(8));
    }
  }
  for (const std::string& directory : kTopDown) {
    if (directory == "tools" || directory == "proto") continue;
    for (const fs::path& file : Sources(SourceDir() / directory)) {
      const std::string name = fs::relative(file, SourceDir()).string();
      const bool internal =
          name.find("/internal/") != std::string::npos || name.rfind("operators/common/", 0) == 0;
      if (file.extension() != ".h" || internal || name == "framework/io/proto.h") continue;
      EXPECT_NE(reached.count(name), kNotPublic.count(name))
          << name << " belongs in coracle.h, or in the list of those that do not";
    }
  }
  for (const std::string& name : kNotPublic)
    EXPECT_TRUE(fs::exists(SourceDir() / name)) << name << " is in the list, but gone";
}

// A struct that is made for designated initialisers warns under -Wextra about every member that is
// left out and has no initializer.
TEST(IncludeRule, MembersOfOptionsHaveInitializers) {
  static const std::regex begin("^struct (\\w*(Options|Config|Callbacks|Override)) \\{");
  static const std::regex member("^  \\w[\\w:<>()&*, ]*[ >]\\w+;.*|^ {6}\\w+;");
  static const std::regex other(
      "^  (using|friend|static|return|explicit|typename) .*|.*\\) const;.*");
  int seen = 0;
  for (const std::string& directory : kTopDown) {
    for (const fs::path& file : Sources(SourceDir() / directory)) {
      const std::string name = fs::relative(file, SourceDir()).string();
      if (file.extension() != ".h" || name.find("/internal/") != std::string::npos) continue;
      std::string within;
      std::ifstream in(file);
      for (std::string line; std::getline(in, line);) {
        std::smatch match;
        if (std::regex_search(line, match, begin)) within = match[1];
        if (line.rfind("};", 0) == 0) within.clear();
        if (within.empty() || within == "OptimizerConfig") continue;  // that has constructors
        ++seen;
        EXPECT_FALSE(std::regex_match(line, member) && !std::regex_match(line, other))
            << name << ": " << within << ":" << line << " has no initializer";
      }
    }
  }
  EXPECT_GT(seen, 300);
}

}  // namespace

// A directory may include from those below it in the list, never above (docs/architecture.md).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

namespace include_rule_test {

namespace fs = std::filesystem;

const std::vector<std::string> kTopDown = {"tools",          "serve",         "capi",
                                           "convert",        "train/run",     "train/log",
                                           "train/report",   "train/job",     "train/data",
                                           "quantize",       "edit",          "inspect",
                                           "layers",         "distribute",    "optimizer",
                                           "regularizer",    "initializer",   "clip",
                                           "backward",       "executor",      "passes",
                                           "operators",      "communication", "framework/io",
                                           "framework/op",   "framework/ir",  "framework/tensor",
                                           "framework/base", "proto"};

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
        if (include == "coracle/coracle_c.h") to = RankOf("capi/x");
        ASSERT_GE(to, 0) << file << " includes <" << include
                         << ">, which is in no directory of the list";
        EXPECT_GE(to, from) << file << " includes <" << include << ">, which stands above it";
        ++edges;
      }
    }
  }
  EXPECT_GT(edges, 100) << "the walk found hardly any include: is CORACLE_SOURCE_DIR right?";
}

// Families of operators: each may include from those after it.
const std::vector<std::string> kFamilies = {
    "io",      "norm",        "detection",  "quantize", "conv",     "rnn",
    "tensor",  "collective",  "text",       "ml",       "loss",     "matmul",
    "control", "linalg",      "metric",     "reduce",   "sequence", "update",
    "random",  "elementwise", "activation", "kernels",  "rules"};

// Rank of the family that holds "operators/<family>/..."; -1 if none does.
int FamilyOf(const std::string& path) {
  for (size_t i = 0; i < kFamilies.size(); ++i) {
    if (path.rfind("operators/" + kFamilies[i] + "/", 0) == 0) return static_cast<int>(i);
  }
  return -1;
}

TEST(IncludeRule, FamiliesOfOperatorsPointOneWay) {
  int edges = 0;
  std::set<int> seen;
  for (const fs::path& file : Sources(SourceDir() / "operators")) {
    const std::string path = fs::relative(file, SourceDir()).string();
    const int from = FamilyOf(path);
    const bool in_folder = fs::path(path).parent_path() != "operators";
    ASSERT_TRUE(from >= 0 || !in_folder) << path << " is in no family of the list";
    seen.insert(from);
    for (const std::string& include : Includes(file)) {
      const int to = include.rfind("coracle/", 0) == 0 ? FamilyOf(include.substr(8)) : -1;
      if (from < 0 || to < 0) continue;
      EXPECT_GE(to, from) << path << " includes <" << include << "> of a family above it";
      ++edges;
    }
  }
  EXPECT_EQ(seen.size(), kFamilies.size() + 1) << "the list has families that are gone";
  EXPECT_GT(edges, 300);
}

// The folders of executor/, and executor/ itself. Headers are listed from the lowest up. A
// file includes from its own part and from those named with it.
struct ExecutorPart {
  std::string name;
  std::vector<std::string> files;  // without .h and .cc
  std::set<std::string> may_use;
};

const std::vector<ExecutorPart> kExecutorParts = {
    {"plan",
     {"ids", "procedure", "plan", "guards", "memory_plan", "memory_layout", "memory_sharing"},
     {}},
    {"planner",
     {"frozen_parameters", "value_table", "cell_values", "persistable_values", "planner",
      "plan_draft", "constant_folding", "sub_block_planner", "kernel_trial", "block_ops",
      "op_planner", "stage_end", "shape_warnings", "plan_cache"},
     {"plan"}},
    {"frame",
     {"value_pointers", "scope_binding", "nan_check", "step_labels", "value_observer", "frame",
      "run_steps"},
     {"plan"}},
    {"executor",
     {"activation", "frozen_guard", "executor", "compiled_program", "drawn_values"},
     {"plan", "planner", "frame"}}};

TEST(IncludeRule, ExecutorPointsOneWay) {
  std::map<std::string, const ExecutorPart*> part_of;
  std::map<std::string, size_t> place_of;
  for (const ExecutorPart& part : kExecutorParts) {
    for (const std::string& file : part.files) {
      part_of[file] = &part;
      place_of.emplace(file, place_of.size());
    }
  }
  std::set<std::string> seen;
  for (const fs::path& path : Sources(SourceDir() / "executor")) {
    const std::string file = path.stem().string();
    ASSERT_TRUE(part_of.count(file)) << path << " is in no part of the list";
    EXPECT_EQ(path.parent_path().filename(), part_of[file]->name)
        << path << " is in another folder than its part";
    seen.insert(file);
    for (const std::string& include : Includes(path)) {
      if (include.rfind("coracle/executor/", 0) != 0) continue;
      const std::string used = fs::path(include).stem().string();
      const ExecutorPart& part = *part_of[file];
      ASSERT_TRUE(part_of.count(used)) << path << " includes <" << include << ">";
      const bool own = part_of[used] == &part;
      EXPECT_TRUE(own || part.may_use.count(part_of[used]->name))
          << path << " of " << part.name << " includes <" << include << "> of "
          << part_of[used]->name;
      if (own && path.extension() == ".h") {
        EXPECT_LT(place_of[used], place_of[file]) << path << " includes <" << include << ">";
      }
    }
  }
  EXPECT_EQ(seen.size(), part_of.size()) << "the list has files that are gone";
}

// The headers that are installed: cmake/public_headers.txt.
std::set<std::string> PublicHeaders() {
  std::set<std::string> headers;
  std::ifstream in(SourceDir() / "cmake/public_headers.txt");
  for (std::string line; std::getline(in, line);) headers.insert(line);
  return headers;
}

// Programs of examples/ and test/consumer/ are as users write theirs: they quote their own headers.
TEST(IncludeRule, HasOneSpelling) {
  int files = 0;
  for (const fs::path& path : Sources(SourceDir())) {
    const std::string name = fs::relative(path, SourceDir()).string();
    if (name.starts_with("build") || name.starts_with("examples/") ||
        name.starts_with("test/consumer/"))
      continue;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);)
      EXPECT_FALSE(line.starts_with("#include \""))
          << name << ": " << line << ": write <coracle/...>";
    ++files;
  }
  EXPECT_GT(files, 1500);
}

TEST(IncludeRule, PublicHeadersIncludeOnlyStandardAndPublicOnes) {
  const std::set<std::string> headers = PublicHeaders();
  for (const std::string& name : headers) {
    EXPECT_TRUE(fs::exists(SourceDir() / name)) << name << " is in the list, but gone";
    for (const std::string& include : Includes(SourceDir() / name)) {
      const bool standard =
          include.find('/') == std::string::npos && include.find('.') == std::string::npos;
      const bool ours = include.rfind("coracle/", 0) == 0 && headers.count(include.substr(8));
      EXPECT_TRUE(standard || ours) << name << " includes <" << include << ">";
    }
  }
}

TEST(IncludeRule, ThreeHeadersHaveThePublicInterface) {
  std::set<std::string> reached = {"coracle.h", "train.h", "convert.h"};
  std::vector<std::string> queue(reached.begin(), reached.end());
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const std::string& include : Includes(SourceDir() / std::string(queue[i]))) {
      if (include.rfind("coracle/", 0) != 0 || !reached.insert(include.substr(8)).second) continue;
      queue.push_back(include.substr(8));
    }
  }
  EXPECT_EQ(reached, PublicHeaders());
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

// Two types of one name in one namespace break the one-definition rule without a word: the linker
// keeps one of their destructors.
TEST(IncludeRule, NamesOfTypesInHeadersAreUnique) {
  static const std::regex type("^(class|struct|enum class|enum|union) (\\w+)[^;]*\\{");
  static const std::regex space("^namespace ([\\w:]+) \\{");
  std::map<std::string, fs::path> defined;
  std::vector<std::string> directories = kTopDown;
  directories.push_back("test");
  for (const std::string& directory : directories) {
    for (const fs::path& file : Sources(SourceDir() / directory)) {
      if (file.extension() != ".h") continue;
      std::string within;
      std::ifstream in(file);
      for (std::string line; std::getline(in, line);) {
        std::smatch match;
        if (std::regex_search(line, match, space)) within = match[1];
        if (!std::regex_search(line, match, type)) continue;
        const auto [it, added] = defined.try_emplace(within + "::" + match[2].str(), file);
        EXPECT_TRUE(added || it->second == file)
            << it->first << " is defined in " << it->second << " and in " << file;
      }
    }
  }
  EXPECT_GT(defined.size(), 300u);
}

}  // namespace include_rule_test

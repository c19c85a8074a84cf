// Only few places access files, the terminal and regular expressions; they check text
// from strangers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace reach_rule_test {

namespace fs = std::filesystem;

struct Rule {
  std::string what;
  std::vector<std::string> signs;  // text in a line that breaks the rule
  std::set<std::string> places;    // files that may
  std::string only_below = {};     // a directory that the rule is about; "": all
};

const std::vector<Rule>& Rules() {
  static const std::vector<Rule> rules = {
      {"writes to the terminal (Print, Printable)",
       {"std::cout", "std::cerr", "std::clog", "fputs(", "printf(", "puts(", "fwrite(",
        "fmt::print(", "STDOUT_FILENO, ", "STDERR_FILENO, "},
       {"tools/main.cc", "tools/print.cc", "tools/commands/train.cc", "tools/commands/test.cc",
        "framework/base/file.cc", "framework/base/logging.cc",
        // The last words of a rank whose process must end at once.
        "communication/mpi/mpi_thread.cc"}},
      {"opens a file (framework/base/file.h)",
       {"ifstream", "ofstream", "fopen(", "::open(", "::openat(", "::creat("},
       {"framework/base/file.cc", "framework/base/file_access.cc", "framework/base/file_handle.cc",
        "framework/base/append_file.cc", "train/run/snapshot/directory_lock.cc",
        // Temporary files that a signal handler removes, and LevelDB's own way to files.
        "framework/base/temporaries.cc", "train/data/leveldb_env.cc",
        // What child processes print.
        "tools/child_process.cc",
        // The kernel's data on memory and processors.
        "framework/base/internal/control_group.cc", "framework/base/internal/thread_limit.cc"}},
      {"matches a regular expression (framework/base/regex.h)",
       {"<regex>", "<regex.h>", "std::regex", "<re2/", "regcomp("},
       {"framework/base/regex.cc"}},
      {"lets an op reach files past its user (PrepareContext::files)",
       {"framework/base/file.h", "framework/base/append_file.h", "FileAccess(", "FileAccess{"},
       {},
       "operators/"},
      {"reads JSON of others (framework/base/json_reader.h)",
       {"Json::parse(", "json::parse("},
       {"framework/base/json_reader.cc", "train/log/format.cc",
        // Is below train/; checks the kind of each value.
        "inspect/trace_times.cc"}},
  };
  return rules;
}

TEST(ReachRule, OnlyInPlacesThatCheck) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  int files = 0;
  for (const char* directory : {"framework", "communication", "operators", "passes", "executor",
                                "backward", "clip", "initializer", "regularizer", "optimizer",
                                "edit", "inspect", "layers", "train", "convert", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(sources) / directory)) {
      const fs::path& path = entry.path();
      if (path.extension() != ".cc" && path.extension() != ".h") continue;
      ++files;
      const std::string name = fs::relative(path, sources).string();
      std::ifstream in(path);
      for (std::string line; std::getline(in, line);) {
        for (const Rule& rule : Rules()) {
          if (rule.places.count(name) || !name.starts_with(rule.only_below)) continue;
          for (const std::string& sign : rule.signs) {
            const size_t at = line.find(sign);
            const bool named =
                at != line.npos &&
                (at == 0 ||
                 (!std::isalnum(static_cast<unsigned char>(line[at - 1])) && line[at - 1] != '_'));
            EXPECT_FALSE(named) << name << " " << rule.what << ": " << line;
          }
        }
      }
    }
  }
  EXPECT_GT(files, 300) << "is CORACLE_SOURCE_DIR right?";
}

}  // namespace reach_rule_test

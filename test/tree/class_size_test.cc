// A class has at most 150 lines of code: its steps take values and return values, instead of
// talking through members. Blank lines and lines of comment do not count.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace class_size_test {

namespace fs = std::filesystem;

constexpr int kMostLines = 150;

struct ClassSize {
  std::string name;
  int lines = 0;
};

bool IsCode(const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  return begin != std::string::npos && line.compare(begin, 2, "//") != 0;
}

// The classes of a file that is formatted by clang-format: the line that closes a class begins at
// the column of the one that opens it.
std::vector<ClassSize> ClassesOf(std::istream& in) {
  static const std::regex opening(
      R"(^( *)(?:template <.*> )?(?:class|struct) (?:\w+::)*(\w+)[^;]*\{(?: *//.*)?$)");
  struct Open {
    std::string indent;
    ClassSize size;
  };
  std::vector<Open> open;
  std::vector<ClassSize> found;
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (std::regex_search(line, match, opening)) open.push_back({match[1], {match[2]}});
    if (!IsCode(line)) continue;
    for (Open& each : open) ++each.size.lines;
    if (open.empty() || line.compare(0, open.back().indent.size() + 1, open.back().indent + "}"))
      continue;
    found.push_back(open.back().size);
    open.pop_back();
  }
  return found;
}

std::vector<ClassSize> ClassesOfText(const std::string& text) {
  std::istringstream in(text);
  return ClassesOf(in);
}

TEST(ClassSize, CountsTheCodeOfEachClass) {
  const std::vector<ClassSize> found = ClassesOfText(R"(
struct Point {  // a comment
  int x = 0;

  // Another comment.
  struct Inner {
    int y;
  };
};
class Later;
template <class T> class Outer::Named final : public Point {
 public:
  void Go() {
    if (true) {
    }
  }
};
)");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].name, "Inner");
  EXPECT_EQ(found[0].lines, 3);
  EXPECT_EQ(found[1].name, "Point");
  EXPECT_EQ(found[1].lines, 6);
  EXPECT_EQ(found[2].name, "Named");
  EXPECT_EQ(found[2].lines, 7);
}

// Directories with code; tests are not held to the limit.
const std::vector<std::string> kDirectories = {
    "backward",  "bench",    "clip",        "communication", "convert", "distribute", "edit",
    "examples",  "executor", "framework",   "initializer",   "inspect", "layers",     "operators",
    "optimizer", "passes",   "regularizer", "tools",         "train"};

TEST(ClassSize, NoClassIsLong) {
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  const fs::path root = source ? source : ".";
  int classes = 0;
  for (const std::string& directory : kDirectories) {
    for (const auto& entry : fs::recursive_directory_iterator(root / directory)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cc") continue;
      std::ifstream in(entry.path());
      for (const ClassSize& each : ClassesOf(in)) {
        ++classes;
        EXPECT_LE(each.lines, kMostLines)
            << fs::relative(entry.path(), root) << ": the class " << each.name
            << " is long: let its steps take and return values";
      }
    }
  }
  EXPECT_GT(classes, 1000);
}

}  // namespace class_size_test

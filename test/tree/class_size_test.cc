// A class has at most 150 lines of code between its braces, and at most 400 with its functions that
// are defined outside: its steps take values and return values, instead of talking through members.
// A function has at most 60 lines, unless it is a table or declares ops. Blank lines and lines of
// comment do not count in classes.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace class_size_test {

namespace fs = std::filesystem;

constexpr int kMostLines = 150, kMostWithMembers = 400, kMostOfFunction = 60;

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
    "backward", "bench",     "clip",      "communication", "convert",     "distribute",
    "edit",     "examples",  "executor",  "framework",     "initializer", "inspect",
    "layers",   "operators", "optimizer", "passes",        "regularizer", "capi",
    "serve",    "quantize",  "tools",     "train"};

TEST(FileSize, NoFileIsLong) {
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  const fs::path root = source ? source : ".";
  std::vector<std::string> directories = kDirectories;
  directories.push_back("test");
  int files = 0;
  for (const std::string& directory : directories) {
    for (const auto& entry : fs::recursive_directory_iterator(root / directory)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cc") continue;
      ++files;
      std::ifstream in(entry.path());
      EXPECT_LE(std::count(std::istreambuf_iterator<char>(in), {}, '\n'), 600)
          << fs::relative(entry.path(), root) << " is long: divide it by what its parts do";
    }
  }
  EXPECT_GT(files, 1000);
}

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

struct Function {
  std::string name, owner;  // owner: the class before the "::", if any
  int lines = 0;            // between the braces
  int code = 0;             // with the braces, without blank lines and comments
};

// The functions of a file that is formatted by clang-format, without those inside of others.
std::vector<Function> FunctionsOf(std::istream& in) {
  static const std::regex opening(
      R"(^( *)(?!namespace|(?:template <.*> )?(?:struct|class|enum|union)\b).*\)[^;=]*\{$)");
  static const std::regex named(R"(((?:(\w+)(?:<[\w, ]*>)?::)?(~?\w+|operator[^ (]+))\()");
  std::vector<Function> found;
  std::string indent, head;
  bool within = false;
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (within) {
      Function& function = found.back();
      function.code += IsCode(line);
      if (line.compare(0, indent.size() + 1, indent + "}") == 0)
        within = false;
      else
        ++function.lines;
      continue;
    }
    const size_t begin = line.find_first_not_of(' ');
    const bool continues = !head.empty() && begin != line.npos && line.compare(begin, 2, "//");
    const std::string whole = continues ? head + line.substr(begin) : line;
    if (IsCode(line) && std::regex_match(whole, match, opening)) {
      indent = match[1];
      const bool has_name = std::regex_search(whole, match, named);
      found.push_back({has_name ? match[3].str() : whole, has_name ? match[2].str() : "", 0, 1});
      within = true;
      head.clear();
    } else if (begin == line.npos || std::string(";}{:").find(line.back()) != std::string::npos ||
               !IsCode(line) || line[begin] == '#') {
      head.clear();
    } else {
      head = whole + " ";
    }
  }
  return found;
}

TEST(ClassSize, FindsFunctions) {
  std::istringstream in(R"(
void Free(int a) {
  if (a) {
    return;
  }
}
class Thing {
  int Inside() const {
    return 1;
  }
};
template <class T>
int Thing::Outside(int first,
                   int second) {
  // A comment.
  return 2;
}
)");
  const std::vector<Function> found = FunctionsOf(in);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].name, "Free");
  EXPECT_EQ(found[0].lines, 3);
  EXPECT_EQ(found[1].name, "Inside");
  EXPECT_EQ(found[1].lines, 1);
  EXPECT_EQ(found[2].owner, "Thing");
  EXPECT_EQ(found[2].name, "Outside");
  EXPECT_EQ(found[2].lines, 2);
  EXPECT_EQ(found[2].code, 3);
}

// Calls f(path, text) for each file with code.
template <class F>
void ForEachFile(const fs::path& root, F&& f) {
  for (const std::string& directory : kDirectories) {
    for (const auto& entry : fs::recursive_directory_iterator(root / directory)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cc") continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      f(fs::relative(entry.path(), root), text);
    }
  }
}

// Longer ones that are left; the list only shrinks.
const std::set<std::string> kLongFunctions = {
    "bench/ops_bench.cc ImageOps",
    "convert/caffe/upgrade.cc CopyOldest",
    "operators/control/recurrent.cc RecurrentGradient",
    "operators/kernels/window_products.cc WindowTile",
    "operators/norm/batch_norm_fast.cc Gradient",
    "operators/rnn/beam_search.cc BeamSearch",
};

TEST(ClassSize, NoFunctionIsLong) {
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  int functions = 0;
  std::set<std::string> used;
  ForEachFile(source ? source : ".", [&](const fs::path& path, const std::string& text) {
    std::istringstream in(text);
    for (const Function& each : FunctionsOf(in)) {
      ++functions;
      const bool declares = each.name == "Register";
      const bool table = text.find("& " + each.name + "() {\n  static const ") != text.npos;
      if (each.lines <= kMostOfFunction || declares || table) continue;
      const std::string name = path.string() + " " + each.name;
      used.insert(name);
      EXPECT_TRUE(kLongFunctions.count(name)) << name << " has " << each.lines << " lines";
    }
  });
  EXPECT_EQ(used, kLongFunctions) << "the list has functions that are short now";
  EXPECT_GT(functions, 8000);
}

// Larger ones that are left; the list only shrinks. Builder and OpDef have a method for each layer
// and for each trait.
const std::set<std::string> kLargeClasses = {
    "backward ForwardGraph",   "backward GradientOps", "communication/mpi MpiThread",
    "convert/caffe NetWriter", "framework/op OpDef",   "layers Builder",
};

TEST(ClassSize, NoClassIsLargeWithItsFunctions) {
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  std::map<std::string, int> lines;  // by folder and class
  std::map<std::string, int> outside;
  ForEachFile(source ? source : ".", [&](const fs::path& path, const std::string& text) {
    const std::string folder = path.parent_path().string() + " ";
    std::istringstream in(text), again(text);
    for (const ClassSize& each : ClassesOf(in)) lines[folder + each.name] += each.lines;
    for (const Function& each : FunctionsOf(again))
      if (!each.owner.empty()) outside[folder + each.owner] += each.code;
  });
  std::set<std::string> large;
  for (const auto& [name, body] : lines) {
    const auto found = outside.find(name);
    if (found == outside.end() || body + found->second <= kMostWithMembers) continue;
    large.insert(name);
    EXPECT_TRUE(kLargeClasses.count(name))
        << name << " has " << body + found->second << " lines: let its steps be functions";
  }
  EXPECT_EQ(large, kLargeClasses) << "the list has classes that are small now";
}

}  // namespace class_size_test

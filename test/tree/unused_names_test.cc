// A function that a header declares and no code calls is read, compiled and documented in vain. The
// test compares names only: a name counts as used unless it occurs in a declaration or definition.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

namespace unused_names_test {

namespace fs = std::filesystem;

const std::set<std::string> kExceptions = {
    "L1DecayRegularizer",  // for users, as L2DecayRegularizer
};

// Code without comments and the contents of strings.
std::string CodeOf(const fs::path& file) {
  std::ifstream in(file);
  std::string code;
  for (std::string line; std::getline(in, line);) {
    bool text = false;
    for (size_t i = 0; i < line.size(); ++i) {
      if (!text && line.compare(i, 2, "//") == 0) break;
      if (text && line[i] == '\\') {
        ++i;
        continue;
      }
      if (line[i] == '"' && (i == 0 || line[i - 1] != '\'')) text = !text;
      if (!text) code += line[i];
    }
    code += '\n';
  }
  return code;
}

bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The word, or the sign, that ends before the spaces at `end`.
std::string TokenBefore(const std::string& code, size_t end) {
  while (end > 0 && code[end - 1] == ' ') --end;
  size_t begin = end;
  while (begin > 0 && IsWordChar(code[begin - 1])) --begin;
  if (begin == end && end > 0) --begin;
  return code.substr(begin, end - begin);
}

// Whether the name in [begin, end) of the code declares or defines a function.
bool Declares(const std::string& code, size_t begin, size_t end) {
  static const std::set<std::string> verbs = {"return", "else", "throw", "new",       "case",
                                              "if",     "for",  "while", "co_return", "asm"};
  if (end >= code.size() || code[end] != '(' || begin == 0) return false;
  const auto lower = [](unsigned char c) { return std::islower(c); };
  if (std::none_of(code.begin() + static_cast<std::ptrdiff_t>(begin),
                   code.begin() + static_cast<std::ptrdiff_t>(end), lower))
    return false;                                             // a macro
  if (code.compare(begin, 8, "DECLARE_") == 0) return false;  // of a flag
  const size_t line = code.rfind('\n', begin - 1) + 1;
  const std::string before = code.substr(line, begin - line);
  if (before.find_first_of("=[") != before.npos) return false;
  const std::string rest = code.substr(end, code.find_first_of(";{", end) - end);
  if (rest.find("override") != rest.npos) return false;  // the base class calls it
  if (before.empty()) return true;                       // the type stands in the line before
  if (before.ends_with("::")) return before[0] != ' ' && before.find('(') == before.npos;
  if (before.back() != ' ') return false;
  const std::string token = TokenBefore(code, begin);
  const char last = token.empty() ? ' ' : token.back();
  const bool type = IsWordChar(last) || last == '>' || last == '&' || last == '*' || last == ']';
  return type && !before.ends_with("&& ") && verbs.count(token) == 0;
}

struct Names {
  std::map<std::string, std::string> declared;  // in a header -> which
  std::set<std::string> used;
};

void Collect(const std::string& code, const std::string& header, Names* names) {
  for (size_t begin = 0; begin < code.size();) {
    if (!IsWordChar(code[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < code.size() && IsWordChar(code[end])) ++end;
    const std::string name = code.substr(begin, end - begin);
    if (!Declares(code, begin, end))
      names->used.insert(name);
    else if (!header.empty())
      names->declared.emplace(name, header);
    begin = end;
  }
}

TEST(UnusedNames, DeclarationsAreTold) {
  Names names;
  Collect(
      "int Declared(int x);\nint Called();\nint F() {\n  return Called();\n}\n"
      "std::vector<int> T::Method(int) const {\n  return Declared2(Function);\n}\n",
      "a.h", &names);
  EXPECT_TRUE(names.declared.count("Declared") && !names.used.count("Declared"));
  EXPECT_TRUE(names.declared.count("Method") && !names.used.count("Method"));
  EXPECT_TRUE(names.used.count("Called") && names.used.count("Function"));
}

TEST(UnusedNames, EveryFunctionOfAHeaderIsCalled) {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  const fs::path source_dir = directory ? directory : ".";
  Names names;
  for (const char* place :
       {"tools",     "convert",  "train",       "edit",        "inspect",    "layers",
        "optimizer", "clip",     "initializer", "regularizer", "distribute", "communication",
        "backward",  "executor", "passes",      "operators",   "framework",  "bench",
        "examples",  "test",     "quantize",    "capi",        "serve"}) {
    for (const auto& entry : fs::recursive_directory_iterator(source_dir / place)) {
      const std::string extension = entry.path().extension();
      if (extension != ".cc" && extension != ".h" && extension != ".in") continue;
      const std::string path = fs::relative(entry.path(), source_dir).string();
      const bool header = extension == ".h" && path.rfind("test/", 0) != 0;
      Collect(CodeOf(entry.path()), header ? path : "", &names);
    }
  }
  EXPECT_GT(names.declared.size(), 1000u);
  for (const auto& [name, header] : names.declared) {
    if (names.used.count(name) || kExceptions.count(name)) continue;
    ADD_FAILURE() << header << " declares " << name << ", and nobody uses it";
  }
}

}  // namespace unused_names_test

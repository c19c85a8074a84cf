// An installed header can be used with the other installed headers: a type that it only declares is
// defined in another one. A declaration that needs any other type is marked as one for Coracle's
// own code, in its comment.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace public_types_test {

namespace fs = std::filesystem;

fs::path SourceDir() {
  const char* directory = std::getenv("CORACLE_SOURCE_DIR");
  return directory ? directory : ".";
}

using Lines = std::vector<std::string>;

std::map<std::string, Lines> PublicHeaders() {
  std::map<std::string, Lines> headers;
  std::ifstream list(SourceDir() / "cmake/public_headers.txt");
  for (std::string name; std::getline(list, name);) {
    std::ifstream in(SourceDir() / name);
    Lines& lines = headers[name];
    for (std::string line; std::getline(in, line);) lines.push_back(line);
  }
  return headers;
}

// The types that the headers declare and none of them defines.
std::set<std::string> OpenTypes(const std::map<std::string, Lines>& headers) {
  static const std::regex declared("^(class|struct|enum class) (\\w+);.*");
  static const std::regex defined(" *(class|struct|enum|enum class) (\\w+)\\b[^;]*\\{.*");
  std::set<std::string> open;
  for (const bool remove : {false, true}) {
    for (const auto& [name, lines] : headers) {
      for (const std::string& line : lines) {
        std::smatch match;
        if (!remove && std::regex_match(line, match, declared)) open.insert(match[2]);
        if (remove && std::regex_match(line, match, defined)) open.erase(match[2]);
      }
    }
  }
  return open;
}

// Whether the line, or a line of its paragraph before it, limits the use.
bool IsForOwnCode(const Lines& lines, size_t at) {
  for (size_t i = at + 1; i-- > 0 && !lines[i].empty();)
    if (lines[i].find("Coracle's own code") != std::string::npos) return true;
  return false;
}

// Calls f(index) for each line that users may rely on: neither a comment, nor private or protected,
// nor in the namespace internal.
template <class F>
void ForEachUsable(const Lines& lines, F&& f) {
  static const std::regex no_code(" *(//.*|friend .*|(class|struct) \\w+;.*)");
  bool hidden = false, internal = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.starts_with("inline namespace internal {")) internal = true;
    if (internal && line.starts_with("}")) internal = false;
    if (line == " private:" || line == " protected:") hidden = true;
    if (line == " public:" || line.starts_with("};")) hidden = false;
    if (!hidden && !internal && !std::regex_match(line, no_code)) f(i);
  }
}

TEST(PublicTypes, AreDefinedInInstalledHeaders) {
  const std::map<std::string, Lines> headers = PublicHeaders();
  ASSERT_GT(headers.size(), 30u);
  const std::set<std::string> open = OpenTypes(headers);
  static const std::regex word("\\w+");
  for (const auto& [name, lines] : headers) {
    ForEachUsable(lines, [&, &name = name, &lines = lines](size_t i) {
      const std::string code = lines[i].substr(0, lines[i].find("//"));
      for (std::sregex_iterator it(code.begin(), code.end(), word), end; it != end; ++it) {
        if (!open.count(it->str())) continue;
        EXPECT_TRUE(IsForOwnCode(lines, i))
            << name << ":" << i + 1 << ": no installed header defines " << it->str()
            << "; install it, or say that this is for Coracle's own code";
      }
    });
  }
}

}  // namespace public_types_test

// The symbols that libcoracle_c exports: the functions of its header and no others.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace coracle::abi_test {

std::string Source(const std::string& path) {
  std::ifstream file(std::getenv("CORACLE_SOURCE_DIR") + ("/" + path));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<std::string> Found(const std::string& text, const std::string& pattern) {
  std::set<std::string> names;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
    names.insert((*it)[1]);
  return names;
}

std::string OutputOf(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, pipe))
    output.append(buffer, count);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return output;
}

TEST(Abi, TheLibraryExportsTheFunctionsOfItsHeader) {
  const auto declared = Found(Source("coracle_c.h"), R"((coracle_[a-z_]+)\()");
  const auto listed = Found(Source("capi/coracle_c.map"), R"((coracle_[a-z_]+);)");
  EXPECT_EQ(declared, listed);
  const auto exported =
      Found(OutputOf(CORACLE_NM " -D --defined-only " CORACLE_LIBRARY), R"( [A-Za-z] ([^\s@]+))");
  std::set<std::string> wanted = listed;
  wanted.insert("CORACLE_1");  // the version itself
  EXPECT_EQ(exported, wanted);
}

}  // namespace coracle::abi_test

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/test/misuse/misuse.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

namespace coracle::misuse {

void Require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

}  // namespace coracle::misuse

namespace coracle::misuse::misuse_test {

namespace fs = std::filesystem;

Cases AllCases() {
  Cases cases;
  AddBase(cases);
  AddPrograms(cases);
  AddOps(cases);
  AddLayers(cases);
  AddTraining(cases);
  AddOptimizers(cases);
  AddModels(cases);
  AddJobs(cases);
  return cases;
}

std::string OutcomeOf(const Case& c) {
  try {
    c.run();
    return "";
  } catch (const InternalError& error) {
    return std::string("internal error: ") + error.what();
  } catch (const Error& error) {
    return "error: " + error.message();
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
}

void WriteLine(int fd, std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  if (::write(fd, line.data(), line.size()) < 0) ::_exit(1);
}

// Runs the cases from `first` on in a child, until one ends it. Returns the lines that it wrote:
// one for each case.
std::vector<std::string> RunFrom(const std::vector<Case>& cases, size_t first) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    SetNumThreads(1);  // threads do not live on in a child
    SetLogSink([](MessageLevel, const std::string&) {});
    for (size_t i = first; i < cases.size(); ++i) {
      ::alarm(60);
      WriteLine(ends[1], OutcomeOf(cases[i]));
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  if (first + lines.size() < cases.size()) {
    lines.push_back(WIFSIGNALED(status) ? "a crash by signal " + std::to_string(WTERMSIG(status))
                                        : "an end of the process");
  }
  return lines;
}

void Judge(const Case& c, const std::string& outcome) {
  const std::string which = c.type + ": " + c.what;
  if (!c.fails) {
    EXPECT_EQ(outcome, "") << which;
    return;
  }
  const bool internal = c.error.starts_with("internal error: ");
  EXPECT_EQ(outcome.rfind(internal ? "internal error: " : "error: ", 0), 0u)
      << which << " ends with '" << outcome << "'";
  EXPECT_NE(outcome.find(c.error), std::string::npos) << which << " ends with '" << outcome << "'";
}

TEST(Misuse, EndsInAnErrorOrAValue) {
  const Cases cases = AllCases();
  for (size_t i = 0; i < cases.all().size();) {
    const std::vector<std::string> outcomes = RunFrom(cases.all(), i);
    ASSERT_FALSE(outcomes.empty());
    for (const std::string& outcome : outcomes) Judge(cases.all()[i++], outcome);
  }
}

TEST(Misuse, EveryTypeHasACase) {
  const Cases cases = AllCases();
  std::set<std::string> with_case;
  for (const Case& c : cases.all()) with_case.insert(c.type);
  for (const std::string& type : cases.types()) EXPECT_TRUE(with_case.count(type)) << type;
}

// The words of a line of C++, cut at everything else.
std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words(1);
  for (const char c : line) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_')
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// The classes, structs and enums that a header defines outside of namespace internal. Formatted
// code has such a definition at the begin of a line.
std::set<std::string> TypesOf(const fs::path& header) {
  std::set<std::string> types;
  std::ifstream in(header);
  std::ptrdiff_t depth = 0;  // of braces in a namespace of Coracle's own code
  for (std::string line; std::getline(in, line);) {
    const bool internal = depth > 0 || line.find("namespace internal {") != line.npos;
    if (internal) {
      depth += std::count(line.begin(), line.end(), '{');
      depth -= std::count(line.begin(), line.end(), '}');
    }
    const bool defines =
        line.starts_with("class ") || line.starts_with("struct ") || line.starts_with("enum ");
    const std::string code = line.substr(0, line.find("//"));
    const bool declares = code.find(';') != code.npos && code.find('{') == code.npos;
    const bool specialises = code.find('<') < code.find(':');
    if (internal || !defines || declares || specialises) continue;
    const std::vector<std::string> words = Words(code);
    types.insert(words.at(words.at(1) == "class" ? 2 : 1));
  }
  return types;
}

TEST(Misuse, TriesEveryPublicType) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  std::set<std::string> types;
  std::ifstream list(fs::path(sources) / "cmake/public_headers.txt");
  int headers = 0;
  for (std::string header; std::getline(list, header); ++headers) {
    for (const std::string& type : TypesOf(fs::path(sources) / header)) types.insert(type);
  }
  EXPECT_EQ(headers, 40);
  EXPECT_GT(types.size(), 150u);
  const Cases cases = AllCases();
  std::set<std::string> tried(cases.types().begin(), cases.types().end());
  EXPECT_EQ(tried.size(), cases.types().size()) << "a type is listed twice";
  for (const std::string& type : types)
    EXPECT_TRUE(tried.count(type)) << type << " has no case in test/misuse";
  for (const std::string& type : tried)
    EXPECT_TRUE(types.count(type)) << type << " is no type of a public header";
}

}  // namespace coracle::misuse::misuse_test

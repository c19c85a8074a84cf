#pragma once
// The command as a user runs it, for tests.

#include <coracle/framework/base/file.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace coracle {

struct Result {
  int code = -1;
  std::string text;  // standard output and standard error
};

// Runs a shell command in which "coracle" means the binary.
inline Result Shell(std::string command) {
  for (size_t at = command.find("coracle "); at != command.npos;
       at = command.find("coracle ", at + std::string(CORACLE_CLI).size())) {
    command.replace(at, 7, CORACLE_CLI);
  }
  Result result;
  FILE* pipe = ::popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  if (!pipe) return result;
  char buffer[4096];
  while (size_t n = std::fread(buffer, 1, sizeof(buffer), pipe)) result.text.append(buffer, n);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return result;
}

class Cli : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "cli_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    WriteFileAtomic(Path("model.pbtxt"), R"(
      name: "tiny"
      data { name: "x" shape: [-1, 3] }
      layer { fc { input: "x" size: 2 output: "h" } }
      layer { mean { input: "h" output: "loss" } }
    )");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  void Expect(const std::string& command, int code, const std::vector<std::string>& parts) {
    const Result result = Shell("cd " + dir_ + " && " + command);
    EXPECT_EQ(result.code, code) << command << "\n" << result.text;
    for (const std::string& part : parts)
      EXPECT_NE(result.text.find(part), std::string::npos) << "no '" << part << "' in\n"
                                                           << result.text;
  }

  std::string dir_;
};

}  // namespace coracle

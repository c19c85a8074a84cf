// Debian's packaging follows the tree: its version, its libraries, what building needs.
#include <coracle/framework/base/version.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace packages_test {

namespace fs = std::filesystem;

class Packages : public testing::Test {
 protected:
  void SetUp() override {
    const char* directory = std::getenv("CORACLE_SOURCE_DIR");
    if (!directory) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
    root_ = directory;
  }

  std::string TextOf(const std::string& file) const {
    std::stringstream text;
    text << std::ifstream(root_ / file).rdbuf();
    return text.str();
  }

  fs::path root_;
};

TEST_F(Packages, HaveTheVersionOfTheTree) {
  const std::string version =
      fmt::format("{}.{}.{}", CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR, CORACLE_VERSION_PATCH);
  EXPECT_EQ(TextOf("debian/changelog").rfind("coracle (" + version + ")", 0), 0u);
}

TEST_F(Packages, AreNamedForTheLibraries) {
  const std::string minor = CORACLE_VERSION_MAJOR > 0 ? fmt::format("{}", CORACLE_VERSION_MAJOR)
                                                      : fmt::format("{}.{}", CORACLE_VERSION_MAJOR,
                                                                    CORACLE_VERSION_MINOR);
  const std::string control = TextOf("debian/control");
  for (const char* name : {"libcoracle", "libcoracle-train", "libcoracle-convert"}) {
    EXPECT_NE(control.find(fmt::format("\nPackage: {}{}\n", name, minor)), std::string::npos);
    EXPECT_TRUE(fs::exists(root_ / fmt::format("debian/{}{}.symbols", name, minor))) << name;
  }
}

TEST_F(Packages, NeedWhatBuildingNeeds) {
  const std::set<std::string> for_tests = {"build-essential", "libbenchmark-dev", "libgmock-dev",
                                           "libgtest-dev",    "liblmdb-dev",      "openmpi-bin"};
  const std::string control = TextOf("debian/control");
  std::istringstream lines(TextOf("scripts/packages.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#' || for_tests.count(line)) continue;
    const bool listed = control.find("\n " + line + ",\n") != std::string::npos ||
                        control.find("\n " + line + " (") != std::string::npos;
    EXPECT_TRUE(listed) << line << " is in scripts/packages.txt, not in debian/control";
  }
}

}  // namespace packages_test

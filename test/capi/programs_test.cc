// The example in Go prints what the model computes.

#include <coracle/test/capi/capi_fixture.h>
#include <coracle/test/sanitizers.h>
#include <fmt/format.h>

namespace coracle::programs_test {

namespace fs = std::filesystem;

class CapiPrograms : public Capi {
 protected:
  // The program prints the logits, a number a line.
  static void ExpectClassifies(const std::string& program) {
    const ShellOutput good = Shell(program + " " + directory_ + "/circle 2 0 0 0.5 -1");
    EXPECT_EQ(good.status, 0) << good.text;
    std::istringstream numbers(good.text);
    for (float wanted : expected_) {
      float value = 0;
      ASSERT_TRUE(numbers >> value) << good.text;
      EXPECT_NEAR(value, wanted, 1e-5f);
    }
    const ShellOutput bad = Shell(program + " /none 2 1 1");
    EXPECT_EQ(bad.status >> 8, 1);
    EXPECT_NE(bad.text.find("no model at '/none'"), std::string::npos) << bad.text;
  }
};

TEST_F(CapiPrograms, Go) {
  if (Shell("go version").status != 0) GTEST_SKIP() << "go is not installed";
  if (UnderSanitizer()) GTEST_SKIP() << "a program in Go does not load a sanitizer's library";
  const std::string library = fs::path(CORACLE_LIBRARY).parent_path();
  const std::string source = std::getenv("CORACLE_SOURCE_DIR");
  // pkg-config knows only libraries that are installed.
  const std::string include = directory_ + "/include";
  fs::create_directories(include + "/coracle");
  fs::copy_file(source + "/coracle_c.h", include + "/coracle/coracle_c.h",
                fs::copy_options::overwrite_existing);
  const ShellOutput compiled = Shell(
      fmt::format("cd {0} && GO111MODULE=off GOCACHE={0}/cache PKG_CONFIG=true CGO_CFLAGS=-I{1} "
                  "CGO_LDFLAGS='-L{2} -lcoracle_c -Wl,-rpath,{2}' go build -o {0}/classify_go "
                  "{3}/examples/embed/classify.go",
                  directory_, include, library, source));
  ASSERT_EQ(compiled.status, 0) << compiled.text;
  ExpectClassifies(directory_ + "/classify_go");
}

}  // namespace coracle::programs_test

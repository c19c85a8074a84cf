// The listing of a real training program, whole: golden files next to this one. With
// CORACLE_UPDATE_GOLDEN set in the environment, the test writes them.

#include <coracle/framework/base/file.h>
#include <coracle/test/tools/cli.h>
#include <fmt/format.h>

namespace dump_test {

using namespace coracle;  // NOLINT: as users do

class Dump : public Cli {
 protected:
  std::string Source() const {
    const char* directory = std::getenv("CORACLE_SOURCE_DIR");
    return directory ? directory : ".";
  }
  void ExpectGolden(const std::string& flags, const std::string& name) {
    const Result result = Shell(fmt::format("coracle dump {} {}", Path("train.pb"), flags));
    ASSERT_EQ(result.code, 0) << result.text;
    const std::string golden = Source() + "/test/tools/golden/" + name;
    if (std::getenv("CORACLE_UPDATE_GOLDEN")) WriteFileAtomic(golden, result.text);
    EXPECT_EQ(result.text, ReadFile(golden, 1 << 20));
  }
};

TEST_F(Dump, OfLeNetWithGradients) {
  Expect(fmt::format("coracle build {}/examples/digits/lenet.pbtxt --out=main.pb && "
                     "coracle backward main.pb --loss=loss --out=train.pb",
                     std::filesystem::absolute(Source()).string()),
         0, {"fc_0.w_0 -> fc_0.w_0@GRAD"});
  ExpectGolden("", "lenet.txt");
  ExpectGolden("--full", "lenet_full.txt");
}

}  // namespace dump_test

// Files of `convert --compat=paddle` in Netron's own reader. $CORACLE_NETRON is a directory
// with Netron's sources (the directory of its package that holds paddle.js). These tests are
// for development.
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/test_data.h>
#include <coracle/test/tools/cli.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace coracle::netron_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Netron : public Cli {
 protected:
  void SetUp() override {
    const char* sources = std::getenv("CORACLE_SOURCE_DIR");
    const char* netron = std::getenv("CORACLE_NETRON");
    if (!sources || !netron) GTEST_SKIP() << "CORACLE_NETRON does not name Netron's sources";
    if (Shell("command -v node").code != 0) GTEST_SKIP() << "node is not installed";
    // Paddle 3 has other names for tensors in texts: newer readers refuse texts with Paddle
    // 2's names.
    reads_texts_ =
        ReadFile(netron + std::string("/paddle-proto.js")).find("LOD_TENSOR") != std::string::npos;
    reader_ = fmt::format("node {}/test/tools/netron_read.mjs {} ", sources, netron);
    examples_ = std::string(sources) + "/examples/";
    Cli::SetUp();
  }

  // Netron must read from a file in the test's directory what the file holds; `weights`: parameters
  // with values.
  void ExpectRead(const std::string& file, size_t weights = 0) {
    const Result result = Shell(reader_ + Path(file));
    ASSERT_EQ(result.code, 0) << file << ": " << result.text;
    const Json read = Json::parse(result.text);
    const ProgramDesc program = ReadProgram(Path(file));
    size_t ops = 0;
    program.ForEachOp([&](const OpDesc&) { ++ops; });
    EXPECT_EQ(read["blocks"], program.NumBlocks()) << file;
    EXPECT_EQ(
        read["nodes"].get<size_t>() + read["inputs"].get<size_t>() + read["outputs"].get<size_t>(),
        ops)
        << file << ": " << result.text;
    EXPECT_EQ(read["weights"], weights) << file;
    EXPECT_EQ(read["mismatched"], Json::array()) << file;
  }
  // In binary and, where Netron has the names of Paddle 2, in text.
  void ExpectReadConverted(const std::string& program) {
    for (const char* out : {"out.pdmodel", "out.pbtxt", "__model__"}) {
      if (!reads_texts_ && std::string(out) == "out.pbtxt") continue;
      Expect(fmt::format("coracle convert {} {} --compat=paddle", program, out), 0, {});
      ExpectRead(out);
    }
  }

  std::string reader_, examples_;
  bool reads_texts_ = false;
};

TEST_F(Netron, OpensWhatIsBuiltHere) {
  for (const char* model : {"digits/lenet", "tagger/model", "transformer/sort_model"}) {
    SCOPED_TRACE(model);
    Expect(fmt::format("coracle build {}{}.pbtxt --out=main.pb --startup_out=startup.pb", examples_,
                       model),
           0, {});
    Expect("coracle backward main.pb --loss=loss --out=trained.pb", 0, {});
    for (const char* program : {"main.pb", "startup.pb", "trained.pb"})
      ExpectReadConverted(program);
  }
}

TEST_F(Netron, OpensASavedModelWithItsParameters) {
  Expect("coracle build model.pbtxt --out=main.pdmodel --startup_out=startup.pb", 0, {});
  Expect("coracle run startup.pb --save_params=main.pdiparams", 0, {});
  Expect("coracle extract main.pdmodel --outputs=loss -o whole.pdmodel", 0, {});
  ExpectRead("whole.pdmodel", 2);
}

TEST_F(Netron, OpensPaddlesModelsWrittenAgain) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the shared data is not there";
  for (const auto& entry : fs::directory_iterator(TestDataDirectory() + "/paddle")) {
    const fs::path model = entry.path() / "inference.pdmodel";
    if (!FileExists(model)) continue;
    SCOPED_TRACE(model);
    Expect("cp " + model.string() + " model.pdmodel", 0, {});
    ExpectReadConverted("model.pdmodel");
  }
}
}  // namespace coracle::netron_test

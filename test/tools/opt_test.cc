// `coracle opt` as a user runs it: its output, the saved files, and its refusals.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/tools/cli.h>

#include <nlohmann/json.hpp>

namespace coracle::opt_test {

using Json = nlohmann::json;

class OptCli : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    // A saved model: fc, an op that does nothing, and its parameters.
    WriteFileAtomic(Path("net.pbtxt"), R"(
      data { name: "x" shape: [-1, 3] }
      layer { op { assign { X: ["x"] Out: ["same"] } } }
      layer { fc { input: "x" size: 2 act: "relu" output: "h" } }
    )");
    Expect(
        "coracle build net.pbtxt --out=m/net.pdmodel --startup_out=s.pb && "
        "coracle run s.pb --save_params=m/net.pdiparams",
        0, {});
    Tensor x(DType::kFloat32, {4, 3});
    for (int64_t i = 0; i < 12; ++i) x.data<float>()[i] = static_cast<float>(i % 5) - 2;
    WriteNpz({{"x", x}}, Path("x.npz"));
  }

  // The largest element of the result, and its difference from the result of m/net.pdmodel.
  void ExpectSameResult(const std::string& program, const std::string& flags = "") {
    Expect("coracle run m/net.pdmodel --feed=x.npz --fetch=h --disabled_passes=all --out=want.npz",
           0, {});
    Expect("coracle run " + program + " --feed=x.npz --fetch=h --out=got.npz " + flags, 0, {});
    const Tensor want = ReadNpz(Path("want.npz"))[0].second,
                 got = ReadNpz(Path("got.npz"))[0].second;
    ASSERT_EQ(got.shape(), want.shape());
    double largest = 0;
    for (int64_t i = 0; i < want.numel(); ++i) {
      EXPECT_NEAR(got.data<float>()[i], want.data<float>()[i], 1e-5);
      largest = std::max<double>(largest, want.data<float>()[i]);
    }
    EXPECT_GT(largest, 0.01);
  }
};

TEST_F(OptCli, SavesWhatRuns) {
  Expect("coracle opt m/net.pdmodel --fetch=h -o o/net.pdmodel", 0,
         {"pass                       before  after       ms  changes\n", "fuse_fc ",
          "+1 fc, -1 mul", "o/net.pdmodel, o/net.pdiparams\n"});
  Expect("coracle dump o/net.pdmodel", 0, {"1 op,", " h:float32[-1,2] = fc("});
  ExpectSameResult("o/net.pdmodel");
  ExpectSameResult("o/net.pdmodel", "--disabled_passes=all");
  // Once more.
  Expect("coracle opt o/net.pdmodel --fetch=h -o p/net.pdmodel && coracle diff o p --values", 0,
         {"no differences"});
  // As text and a file of parameters by name.
  Expect("coracle opt m/net.pdmodel --fetch=h -o t.pbtxt --save_params=t.params", 0,
         {"t.pbtxt, t.params\n"});
  ExpectSameResult("t.pbtxt", "--params=t.params");
}

TEST_F(OptCli, ForTraining) {
  Expect("coracle opt net.pbtxt --fetch=h -o o.pb", 0, {"fuse_fc", "o.pb\n"});
  Expect("coracle diff net.pbtxt o.pb", 1,
         {"  + op 0  h:float32[-1,2] = fc(", "1 op added, 4 removed"});
  ExpectSameResult("o.pb", "--params=m/net.pdiparams");
  Expect("coracle opt m/net.pdmodel --for=training --fetch=h -o q/net.pdmodel", 0,
         {"q/net.pdmodel, q/net.pdiparams\n"});
  Expect("cmp m/net.pdiparams q/net.pdiparams", 0, {});
}

TEST_F(OptCli, TellsReasonsAndChanges) {
  Expect("coracle opt m/net.pdmodel --fetch=h --passes=dead_code --explain", 0,
         {"dead_code: removes ops whose results are unused",
          "  - op 0  same:float32[-1,3] = assign(", "\nall  "});
  Expect("coracle opt m/net.pdmodel --fetch=h --print-after-all", 0,
         {"after dead_code\nprogram: 1 block", "after fuse_fc\nprogram: 1 block, 1 op"});
  const Result result = Shell(
      "cd " + dir_ + " && coracle opt m/net.pdmodel --fetch=h --passes=fuse_fc,dead_code --json");
  ASSERT_EQ(result.code, 0) << result.text;
  const Json json = Json::parse(result.text);
  EXPECT_EQ(json["format"], "coracle.passes");
  ASSERT_EQ(json["passes"].size(), 2u);
  EXPECT_EQ(json["passes"][0]["pass"], "dead_code");
  EXPECT_EQ(json["passes"][1]["changes"]["fc"], 1);
}

TEST_F(OptCli, ForPaddle) {
  Expect("coracle opt m/net.pdmodel --fetch=h --compat=paddle -o c/net.pdmodel", 0, {"dead_code"});
  Expect("coracle dump c/net.pdmodel", 0, {" = mul(", " = elementwise_add(", " = relu("});
  ExpectSameResult("c/net.pdmodel");
  Expect("coracle opt m/net.pdmodel --compat=paddle --passes=fuse_fc", 2,
         {"--passes: Paddle does not know the result of fuse_fc"});
  Expect("coracle opt m/net.pdmodel --compat=onnx", 2, {"--compat is paddle, got 'onnx'"});
}

TEST_F(OptCli, RefusesBeforeItWrites) {
  Expect("coracle opt", 2, {"opt: takes one PROGRAM"});
  Expect("coracle opt m/net.pdmodel --passes=fuse_cf", 1,
         {"unknown pass 'fuse_cf'; did you mean fuse_fc?"});
  Expect("coracle opt m/net.pdmodel --for=speed", 2, {"--for is inference or training"});
  Expect("coracle opt m/net.pdmodel -o o.onnx", 2, {"--out must end in .pb or .pdmodel"});
  Expect("coracle opt m/net.pdmodel -o o.pb", 2, {"folded parameters need a file"});
  Expect("coracle opt net.pbtxt --for=inference -o o.pdmodel", 1,
         {"no parameters next to 'net.pbtxt'", "--params=FILE"});
  Expect("coracle opt m/net.pdmodel --save_params=p.params", 2, {"--save_params needs --out"});
  Expect("coracle opt m/net.pdmodel --fetch=h -o m/net.pdmodel", 2,
         {"would overwrite an input file"});
  Expect("coracle opt m/net.pdmodel -o o.pb --save_params=./m/net.pdiparams", 2,
         {"would overwrite an input file"});
  // Readers would take those parameters for the result's.
  Expect("cp m/net.pdiparams f.pdiparams && coracle opt net.pbtxt --fetch=h -o f.pdmodel", 1,
         {"'f.pdiparams' holds parameters of another program"});
  Expect("coracle opt m/net.pdmodel --json --explain", 2, {"--json has the table alone"});
  Expect("coracle opt m/net.pdmodel --fetch=g -o o.pdmodel", 1, {"cannot fetch 'g'"});
  Expect("coracle opt nowhere.pdmodel -o o.pdmodel", 1, {"nowhere.pdmodel"});
  Expect("head -c 50 m/net.pdmodel > cut.pdmodel; coracle opt cut.pdmodel -o o.pdmodel", 1,
         {"cut.pdmodel"});
  Expect(
      "head -c 10 m/net.pdiparams > cut.params; "
      "coracle opt m/net.pdmodel --params=cut.params -o o.pdmodel",
      1, {"cut.params"});
  for (const char* name : {"o.pb", "o.pdmodel", "o.pdiparams", "o.onnx"})
    EXPECT_FALSE(FileExists(Path(name))) << name;
}
}  // namespace coracle::opt_test

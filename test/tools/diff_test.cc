// `coracle diff` as a user runs it: its output, its exit codes, and inputs of every kind.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/tools/cli.h>

#include <nlohmann/json.hpp>

namespace coracle::diff_test {

using Json = nlohmann::json;

class DiffCli : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    WriteFileAtomic(Path("clipped.pbtxt"), R"(
      name: "tiny"
      data { name: "x" shape: [-1, 3] }
      layer { fc { input: "x" size: 2 output: "h" error_clip { by_value { max: 2 } } } }
      layer { mean { input: "h" output: "loss" } }
    )");
  }
};

TEST_F(DiffCli, EqualIsZero) {
  Expect("coracle diff model.pbtxt model.pbtxt", 0, {"no differences\n"});
  Expect("coracle convert model.pbtxt m.pb && coracle diff model.pbtxt m.pb", 0,
         {"no differences\n"});
  Expect("coracle diff m.pb - < m.pb", 0, {"no differences\n"});
}

TEST_F(DiffCli, AnErrorClipBeforeAndBehindBackward) {
  Expect("coracle diff model.pbtxt clipped.pbtxt", 1,
         {"--- model.pbtxt\n+++ clipped.pbtxt\nblock 0\n"
          "  ~ var h: error_clip: none -> by_value(max=2, min=-2)\n1 variable changed\n"});
  Expect(
      "coracle backward model.pbtxt --loss=loss --out=a.pb && "
      "coracle backward clipped.pbtxt --loss=loss --out=b.pb",
      0, {});
  const Result result = Shell("cd " + dir_ + " && coracle diff a.pb b.pb");
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.text.find("  + op 5  h@GRAD:float32[-1,2] = clip(X=h@GRAD) {min=-2, max=2}\n"
                             "1 op added; 1 variable changed\n"),
            std::string::npos)
      << result.text;
}

TEST_F(DiffCli, Json) {
  const Result result = Shell("cd " + dir_ + " && coracle diff model.pbtxt clipped.pbtxt --json");
  ASSERT_EQ(result.code, 1) << result.text;
  const Json json = Json::parse(result.text);
  EXPECT_EQ(json["format"], "coracle.diff");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["equal"], false);
  const Json var = json["blocks"][0]["vars"][0];
  EXPECT_EQ(var["after"], "h");
  EXPECT_EQ(var["changes"][0]["what"], "error_clip");
  EXPECT_EQ(var["changes"][0]["before"], "none");
  const Result same = Shell("cd " + dir_ + " && coracle diff model.pbtxt model.pbtxt --json");
  EXPECT_EQ(same.code, 0);
  EXPECT_EQ(Json::parse(same.text)["equal"], true);
}

TEST_F(DiffCli, ValuesOfSavedModels) {
  Expect(
      "coracle build model.pbtxt --out=a/m.pdmodel --startup_out=s.pb && mkdir b && "
      "cp a/m.pdmodel b && coracle run s.pb --save_params=a/m.pdiparams --seed=1 && "
      "coracle run s.pb --save_params=b/m.pdiparams --seed=2",
      0, {});
  Expect("coracle diff a b", 0, {"no differences\n"});
  Expect("coracle diff a a --values", 0, {"no differences\n"});
  // The bias is zero in both.
  Expect("coracle diff a b --values", 1,
         {"values\n  ~ fc_0.w_0  6 of 6 elements differ, most by "});
  Expect("coracle diff a b --values --atol=10", 0, {"no differences\n"});
  Expect("coracle diff a/m.pdmodel model.pbtxt --values", 2,
         {"no parameters next to 'model.pbtxt'"});
  Expect("coracle diff a model.pbtxt --values --params=a/m.pdiparams,b/m.pdiparams", 1,
         {"fc_0.w_0  6 of 6"});
}

TEST_F(DiffCli, TroubleIsTwo) {
  Expect("coracle diff model.pbtxt", 2, {"diff: takes two PROGRAMs, got 1 argument"});
  Expect("coracle diff - - < model.pbtxt", 2, {"only one of the two can be standard input"});
  Expect("coracle diff model.pbtxt nowhere.pb", 2, {"coracle: ", "nowhere.pb"});
  Expect(
      "coracle convert model.pbtxt m.pb && head -c 60 m.pb > cut.pb && "
      "coracle diff m.pb cut.pb",
      2, {"coracle: ", "cut.pb"});
  Expect("mkdir empty && coracle diff m.pb empty", 2, {"holds neither __model__ nor a .pdmodel"});
  Expect("head -c 100 /dev/zero > zeros.pb; coracle diff zeros.pb m.pb", 2, {"zeros.pb"});
  Expect("coracle diff model.pbtxt m.pb --params=a,b", 2, {"--params needs --values"});
  Expect("coracle diff model.pbtxt m.pb --atol=1", 2, {"--rtol and --atol need --values"});
  Expect("coracle diff model.pbtxt m.pb --values --params=a", 2, {"--params takes A,B"});
  Expect("coracle diff model.pbtxt m.pb --rtol=-1", 2, {"--rtol must not be negative, got -1"});
  Expect("coracle diff model.pbtxt m.pb --value", 2, {"did you mean --values?"});
}

// Jobs and their snapshots, and the output of `coracle snapshot` for two.
TEST_F(DiffCli, JobsAndSnapshots) {
  WriteFileAtomic(Path("softmax.pbtxt"), R"(
    data { name: "image" shape: [-1, 1, 28, 28] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { fc { input: "image" size: 10 output: "logits" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } })");
  for (const std::string rate : {"0.1", "0.2"}) {
    WriteFileAtomic(Path("job" + rate + ".pbtxt"), R"(
      name: "tiny" model: "softmax.pbtxt" train { digits { count: 40 } } test { digits { count: 40 } }
      loss: "loss" batch_size: 20 max_iter: 2 snapshot_interval: 2
      optimizer { sgd { learning_rate: )" + rate + " } }");
  }
  Expect("coracle diff job0.1.pbtxt job0.1.pbtxt", 0, {"no differences\n"});
  Expect("coracle diff job0.1.pbtxt job0.1.pbtxt --values", 2, {"a job has no values"});
  Expect("coracle train job0.1.pbtxt --out=out0.1 && coracle train job0.2.pbtxt --out=out0.2", 0,
         {});
  Expect("coracle diff out0.1 job0.1.pbtxt", 0, {"no differences\n"});
  Expect("coracle diff out0.1 out0.2 --values", 1,
         {"values\n", "fc_0.b_0  10 of 10 elements differ", "learning_rate"});
  Expect("coracle snapshot out0.1 out0.2", 0, {"variables are the same bit for bit", "fc_0.w_0"});
}
}  // namespace coracle::diff_test

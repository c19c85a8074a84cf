// coracle bench.
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/test_data.h>
#include <coracle/test/tools/cli.h>

#include <nlohmann/json.hpp>

namespace coracle::bench_test {

using Json = nlohmann::json;

class Bench : public Cli {
 protected:
  Json Run(const std::string& arguments) {
    const Result result =
        Shell("cd " + dir_ + " && coracle bench " + arguments + " --json --seconds=0.05 2>err");
    EXPECT_EQ(result.code, 0) << arguments << "\n" << result.text;
    if (result.code != 0) return nullptr;
    const Json json = Json::parse(result.text);
    EXPECT_EQ(json["format"], "coracle.bench");
    EXPECT_EQ(json["version"], 1);
    for (const Json& row : json["rows"]) RequireSane(json, row);
    return json;
  }

  static void RequireSane(const Json& json, const Json& row) {
    const Json& ms = row["latency_ms"];
    EXPECT_GT(ms["min"], 0);
    EXPECT_LE(ms["min"], ms["p50"]);
    EXPECT_LE(ms["p50"], ms["p90"]);
    EXPECT_LE(ms["p90"], ms["p95"]);
    EXPECT_LE(ms["p95"], ms["p99"]);
    EXPECT_LE(ms["p99"], ms["max"]);
    EXPECT_LE(ms["min"], ms["mean"]);
    EXPECT_LE(ms["mean"], ms["max"]);
    EXPECT_GE(row["runs"], 10);
    const double runs = row["runs"], seconds = row["seconds"];
    EXPECT_NEAR(row["runs_per_second"], runs / seconds, 1e-6 * runs / seconds);
    EXPECT_NEAR(row["samples_per_second"], runs / seconds * json["samples_per_run"].get<double>(),
                1e-3 * runs / seconds);
    // A client does one run after the other.
    EXPECT_LE(runs * ms["mean"].get<double>(), 1.01e3 * seconds * row["concurrency"].get<double>());
    EXPECT_GT(row["first_run_ms"], 0);
    EXPECT_GE(row["first_run_ms"], row["plan_ms"]);
    EXPECT_GT(row["compile_ms"], 0);
    EXPECT_GT(row["load_ms"], 0);
    EXPECT_GT(row["peak_memory_bytes"], 1 << 20);
  }
};

TEST_F(Bench, ModelTextIsRunForward) {
  const Json json = Run("model.pbtxt --batch_size=7 --threads=1,2");
  EXPECT_EQ(json["kind"], "model text");
  EXPECT_EQ(json["parameters"], "startup program");
  EXPECT_EQ(json["samples_per_run"], 7);
  EXPECT_EQ(json["ops"], 3);  // mul, elementwise_add, mean
  ASSERT_EQ(json["inputs"].size(), 1u);
  EXPECT_EQ(json["inputs"][0]["name"], "x");
  EXPECT_EQ(json["inputs"][0]["type"], "float32[7, 3]");
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["threads"], 1);
  EXPECT_EQ(json["rows"][1]["threads"], 2);
  EXPECT_EQ(Run("model.pbtxt --draw")["parameters"], "drawn");
}

TEST_F(Bench, ProgramsWithAndWithoutParameters) {
  Expect(
      "coracle build model.pbtxt --out=main.pb --startup_out=startup.pb && coracle run startup.pb "
      "--save_params=params && coracle backward main.pb --loss=loss --out=train.pb",
      0, {});
  Json json = Run("main.pb");
  EXPECT_EQ(json["kind"], "program");
  EXPECT_EQ(json["parameters"], "drawn");
  EXPECT_EQ(Run("main.pb --params=params")["parameters"], "file");
  EXPECT_EQ(Run("train.pb --fetch=loss --shape=x:5x3")["samples_per_run"], 5);
  json = Run("- < main.pb");
  EXPECT_EQ(json["program"], "-");
  Expect("coracle bench - --threads=1,2 < main.pb", 2, {"standard input is read once"});
}

// Each client has memory of its own, and parameters where the program changes them.
TEST_F(Bench, ClientsOfAJobTrainTheirOwnParameters) {
  WriteFileAtomic(Path("job.pbtxt"), R"(
    model: "model.pbtxt" loss: "loss" optimizer { adam {} } batch_size: 6 iter_size: 2 max_iter: 1
    train { npz { file: "in.npz" } })");
  Json json = Run("job.pbtxt --concurrency=3");
  EXPECT_EQ(json["kind"], "job");
  EXPECT_EQ(json["samples_per_run"], 12);
  EXPECT_EQ(json["batches_per_run"], 2);
  EXPECT_EQ(json["rows"][0]["concurrency"], 3);
  EXPECT_TRUE(json["notes"].empty()) << json["notes"];  // all is finite
  EXPECT_EQ(Run("job.pbtxt --batch_size=2")["samples_per_run"], 4);
  Expect("coracle bench job.pbtxt --fetch=h", 2, {"--params and --fetch are for programs"});
}

TEST_F(Bench, RealModelsWithDrawnParameters) {
  const std::string data = TestDataDirectory();
  if (data.empty()) GTEST_SKIP() << "there is no shared/data";
  const std::string det = data + "/paddle/ch_PP-OCRv4_det", lac = data + "/paddle/lac";
  Json json = Run(det + " --shape=x:1x3x64x64");
  EXPECT_EQ(json["kind"], "saved model");
  EXPECT_EQ(json["inputs"][0]["type"], "float32[1, 3, 64, 64]");
  EXPECT_TRUE(json["notes"].empty()) << json["notes"];  // what is drawn stays finite
  EXPECT_LT(json["ops_after_passes"], json["ops"]);
  json = Run(lac + " --batch_size=4 --shape=token_ids:4x16");
  EXPECT_EQ(json["inputs"][1]["type"], "int64[4]");
  EXPECT_EQ(json["inputs"][1]["sequences"], 0);
  EXPECT_EQ(json["samples_per_run"], 4);
  EXPECT_TRUE(json["notes"].empty()) << json["notes"];
  Expect("coracle bench " + det, 1,
         {"not all dims are known of the feed 'x' float32[-1, 3, -1, -1]; give them with "
          "--shape=x:1x3xNxN"});
  Expect("coracle bench " + det + " --shape=y:1x3x64x64", 1,
         {"--shape: the program is not fed 'y'; it is fed x\n"});
}

// A batch of four sequences has eight rows each, unless --shape says otherwise.
TEST_F(Bench, Sequences) {
  WriteFileAtomic(Path("seq.pbtxt"), R"(
    data { name: "words" shape: [-1, 1] dtype: INT64 lod_level: 1 }
    layer { parameter { shape: [50, 4] output: "table" } }
    layer { op { lookup_table { W: "table" Ids: "words" Out: "e" } } }
    layer { op { sequence_pool { X: "e" Out: "p" pooltype: "MAX" MaxIndex: "where" } } })");
  Json json = Run("seq.pbtxt --batch_size=4");
  EXPECT_EQ(json["inputs"][0]["type"], "int64[32, 1]");
  EXPECT_EQ(json["inputs"][0]["sequences"], 4);
  EXPECT_EQ(json["samples_per_run"], 4);
  json = Run("seq.pbtxt --batch_size=4 --shape=words:10x1");
  EXPECT_EQ(json["inputs"][0]["type"], "int64[10, 1]");
  EXPECT_EQ(json["inputs"][0]["sequences"], 4);
}

TEST_F(Bench, Table) {
  Expect("coracle bench model.pbtxt --seconds=0.02 --threads=1", 0,
         {"model.pbtxt: model text, 3 ops, ", "parameters: startup program", "  x  float32[1, 3]",
          "p50 ms", "samples/s", "first run ms", "peak memory"});
}

TEST_F(Bench, WrongInput) {
  WriteFileAtomic(Path("cut.pdmodel"), std::string("\x0a\x7f\x08\x00", 4));
  Expect("coracle bench", 2, {"takes one MODEL, PROGRAM, DIR or JOB.pbtxt, got 0 arguments"});
  Expect("coracle bench missing.pb", 1, {"missing.pb"});
  Expect("coracle bench cut.pdmodel", 1, {"cut.pdmodel"});
  Expect("mkdir empty && coracle bench empty", 1, {"neither __model__ nor a .pdmodel file"});
  Expect("coracle bench model.pbtxt --fetch=los", 1, {"'los'", "did you mean"});
  Expect("coracle bench model.pbtxt --seconds=0", 2, {"--seconds must be positive, got 0"});
  Expect("coracle bench model.pbtxt --concurrency=0", 2,
         {"--concurrency must be in [1, 1024], got 0"});
  Expect("coracle bench model.pbtxt --batch_size=0", 2, {"--batch_size must be at least 1"});
  Expect("coracle bench model.pbtxt --draw --params=p", 2, {"--draw and --params exclude"});
  Expect("coracle bench model.pbtxt --shape=x", 2, {"--shape takes VAR:8x3x32x32, got 'x'"});
  Expect("coracle bench model.pbtxt --params=none", 1, {"none"});
  Expect("coracle bench model.pbtxt --threads=1,x", 2,
         {"--threads takes a number that is not negative, got 'x'"});
  Expect("coracle run model.pbtxt --threads=1,2", 2, {"--threads takes one number, got '1,2'"});
  Expect("coracle bench model.pbtxt --batch_size=2000000000 --memory_limit=100M", 1,
         {"out of memory"});
}
}  // namespace coracle::bench_test

// compare, run --check and run --save_all as a user runs them.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/test_data.h>
#include <coracle/test/tools/cli.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace coracle::compare_test {

using Json = nlohmann::ordered_json;

class Compare : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    const Tensor b = Tensor::Of<float>({2, 3}, {1, 2.5f, 3, 4, 5, 8});
    WriteNpz({{"y", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6})}, {"z", b}}, Path("a.npz"));
    WriteNpz({{"y", b}, {"z", b}}, Path("b.npz"));
  }
  Json JsonOf(const std::string& command, int code) {
    const Result result = Shell("cd " + dir_ + " && " + command);
    EXPECT_EQ(result.code, code) << result.text;
    return Json::parse(result.text, nullptr, false);
  }
};

TEST_F(Compare, Files) {
  Expect("coracle compare a.npz b.npz", 1,
         {"y: float32[2, 3]: 2 of 6 elements out of tolerance, worst at [1, 2]: 6 against 8 "
          "(absolute 2, relative 0.25)\n",
          "1 of 2 variables differs (rtol 1e-05 and atol 1e-06)\n"});
  Expect("coracle compare a.npz a.npz", 0,
         {"2 variables within rtol 1e-05 and atol 1e-06; all elements are equal\n"});
  Expect("coracle compare a.npz b.npz --atol=2", 0,
         {"the largest absolute difference is 2, of y\n"});
  Expect("coracle compare a.npz b.npz --rtol=0.25 --atol=0", 0, {"2 variables within"});
  Expect("coracle compare a.npz b.npz --rtol=0.24 --atol=0", 1, {"1 of 6 elements"});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  WriteNpz({{"y", Tensor::Of<float>({2}, {nan, nan})}, {"w", Tensor::Of<float>({1}, {0})}},
           Path("c.npz"));
  WriteNpz({{"y", Tensor::Of<float>({2}, {nan, 1})}, {"v", Tensor::Of<float>({1}, {0})}},
           Path("d.npz"));
  Expect("coracle compare c.npz d.npz", 1,
         {"y: float32[2]: 1 of 2 elements out of tolerance, worst at [1]: nan against 1",
          "; 1 where nan or infinity is on one side\n", "w: float32[1] only in c.npz\n",
          "v: float32[1] only in d.npz\n", "3 of 3 variables differ"});
  Expect("coracle compare a.npz d.npz", 1, {"y: float32[2, 3] against float32[2]\n"});
  WriteNpz({{"y", Tensor::Of<double>({2}, {1, 2})}}, Path("f64.npz"));
  WriteNpz({{"y", Tensor::Of<float>({2}, {1, 2})}}, Path("f32.npz"));
  Expect("coracle compare f64.npz f32.npz", 1, {"y: float64[2] against float32[2]\n"});
  Expect("coracle compare f64.npz f32.npz --nosame_dtype", 0, {"1 variable within"});
}

// Integers have all their digits, and no tolerance unless one is given.
TEST_F(Compare, Integers) {
  WriteNpz({{"id", Tensor::Of<int64_t>({2}, {1234567890123, 200000})}}, Path("i.npz"));
  WriteNpz({{"id", Tensor::Of<int64_t>({2}, {1234567890123, 200001})}}, Path("j.npz"));
  WriteNpz({{"id", Tensor::Of<int64_t>({2}, {1234567890124, 200000})}}, Path("k.npz"));
  Expect("coracle compare i.npz j.npz", 1, {"worst at [1]: 200000 against 200001 "});
  Expect("coracle compare i.npz j.npz --rtol=1e-5", 0, {"1 variable within"});
  Expect("coracle compare i.npz j.npz --atol=1", 0, {"1 variable within"});
  Expect("coracle compare i.npz k.npz", 1,
         {"1 of 2 elements out of tolerance, worst at [0]: 1234567890123 against 1234567890124 "});
  const Json json = JsonOf("coracle compare i.npz k.npz --json", 1);
  EXPECT_EQ(json["exact_integers"], true);
  EXPECT_EQ(json["variables"][0]["worst"]["a"].dump(), "1234567890123");
  WriteNpz({{"id", Tensor::Of<int64_t>({1}, {9007199254740993})}}, Path("l.npz"));
  WriteNpz({{"id", Tensor::Of<double>({1}, {9007199254740992})}}, Path("m.npz"));
  Expect("coracle compare l.npz m.npz --nosame_dtype", 0,
         {"the largest absolute difference is 1, of id\n"});
  Expect("coracle compare l.npz m.npz --nosame_dtype --rtol=0 --atol=0", 1,
         {"9007199254740993 against 9007199254740992 "});
  // Two float64 that differ in the last digit.
  WriteNpz({{"y", Tensor::Of<double>({1}, {0.1})}}, Path("n.npz"));
  WriteNpz({{"y", Tensor::Of<double>({1}, {0.1 + 1e-16})}}, Path("o.npz"));
  Expect("coracle compare n.npz o.npz --rtol=0 --atol=0", 1, {"0.1 against 0.1000000000000001 "});
}

// A table of a run has the same elements as its arrays.
TEST_F(Compare, TablesAndArrays) {
  const NamedTensors all = {{"y", Tensor::Of<float>({2}, {0.1f, 1e-30f})},
                            {"whole", Tensor::Of<float>({2}, {3, 16777216})},
                            {"n", Tensor::Of<int64_t>({2}, {9007199254740993, -1})},
                            {"small", Tensor::Of<int32_t>({2}, {1, 2})}};
  WriteNpz(all, Path("all.npz"));
  WriteFileAtomic(Path("all.csv"),
                  "y,whole,n,small\n0.1,3,9007199254740993,1\n1e-30,16777216,-1,2\n");
  WriteFileAtomic(Path("bad.csv"),
                  "y,whole,n,small\n0.1,3,9007199254740993,1\n1e-30,16777217,-1,2.5\n");
  for (const char* sides : {"all.npz all.csv", "all.csv all.npz"})
    Expect(fmt::format("coracle compare {} --rtol=0 --atol=0", sides), 0,
           {"4 variables within rtol 0 and atol 0; all elements are equal"});
  Expect("coracle compare all.npz bad.csv --rtol=0 --atol=0", 1,
         {"whole: ", "16777216 against 16777217", "small: ", "2 against 2.5"});
  WriteNpz({{"y", Tensor::Of<float>({2}, {INFINITY, 1})}}, Path("inf.npz"));
  WriteFileAtomic(Path("large.csv"), "y\n1e39\n1\n");
  WriteFileAtomic(Path("inf.csv"), "y\ninf\n1\n");
  Expect("coracle compare large.csv inf.npz --rtol=0 --atol=0", 1, {"1e+39 against inf"});
  Expect("coracle compare inf.csv inf.npz --rtol=0 --atol=0", 0, {"all elements are equal"});
}

TEST_F(Compare, Json) {
  const Json json = JsonOf("coracle compare a.npz b.npz --json", 1);
  EXPECT_EQ(json["format"], "coracle.compare");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["equal"], false);
  ASSERT_EQ(json["variables"].size(), 2u);
  const Json& y = json["variables"][0];
  EXPECT_EQ(y["status"], "values");
  EXPECT_EQ(y["a"]["shape"], Json::parse("[2, 3]"));
  EXPECT_EQ(y["outside"], 2);
  EXPECT_EQ(y["worst"]["index"], Json::parse("[1, 2]"));
  EXPECT_EQ(y["worst"]["relative"], 0.25);
  EXPECT_EQ(json["variables"][1]["status"], "equal");
}

TEST_F(Compare, ParametersAndModels) {
  Expect("coracle build model.pbtxt --out=main.pb --startup_out=startup.pb", 0, {});
  Expect("coracle run startup.pb --save_params=p && coracle run startup.pb --save_params=q", 0, {});
  Expect("coracle compare p q", 0, {"2 variables within"});
  Expect("coracle run startup.pb --save_params=r --seed=7 && coracle compare p r", 1,
         {"#1: float32[3, 2]: 6 of 6", "1 of 2 variables differs"});
  // Next to a program the tensors have its names; an npz file lends its own.
  Expect("mkdir m && cp main.pb m/__model__ && cp r m/__params__ && coracle compare m p", 1,
         {"fc_0.w_0: float32[3, 2]: 6 of 6"});
  Expect("coracle compare m m/__params__", 0, {"2 variables within"});
}

TEST_F(Compare, WrongInput) {
  Expect("coracle compare", 2, {"takes A and B, or one PROGRAM to run in two ways"});
  Expect("coracle compare a.npz missing.npz", 2, {"missing.npz"});
  Expect("head -c 100 a.npz > cut.npz; coracle compare a.npz cut.npz", 2, {"cut.npz"});
  Expect("coracle compare a.npz model.pbtxt", 2, {"is a program without parameters"});
  Expect("cp model.pbtxt x.bin; coracle compare a.npz x.bin", 2, {"no npz, npy or safetensors"});
  Expect("coracle compare a.npz .", 2, {"neither __model__ nor a .pdmodel file"});
  WriteNpz({}, Path("none.npz"));
  Expect("coracle compare none.npz none.npz", 2, {"neither 'none.npz' nor 'none.npz' holds"});
  Expect("coracle compare model.pbtxt --feed=a.npz --fetch=h --fetch_all", 2,
         {"exclude each other"});
  Expect("coracle compare a.npz b.npz --rtol=-1", 2, {"--rtol must not be negative, got -1"});
  Expect("coracle compare a.npz -", 2, {"not standard input"});
  WriteNpz({{"x", Tensor::Of<float>({1, 3}, {1, 2, 3})}}, Path("in.npz"));
  Expect("coracle compare model.pbtxt --feed=in.npz --run=a.npz", 2, {"--run takes flags of run"});
  Expect("coracle compare model.pbtxt --feed=in.npz --with=--kernel=x", 2,
         {"unknown flag --kernel of --with; did you mean --kernels?"});
  Expect("coracle compare model.pbtxt --feed=in.npz", 2, {"--params=DIR or --params=FILE"});
  // It is not the parameters that are missing.
  Expect("coracle build model.pbtxt --startup_out=s.pb && coracle run s.pb --save_params=p", 0, {});
  const Result other =
      Shell("cd " + dir_ + " && coracle compare model.pbtxt --feed=in.npz --fetch=g --params=p");
  EXPECT_EQ(other.code, 2);
  EXPECT_EQ(other.text, "coracle: --fetch: 'model.pbtxt' has no variable 'g'\n");
  Expect("coracle compare a.npz --feed=in.npz", 2, {"a.npz"});
  Expect("coracle compare a.npz b.npz --fetch=y", 2, {"--fetch is for runs of a PROGRAM"});
  Expect("coracle compare a.npz b.npz --fetch_all", 2, {"--fetch_all is for runs"});
  Expect("coracle compare a.npz b.npz --params=p", 2, {"--params is for runs"});
}

// h = x w; loss = mean of relu(h)
TEST_F(Compare, Runs) {
  WriteFileAtomic(Path("net.pbtxt"), R"(
    data { name: "x" shape: [-1, 3] }
    layer { op { scale { X: ["x"] Out: ["a"] scale: 2 } } }
    layer { op { relu { X: ["a"] Out: ["b"] } } }
    layer { op { mean { X: ["b"] Out: ["loss"] } } })");
  WriteNpz({{"x", Tensor::Of<float>({1, 3}, {1, -2, 3})}}, Path("in.npz"));
  const std::string compare = "coracle compare net.pbtxt --feed=in.npz ";
  Expect(compare, 0,
         {"A: net.pbtxt\nB: net.pbtxt --kernels=reference --disabled_passes=all\n",
          " within rtol 1e-05 and atol 1e-06"});
  Expect(compare + "--run=--disabled_passes=all", 0, {"3 variables within"});
  Expect(compare + "--fetch_all", 0, {"3 variables within"});
  // Without --fetch, variables that no op reads are fetched.
  Expect("coracle run net.pbtxt --feed=in.npz --save_all=some.npz", 0, {"loss: float32[1]"});
  // Another build whose relu is wrong.
  Expect(
      "coracle run net.pbtxt --feed=in.npz --fetch=loss --disabled_passes=all "
      "--save_all=good.npz",
      0, {"loss: float32[1]: 2.66667\n"});
  NamedTensors values = ReadNpz(Path("good.npz"));
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values[0].first, "a");
  EXPECT_TRUE(BitEqual(values[1].second, Tensor::Of<float>({1, 3}, {2, 0, 6})));
  values[1].second = Tensor::Of<float>({1, 3}, {2, 1, 6});
  values[2].second = Tensor::Of<float>({1}, {3});
  WriteNpz(values, Path("bad.npz"));
  const std::string all_off = compare + "--run=--disabled_passes=all --fetch=loss ";
  Expect(all_off + "--with=good.npz", 0, {"3 variables within", "all elements are equal"});
  Expect(all_off + "--with=bad.npz", 1,
         {"the runs diverge at block 0 op 1 (relu), which writes b\n"
          "  float32[1, 3]: 1 of 3 elements out of tolerance, worst at [0, 1]: 0 against 1 "
          "(absolute 1, relative 1)\n"
          "  inputs (within tolerance, fed or parameters): a\n"
          "worst after it: block 0 op 2 (mean), loss\n",
          "2 of 3 variables differ"});
  const Json json = JsonOf(all_off + "--with=bad.npz --json", 1);
  EXPECT_EQ(json["first"]["op"], 1);
  EXPECT_EQ(json["first"]["variable"], "b");
  EXPECT_EQ(json["first"]["inputs"], Json::parse(R"(["a"])"));
  EXPECT_EQ(json["variables"][2]["writer"]["type"], "mean");
}

// Two programs that fetch other variables.
TEST_F(Compare, ResultsThatOneRunLacks) {
  const auto write = [&](const std::string& name, const std::string& out) {
    WriteFileAtomic(Path(name),
                    "data { name: 'x' shape: [-1, 3] }\n"
                    "layer { op { scale { X: ['x'] Out: ['a'] scale: 2 } } }\n"
                    "layer { op { relu { X: ['a'] Out: ['" +
                        out + "'] } } }\n");
  };
  write("p.pbtxt", "y");
  write("q.pbtxt", "z");
  WriteNpz({{"x", Tensor::Of<float>({1, 3}, {1, -2, 3})}}, Path("in.npz"));
  const std::vector<std::string> both = {"y: float32[1, 3] only in A\n",
                                         "z: float32[1, 3] only in B\n", "2 of 3 variables differ"};
  Expect("coracle compare p.pbtxt q.pbtxt --feed=in.npz --run=--disabled_passes=all", 1, both);
  Expect("coracle compare p.pbtxt q.pbtxt --feed=in.npz --fetch_all", 1, both);
  const Json json = JsonOf("coracle compare p.pbtxt q.pbtxt --feed=in.npz --fetch_all --json", 1);
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["variables"][1]["status"], "only_in_a");
  EXPECT_EQ(json["variables"][2]["status"], "only_in_b");
  Expect("coracle run p.pbtxt --feed=in.npz --save_all=p.npz --disabled_passes=all", 0, {});
  Expect("coracle compare q.pbtxt --feed=in.npz --with=p.npz --run=--disabled_passes=all", 1,
         {"z: float32[1, 3] only in A\n"});
  Expect("coracle compare p.pbtxt q.pbtxt --feed=in.npz --with=p.npz", 2, {"give one PROGRAM"});
  Expect("coracle compare p.pbtxt q.pbtxt --feed=in.npz --fetch=a", 0, {"1 variable within"});
  Expect("coracle compare p.pbtxt q.pbtxt --feed=in.npz --fetch=y", 2,
         {"--fetch: 'q.pbtxt' has no variable 'y'"});
  Expect("coracle compare p.pbtxt q.pbtxt --feed=in.npz --fetch=z", 2,
         {"--fetch: 'p.pbtxt' has no variable 'z'"});
}

// Flags of a way that end as the name of a file does.
TEST_F(Compare, FlagsThatEndInAFile) {
  Expect(
      "coracle build model.pbtxt --out=m.pb --startup_out=s.pb && "
      "coracle run s.pb --save_params=p.npz",
      0, {});
  WriteNpz({{"x", Tensor::Of<float>({1, 3}, {1, -2, 3})}}, Path("in.npz"));
  const std::string runs = "coracle compare m.pb --feed=in.npz --run=--params=p.npz ";
  Expect(runs + "--with=--params=p.npz", 0, {"all elements are equal"});
  Expect(runs + "--with='--threads=1 --params=p.npz'", 0, {"all elements are equal"});
  Expect("coracle compare m.pb m.pb --feed=in.npz --run=--params=p.npz --with=--params=p.npz", 0,
         {"all elements are equal"});
  // An empty text is a run without flags, and not the default.
  Expect("coracle compare m.pb --feed=in.npz --params=p.npz --with= --run=--disabled_passes=x", 2,
         {"unknown pass 'x'"});
  Expect("coracle compare m.pb --feed=in.npz --params=p.npz --with=", 0,
         {"all elements are equal"});
}

TEST_F(Compare, SelectedRowsAreFetchedAsDenseCopies) {
  WriteFileAtomic(Path("words.pbtxt"), R"(
    data { name: "ids" shape: [-1] dtype: INT64 }
    layer { embedding { input: "ids" num_embeddings: 4 embedding_dim: 2 is_sparse: true
                        param { name: "table" } output: "e" } }
    layer { mean { input: "e" output: "loss" } })");
  Expect("coracle build words.pbtxt --out=m.pb --startup_out=s.pb", 0, {});
  Expect("coracle run s.pb --save_params=p && coracle backward m.pb --loss=loss --out=t.pb", 0, {});
  WriteNpz({{"ids", Tensor::Of<int64_t>({2}, {3, 3})}}, Path("ids.npz"));
  Expect("coracle compare t.pb --feed=ids.npz --params=p --fetch=table@GRAD", 0,
         {" within rtol 1e-05 and atol 1e-06"});
}

TEST_F(Compare, CheckAgainstStoredResults) {
  WriteFileAtomic(Path("net.pbtxt"), R"(
    data { name: "x" shape: [-1, 3] }
    layer { op { scale { X: ["x"] Out: ["a"] scale: 2 } } })");
  WriteNpz({{"x", Tensor::Of<float>({1, 3}, {1, -2, 3})}}, Path("in.npz"));
  WriteNpz({{"a", Tensor::Of<float>({1, 3}, {2, -4, 6})}}, Path("right.npz"));
  WriteNpy(Tensor::Of<float>({1, 3}, {2, -4, 7}), Path("wrong.npy"));
  const std::string run = "coracle run net.pbtxt --feed=in.npz --fetch=a ";
  Expect(run + "--check=right.npz", 0, {"a: float32[1, 3]", "1 variable within"});
  Expect(run + "--check=wrong.npy", 1,
         {"a: float32[1, 3]: 1 of 3 elements out of tolerance, worst at [0, 2]: 6 against 7"});
  Expect(run + "--check=wrong.npy --rtol=0.2", 0, {"1 variable within"});
  Expect(run + "--check=in.npz", 1, {"a: float32[1, 3] only in this run", "only in in.npz"});
  Expect(run + "--check=nowhere.npz", 2, {"nowhere.npz"});
  for (const char* flag : {"--rtol=0", "--atol=1", "--nosame_dtype"})
    Expect(run + flag, 2, {"--rtol, --atol and --nosame_dtype need --check=FILE"});
}

// Real models: fast kernels and passes against plain loops.
TEST_F(Compare, RealModels) {
  const std::string data = TestDataDirectory();
  if (data.empty()) GTEST_SKIP() << "no test data";
  const std::string paddle = data + "/paddle/";
  Expect(fmt::format("coracle compare {0}ch_ppocr_mobile_v2.0_cls --feed={0}golden/cls_in_rot0.npy "
                     "--rtol=1e-3 --atol=1e-4",
                     paddle),
         0, {" variables within", "not compared"});
  Expect(fmt::format("coracle run {0}ch_ppocr_mobile_v2.0_cls --feed={0}golden/cls_in_rot0.npy "
                     "--check={0}golden/ch_ppocr_mobile_v2.0_cls_out_rot0.npy --rtol=1e-3",
                     paddle),
         0, {"1 variable within"});
}
}  // namespace coracle::compare_test

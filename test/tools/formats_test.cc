// Formats of --feed and --out other than npz: npy, csv, json; and programs for Paddle.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/test_data.h>
#include <coracle/test/tools/cli.h>

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

namespace coracle::formats_test {

class Formats : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    WriteFileAtomic(Path("net.pbtxt"), R"(
      data { name: "x" shape: [-1, 2] }
      data { name: "n" shape: [-1] dtype: INT64 }
      layer { op { scale { X: ["x"] Out: ["a"] scale: 0.5 } } }
      layer { op { scale { X: ["n"] Out: ["m"] scale: 2 } } }
      layer { op { mean { X: ["x"] Out: ["mean"] } } })");
    WriteNpz({{"x", Tensor::Of<float>({2, 2}, {0.2f, 1, -2, 3})},
              {"n", Tensor::Of<int64_t>({2}, {7, 9007199254740993})}},
             Path("in.npz"));
  }
  const std::string run_ = "coracle run net.pbtxt --feed=in.npz ";
};

TEST_F(Formats, Csv) {
  Expect(run_ + "--fetch=a,m --out=o.csv", 0, {"a: float32[2, 2]"});
  EXPECT_EQ(ReadFile(Path("o.csv")), "a[0],a[1],m\n0.1,0.5,14\n-1,1.5,18014398509481986\n");
  Expect("coracle run net.pbtxt --feed=o2.csv --fetch=a,m --out=-", 1, {"o2.csv"});
  for (const char* text : {"\"n", "n,x[0],x[1]\n7,\"0.2,1\n"}) {
    WriteFileAtomic(Path("open.csv"), text);
    Expect("coracle run net.pbtxt --feed=open.csv --fetch=a", 1,
           {"a quotation mark is not closed on its line"});
  }
  WriteFileAtomic(Path("in.csv"), "n,x[0],x[1]\r\n7,0.2,1\r\n9007199254740993,-2,3\r\n");
  Expect("coracle run net.pbtxt --feed=in.csv --fetch=a,m --out=p.csv && cmp o.csv p.csv", 0, {});
  Expect("coracle run net.pbtxt --feed=in.csv --fetch=a,m --check=o.csv", 0,
         {"2 variables within"});
  Expect(run_ + "--fetch=a,mean --out=q.csv", 1,
         {"a csv file is one table: 'a' has 2 rows and 'mean' 1"});
  EXPECT_FALSE(FileExists(Path("q.csv")));
}

// Values that would be lost, or be read as something else.
TEST_F(Formats, WhatNoCsvHolds) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "a\nb", "none"}) root.Var(name).SetDType(DType::kFloat32);
  root.Var("x").SetShape({2, 3});
  root.Var("a\nb").SetShape({2, 3});
  root.Var("none").SetShape({2, 0});
  root.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"a\nb"}}});
  root.AppendOp("slice", {{"Input", {"x"}}}, {{"Out", {"none"}}},
                {{"axes", std::vector<int32_t>{1}},
                 {"starts", std::vector<int32_t>{3}},
                 {"ends", std::vector<int32_t>{3}}});
  WriteProgram(program, Path("odd.pb"));
  WriteNpz({{"x", Tensor::Full<float>({2, 3}, 1)}}, Path("odd.npz"));
  const std::string run = "coracle run odd.pb --feed=odd.npz --out=o.csv ";
  Expect(run + "--fetch='a\nb'", 1, {"'a\\x0ab' has a line end or blanks around it"});
  Expect(run + "--fetch=none", 1, {"'none' float32[2, 0] has no column in a csv file"});
  EXPECT_FALSE(FileExists(Path("o.csv")));
}

TEST_F(Formats, WrongCsv) {
  const auto wrong = [&](const std::string& text, const std::string& message) {
    WriteFileAtomic(Path("w.csv"), text);
    Expect("coracle run net.pbtxt --feed=w.csv --fetch=a,m", 1, {message});
  };
  wrong("", "w.csv:1:1: the file is empty");
  wrong("n,x[0],x[1]\n1,2\n", "w.csv:2:2: 2 cells, but the first line names 3 columns");
  wrong("n,x[0],x[1]\n1,2,three\n", "w.csv:2:3: expected a number, got 'three'");
  wrong("n,x[1],x[0]\n1,2,3\n", "the columns of 'x' must count all elements of a row");
  wrong("n,x[0],n\n1,2,3\n", "w.csv:1:3: 'n' has columns before that");
  wrong(std::string((1 << 20) + 2, ','), "w.csv:1:1048577: more than 1048576 columns");
  wrong("n,x[0\n1,2\n", "cannot feed 'x[0'");
  wrong("n,x[0],x[1]\n1.5,2,3\n", "the column 'n' holds a number that is not a valid int64");
  wrong("n,x[0],x[99999999999]\n1,2,3\n", "must count all elements");
  wrong("n,x[0],x[1]\n1,2,1e39\n", "the column 'x' holds a number that is not a valid float32");
}

TEST_F(Formats, Json) {
  Expect(run_ + "--fetch=a,m,mean --out=o.json", 0, {});
  const auto json = nlohmann::ordered_json::parse(ReadFile(Path("o.json")));
  EXPECT_EQ(json.dump(),
            R"({"format":"coracle.tensors","version":1,"tensors":[)"
            R"({"name":"a","dtype":"float32","shape":[2,2],"data":[0.1,0.5,-1.0,1.5]},)"
            R"({"name":"m","dtype":"int64","shape":[2],"data":[14,18014398509481986]},)"
            R"({"name":"mean","dtype":"float32","shape":[1],"data":[0.55]}]})");
  WriteFileAtomic(Path("in.json"),
                  R"({"format":"coracle.tensors","version":1,"tensors":[
    {"name":"x","dtype":"float32","shape":[2,2],"data":[0.2,1,"nan","-inf"]},
    {"name":"n","dtype":"int64","shape":[1],"data":[5]}]})");
  Expect("coracle run net.pbtxt --feed=in.json --fetch=a --out=p.json", 0, {"a: float32[2, 2]"});
  EXPECT_NE(ReadFile(Path("p.json")).find(R"([0.1,0.5,"nan","-inf"])"), std::string::npos);
  Expect("coracle compare o.json o.json", 0, {"3 variables within"});
}

TEST_F(Formats, WrongJson) {
  const auto wrong = [&](const std::string& tensor, const std::string& message) {
    WriteFileAtomic(Path("w.json"),
                    R"({"format":"coracle.tensors","version":1,"tensors":[)" + tensor + "]}");
    Expect("coracle run net.pbtxt --feed=w.json --fetch=a", 1, {"w.json: ", message});
  };
  wrong("{", "no JSON from byte");
  wrong(R"({"name":"x","dtype":"float32","shape":[1,2],"data":[1,1e39]})",
        "data [1] must be a float32, got '1e+39'");
  wrong(R"({"name":"x","dtype":"float16","shape":[1,2],"data":["-inf",65520]})",
        "data [1] must be a float16, got '65520'");
  wrong(R"({"name":"x","dtype":"float32","shape":[2,2],"data":[1,2,3]})",
        "data must be a list of 4 elements, as the shape [2, 2] says");
  wrong(R"({"name":"x","dtype":"float23","shape":[1],"data":[1]})", "must be a dtype such as");
  wrong(R"({"name":"x","dtype":"int8","shape":[1],"data":[300]})", "[0] must be a int8, got '300'");
  wrong(R"({"name":"x","dtype":"float32","shape":[281474976710656,281474976710656],"data":[]})",
        "too many elements");
  wrong(R"({"name":"x","dtype":"float32","shape":[1,1,1,1,1,1,1,1,1,1],"data":[1]})",
        "has 10 dimensions");
  WriteFileAtomic(Path("w.json"), R"({"format":"coracle.program"})");
  Expect("coracle run net.pbtxt --feed=w.json", 1, {"must be \"coracle.tensors\""});
}

TEST_F(Formats, Npy) {
  Expect(run_ + "--fetch=a --out=o.npy", 0, {});
  EXPECT_TRUE(BitEqual(ReadNpy(Path("o.npy")), Tensor::Of<float>({2, 2}, {0.1f, 0.5f, -1, 1.5f})));
  Expect(run_ + "--fetch=a,m --out=two.npy", 2, {"an npy file holds one array, and there are 2"});
  EXPECT_FALSE(FileExists(Path("two.npy")));
  Expect("coracle run net.pbtxt --feed=o.npy --fetch=a", 2,
         {"an npy file feeds a program with one input; this has 2: use npz"});
}

TEST_F(Formats, EndingsAreKept) {
  Expect(run_ + "--out=o.txt", 2,
         {"--out must end in .npz or .npy or .safetensors or .csv or .json, got 'o.txt'"});
  Expect(run_ + "--save_all=o.csv", 2, {"--save_all must end in .npz"});
  Expect(run_ + "--out=- --save_all=-", 2, {"only one output can be standard output"});
  Expect("coracle convert net.pbtxt m.onnx --opset=99", 2,
         {"--opset lies between 13 and 22, got 99"});
  Expect("coracle convert net.pbtxt m.onnx --compat=paddle", 2, {"--compat is for programs"});
  Expect("coracle train job.pbtxt --out=o.npz", 2, {"--out names a directory, and 'o.npz' ends"});
  Expect("coracle ops --markdown --out=ops.json", 2, {"--out names a directory"});
  Expect("coracle ops --out=ops", 2, {"--out needs --markdown"});
  Expect("coracle build net.pbtxt --out=m.pb --startup_out=m.pb", 2, {"must be two files"});
}

// A startup program sets its parameters itself, so the written one needs no file of them.
TEST_F(Formats, StartupProgramsForPaddle3) {
  WriteFileAtomic(Path("fc.pbtxt"), R"(
      data { name: "x" shape: [-1, 2] }
      layer { fc { input: "x" size: 3 output: "y" } })");
  Expect("coracle build fc.pbtxt --out=fc.pb --startup_out=startup.pb", 0, {});
  const Result startup = Shell("cd " + dir_ + " && coracle convert startup.pb s.json --to=pir");
  EXPECT_EQ(startup.code, 0) << startup.text;
  EXPECT_EQ(startup.text, "");
  EXPECT_FALSE(FileExists(Path("s.pdiparams")));
  Expect("coracle convert fc.pb fc.json --to=pir", 0, {"fc.json' is written without parameters"});
}

// The operator set is 17, or what the program needs; a set that is demanded stays.
TEST_F(Formats, OpsetOfAnOnnxModel) {
  WriteFileAtomic(Path("bits.pbtxt"), R"(
      data { name: "n" shape: [4] dtype: INT64 }
      layer { op { bitwise_not { X: ["n"] Out: ["m"] } } })");
  Expect("coracle convert bits.pbtxt bits.onnx", 0,
         {"bits.onnx: opset 18, because of an operation on bits in block 0 op 0 (bitwise_not"});
  Expect("coracle convert bits.pbtxt demanded.onnx --opset=17", 1,
         {"needs opset 18 or later, got 17; leave out --opset"});
  EXPECT_FALSE(FileExists(Path("demanded.onnx")));
}

// The fields of Coracle go, the rest stays.
TEST_F(Formats, ConvertForPaddle) {
  Expect(
      "coracle build model.pbtxt --out=main.pb --startup_out=s.pb && "
      "coracle backward main.pb --loss=loss --error_clip=h:0.125 --out=train.pb",
      0, {});
  Expect("coracle convert train.pb own.pbtxt && grep -c coracle.proto own.pbtxt", 0, {});
  Expect("coracle convert train.pb plain.pbtxt --compat=paddle", 0,
         {"warning: left out: error clip of h\n", "left out: initializer of fc_0.w_0",
          "left out: attr forward_op of "});
  Expect("grep coracle plain.pbtxt", 1, {});
  Expect(
      "coracle convert train.pb plain.pdmodel --compat=paddle 2>/dev/null && "
      "coracle convert plain.pdmodel again.pbtxt && cmp plain.pbtxt again.pbtxt",
      0, {});
  Expect(
      "coracle convert plain.pdmodel twice.pdmodel --compat=paddle && "
      "cmp plain.pdmodel twice.pdmodel",
      0, {});
  Expect(
      "coracle run s.pb --save_params=p && coracle run train.pb --params=p --feed=f.npz "
      "--fetch=fc_0.w_0@GRAD",
      1, {"f.npz"});
  Expect("coracle convert train.pb x.pb --compat=onnx", 2, {"--compat is paddle, got 'onnx'"});
  ProgramDesc program;
  program.Root().Var("x");
  program.Root().AppendOp("lion", {}, {});
  WriteProgram(program, Path("own.pb"));
  Expect("coracle convert own.pb own.pdmodel --compat=paddle", 0,
         {"warning: Paddle has no op of these types", "lion (1)"});
}

// Paddle's own schema, framework.proto without what Coracle adds, as protoc reads it: in text an
// unknown name is an error, in binary it shows as a number.
TEST_F(Formats, PaddlesSchemaReadsWhatIsWrittenForPaddle) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  if (Shell("protoc --version").code != 0) GTEST_SKIP() << "protoc is not installed";
  Expect(std::string("sed -e '/extensions 1000/d' -e '/legacy_version/d' "
                     "-e 's/package coracle.proto/package paddle.framework.proto/' ") +
             sources + "/proto/framework.proto > paddle.proto",
         0, {});
  const std::string program = "=paddle.framework.proto.ProgramDesc paddle.proto ";
  Expect(
      "coracle build model.pbtxt --out=main.pb && "
      "coracle backward main.pb --loss=loss --error_clip=h:0.125 --out=train.pb && "
      "coracle convert train.pb own.pbtxt && "
      "coracle convert train.pb plain.pbtxt --compat=paddle && "
      "coracle convert train.pb plain.pdmodel --compat=paddle",
      0, {});
  Expect("protoc --encode" + program + "< own.pbtxt > own.bin", 1, {"coracle.proto.training"});
  Expect("protoc --encode" + program + "< plain.pbtxt > plain.bin", 0, {});
  Expect("protoc --decode" + program + "< train.pb | grep -E '^ *[0-9]+ *[:{]'", 0, {"1001 {"});
  Expect("protoc --decode" + program + "< plain.pdmodel > plain.txt && grep -c ops plain.txt", 0,
         {});
  Expect("grep -E '^ *[0-9]+ *[:{]' plain.txt", 1, {});
  // Both say the same.
  EXPECT_TRUE(ParseProgram(ReadFile(Path("plain.bin"))) == ReadProgram(Path("plain.pdmodel")));
}
}  // namespace coracle::formats_test

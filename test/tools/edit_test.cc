// extract, rename, set-shape, merge, split-params and join-params as a user runs them.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/tools/cli.h>
#include <fmt/format.h>

namespace coracle::edit_test {

namespace fs = std::filesystem;

class Edit : public Cli {
 protected:
  // A model in net.pdmodel and net.pdiparams: z = relu(x w + b) w' + b', which z and in.npz with x.
  void SetUp() override {
    Cli::SetUp();
    WriteFileAtomic(Path("net.pbtxt"), R"(
      data { name: "x" shape: [-1, 3] }
      layer { fc { input: "x" size: 4 output: "h" } }
      layer { relu { input: "h" output: "r" } }
      layer { fc { input: "r" size: 2 output: "z" } }
    )");
    Expect("coracle build net.pbtxt --out=main.pb --startup_out=startup.pb", 0, {});
    Expect("coracle run startup.pb --save_params=all.pdiparams", 0, {});
    Expect("coracle extract main.pb --outputs=z -o net.pdmodel --params=all.pdiparams", 0,
           {"net.pdmodel: ", "net.pdiparams: 4 persistable variables, 104 B\n",
            "inputs   x float32[-1, 3]\n", "outputs  z float32[-1, 2]\n"});
    WriteNpz({{"x", Tensor::Of<float>({2, 3}, {1, -2, 3, 0.5, 0, -1})}}, Path("in.npz"));
    whole_ = Fetched("net.pdmodel", "in.npz");
  }

  Tensor Fetched(const std::string& model, const std::string& feed) {
    Expect(fmt::format("coracle run {} --feed={} --disabled_passes=all --out=out.npz", model, feed),
           0, {});
    const NamedTensors results = ReadNpz(Path("out.npz"));
    EXPECT_EQ(results.size(), 1u) << model;
    return results.at(0).second;
  }
  void ExpectWhole(const std::string& model, const std::string& feed = "in.npz") {
    const Tensor result = Fetched(model, feed);
    ASSERT_EQ(result.shape(), whole_.shape()) << model;
    for (int64_t i = 0; i < whole_.numel(); ++i)
      EXPECT_EQ(result.data<float>()[i], whole_.data<float>()[i]) << model;
  }

  Tensor whole_;
};

TEST_F(Edit, HalvesRunInTurnAndMergeAgain) {
  Expect("coracle extract net.pdmodel --outputs=r -o head.pdmodel", 0,
         {"head.pdiparams: 2 persistable variables, 64 B\n", "outputs  r float32[-1, 4]\n"});
  Expect("coracle extract net.pdmodel --inputs=r --outputs=z -o tail.pdmodel", 0,
         {"tail.pdiparams: 2 persistable variables, 40 B\n", "inputs   r float32[-1, 4]\n"});
  WriteNpz({{"r", Fetched("head.pdmodel", "in.npz")}}, Path("r.npz"));
  ExpectWhole("tail.pdmodel", "r.npz");
  Expect("coracle merge head.pdmodel tail.pdmodel -o whole.pdmodel", 0,
         {"whole.pdiparams: 4 persistable variables", "connected r -> r\n",
          "inputs   x float32[-1, 3]\n", "outputs  z float32[-1, 2]\n"});
  ExpectWhole("whole.pdmodel");
  // A directory in the old layout.
  Expect("coracle merge head.pdmodel tail.pdmodel --connect=r:r -o old/__model__", 0,
         {"old/__params__: 4 persistable variables"});
  ExpectWhole("old");
}

TEST_F(Edit, NamesThatCollideGetAPrefix) {
  Expect("coracle extract net.pdmodel --outputs=r -o head.pdmodel", 0, {});
  Expect("coracle rename head.pdmodel r=z -o head2.pdmodel", 0, {"r -> z\n"});
  Expect("coracle extract net.pdmodel --inputs=r --outputs=z -o tail.pdmodel", 0, {});
  Expect("coracle merge head2.pdmodel tail.pdmodel -o whole.pdmodel", 0,
         {"connected z -> r\n", "of the second program got the prefix 'b.'\n",
          "outputs  b.z float32[-1, 2]\n"});
  ExpectWhole("whole.pdmodel");
  Expect("coracle merge head2.pdmodel tail.pdmodel --prefix= -o w.pdmodel", 1,
         {"merge: both programs have a variable '"});
}

TEST_F(Edit, RenameMovesParametersInTheirFile) {
  // The file is in the order of the names: the first becomes the last.
  Expect("coracle rename net.pdmodel fc_0.b_0=zz,x=image -o named.pdmodel", 0,
         {"named.pdiparams: 4 persistable variables", "x -> image\n", "fc_0.b_0 -> zz\n"});
  WriteNpz({{"image", ReadNpz(Path("in.npz"))[0].second}}, Path("image.npz"));
  ExpectWhole("named.pdmodel", "image.npz");
  Expect("coracle rename net.pdmodel '--regex=^fc_(\\d)=layer\\1' -o layers.pdmodel", 0,
         {"fc_0.w_0 -> layer0.w_0\n"});
  ExpectWhole("layers.pdmodel");
  // Among names of one letter none is near another.
  Expect("coracle rename net.pdmodel q=z2 -o no.pdmodel", 1,
         {"coracle: rename: the program has no var 'q'\n"});
  Expect("coracle backward main.pb --loss=loss --out=t.pb", 1, {"loss"});
  Expect("coracle backward model.pbtxt --loss=loss --out=t.pb", 0, {});
  Expect("coracle rename t.pb h=hidden --gradients -o t.pbtxt", 0, {"h@GRAD -> hidden@GRAD\n"});
  Expect("coracle check t.pbtxt", 0, {});
}

// Variables of feed and fetch ops are not state of the program.
TEST_F(Edit, SummaryCountsWhatIsKept) {
  Expect("coracle summary net.pdmodel", 0, {"parameters     4 with", "persistable    4, "});
}

TEST_F(Edit, SetShape) {
  Expect("coracle set-shape net.pdmodel x:5x3 -o five.pdmodel", 0,
         {"x: float32[-1, 3] -> float32[5, 3]\n", "variables changed in all\n"});
  Expect("coracle dump five.pdmodel", 0, {" z:float32[5,2] = "});
  Expect("coracle set-shape five.pdmodel x:-1x3 -o any.pdmodel", 0, {});
  ExpectWhole("any.pdmodel");
  Expect("coracle set-shape net.pdmodel x:5x4 -o no.pdmodel", 1,
         {"coracle: block 0 op 1 (mul): mul: "});
  Expect("coracle set-shape net.pdmodel z:5x4 -o no.pdmodel", 1, {"'z' is not an input"});
  Expect("coracle set-shape net.pdmodel y:5x4 -o no.pdmodel", 1, {"has no var 'y'\n"});
  for (const char* shape : {"x", "x:", ":3", "x:3xx4", "x:-2", "x:1e3"})
    Expect(fmt::format("coracle set-shape net.pdmodel {} -o no.pdmodel", shape), 2,
           {"takes shapes as VAR:8x3x32x32"});
  Expect("coracle set-shape net.pdmodel x:5x3 x:-1x3 -o no.pdmodel", 2,
         {"'x' has two shapes: 'x:5x3' and 'x:-1x3'"});
  Expect("coracle set-shape net.pdmodel -o no.pdmodel", 2, {"takes a PROGRAM and shapes"});
  EXPECT_FALSE(FileExists(Path("no.pdmodel")));
}

// The old names work as before, and name the new form.
TEST_F(Edit, SplitAndJoinByOldNames) {
  Expect("coracle split-params net.pdmodel -o params", 0,
         {"split-params is an old name", "use `coracle convert MODEL DIR/`", "params: 4 files\n"});
  Expect("coracle join-params params -o joined.pdiparams", 0,
         {"use `coracle convert DIR FILE.pdiparams`"});
  Expect("cmp joined.pdiparams net.pdiparams && coracle help | grep -c -e join-params", 1, {"0\n"});
  Expect("coracle split-params net.pdmodel", 2, {"--out=DIR is missing"});
  Expect("coracle join-params params", 2, {"--out=FILE is missing"});
}

TEST_F(Edit, SplitAndJoin) {
  Expect("coracle convert net.pdmodel params/", 0, {"params: 4 files\n"});
  EXPECT_TRUE(FileExists(Path("params/fc_0.w_0")));
  Expect("cp net.pdmodel alone.pb && coracle convert params joined.pdiparams", 0,
         {"joined.pdiparams: 4 persistable variables\n"});
  Expect("cmp joined.pdiparams net.pdiparams", 0, {});
  Expect("coracle convert alone.pb again.pdiparams --params=params", 0, {});
  Expect("cmp again.pdiparams net.pdiparams", 0, {});
  Expect("cp net.pdmodel params/__model__ && coracle join-params params -o third.params", 0, {});
  Expect("cmp third.params net.pdiparams", 0, {});
  Expect(
      "cp -r params named && mv named/__model__ named/net.pdmodel && "
      "coracle join-params named -o fourth.params && cmp fourth.params net.pdiparams",
      0, {});
  ExpectWhole("params");
  Expect("coracle convert net.pdmodel params/", 1, {"'params' is there and not empty"});
  Expect("coracle convert alone.pb p/", 1, {"'alone.pb' has no parameters next to it"});
  Expect("coracle convert model.pbtxt p/ --params=net.pdiparams", 1, {"net.pdiparams"});
  Expect("mv params/__model__ . && coracle convert params p.csv", 1,
         {"'params' holds neither __model__ nor a .pdmodel file"});
  Expect("coracle convert params p.pdiparams --compat=paddle", 2,
         {"--compat is for programs, and OUT holds parameters"});
  Expect("coracle convert net.pdmodel p/ --compat=paddle", 2, {"--compat is for programs"});
  Expect("coracle join-params nowhere -o p.pdiparams", 1, {"nowhere"});
  Expect("mkdir empty && coracle convert empty p.pdiparams", 1,
         {"'empty' holds no parameter files"});
  EXPECT_FALSE(FileExists(Path("p")));
  EXPECT_FALSE(FileExists(Path("p.pdiparams")));
}

TEST_F(Edit, TheEndingOfOutDecides) {
  Expect("coracle extract net.pdmodel --outputs=r -o part.pbtxt", 0, {"part.pbtxt: "});
  Expect("head -c 6 part.pbtxt", 0, {"blocks"});
  EXPECT_FALSE(FileExists(Path("part.pdiparams")));
  Expect("coracle extract net.pdmodel --outputs=r -o part.pb --save_params=part.params", 0,
         {"part.params: 2 persistable variables"});
  Expect("coracle run part.pb --params=part.params --feed=in.npz", 0, {"r: float32[2, 4]"});
  Expect("coracle extract net.pdmodel --outputs=r -o - | coracle dump -", 0, {"= relu("});
  for (const char* command : {"extract net.pdmodel --outputs=r", "rename net.pdmodel r=q",
                              "set-shape net.pdmodel x:1x3", "merge net.pdmodel net.pdmodel"}) {
    Expect(fmt::format("coracle {} -o m.onnx", command), 2, {"--out must end in .pb or .pdmodel"});
    Expect(fmt::format("coracle {}", command), 2, {"--out=FILE is missing"});
    Expect(fmt::format("coracle {} -o m.pb --save_params=p.csv", command), 2,
           {"--save_params must end in .pdiparams or .params"});
    EXPECT_FALSE(FileExists(Path("m.onnx")));
  }
}

// Killed between its two files, a command would leave a model that does not fit its parameters.
TEST_F(Edit, WhatIsReadIsNotOverwritten) {
  Expect("coracle extract net.pdmodel --outputs=r -o head.pdmodel", 0, {});
  Expect("coracle extract net.pdmodel --inputs=r --outputs=z -o tail.pdmodel", 0, {});
  for (const char* command :
       {"extract net.pdmodel --outputs=r -o net.pdmodel", "rename net.pdmodel r=q -o ./net.pdmodel",
        "set-shape net.pdmodel x:1x3 -o net.pdmodel",
        "rename net.pdmodel r=q -o q.pb --save_params=net.pdiparams",
        "merge head.pdmodel tail.pdmodel -o ./head.pdmodel",
        "merge head.pdmodel tail.pdmodel -o tail.pdmodel"}) {
    Expect(fmt::format("coracle {}", command), 2, {"would overwrite an input file"});
    ExpectWhole("net.pdmodel");
  }
}

TEST_F(Edit, ADirectoryInTheOldLayoutFromWithin) {
  Expect("mkdir old && coracle rename net.pdmodel r=q -o old/__model__", 0,
         {"old/__params__: 4 persistable variables"});
  Expect("cd old && coracle rename __model__ q=r -o ../back.pdmodel", 0,
         {"../back.pdiparams: 4 persistable variables"});
  ExpectWhole("back.pdmodel");
  // Without its parameters.
  Expect("rm old/__params__ && coracle rename old q=r -o bare.pdmodel", 0,
         {"without parameters: the program came without"});
}

TEST_F(Edit, ParametersThatAreNotThere) {
  Expect("coracle extract main.pb --outputs=r -o part.pdmodel", 0,
         {"part.pdmodel: ", ", without parameters: the program came without\n"});
  EXPECT_FALSE(FileExists(Path("part.pdiparams")));
  Expect("coracle extract main.pb --outputs=r -o part.pb --save_params=p.params", 1,
         {"--save_params: the program came without parameters"});
  // Parameters of another program would be taken for its own.
  Expect("coracle extract main.pb --outputs=r -o net.pdmodel", 1,
         {"net.pdiparams' holds parameters of another program"});
  Expect("coracle merge net.pdmodel main.pb --connect=h:x -o m.pdmodel", 1, {"coracle: merge: "});
  // A program that has none needs none.
  Expect("coracle extract net.pdmodel --inputs=h --outputs=r -o relu.pb", 0, {});
  Expect("coracle extract net.pdmodel --outputs=h -o fc.pdmodel", 0, {});
  Expect("coracle merge fc.pdmodel relu.pb -o m.pdmodel", 0, {"m.pdiparams: 2 persistable"});
  Expect("coracle extract net.pdmodel --outputs=r -o p.pdmodel --params=nowhere", 1, {"nowhere"});
  Expect(
      "head -c 50 net.pdiparams > short.params && "
      "coracle rename net.pdmodel r=q -o p.pdmodel --params=short.params",
      1, {"short.params"});
  EXPECT_FALSE(FileExists(Path("p.pdmodel")));
}

TEST_F(Edit, WrongInput) {
  const std::vector<std::string> commands = {
      "extract {} --outputs=z -o o.pb", "rename {} z=q -o o.pb",
      "set-shape {} x:1x3 -o o.pb",     "merge {} net.pdmodel -o o.pb",
      "merge net.pdmodel {} -o o.pb",   "split-params {} -o o",
      "join-params {} -o o.params"};
  Expect("head -c 300 net.pdmodel > cut.pdmodel && echo 'layer {' > cut.pbtxt && mkdir none", 0,
         {});
  for (const std::string& command : commands) {
    for (const char* file : {"absent.pdmodel", "cut.pdmodel", "cut.pbtxt", "in.npz"}) {
      const Result result =
          Shell("cd " + dir_ + " && coracle " + fmt::format(fmt::runtime(command), file));
      EXPECT_EQ(result.code, 1) << command << " " << file << "\n" << result.text;
      EXPECT_EQ(result.text.find("coracle: "), 0u) << result.text;
    }
  }
  EXPECT_FALSE(FileExists(Path("o.pb")) || FileExists(Path("o")) || FileExists(Path("o.params")));
  Expect("coracle extract net.pdmodel --outputs=zz -o o.pb", 1,
         {"extract: outputs: the program has no var 'zz'"});
  Expect("coracle extract net.pdmodel --inputs=h --outputs=z,r -o o.pb", 0, {"inputs   h "});
  Expect("coracle extract net.pdmodel --inputs=z --outputs=r -o o2.pb", 1,
         {"'x' is missing among the inputs", "; add it to the inputs\n", "(mul) -> "});
  Expect("coracle extract net.pdmodel --inputs=x -o o2.pb", 2, {"--outputs=NAMES is missing"});
  Expect("coracle rename net.pdmodel r=z -o o2.pb", 1, {"which is the name of another variable"});
  Expect("coracle rename net.pdmodel rr=z -o o2.pb", 1, {"rename: the program has no var 'rr'"});
  Expect("coracle rename net.pdmodel r -o o2.pb", 2, {"OLD=NEW"});
  Expect("coracle rename net.pdmodel -o o2.pb", 2,
         {"either names, as OLD=NEW,OLD=NEW, or --regex"});
  Expect("coracle rename net.pdmodel r=q --regex=a=b -o o2.pb", 2, {"either names"});
  Expect("coracle rename net.pdmodel --regex=a -o o2.pb", 2, {"--regex takes REGEX=TEXT"});
  Expect("coracle rename net.pdmodel '--regex=(=b' -o o2.pb", 1, {"not a regular expression"});
  Expect("coracle merge net.pdmodel net.pdmodel -o o2.pb", 1, {"--connect=OUTPUT:INPUT"});
  Expect("coracle merge net.pdmodel net.pdmodel --connect=z -o o2.pb", 2, {"--connect takes"});
  Expect("coracle merge net.pdmodel net.pdmodel --connect=z:x -o o2.pb", 1,
         {"'z' of the first program is float32[-1, 2], and the input 'x' of the second takes "
          "float32[-1, 3]"});
  Expect("coracle merge net.pdmodel -o o2.pb", 2, {"takes the programs A and B, got 1"});
  Expect("coracle merge - - -o o2.pb", 2, {"cannot both be standard input"});
  EXPECT_FALSE(FileExists(Path("o2.pb")));
}
}  // namespace coracle::edit_test

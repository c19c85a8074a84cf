// The command as a user runs it: output, messages, exit codes.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/tools/cli.h>
#include <fmt/format.h>

namespace coracle::cli_test {

namespace fs = std::filesystem;

TEST_F(Cli, Help) {
  Expect("coracle help", 0, {"usage: coracle COMMAND", "dump", "train", "--threads"});
  Expect("coracle --help", 0, {"usage: coracle COMMAND"});
  Expect("coracle help conv2d", 0, {"layer conv2d: Convolution", "num_filters", "(required)"});
  Expect("coracle help momentum", 0, {"optimizer momentum: ", "use_nesterov", "bool [false]"});
  Expect("coracle help noam", 0, {"learning-rate schedule noam: ", "warmup_steps"});
  Expect("coracle help lookahead", 0, {"lookahead: After each k updates", "alpha"});
  Expect("coracle help while", 0, {"entry while: ", "condition"});
  Expect("coracle help momentun", 2, {"unknown command 'momentun'; did you mean momentum?"});
  Expect(std::string("coracle help my_decay --op_library=") + CORACLE_TEST_KINDS, 0,
         {"regularizer my_decay: A sample."});
  Expect("coracle schema job", 0, {"message JobConfig {", "message noam_schedule {"});
  Expect("coracle schema jobs", 2, {"there is no schema jobs; use model or job"});
  Expect("coracle help dump", 0, {"usage: coracle dump PROGRAM", "--vars", "examples"});
  Expect("coracle dump --help", 0, {"usage: coracle dump PROGRAM"});
  Expect("coracle version", 0, {"coracle 0."});
  Expect("coracle --version", 0, {"coracle 0."});
  Expect("coracle --threads 2 --v=0 --nologtostderr version", 0, {"coracle 0."});
  for (const char* name : {"backward", "build", "check", "convert", "dump", "graph", "help", "ops",
                           "run", "schema", "summary", "test", "train", "version"})
    Expect(std::string("coracle help ") + name, 0, {std::string("usage: coracle ") + name});
}

TEST_F(Cli, WrongUsageIsTwo) {
  Expect("coracle ", 2, {"a command is missing"});
  Expect("coracle dumpp x", 2, {"unknown command 'dumpp'; did you mean dump?"});
  Expect("coracle dump", 2, {"coracle: dump: takes one PROGRAM", "usage: coracle dump"});
  Expect("coracle dump a b", 2, {"takes one PROGRAM, got 2"});
  Expect("coracle dump --fromat=text a", 2, {"unknown flag --fromat", "did you mean --format?"});
  Expect("coracle dump --loss=x a", 2, {"unknown flag --loss of dump"});
  Expect("coracle dump -o a", 2, {"unknown flag -o of dump"});
  Expect("coracle dump --block=x a", 2, {"--block takes a whole number below 2147483648, got 'x'"});
  Expect("coracle dump a --block", 2, {"--block needs a value"});
  Expect("coracle dump a --block=-5", 2, {"--block must be at least -1, got -5"});
  Expect("coracle version x", 2, {"takes no arguments, got 1 argument\n"});
  Expect("coracle frobnicate", 2, {"unknown command 'frobnicate'; `coracle help` lists"});
  Expect("coracle run - --feed=-", 2, {"cannot both be standard input"});
  Expect("coracle dump --format=xml model.pbtxt", 2, {"--format takes text or pbtxt, got 'xml'"});
  Expect("coracle dump '--ops=(' model.pbtxt", 2, {"--ops: "});
  Expect("coracle --thread=2 version", 2, {"did you mean --threads?"});
  Expect("coracle run --kernels=slow model.pbtxt", 2,
         {"--kernels takes auto or reference, got 'slow'"});
  Expect("coracle run --memory_limit=lots model.pbtxt", 2, {"--memory_limit takes bytes"});
  Expect("coracle backward model.pbtxt --out=x.pb", 2, {"--loss=NAME is missing"});
}

TEST_F(Cli, EndingsThatMeanSomethingElseAreRefused) {
  const std::string program = "must end in .pb or .pdmodel (binary) or in .pbtxt or .txt (text)";
  for (const char* name : {"m.caffemodel", "m.json", "m.npz", "m.PB"}) {
    Expect(fmt::format("coracle build model.pbtxt --out={}", name), 2, {"build: --out " + program});
    Expect(fmt::format("coracle build model.pbtxt --startup_out={}", name), 2,
           {"build: --startup_out " + program});
    Expect(fmt::format("coracle backward model.pbtxt --loss=loss --out={}", name), 2,
           {"backward: --out " + program});
    EXPECT_FALSE(FileExists(Path(name))) << name;
  }
  for (const char* name : {"m.caffemodel", "m.PB"}) {
    Expect(fmt::format("coracle convert model.pbtxt {}", name), 2,
           {fmt::format("convert: OUT {}, got '{}'", program, name)});
  }
  // These would hold parameters, of which a model text has none.
  for (const char* name : {"m.json", "m.npz"}) {
    Expect(fmt::format("coracle convert model.pbtxt {}", name), 1,
           {"has no parameters next to it"});
    EXPECT_FALSE(FileExists(Path(name))) << name;
  }
  Expect("coracle run m.pb --out=o.txt", 2,
         {"run: --out must end in .npz or .npy or .safetensors or .csv or .json, got 'o.txt'"});
  Expect("coracle run m.pb --save_params=p.csv", 2,
         {"--save_params must end in .pdiparams or .params or .safetensors or .npz, or have no "
          "ending, got 'p.csv'"});
  for (const char* name : {"m.pb", "m.pdmodel", "__model__", "m.txt", "m.pbtxt"}) {
    Expect(fmt::format("coracle convert model.pbtxt -o {0} && coracle summary {0}", name), 0,
           {"mean"});
  }
}

TEST_F(Cli, HelpNamesTheValuesOfFlags) {
  Expect("coracle help check-grad", 0, {"(default: 1e-06)"});
  Expect("coracle help run", 0,
         {"  --memory_limit=BYTES       memory limit in BYTES",
          "  --repeat=N                 number of", "  --check_nan_inf            stop",
          "  --params=PATH              PATH of the parameters"});
  for (const char* name : {"backward", "run", "train", "dump"}) {
    const Result help = Shell(std::string("coracle help ") + name);
    EXPECT_EQ(help.text.find('`'), std::string::npos) << help.text;
    EXPECT_EQ(help.text.find("int32"), std::string::npos) << help.text;
  }
}

TEST_F(Cli, WarningsAreLinesOfTheCommand) {
  WriteFileAtomic(Path("idle.pbtxt"), R"(
    data { name: "x" shape: [-1, 3] error_clip { by_value { max: 1 } } }
    layer { fc { input: "x" size: 2 output: "h" } }
    layer { mean { input: "h" output: "loss" } })");
  Expect("coracle backward idle.pbtxt --loss=loss --out=b.pb", 0,
         {"coracle: warning: the error_clip of 'x' will never act"});
}

TEST_F(Cli, FailuresAreOne) {
  Expect("coracle dump nowhere.pb", 1, {"coracle: ", "nowhere.pb"});
  Expect("coracle dump model.pbtxt --block=7", 1, {"no block 7: the program has 1"});
  Expect("coracle ops clop", 1, {"did you mean clip?"});
  Expect("coracle backward model.pbtxt --loss=lost --out=x.pb", 1, {"lost"});
  Expect("printf '\\012\\377\\377\\377\\377' | coracle dump -", 1, {"coracle: "});
  Expect("coracle --op_library=none.so ops", 1, {"cannot load the op library 'none.so'"});
  Expect("coracle --op_library=. ops", 1, {"coracle: cannot read '.': it is a directory"});
  Expect("coracle time none.pb", 1, {"cannot open 'none.pb'"});
  for (const char* command : {"build empty.pb --out=o.pb", "bench empty.pb", "time empty.pb"})
    Expect(": > empty.pb; coracle " + std::string(command), 1, {"empty.pb: contains no block"});
  Expect("printf 'layer' > cut.pbtxt; coracle dump cut.pbtxt", 1,
         {"cut.pbtxt:1:6: expected \"{\", found the end"});
  Expect("coracle convert model.pbtxt m.pdmodel && coracle generate m.pdmodel --prompt=a", 1,
         {"there is no vocabulary.json next to 'm.pdmodel'"});
}

TEST_F(Cli, DumpReadsFilesDirectoriesAndStandardInput) {
  const std::vector<std::string> listing = {"parameters\n", "fc_0.w_0  float32[3,2]  24 B",
                                            " loss:float32[1] = mean(X=h)"};
  Expect("coracle dump model.pbtxt", 0, listing);
  Expect("coracle dump - < model.pbtxt", 0, listing);
  Expect("coracle convert model.pbtxt m.pb && coracle dump m.pb", 0, listing);
  Expect("coracle dump - < m.pb", 0, listing);
  Expect("mkdir d && cp m.pb d/__model__ && coracle dump d", 0, listing);
  Expect("mkdir e && cp m.pb e/my.pdmodel && coracle dump e", 0, listing);
  Expect("cp m.pb e/other.pdmodel && coracle dump e", 1, {"'e' holds several .pdmodel files"});
  Expect("mkdir f && coracle dump f", 1, {"'f' holds neither __model__ nor a .pdmodel file"});
  Expect("coracle dump --ops=mean m.pb", 0, {"block 0\n  ops\n", "= mean(X=h)"});
  Expect("coracle dump --vars '^loss$' m.pb", 0, {"loss  float32[1]", "= mean(X=h)"});
  const Result only = Shell("coracle dump --ops=mean " + Path("m.pb"));
  EXPECT_EQ(only.text.find("mul("), std::string::npos);
  Expect(
      "coracle dump m.pb --format=pbtxt > m2.pbtxt && coracle convert m2.pbtxt m2.pb && "
      "cmp m.pb m2.pb",
      0, {});
  Expect("coracle dump m.pb | head -1", 0, {"program: 1 block"});
}

TEST_F(Cli, CheckFindsAllProblems) {
  Expect("coracle check model.pbtxt", 0, {"no problems"});
  ProgramDesc program;
  for (int i = 0; i < 3; ++i) program.Root().AppendOp("no_such_op", {}, {});
  program.Root().AppendOp("relu", {{"X", {"undefined"}}}, {{"Out", {"y"}}});
  WriteProgram(program, Path("bad.pb"));
  Expect("coracle check bad.pb", 1,
         {"error: 1 op type is missing (3 ops)", "3  no_such_op", "undefined", "errors"});
}

TEST_F(Cli, Summary) {
  // x [-1, 3] times w [3, 2]: 6 multiply-adds, 8 parameters with the bias.
  Expect("coracle summary model.pbtxt", 0,
         {"inputs         x float32[-1, 3]\noutputs        loss float32[1]\nblocks         1\n",
          "parameters     2 with 8 elements, 32 B", "multiply-adds  6 (unknown dims", "1  mul"});
  // x, the product, h and the loss: 4 * (3 + 2 + 2) + 1 numbers of 4 bytes.
  Expect("coracle summary model.pbtxt --shape=x:4x3", 0,
         {"multiply-adds  24\n", "activations    116 B if all were kept\n"});
  Expect("coracle summary model.pbtxt --shape=x:4x5", 1, {"'x' is declared float32[-1, 3]"});
  Expect("coracle summary model.pbtxt --shape=x:4xy", 2, {"--shape takes VAR:8x3x32x32"});
  Expect("coracle summary model.pbtxt --shape=z:4", 1, {"no var 'z'"});
}

TEST_F(Cli, Passes) {
  WriteFileAtomic(Path("net.pbtxt"), R"(
    name: "net"
    data { name: "x" shape: [-1, 3] }
    layer { op { assign { X: ["x"] Out: ["a"] } } }
    layer { op { assign { X: ["x"] Out: ["unread"] } } }
    layer { fc { input: "a" size: 2 output: "h" } }
  )");
  Expect("coracle opt net.pbtxt --for=inference --fetch=h", 0,
         {"pass                       before  after       ms  changes\n",
          "dead_code                       4      3 ", "  -1 assign\n",
          "remove_identities               3      2 ", "all                             4      1 ",
          "  -2 assign, -1 elementwise_add, +1 fc, -1 mul\n"});
  Expect("coracle opt net.pbtxt --fetch=h --program", 0,
         {"program: 1 block, 1 op", "h:float32[-1,2] = fc("});
  // A variable that no op reads is fetched if there are no other fetches.
  Expect("coracle opt net.pbtxt --json", 0,
         {R"("pass": "dead_code",)", R"("ops_before": 4,)", R"("assign": -1)"});
  Expect("coracle opt net.pbtxt --fetch=z", 1, {"cannot fetch 'z'"});
  Expect("coracle opt", 2, {"takes one PROGRAM"});
  // The old name works as before, and names the new form.
  Expect("coracle passes net.pbtxt --fetch=h", 0,
         {"passes is an old name", "use `coracle opt PROGRAM --for=inference`", "  -1 assign\n"});
  Expect("coracle passes net.pbtxt --program --json", 2, {"does not mix with --json"});
}

TEST_F(Cli, Ops) {
  Expect("coracle ops", 0, {"softmax", "gradient"});
  Expect("coracle ops --names", 0, {"\nclip\nclip_by_norm\n"});
  Expect("coracle ops --names --json", 2, {"give one of --names and --json"});
  Expect("coracle ops clip", 0,
         {"min(max(X, min), max)", "inputs\n  X ", "Min", "required", "by the op clip_grad"});
  Expect("coracle ops sgd", 0, {"none: an update"});
  Expect("coracle schema", 0, {"message "});
}

TEST_F(Cli, OpLibrary) {
  const std::string flag = std::string(" --op_library=") + CORACLE_TEST_OPS;
  Expect("coracle ops my_triple", 1, {"my_triple"});
  Expect("coracle ops my_triple" + flag, 0, {"Out = 3 X", "none: an example"});
  fs::copy_file(CORACLE_TEST_OPS, Path("libmy.so"));
  Expect("coracle ops my_triple --op_library=libmy.so", 0, {"Out = 3 X"});
  WriteFileAtomic(Path("my.pbtxt"), R"(
    data { name: "x" shape: [2] }
    layer { op { my_triple { X: ["x"] Out: ["y"] } } })");
  Expect("coracle build my.pbtxt --out=my.pb", 1, {"my.pbtxt:3:18: my_triple: no such op"});
  Expect("coracle build my.pbtxt --out=my.pb" + flag, 0, {"my.pb: 1 op, 0 parameters, inputs x"});
  WriteNpz({{"x", Tensor::Of<float>({2}, {1, -2})}}, Path("in.npz"));
  Expect("coracle run my.pb --feed=in.npz --fetch=y" + flag, 0, {"y: float32[2]", ": 3 -6"});
  Expect("coracle run my.pb --feed=in.npz --fetch=y", 1, {"my_triple"});
}

TEST_F(Cli, BuildsForAPhaseAndStages) {
  WriteFileAtomic(Path("rules.pbtxt"), R"(
    data { name: "x" shape: [-1, 3] }
    layer { relu { input: "x" output: "always" } }
    layer { tanh { input: "x" output: "training" } include_if { phase: TRAIN } }
    layer { exp { input: "x" output: "deployed" } include_if { phase: TEST stage: "deploy" } })");
  Expect("coracle build rules.pbtxt --out=a.pb", 0, {"a.pb: 2 ops"});
  Expect("coracle build rules.pbtxt --out=b.pb --phase=TEST", 0, {"b.pb: 1 op,"});
  Expect("coracle build rules.pbtxt --out=c.pb --phase=TEST --stage=x,deploy", 0, {"c.pb: 2 ops"});
  Expect("coracle build rules.pbtxt --out=d.pb --phase=test", 2,
         {"--phase is TRAIN or TEST, got 'test'"});
}

TEST_F(Cli, OutputThatCannotBeWritten) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  Expect("coracle ops > /dev/full", 1, {"cannot write standard output: No space left on device"});
}

// A reader that goes away (`| head`) changes neither the exit code nor the files.
TEST_F(Cli, OutputThatNobodyReads) {
  WriteFileAtomic(Path("double.pbtxt"), R"(
    data { name: "x" shape: [-1] }
    layer { scale { input: "x" scale: 2 output: "y" } }
  )");
  WriteFileAtomic(Path("in.csv"), "x\n1\n");
  WriteFileAtomic(Path("right.csv"), "y\n2\n");
  WriteFileAtomic(Path("wrong.csv"), "y\n3\n");
  const auto unread = [&](const std::string& command, int code) {
    Expect("{ sleep 0.2; coracle " + command + "; echo \"code $?.\" >&2; } | true", 0,
           {"code " + std::to_string(code) + "."});
  };
  unread("ops", 0);
  unread("compare right.csv wrong.csv", 1);
  unread("diff model.pbtxt double.pbtxt", 1);
  const std::string run = "run double.pbtxt --feed=in.csv --fetch=y --check=";
  unread(run + "right.csv", 0);
  unread(run + "wrong.csv", 1);
  unread(run + "wrong.csv --out=- --save_all=all.npz", 1);
  EXPECT_TRUE(fs::exists(Path("all.npz")));
  unread("opt double.pbtxt --for=training --explain -o opt.pb", 0);
  EXPECT_TRUE(fs::exists(Path("opt.pb")));
  unread("build model.pbtxt -o - --startup_out=startup.pb", 0);
  EXPECT_TRUE(fs::exists(Path("startup.pb")));
  unread("run double.pbtxt --feed=in.csv --fetch=y --out=/dev/full/none.csv", 1);
}

std::string DataDirectory() {
  const char* given = std::getenv("CORACLE_DATA");
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  return fs::absolute(given ? given : std::string(source ? source : ".") + "/../shared/data");
}

TEST_F(Cli, RunsASavedModelOnASizeOfItsOwn) {
  const std::string paddle = DataDirectory() + "/paddle", golden = paddle + "/golden/";
  const std::string model = "ch_ppocr_mobile_v2.0_cls";
  if (!fs::exists(golden)) GTEST_SKIP() << "no " << golden;
  for (const char* turn : {"rot0", "rot180"}) {
    Expect(fmt::format("coracle run {}/{} --feed={}cls_in_{}.npy --out=out.npz", paddle, model,
                       golden, turn),
           0, {"float32[1, 2]"});
    const NamedTensors out = ReadNpz(Path("out.npz"));
    const Tensor expected = ReadNpy(golden + model + "_out_" + turn + ".npy");
    ASSERT_EQ(out.size(), 1u);
    ASSERT_EQ(out[0].second.numel(), 2);
    for (int i = 0; i < 2; ++i)
      EXPECT_NEAR(out[0].second.data<float>()[i], expected.data<float>()[i], 1e-5) << turn;
  }
}

// A saved model has no likely mistakes either.
TEST_F(Cli, CheckWarnsOfLikelyMistakes) {
  WriteFileAtomic(Path("soft.pbtxt"),
                  "data { name: 'x' shape: [-1, 3] } data { name: 'l' shape: [-1, 1] dtype: INT64 "
                  "}\nlayer { softmax { input: 'x' output: 'p' } }\n"
                  "layer { softmax_with_cross_entropy { logits: 'p' label: 'l' output: 'c' } }\n");
  Expect("coracle check soft.pbtxt", 0,
         {"warning: soft.pbtxt:3:9: softmax_with_cross_entropy: its input 'p' is the result of "
          "softmax",
          "no errors, 1 warning\n"});
}

// The error names the kind of a file that is not a program.
TEST_F(Cli, FilesThatAreNoPrograms) {
  Expect("printf '\\014\\001\\002' > g.pdmodel && coracle dump g.pdmodel", 1,
         {"g.pdmodel: damaged at byte"});
  Expect("echo garbage > t.pdmodel && coracle dump t.pdmodel", 1,
         {"'t.pdmodel' is a text, not a binary program: t.pdmodel:1:1: garbage: no such field"});
  Expect("printf '\\010\\010\\022\\001x' > o.pdmodel && coracle dump o.pdmodel", 1,
         {"'o.pdmodel' begins as an ONNX model does, and not as a program: name it .onnx"});
}

// In a pipe nothing is cut.
TEST_F(Cli, ListsAreWholeInAPipe) {
  Expect("coracle layers | grep -c '[.][.][.]$'", 1, {"0\n"});
  Expect("coracle ops | grep -c '[.][.][.]$'", 1, {"0\n"});
}

TEST_F(Cli, GradientsOfParametersAreListedTogether) {
  Expect("coracle backward model.pbtxt --loss=loss --out=b.pb && coracle dump b.pb", 0,
         {"  gradients of parameters\n    fc_0.b_0@GRAD  float32[2]\n    fc_0.w_0@GRAD  "
          "float32[3,2]\n"});
}

TEST_F(Cli, RealModels) {
  const std::string data = DataDirectory();
  if (!fs::exists(data + "/paddle")) GTEST_SKIP() << "no " << data << "/paddle";
  int models = 0;
  for (const auto& entry : fs::directory_iterator(data + "/paddle")) {
    const fs::path model = entry.path() / "inference.pdmodel";
    if (!fs::exists(model)) continue;
    ++models;
    const Result check = Shell("coracle check " + model.string());
    EXPECT_LE(check.code, 1) << check.text;
    size_t at = 0;
    while ((at = check.text.find("error: ", at)) != std::string::npos) {
      const std::string line = check.text.substr(at, check.text.find('\n', at) - at);
      EXPECT_NE(line.find("missing ("), std::string::npos) << model << ": " << line;
      at += line.size();
    }
    EXPECT_EQ(Shell("coracle dump " + model.string()).code, 0) << model;
    EXPECT_EQ(Shell("coracle summary " + model.string()).code, 0) << model;
  }
  EXPECT_EQ(models, 12);
}
}  // namespace coracle::cli_test

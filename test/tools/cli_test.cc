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
  Expect("coracle schema jobs", 2, {"no schema is called jobs; there are model and job"});
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
  Expect("coracle dump --block=x a", 2, {"--block takes a whole number below 2147483648, got 'x'"});
  Expect("coracle dump a --block", 2, {"--block needs a value"});
  Expect("coracle dump a --block=-5", 2, {"--block takes the number of a block, got -5"});
  Expect("coracle version x", 2, {"takes no arguments, got 1 argument\n"});
  Expect("coracle frobnicate", 2, {"unknown command 'frobnicate'; `coracle help` lists"});
  Expect("coracle run - --feed=-", 2, {"cannot both be standard input"});
  Expect("coracle dump --format=xml model.pbtxt", 2, {"--format of dump is text or pbtxt"});
  Expect("coracle dump '--ops=(' model.pbtxt", 2, {"--ops: "});
  Expect("coracle --thread=2 version", 2, {"did you mean --threads?"});
  Expect("coracle run --kernels=slow model.pbtxt", 2, {"--kernels is auto or reference"});
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
    Expect(fmt::format("coracle convert model.pbtxt {}", name), 1, {"has no parameters beside it"});
    EXPECT_FALSE(FileExists(Path(name))) << name;
  }
  Expect("coracle run m.pb --out=o.txt", 2,
         {"run: --out must end in .npz or .npy or .safetensors or .csv or .json, got 'o.txt'"});
  Expect("coracle run m.pb --save_params=p.csv", 2,
         {"--save_params must end in .pdiparams or .params or .safetensors or .npz, or have no "
          "ending, got 'p.csv'"});
  for (const char* name : {"m.pb", "m.pdmodel", "__model__", "m.txt", "m.pbtxt"}) {
    Expect(fmt::format("coracle convert model.pbtxt {0} && coracle summary {0}", name), 0,
           {"mean"});
  }
}

TEST_F(Cli, HelpNamesTheValuesOfFlags) {
  Expect("coracle help check-grad", 0, {"(default: 1e-06)"});
  Expect(
      "coracle help run", 0,
      {"  --memory_limit=BYTES       most BYTES to take", "  --repeat=N                 number of",
       "  --check_nan_inf            stop", "  --params=PATH              parameters: PATH"});
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
  Expect("coracle time none.pb --ranks=2", 1, {"cannot open 'none.pb'"});
  for (const char* command : {"build empty.pb --out=o.pb", "bench empty.pb", "time empty.pb"})
    Expect(": > empty.pb; coracle " + std::string(command), 1, {"empty.pb: holds no block"});
  Expect("printf 'layer' > cut.pbtxt; coracle dump cut.pbtxt", 1,
         {"cut.pbtxt:1:6: expected \"{\", found the end"});
  Expect("coracle convert model.pbtxt m.pdmodel && coracle generate m.pdmodel --prompt=a", 1,
         {"there is no vocabulary.json beside 'm.pdmodel'"});
}

TEST_F(Cli, DumpReadsFilesDirectoriesAndStandardInput) {
  const std::vector<std::string> listing = {"parameters\n", "fc_0.w_0  float32[3,2]  24 B",
                                            "Out=loss:float32[1] = mean(X=h)"};
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
  Expect("coracle passes net.pbtxt --fetch=h", 0,
         {"pass                       before  after       ms  changes\n",
          "dead_code                       4      3 ", "  -1 assign\n",
          "remove_identities               3      2 ", "all                             4      1 ",
          "  -2 assign, -1 elementwise_add, +1 fc, -1 mul\n"});
  Expect("coracle passes net.pbtxt --fetch=h --program --nofrozen", 0,
         {"program: 1 block, 1 op", "Out=h:float32[-1,2] = fc("});
  // What nobody reads is fetched where nothing else is.
  Expect("coracle passes net.pbtxt --json", 0,
         {R"("pass": "dead_code",)", R"("ops_before": 4,)", R"("assign": -1)"});
  Expect("coracle passes net.pbtxt --fetch=z", 1, {"cannot fetch 'z'"});
  Expect("coracle passes", 2, {"takes one PROGRAM"});
}

TEST_F(Cli, ExplainGradient) {
  Expect("coracle explain-gradient model.pbtxt --of=loss --wrt=fc_0.w_0", 0,
         {"the gradient of 'loss' with respect to 'fc_0.w_0' is 'fc_0.w_0@GRAD'",
          "  loss -> h  through mean, op ", ": Out -> X", "  from mul, op "});
  Expect("coracle explain-gradient model.pbtxt --of=loss --wrt=x", 0,
         {"no gradient of 'loss' with respect to 'x': stop_gradient is set on 'x', which is fed",
          "ends here"});
  Expect("coracle explain-gradient model.pbtxt --of=loss --wrt=fc_0.w_1", 1, {"did you mean"});
  Expect("coracle explain-gradient model.pbtxt --of=loss", 2, {"--wrt=NAME is missing"});
}

TEST_F(Cli, VerboseBackward) {
  const std::string command = "coracle backward model.pbtxt --loss=loss --out=v.pb";
  Expect(command + " --v=1 2>&1", 0, {"gradient op mean_grad: ", "Out@GRAD=loss@GRAD"});
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"w", "y"}) root.Var(name).SetShape({3});
  root.FindVar("w")->SetPersistable(true);
  root.FindVar("w")->SetIsParameter(true);
  root.Var("loss").SetShape({1});
  root.AppendOp("elementwise_mul", {{"X", {"w"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  root.AppendOp("mean", {{"X", {"y"}}}, {{"Out", {"loss"}}});
  WriteProgram(program, Path("twice.pb"));
  Expect("coracle backward twice.pb --loss=loss --out=v.pb --v=2 2>&1", 0,
         {"w@GRAD = sum of w@GRAD@RENAME@block0@0, w@GRAD@RENAME@block0@1"});
}

// y = w w + tanh(v) w; u is not connected.
TEST_F(Cli, BackwardOptions) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"w", "v", "u", "square", "t", "product", "y"})
    root.Var(name).SetShape({3});
  for (const char* name : {"w", "v", "u"}) root.FindVar(name)->SetPersistable(true);
  root.Var("loss").SetShape({1});
  root.AppendOp("elementwise_mul", {{"X", {"w"}}, {"Y", {"w"}}}, {{"Out", {"square"}}});
  root.AppendOp("tanh", {{"X", {"v"}}}, {{"Out", {"t"}}});
  root.AppendOp("elementwise_mul", {{"X", {"t"}}, {"Y", {"w"}}}, {{"Out", {"product"}}});
  root.AppendOp("elementwise_add", {{"X", {"square"}}, {"Y", {"product"}}}, {{"Out", {"y"}}});
  root.AppendOp("mean", {{"X", {"y"}}}, {{"Out", {"loss"}}});
  WriteProgram(program, Path("p.pb"));
  const std::string command = "coracle backward p.pb --loss=loss --out=b.pb ";
  auto ops = [&](const std::string& type) {
    const ProgramDesc with = ReadProgram(Path("b.pb"));
    int count = 0;
    for (size_t i = 0; i < with.Root().NumOps(); ++i) count += with.Root().op(i).type() == type;
    return count;
  };
  Expect(command + "--inputs=w,v,u", 0,
         {"w -> w@GRAD", "v -> v@GRAD", "u -> no gradient: the loss does not depend on it"});
  EXPECT_EQ(ops("sum"), 1);  // of three contributions
  Expect(command + "--inputs=w,u --unconnected=zero", 0, {"u -> u@GRAD"});
  EXPECT_EQ(ops("fill_zeros_like"), 1);
  Expect(command + "--inputs=w --aggregation=running", 0, {"w -> w@GRAD"});
  EXPECT_EQ(ops("sum"), 2);
  Expect(command + "--inputs=v,t --stop_gradients=t", 0, {"v -> no gradient", "t -> t@GRAD"});
  Expect(command + "--inputs=w,v --no_grad=t", 0, {"w -> w@GRAD", "v -> no gradient"});
  // Both gradients of w * w are there before they are added.
  Expect(command + "--inputs=w --gate_gradients", 0, {"w -> w@GRAD"});
  EXPECT_EQ(ops("sum"), 1);
  Expect(command + "--aggregation=tree", 2, {"unknown aggregation: 'tree'; one of sum, running"});
  Expect(command + "--unconnected=one", 2, {"one of none, zero"});
}

TEST_F(Cli, CheckGrad) {
  Expect("coracle check-grad model.pbtxt --loss=loss", 0, {"loss ", "fc_0.w_0", "  ok\n"});
  Expect("coracle check-grad model.pbtxt", 1, {"name the loss"});
  Expect("coracle check-grad - --feed=-", 2, {"cannot both be standard input"});
  const NamedTensors in = {{"x", Tensor::Of<float>({1, 3}, {1, 2, 3})}};
  WriteNpz(in, Path("x.npz"));
  Expect("coracle check-grad model.pbtxt --loss=loss --feed=- < x.npz", 0, {"  ok\n"});
  Expect("coracle check-grad model.pbtxt --loss=loss --feed=- < model.pbtxt", 1,
         {"standard input"});
  WriteFileAtomic(Path("x.csv"), "x[0],x[1],x[2]\n1,2,3\n");
  Expect("coracle check-grad model.pbtxt --loss=loss --feed=x.csv", 0, {"  ok\n"});
  Expect("coracle check-grad model.pbtxt --loss=loss --tolerance=0", 2, {"--tolerance"});
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"w", "y", "z"}) root.Var(name).SetShape({3});
  root.FindVar("w")->SetPersistable(true);
  root.FindVar("w")->SetIsParameter(true);
  root.Var("loss").SetShape({1});
  root.AppendOp("tanh", {{"X", {"w"}}}, {{"Out", {"y"}}});
  root.AppendOp("my_wrong", {{"X", {"y"}}}, {{"Out", {"z"}}});
  root.AppendOp("mean", {{"X", {"z"}}}, {{"Out", {"loss"}}});
  WriteProgram(program, Path("wrong.pb"));
  Expect("coracle check-grad wrong.pb --loss=loss --op_library=" CORACLE_TEST_OPS, 1,
         {"w  gradient", "WRONG", "first wrong op: my_wrong, op 1 of block 0"});
}

TEST_F(Cli, Ops) {
  Expect("coracle ops", 0, {"softmax", "gradient"});
  Expect("coracle ops --names", 0, {"\nclip\nclip_by_norm\n"});
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

TEST_F(Cli, FromTextToGradients) {
  Expect("coracle build model.pbtxt --out=main.pb --startup_out=startup.pb", 0,
         {"main.pb: 3 ops, 2 parameters, inputs x", "startup.pb: 2 ops"});
  Expect("coracle run startup.pb --save_params=params", 0, {});
  Expect("coracle backward main.pb --loss=loss --error_clip=h:0.125 --out=train.pb", 0,
         {"fc_0.w_0 -> fc_0.w_0@GRAD"});
  Expect("coracle backward main.pb --loss=loss --error_clip=h:0.125,h:2 --out=no.pb", 2,
         {"--error_clip has two limits for 'h'"});
  Expect("coracle dump train.pb", 0,
         {"error_clip by_value(max=0.125, min=-0.125)", "-- backward --", "# error clip"});
  WriteNpz({{"x", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6})}}, Path("in.npz"));
  Expect(
      "coracle run train.pb --params=params --feed=in.npz --fetch=fc_0.w_0@GRAD,loss "
      "--out=out.npz",
      0, {"fc_0.w_0@GRAD: float32[3, 2]"});
  // d(mean)/dh = 1/4, clipped to 1/8; the weights' gradient is x^T times that.
  const NamedTensors out = ReadNpz(Path("out.npz"));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].first, "fc_0.w_0@GRAD");
  const std::vector<float> expected = {0.625f, 0.625f, 0.875f, 0.875f, 1.125f, 1.125f};
  for (size_t i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(out[0].second.data<float>()[i], expected[i]);
  Expect(
      "coracle run train.pb --params=params --feed=in.npz --fetch=loss --profile "
      "--kernels=reference --check_nan_inf --memory_limit=1G --time_limit=60",
      0, {"fc"});
  const std::string run = "coracle run train.pb --params=params --feed=in.npz --fetch=loss ";
  for (const char* passes : {"merge_updates", "nhwc,fuse_conv_bias", "all"})
    Expect(run + "--disabled_passes=" + passes, 0, {"loss: float32"});
  Expect(run + "--disabled_passes=nhcw", 1, {"unknown pass 'nhcw'; did you mean nhwc?"});
  Expect("coracle run main.pb --params=params --fetch=loss", 1, {"'x'"});
  Expect("coracle run main.pb --feed=in.npz --fetch=loss", 1,
         {"fc_0.w_0", "--params=DIR or --params=FILE"});
  Expect("coracle run main.pb --params=params --feed=in.npz", 0, {"nothing was fetched"});
  Expect("coracle run main.pb --params=params --feed=in.npz --out=none.npz", 2,
         {"--out: the program fetches nothing; --fetch=NAMES says what to write"});
  EXPECT_FALSE(FileExists(Path("none.npz")));
  WriteFileAtomic(Path("in.json"), "{}");
  Expect("coracle run main.pb --params=in.json --feed=in.npz", 1,
         {"coracle: 'in.json' is no file of parameters by its ending: --params takes "});
  Expect("coracle run main.pb --params=params --feed=model.pbtxt", 1,
         {"model.pbtxt: no npz, npy or safetensors file"});
  Expect("coracle run main.pb --params=params --feed=- --fetch=loss < in.npz", 0,
         {"loss: float32"});
  Expect("coracle run main.pb --params=params --feed=in.npz --fetch=loss,loss --out=twice.npz", 0,
         {"loss: float32"});
  EXPECT_EQ(ReadNpz(Path("twice.npz")).size(), 1u);
  Expect("coracle build model.pbtxt --out=- | coracle dump -", 0, {"= mean(X=h)"});
  // The pipe is full before its reader is gone.
  Expect("{ coracle schema; echo code $? >&2; } | true", 0, {"code 0"});
  Expect("{ sleep 0.2; coracle convert main.pb -; echo code $? >&2; } | true", 0, {"code 0"});
}

// Trained with batch statistics, run with the moving ones, which are frozen.
TEST_F(Cli, SavedModelsAreFrozen) {
  WriteFileAtomic(Path("net.pbtxt"), R"(
    data { name: "image" shape: [-1, 1, 28, 28] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { conv2d { input: "image" num_filters: 4 filter_size: 5 stride: 3 output: "c" } }
    layer { batch_norm { input: "c" act: "relu" output: "n" } }
    layer { fc { input: "n" size: 10 output: "logits" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } })");
  WriteFileAtomic(Path("job.pbtxt"), R"(
    model: "net.pbtxt" train { digits { count: 100 } } test { digits { count: 50 } }
    loss: "loss" optimizer { sgd { learning_rate: 0.1 } } batch_size: 50 max_iter: 2
    deploy { input: "image" output: "logits" })");
  Expect("coracle train job.pbtxt --out=out", 0, {"final: loss="});
  Expect("coracle test out/eval job.pbtxt --profile", 0, {"conv2d", "test: loss="});
  const Result test = Shell("cd " + dir_ + " && coracle test out/eval job.pbtxt --profile");
  EXPECT_EQ(test.text.find(" batch_norm "), std::string::npos) << test.text;  // no such op
  Expect("coracle time out/model.pdmodel --batch_size=2 --iterations=2", 0,
         {"batch of 2, 2 runs", "conv2d", "whole step"});
  WriteNpy(Tensor::Zeros(DType::kFloat32, {2, 1, 28, 28}), Path("zeros.npy"));
  Expect(
      "coracle run out/model.pdmodel --feed=zeros.npy --repeat=2 --save_params=again.pdiparams "
      "&& cmp again.pdiparams out/model.pdiparams",
      0, {"logits: float32[2, 10]"});
}

TEST_F(Cli, TrainStopResumeAndTest) {
  WriteFileAtomic(Path("softmax.pbtxt"), R"(
    data { name: "image" shape: [-1, 1, 28, 28] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { fc { input: "image" size: 10 num_flatten_dims: 1 output: "logits" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } }
    layer { accuracy { input: "logits" label: "label" output: "acc" } })");
  WriteFileAtomic(Path("job.pbtxt"), R"(
    name: "tiny" model: "softmax.pbtxt"
    train { digits { count: 300 } } test { digits { count: 100 } }
    loss: "loss" metric { var: "acc" name: "accuracy" }
    optimizer { sgd { learning_rate: 0.1 } }
    batch_size: 50 max_iter: 6 snapshot_interval: 2
    deploy { input: "image" output: "logits" })");
  Expect("coracle train job.pbtxt --out=whole", 0, {"final: loss=", "accuracy="});
  Expect("coracle train job.pbtxt --out=parts --max_iter=2", 0, {"final: loss="});
  Expect("coracle train job.pbtxt --out=parts --resume", 0, {"final: loss="});
  Expect("cmp whole/model.pdiparams parts/model.pdiparams && cmp whole/main.pb parts/main.pb", 0,
         {});
  Expect("coracle test whole/eval job.pbtxt", 0, {"test: ", "loss="});
  Expect("coracle test whole/eval job.pbtxt --profile", 0, {"ms in all", "fc", "test: loss="});
  WriteFileAtomic(Path("again.pbtxt"), R"(
    model: "whole/main.pb" train { digits { count: 50 } } max_iter: 1)");
  Expect("coracle train again.pbtxt --out=again", 1,
         {"again.pbtxt:2:5: nothing initialises 'fc_0.w_0'", "give a model text"});
  const std::string last = "parts/snapshots/step_00000006";
  Expect("coracle snapshot softmax.pbtxt", 1, {"no snapshot in 'softmax.pbtxt'"});
  Expect("coracle snapshot parts/snapshots", 0,
         {last + ": job 'tiny', step 6", "fc_0.w_0", "evaluation   test at step 6: loss="});
  Expect("coracle snapshot whole/snapshots " + last, 0,
         {"3 of 3 variables are the same bit for bit"});
  Expect("printf x >> " + last + "/job.pbtxt; coracle snapshot " + last, 1,
         {"damaged snapshot: " + last + "/job.pbtxt"});
  Expect("coracle train job.pbtxt --out=parts --resume", 1,
         {"damaged snapshot: ", "an older one: --resume=parts/snapshots/step_00000004"});
  Expect("coracle train job.pbtxt --out=whole --seed=5 --resume", 1,
         {"cannot be continued: its random_seed is 1, the job's is 5", "--override"});
  Expect("coracle train job.pbtxt --out=whole --seed=5 --resume --override", 0,
         {"override: whole/snapshots/step_00000006: its random_seed is 1, the job's is 5"});
  Expect("coracle train job.pbtxt --override", 2, {"--override goes with --resume"});
  Expect("coracle plot whole parts -o c.svg && head -c 4 c.svg", 0, {"c.svg\n<svg"});
  Expect("coracle plot whole -o c.html && tail -n 1 c.html", 0, {"</html>"});
  Expect("coracle plot whole -o c.png", 2,
         {"--out must end in .svg or .html or .htm, got 'c.png'"});
  Expect("coracle plot nowhere", 1, {"cannot open 'nowhere'"});
  Expect("coracle time softmax.pbtxt --batch_size=4 --iterations=3", 0,
         {"batch of 4, 3 runs, milliseconds", "\nlogits ", "\nwhole step"});
  Expect("coracle plot . -o c.svg", 1, {"'.' is no run's output directory: it has no log.jsonl"});
  Expect("coracle snapshot whole && coracle snapshot whole/snapshots", 0, {"step 6"});
  Expect("coracle test whole job.pbtxt", 0, {"test: loss="});
  Expect("coracle test job.pbtxt whole/eval.pdmodel", 2, {"MODEL comes before JOB.pbtxt, got '"});
  Expect("coracle test whole/main.pb job.pbtxt", 1,
         {"'whole/main.pb' is no saved model; give one"});
  Expect("coracle train whole/eval.pdmodel", 1,
         {"coracle: whole/eval.pdmodel: a binary file, but a job is a text"});
  Expect("coracle train job.pbtxt --max_seconds=-1", 2, {"--max_seconds must be positive, got -1"});
  Expect("coracle train job.pbtxt --max_seconds=nan", 2, {"--max_seconds must be positive"});
  Expect("coracle time softmax.pbtxt --batch_size=99999999999", 2,
         {"--batch_size takes a whole number below 2147483648, got '99999999999'"});
  Expect("coracle time job.pbtxt --iterations=2", 0, {" runs, milliseconds", "\nlogits "});
  Expect("coracle time job.pbtxt --batch_size=3 --iterations=2", 0, {"batch of 3, 2 runs"});
  Expect("coracle time job.pbtxt --loss=loss", 2, {"--loss is for a model: a job names its loss"});
  Expect("coracle time softmax.pbtxt --loss=los", 1, {"--loss: the model has no variable 'los'"});
  WriteFileAtomic(
      Path("open.pbtxt"),
      "data { name: 'x' shape: [-1, 3, -1] } layer { relu { input: 'x' output: 'y' } }");
  Expect("coracle time open.pbtxt", 1,
         {"not all dims are known of the feed 'x' float32[-1, 3, -1]; give them with "
          "--shape=x:64x3xN\n"});
  Expect("coracle time open.pbtxt --shape=x:5x3x7 --iterations=2", 0,
         {"input x float32[5, 3, 7]\nbatch of 5, 2 runs, milliseconds\n"});
  Expect("coracle time open.pbtxt --shape=x:5x3x7,x:2x3x7", 2,
         {"'x' is to get two shapes: 'x:5x3x7' and 'x:2x3x7'"});
  WriteFileAtomic(Path("fixed.pbtxt"),
                  "data { name: 'x' shape: [2, 3] } layer { relu { input: 'x' output: 'y' } }");
  Expect("coracle time fixed.pbtxt --iterations=2", 0,
         {"input x float32[2, 3]\n2 runs, milliseconds\n"});
  // Labels follow the batch of --shape, and rows of sequences are one.
  WriteFileAtomic(Path("two.pbtxt"), R"(
    data { name: 'label' shape: [-1, 1] dtype: INT64 }
    data { name: 'x' shape: [-1, 3] }
    layer { softmax_with_cross_entropy { logits: 'x' label: 'label' output: 'ce' } })");
  Expect("coracle time two.pbtxt --shape=x:5x3 --iterations=2", 0,
         {"input label int64[5, 1]\ninput x float32[5, 3]\nbatch of 5, 2 runs, milliseconds\n"});
  WriteFileAtomic(Path("words.pbtxt"), R"(
    data { name: 'x' shape: [-1, 1] lod_level: 1 }
    layer { op { sequence_softmax { X: 'x' Out: 'y' } } })");
  Expect("coracle time words.pbtxt --shape=x:7x1 --iterations=2", 0,
         {"input x float32[7, 1]\nbatch of 1, 2 runs, milliseconds\n"});
  Expect("coracle time open.pbtxt --shape=z:5x3x7", 1, {"--shape: the program is not fed 'z'"});
  Expect("coracle time job.pbtxt --shape=x:5x3x7", 2, {"--shape is for a model"});
  Expect("coracle dump whole/main.pb", 0, {"training step: forward", "update 2 (sgd)"});
  Expect("coracle train nowhere.pbtxt", 1, {"nowhere.pbtxt"});
  Expect("coracle train job.pbtxt --max_iter=0", 2, {"--max_iter must be at least 1, got 0"});
  Expect("coracle train job.pbtxt --out=new --resume=nowhere", 1, {"no snapshot in 'nowhere'"});
  Expect("coracle test softmax.pbtxt job.pbtxt", 1, {"'softmax.pbtxt' is no saved model"});
  Expect("coracle train job.pbtxt --data-dir", 2, {"--data_dir needs a value"});
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

TEST_F(Cli, GenerateWritesNewText) {
  std::string text;
  for (uint32_t i = 0, x = 1; i < 400; ++i, x = x * 1664525u + 1013904223u)
    text += x >> 30 ? "ab\n" : "ba\n";
  WriteFileAtomic(Path("text.txt"), text);
  WriteFileAtomic(Path("job.pbtxt"), R"(
    name: "letters"
    model_text: "data { name: 'text' shape: [-1, -1] dtype: INT64 }"
      " data { name: 'next' shape: [-1, -1, 1] dtype: INT64 }"
      " data { name: 'h0' shape: [1, -1, 8] }"
      " layer { embedding { input: 'text' num_embeddings: 3 embedding_dim: 3 output: 'e' } }"
      " layer { gru { input: 'e' hidden_size: 8 initial_h: 'h0' last_h: 'h1' output: 'y' } }"
      " layer { fc { input: 'y' size: 3 num_flatten_dims: 2 output: 'logits' } }"
      " layer { softmax_with_cross_entropy { logits: 'logits' label: 'next' output: 'ce' } }"
      " layer { mean { input: 'ce' output: 'loss' } }"
    train { text { file: "text.txt" sequence_length: 12 } }
    test { text { file: "text.txt" sequence_length: 12 } }
    carry { from: "h1" to: "h0" }
    loss_name: "nats"
    optimizer { adam { learning_rate: 0.02 } }
    batch_size: 4
    epochs: 4
    deploy { input: "text" output: "logits" }
  )");
  Expect("coracle train job.pbtxt --out=out", 0,
         {"vocabulary out/vocabulary.json", "final: nats="});
  Expect(
      "coracle generate out --prompt='ab' --length=30 --seed=3 > one && "
      "coracle generate out --prompt='ab' --length=30 --seed=3 > two && cmp one two && wc -c < one",
      0, {"33"});
  Expect("coracle generate out --length=9 --temperature=0", 0, {"ab\nab\nab"});
  Expect("coracle generate out --prompt=xyz", 1, {"prompt: the character 'x' at byte 0 is not"});
  Expect("coracle generate out --temperature=-1", 1, {"temperature must be finite"});
  Expect("coracle generate nowhere", 1, {"nowhere"});
  Expect("coracle generate", 2, {"takes one MODEL_DIR"});
  Expect("coracle test out/eval.pdmodel job.pbtxt", 0, {"test: nats="});
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

TEST_F(Cli, SparseGradientsAreDumpedAndFetched) {
  WriteFileAtomic(Path("words.pbtxt"), R"(
    data { name: "ids" shape: [-1] dtype: INT64 }
    layer { embedding { input: "ids" num_embeddings: 4 embedding_dim: 2 is_sparse: true
                        param { name: "table" } output: "e" } }
    layer { mean { input: "e" output: "loss" } }
  )");
  Expect("coracle build words.pbtxt --out=m.pb --startup_out=s.pb", 0, {});
  Expect("coracle run s.pb --save_params=params", 0, {});
  Expect("coracle backward m.pb --loss=loss --out=train.pb && coracle dump train.pb", 0,
         {"W@GRAD=table@GRAD:SELECTED_ROWS float32[4,2] = lookup_table_v2_grad("});
  WriteNpz({{"ids", Tensor::Of<int64_t>({2}, {3, 3})}}, Path("in.npz"));
  Expect("coracle run train.pb --params=params --feed=in.npz --fetch=table@GRAD,loss", 0,
         {"table@GRAD: float32[4, 2], min 0, mean 0.125, max 0.5: 0 0 0 0 0 0 0.5 0.5",
          "loss: float32[1]"});
  Expect("coracle check-grad m.pb --loss=loss", 0, {"table", "  ok\n"});
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

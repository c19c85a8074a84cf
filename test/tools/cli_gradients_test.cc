// The command as a user runs it: gradients appended, explained, checked and fetched.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/tools/cli.h>

namespace coracle::cli_gradients_test {

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
         {"coracle: 'in.json' does not end as a parameter file does: --params takes "});
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
         {"table@GRAD:SELECTED_ROWS float32[4,2] = lookup_table_v2_grad("});
  WriteNpz({{"ids", Tensor::Of<int64_t>({2}, {3, 3})}}, Path("in.npz"));
  Expect("coracle run train.pb --params=params --feed=in.npz --fetch=table@GRAD,loss", 0,
         {"table@GRAD: float32[4, 2], min 0, mean 0.125, max 0.5: 0 0 0 0 0 0 0.5 0.5",
          "loss: float32[1]"});
  Expect("coracle check-grad m.pb --loss=loss", 0, {"table", "  ok\n"});
}

TEST_F(Cli, CheckGradSkipsTexts) {
  WriteFileAtomic(Path("texts.pbtxt"), R"(
data { name: "words" shape: [-1, 1] dtype: STRING }
data { name: "x" shape: [-1, 4] }
layer { cast { input: "words" dtype: FP32 output: "number" } }
layer { fc { input: "number" size: 4 output: "h" } }
layer { elementwise_mul { x: "h" y: "x" output: "product" } }
layer { mean { input: "product" output: "loss" } }
)");
  Expect("coracle build texts.pbtxt --out=texts.pb --startup_out=s.pb", 0, {});
  const std::string skipped = "words is skipped: it holds texts, which have no gradient";
  Expect("coracle check-grad texts.pb --loss=loss", 0, {skipped, "fc_0.w_0", "ok"});
  Expect("coracle check-grad texts.pb --loss=loss --wrt=words,x", 0, {skipped, "x  gradient"});
  Expect("coracle check-grad texts.pb --loss=loss --wrt=words", 1,
         {"--wrt: words holds texts, which have no gradient; name a variable of floats"});
}

}  // namespace coracle::cli_gradients_test

#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace coracle::builder_test {

std::vector<std::string> OpTypes(const ProgramDesc& program) {
  std::vector<std::string> types;
  for (size_t i = 0; i < program.Root().NumOps(); ++i) types.push_back(program.Root().op(i).type());
  return types;
}

using Names = std::vector<std::string>;

class BuilderTest : public ::testing::Test {
 protected:
  const VarDesc& VarOf(const std::string& name) { return *main.Root().FindVar(name); }
  const OpDesc& LastOp() { return main.Root().op(main.Root().NumOps() - 1); }
  // The error that `f` throws, as one text.
  ProgramDesc main, startup;
  Builder net{main, startup};
};

TEST_F(BuilderTest, LeNet) {
  Variable image = net.Data("image", {-1, 1, 28, 28});
  Variable label = net.Data("label", {-1, 1}, DType::kInt64);
  Variable c1 = net.Conv2d(image, {.num_filters = 20, .filter_size = 5});
  Variable p1 = net.Pool2d(c1, {.pool_size = 2, .pool_stride = 2});
  Variable c2 = net.Conv2d(p1, {.num_filters = 50, .filter_size = 5});
  Variable p2 = net.Pool2d(c2, {.pool_size = 2, .pool_stride = 2});
  Variable h =
      net.Fc(p2, {.size = 500, .act = "relu", .output = "h", .error_clip = ErrorClipByValue(5.0)});
  Variable logits = net.Fc(h, {.size = 10});
  Variable loss = net.Mean(net.SoftmaxWithCrossEntropy(logits, label));
  EXPECT_EQ(c1.shape(), Shape({-1, 20, 24, 24}));
  EXPECT_EQ(p1.shape(), Shape({-1, 20, 12, 12}));
  EXPECT_EQ(c2.shape(), Shape({-1, 50, 8, 8}));
  EXPECT_EQ(p2.shape(), Shape({-1, 50, 4, 4}));
  EXPECT_EQ(h.shape(), Shape({-1, 500}));
  EXPECT_EQ(h.name(), "h");
  EXPECT_EQ(logits.shape(), Shape({-1, 10}));
  EXPECT_EQ(loss.shape().numel(), 1);
  EXPECT_EQ(main.Parameters(),
            Names({"conv2d_0.w_0", "conv2d_0.b_0", "conv2d_1.w_0", "conv2d_1.b_0", "fc_0.w_0",
                   "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"}));
  EXPECT_EQ(VarOf("conv2d_1.w_0").shape(), Shape({50, 20, 5, 5}));
  EXPECT_EQ(VarOf("fc_0.w_0").shape(), Shape({800, 500}));
  int64_t elements = 0;
  for (const std::string& name : main.Parameters()) elements += VarOf(name).shape().numel();
  EXPECT_EQ(elements, 431080);  // as Caffe counts its LeNet
  EXPECT_EQ(OpTypes(main), Names({"conv2d", "elementwise_add", "pool2d", "conv2d",
                                  "elementwise_add", "pool2d", "mul", "elementwise_add", "relu",
                                  "mul", "elementwise_add", "softmax_with_cross_entropy", "mean"}));
  ASSERT_TRUE(h.desc().error_clip());
  EXPECT_EQ(h.desc().error_clip()->Save(), ErrorClipByValue(5.0, -5.0).Save());
  VerifyOrThrow(main, DefaultOps());
  VerifyOrThrow(startup, DefaultOps());
}

TEST_F(BuilderTest, ParametersAreInBothPrograms) {
  net.Fc(net.Data("x", {-1, 6}), {.size = 4});
  for (const char* name : {"fc_0.w_0", "fc_0.b_0"}) {
    for (const ProgramDesc* program : {&main, &startup}) {
      const VarDesc* var = program->Root().FindVar(name);
      ASSERT_TRUE(var) << name;
      EXPECT_TRUE(var->persistable());
      EXPECT_TRUE(var->is_parameter());
      EXPECT_FALSE(var->stop_gradient());
    }
  }
  EXPECT_EQ(OpTypes(startup), Names({"uniform_random", "fill_constant"}));
  const OpDesc& fill = startup.Root().op(0);
  // Xavier: sqrt(6 / (6 + 4)).
  EXPECT_FLOAT_EQ(fill.GetAttr<float>("max", 0), 0.77459667f);
  EXPECT_FLOAT_EQ(fill.GetAttr<float>("min", 0), -0.77459667f);
}

TEST_F(BuilderTest, DataIsAnInputThatNothingFlowsInto) {
  Variable x = net.Data("x", {-1, 3}, DType::kFloat64);
  EXPECT_TRUE(x.desc().stop_gradient());
  EXPECT_TRUE(x.desc().need_check_feed());
  EXPECT_FALSE(x.desc().persistable());
  EXPECT_EQ(x.dtype(), DType::kFloat64);
  EXPECT_FALSE(
      net.Data("y", {3}, DType::kFloat32, {.stop_gradient = false}).desc().stop_gradient());
  EXPECT_EQ(ErrorOf([&] { net.Data("x", {1}); }),
            "data: its output 'x' is the name of another variable; choose one that is free");
  EXPECT_EQ(ErrorOf([&] { net.Data("z", {-2}); }), "data 'z': dims must be -1 or more, got [-2]");
}

TEST_F(BuilderTest, FcSumsSeveralInputs) {
  Variable a = net.Data("a", {-1, 2, 3}), b = net.Data("b", {-1, 5});
  Variable out = net.Fc({a, b}, {.size = 4, .param_attr = {.name = "w"}});
  EXPECT_EQ(out.shape(), Shape({-1, 4}));
  EXPECT_EQ(OpTypes(main), Names({"mul", "mul", "sum", "elementwise_add"}));
  EXPECT_EQ(VarOf("w").shape(), Shape({6, 4}));
  EXPECT_EQ(VarOf("w_1").shape(), Shape({5, 4}));
}

TEST_F(BuilderTest, FcKeepsLeadingDims) {
  Variable x = net.Data("x", {-1, 7, 3, 2});
  Variable out = net.Fc(x, {.size = 4, .num_flatten_dims = 2});
  EXPECT_EQ(out.shape(), Shape({-1, 7, 4}));
  EXPECT_EQ(VarOf("fc_0.w_0").shape(), Shape({6, 4}));
  EXPECT_EQ(LastOp().GetAttr<int32_t>("axis", -1), 2);
  EXPECT_EQ(main.Root().op(0).GetAttr<int32_t>("x_num_col_dims", 0), 2);
  net.Fc(x, {.size = 4, .bias_attr = std::nullopt});
  EXPECT_EQ(LastOp().type(), "mul");
  EXPECT_EQ(net.Fc(x, {.size = 4, .num_flatten_dims = -1}).shape(), Shape({-1, 7, 3, 4}));
  EXPECT_EQ(ErrorOf([&] { net.Fc(x, {.size = 4, .num_flatten_dims = 4}); }),
            "fc: num_flatten_dims must lie in [1, rank of the input), got 4 for x of shape "
            "[-1, 7, 3, 2]");
  EXPECT_EQ(ErrorOf([&] { net.Fc(x, {}); }), "fc: size must be positive, got 0");
  Variable open = net.Data("open", {-1, -1});
  EXPECT_EQ(ErrorOf([&] { net.Fc(open, {.size = 1}); }),
            "fc: dim 1 of its input must be known to size the parameters, got open of shape "
            "[-1, -1]");
}

TEST_F(BuilderTest, ConvolutionByGroups) {
  Variable x = net.Data("x", {-1, 8, 9, 9});
  net.Conv2d(x, {.num_filters = 16,
                 .filter_size = {3, 1},
                 .stride = 2,
                 .padding = {1, 0},
                 .groups = 8,
                 .bias_attr = std::nullopt});
  EXPECT_EQ(LastOp().type(), "depthwise_conv2d");
  EXPECT_EQ(VarOf("depthwise_conv2d_0.w_0").shape(), Shape({16, 1, 3, 1}));
  Variable y = net.Conv2d(x, {.num_filters = 6, .filter_size = 3, .padding = "SAME", .groups = 2});
  EXPECT_EQ(y.shape(), Shape({-1, 6, 9, 9}));
  EXPECT_EQ(VarOf("conv2d_0.w_0").shape(), Shape({6, 4, 3, 3}));
  EXPECT_EQ(LastOp().type(), "elementwise_add");
  EXPECT_EQ(LastOp().GetAttr<int32_t>("axis", -1), 1);
  EXPECT_EQ(ErrorOf([&] { net.Conv2d(x, {.num_filters = 6, .filter_size = 3, .groups = 3}); }),
            "conv2d: groups must divide the 8 channels of x, got 3");
}

TEST_F(BuilderTest, ConvolutionStartsAtPaddlesScale) {
  net.Conv2d(net.Data("x", {-1, 4, 9, 9}), {.num_filters = 2, .filter_size = {3, 5}});
  const OpDesc& fill = startup.Root().op(0);
  EXPECT_EQ(fill.type(), "gaussian_random");
  EXPECT_FLOAT_EQ(fill.GetAttr<float>("std", 0), std::sqrt(2.0f / (3 * 5 * 4)));
}

TEST_F(BuilderTest, SharesAParameterByName) {
  Variable x = net.Data("x", {-1, 4});
  Variable a = net.Fc(x, {.size = 4, .param_attr = {.name = "w"}, .bias_attr = std::nullopt});
  net.Fc(a, {.size = 4, .param_attr = {.name = "w"}, .bias_attr = std::nullopt});
  EXPECT_EQ(main.Parameters(), Names({"w"}));
  EXPECT_EQ(startup.Root().NumOps(), 1u);
  EXPECT_EQ(ErrorOf([&] { net.Fc(x, {.size = 3, .param_attr = {.name = "w"}}); }),
            "'w' is shared, so it must have the shape [4, 4], got [4, 3]");
  EXPECT_EQ(ErrorOf([&] { net.Fc(x, {.size = 3, .param_attr = {.name = "x"}}); }),
            "'x' is not a parameter, so no layer can share it as one");
}

// Layers that share a parameter agree on its training; a later one may say what was left open.
TEST_F(BuilderTest, SharedSettingsAgree) {
  Variable x = net.Data("x", {-1, 4});
  FcOptions fc = {.size = 4, .param_attr = {.name = "w"}, .bias_attr = std::nullopt};
  net.Fc(x, fc);
  fc.param_attr.learning_rate = 2;
  net.Fc(x, fc);
  EXPECT_EQ(VarOf("w").training().learning_rate, 2);
  net.Fc(x, {.size = 4, .param_attr = {.name = "w"}, .bias_attr = std::nullopt});
  EXPECT_EQ(VarOf("w").training().learning_rate, 2);
  fc.param_attr.learning_rate = 3;
  EXPECT_EQ(ErrorOf([&] { net.Fc(x, fc); }),
            "parameter 'w': layers that share it differ in learning_rate");
  fc.param_attr.learning_rate = 2;
  fc.param_attr.regularizer = L2DecayRegularizer(0.5);
  net.Fc(x, fc);
  EXPECT_EQ(VarOf("w").training().regularizer, L2DecayRegularizer(0.5));
  fc.param_attr.regularizer = L2DecayRegularizer(0.25);
  EXPECT_EQ(ErrorOf([&] { net.Fc(x, fc); }),
            "parameter 'w': layers that share it differ in regularizer");
}

TEST_F(BuilderTest, KeepsWhatAParameterSays) {
  Variable x = net.Data("x", {-1, 4});
  net.Fc(x, {.size = 2,
             .param_attr = {.initializer = NormalInitializer(0, 0.5),
                            .learning_rate = 2,
                            .regularizer = L2DecayRegularizer(0.1),
                            .gradient_clip = ClipGradByNorm(1)},
             .bias_attr = ParamAttr{.trainable = false}});
  const TrainingAttr& w = VarOf("fc_0.w_0").training();
  EXPECT_EQ(w.learning_rate, 2);
  EXPECT_EQ(w.regularizer->kind, "l2_decay");
  EXPECT_EQ(w.gradient_clip->kind, "by_norm");
  EXPECT_EQ(w.initializer->kind, "normal");
  EXPECT_EQ(main.Parameters(), Names({"fc_0.w_0"}));
  EXPECT_TRUE(VarOf("fc_0.b_0").stop_gradient());
  EXPECT_TRUE(VarOf("fc_0.b_0").is_parameter());
}

TEST_F(BuilderTest, BatchNormKeepsStatistics) {
  net.BatchNorm(net.Data("x", {-1, 3, 4, 4}), {.act = "relu", .output = "y"});
  EXPECT_EQ(main.Parameters(), Names({"batch_norm_0.w_0", "batch_norm_0.b_0"}));
  for (const char* name : {"batch_norm_0.w_1", "batch_norm_0.w_2"}) {
    EXPECT_TRUE(VarOf(name).persistable());
    EXPECT_TRUE(VarOf(name).stop_gradient());
    EXPECT_FALSE(VarOf(name).is_parameter());
    EXPECT_EQ(VarOf(name).shape(), Shape({3}));
  }
  const OpDesc& op = main.Root().op(0);
  EXPECT_EQ(op.Input("Mean"), op.Output("MeanOut"));
  EXPECT_EQ(op.Input("Variance"), op.Output("VarianceOut"));
  std::vector<float> values;
  for (size_t i = 0; i < 4; ++i) values.push_back(startup.Root().op(i).GetAttr<float>("value", -1));
  EXPECT_EQ(values, std::vector<float>({1, 0, 0, 1}));  // scale, bias, mean, variance
  VerifyOrThrow(main, DefaultOps());
}

TEST_F(BuilderTest, IsTestIsSetByCloneForTest) {
  Variable x = net.Data("x", {-1, 3, 4, 4});
  net.Dropout(net.BatchNorm(x));
  ProgramDesc test = main.CloneForTest();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_FALSE(main.Root().op(i).GetAttr<bool>("is_test", true)) << i;
    EXPECT_TRUE(test.Root().op(i).GetAttr<bool>("is_test", false)) << i;
  }
}

TEST_F(BuilderTest, LayerNormSizesItsParameters) {
  Variable x = net.Data("x", {-1, 3, 4});
  EXPECT_EQ(net.LayerNorm(x).shape(), x.shape());
  EXPECT_EQ(VarOf("layer_norm_0.w_0").shape(), Shape({12}));
  net.LayerNorm(x, {.scale = false, .begin_norm_axis = 2});
  EXPECT_EQ(VarOf("layer_norm_1.b_0").shape(), Shape({4}));
  EXPECT_FALSE(main.Root().FindVar("layer_norm_1.w_0"));
}

TEST_F(BuilderTest, NormsHaveTheirEpsilon) {
  const Variable x = net.Data("x", {-1, 3, 4, 4});
  const auto epsilon = [&] { return LastOp().GetAttr<float>("epsilon", 0); };
  net.BatchNorm(x, {.epsilon = 0.25f});
  EXPECT_EQ(epsilon(), 0.25f);
  net.LayerNorm(x, {.epsilon = 0.5f});
  EXPECT_EQ(epsilon(), 0.5f);
  net.InstanceNorm(x, {.epsilon = 0.0005f});
  EXPECT_EQ(epsilon(), 0.0005f);
}

TEST_F(BuilderTest, Embedding) {
  Variable ids = net.Data("ids", {-1, 7}, DType::kInt64);
  Variable out = net.Embedding(ids, {.num_embeddings = 100, .embedding_dim = 8, .padding_idx = -1});
  EXPECT_EQ(out.shape(), Shape({-1, 7, 8}));
  EXPECT_EQ(LastOp().GetAttr<int64_t>("padding_idx", 0), 99);
  EXPECT_EQ(ErrorOf([&] {
              net.Embedding(ids, {.num_embeddings = 4, .embedding_dim = 2, .padding_idx = 4});
            }),
            "embedding: padding_idx must lie in [-4, 4), got 4");
}

TEST_F(BuilderTest, AccuracyOfTheHighest) {
  Variable x = net.Data("x", {-1, 10}), label = net.Data("label", {-1, 1}, DType::kInt64);
  Variable accuracy = net.Accuracy(x, label, {.k = 5, .output = "acc"});
  EXPECT_EQ(accuracy.name(), "acc");
  EXPECT_EQ(OpTypes(main), Names({"top_k", "accuracy"}));
  EXPECT_EQ(main.Root().op(0).GetAttr<int32_t>("k", 0), 5);
  EXPECT_TRUE(accuracy.desc().stop_gradient());
}

TEST_F(BuilderTest, ShapesOfTheOthers) {
  Variable x = net.Data("x", {-1, 3, 4}), y = net.Data("y", {-1, 4, 5});
  EXPECT_EQ(net.Reshape(x, {0, -1}).shape(), Shape({-1, 12}));
  EXPECT_EQ(net.Flatten(x).shape(), Shape({-1, 12}));
  EXPECT_EQ(net.Transpose(x, {0, 2, 1}).shape(), Shape({-1, 4, 3}));
  EXPECT_EQ(net.Unsqueeze(x, {1}).shape(), Shape({-1, 1, 3, 4}));
  EXPECT_EQ(net.Squeeze(net.Unsqueeze(x, {1}), {1}).shape(), Shape({-1, 3, 4}));
  EXPECT_EQ(net.Matmul(x, y).shape(), Shape({-1, 3, 5}));
  EXPECT_EQ(net.Matmul(x, x, {.transpose_y = true}).shape(), Shape({-1, 3, 3}));
  EXPECT_EQ(net.Concat({x, x}, {.axis = 1}).shape(), Shape({-1, 6, 4}));
  EXPECT_EQ(net.Stack({x, x}).shape(), Shape({2, -1, 3, 4}));
  std::vector<Variable> parts =
      net.Split(x, {.sections = {1, 3}, .axis = 2, .outputs = {"left", "right"}});
  EXPECT_EQ(parts[0].shape(), Shape({-1, 3, 1}));
  EXPECT_EQ(parts[1].name(), "right");
  EXPECT_EQ(net.Split(x, {.num = 2})[1].shape(), Shape({-1, 3, 2}));
  EXPECT_EQ(net.ReduceSum(x).shape().numel(), 1);
  EXPECT_EQ(net.ReduceMean(x, {.dim = {1}, .keep_dim = true}).shape(), Shape({-1, 1, 4}));
  EXPECT_EQ(net.ReduceMax(x, {.dim = {-1}}).shape(), Shape({-1, 3}));
  EXPECT_EQ(net.Cast(x, DType::kInt32).dtype(), DType::kInt32);
  EXPECT_EQ(net.Add(x, x).shape(), x.shape());
  EXPECT_EQ(net.Scale(x, {.scale = 2, .bias = 1}).shape(), x.shape());
  EXPECT_EQ(net.Softmax(x).shape(), x.shape());
  EXPECT_EQ(net.Gelu(x, true).shape(), x.shape());
  EXPECT_EQ(net.OneHot(net.Data("i", {-1, 2}, DType::kInt64), 7).shape(), Shape({-1, 2, 7}));
  EXPECT_EQ(net.SquareErrorCost(x, x).shape(), x.shape());
  VerifyOrThrow(main, DefaultOps());
}

TEST_F(BuilderTest, AnOpThatDoesNotFitIsNotAppended) {
  net.Data("x", {-1, 4});
  net.Data("w", {5, 2});
  size_t vars = main.Root().NumVars();
  std::string error = ErrorOf([&] {
    net.Append("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"out"}}});
  });
  EXPECT_NE(error.find("[mul.C3], got 4 vs 5"), std::string::npos) << error;
  EXPECT_EQ(main.Root().NumOps(), 0u);
  EXPECT_EQ(main.Root().NumVars(), vars);
  EXPECT_EQ(ErrorOf([&] {
              net.Append("mul", {{"X", {"x"}}}, {{"Out", {"out"}}});
            }),
            "mul: input Y is required");
  EXPECT_NE(ErrorOf([&] { net.Append("mull", {}, {}); }).find("mul"), std::string::npos);
}

TEST_F(BuilderTest, AppendWritesTheDefaults) {
  net.Data("x", {-1, 4});
  net.Data("w", {4, 2});
  const OpDesc& op = net.Append("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"out"}}});
  EXPECT_EQ(op.attrs(), (AttrList{{"x_num_col_dims", 1}, {"y_num_col_dims", 1}}));
}

// A block that is not given is none: `call` would take the default for its gradient.
TEST_F(BuilderTest, AppendNamesNoBlockOfItsOwn) {
  BlockDesc& function = main.AppendBlock(0);
  function.Var("p").SetShape({2});
  const Variable x = net.Data("x", {2});
  net.block().Var("y");
  net.Append("call", {{"X", {x.name()}}}, {{"Out", {"y"}}},
             {{"sub_block", BlockRef{1}}, {"parameters", Names{"p"}}, {"results", Names{"p"}}});
  EXPECT_FALSE(LastOp().HasAttr("gradient_block"));
  EXPECT_TRUE(LastOp().HasAttr("gradient_function"));
  EXPECT_TRUE(Verify(main, DefaultOps()).empty());
}

TEST_F(BuilderTest, ActAndOutputAreChecked) {
  Variable x = net.Data("x", {-1, 4});
  EXPECT_EQ(ErrorOf([&] { net.Fc(x, {.size = 2, .act = "reluu"}); }),
            "fc: act 'reluu' is not an activation op; did you mean relu?");
  EXPECT_EQ(ErrorOf([&] { net.Fc(x, {.size = 2, .output = "x"}); }),
            "fc: its output 'x' is the name of another variable; choose one that is free");
  EXPECT_EQ(main.Root().NumOps(), 0u);
}

TEST_F(BuilderTest, OpsKnowWhereTheyComeFrom) {
  net.SetSite("lenet.pbtxt:14:9");
  net.Fc(net.Data("x", {-1, 4}), {.size = 2});
  EXPECT_EQ(main.Root().op(0).creation_site(), "lenet.pbtxt:14:9");
  EXPECT_EQ(startup.Root().op(0).creation_site(), "lenet.pbtxt:14:9");
  EXPECT_EQ(VarOf("fc_0.w_0").training().creation_site, "lenet.pbtxt:14:9");
}

TEST_F(BuilderTest, TwoProgramsShareAStartupProgram) {
  net.Fc(net.Data("x", {-1, 4}), {.size = 2});
  ProgramDesc other;
  Builder second(other, startup);
  second.Fc(second.Data("x", {-1, 4}), {.size = 2});
  EXPECT_EQ(other.Parameters(), main.Parameters());
  EXPECT_EQ(startup.Root().NumOps(), 2u);
}

TEST_F(BuilderTest, NamesFollowTheLayersName) {
  net.Fc(net.Data("x", {-1, 4}), {.size = 2, .act = "relu", .name = "top"});
  EXPECT_EQ(main.Parameters(), Names({"top.w_0", "top.b_0"}));
  EXPECT_EQ(LastOp().Output("Out"), Names({"top.tmp_2"}));
}

// An empty Variable in each place of a layer, of a formula and of control flow.
TEST_F(BuilderTest, EmptyVariablesAreRefused) {
  const Variable none, x = net.Data("x", {-1, 4});
  const std::function<void()> calls[] = {
      [&] { net.Relu(none); },
      [&] { net.Fc(none, {.size = 3}); },
      [&] {
        net.Fc({x, none}, {.size = 3});
      },
      [&] { net.Add(x, none); },
      [&] {
        net.Concat({none, x});
      },
      [&] { net.Sum({none}); },
      [&] { net.Cast(none, DType::kInt64); },
      [&] { net.Reshape(none, {1}); },
      [&] { net.BatchNorm(none); },
      [&] { net.Program({none}, {}); },
      [&] { none + none; },
      [&] { x + none; },
      [&] { none * 2.0; },
      [&] { 2.0 / none; },
      [&] { While(net, none, [] {}); },
      [&] { If(net, none, [] {}); },
      [&] { Assign(net, x, none); },
      [&] { ArrayRead(net, none, x); },
      [&] { StaticRnn(net).StepInput(none); },
  };
  const ProgramDesc before = main;
  for (const auto& call : calls) EXPECT_NE(ErrorOf(call), "no error");
  EXPECT_TRUE(main == before);
}

TEST_F(BuilderTest, EmptyBodiesAreRefused) {
  const Variable yes = FillConstant(net, {1}, DType::kBool, 1);
  const std::string error = ": the function that makes its ops is empty";
  EXPECT_EQ(ErrorOf([&] { While(net, yes, nullptr); }), "while" + error);
  EXPECT_EQ(ErrorOf([&] { If(net, yes, nullptr); }), "if" + error);
  EXPECT_EQ(ErrorOf([&] { Cond(net, yes, nullptr, nullptr); }), "cond" + error);
  EXPECT_EQ(ErrorOf([&] { Switch(net).Case(yes, nullptr); }), "switch" + error);
  EXPECT_EQ(ErrorOf([&] { StaticRnn(net).Step(nullptr); }), "static_rnn" + error);
}

// A layer of several ops that is refused at a late one, and a body that throws.
TEST_F(BuilderTest, ARefusedLayerLeavesNothing) {
  const Variable x = net.Data("x", {-1, 4}), ids = net.Data("ids", {-1, 1}, DType::kInt64);
  const Variable yes = FillConstant(net, {1}, DType::kBool, 1);
  const ProgramDesc before = main, startup_before = startup;
  EXPECT_NE(ErrorOf([&] { net.Fc(x, {.size = 3, .act = "no_such_op"}); }), "no error");
  EXPECT_NE(ErrorOf([&] { net.Fc({x, ids}, {.size = 3}); }), "no error");
  EXPECT_NE(ErrorOf([&] {
              While(net, yes, [&] {
                net.Fc(x, {.size = 3});
                ThrowInvalid("mine");
              });
            }),
            "no error");
  EXPECT_NE(ErrorOf([&] { While(net, yes, [&] { net.Relu(x); }); }), "no error");
  EXPECT_TRUE(main == before);
  EXPECT_TRUE(startup == startup_before);
  EXPECT_EQ(net.Fc(x, {.size = 3}).shape(), (Shape{-1, 3}));
}

// A refused Step leaves nothing in the program, and another one may follow.
TEST_F(BuilderTest, ARefusedStepCanBeMadeAgain) {
  net.Data("x", {5, 3, 4});
  net.Data("h0", {3, 4});
  const Variable lengths = net.Data("lengths", {3}, DType::kInt64);
  ProgramDesc other_main = main, other_startup = startup;
  const auto step = [&](Builder& to, StaticRnn& rnn, bool refuse) {
    const Variable h = rnn.Memory(to.Var("h0"));
    const Variable next = to.Add(h, rnn.StepInput(to.Var("x")));
    rnn.UpdateMemory(h, next);
    rnn.StepOutput(next);
    if (refuse) ThrowInvalid("mine");
  };
  StaticRnn rnn(net, {.lengths = lengths});
  EXPECT_EQ(ErrorOf([&] { rnn.Step([&] { step(net, rnn, true); }); }), "mine");
  EXPECT_TRUE(rnn.Outputs().empty());
  EXPECT_EQ(ErrorOf([&] { rnn.Step([&] { step(net, rnn, false); }); }), "no error");
  ASSERT_EQ(rnn.Outputs().size(), 1u);
  Builder other(other_main, other_startup);
  StaticRnn direct(other, {.lengths = other.Var("lengths")});
  direct.Step([&] { step(other, direct, false); });
  EXPECT_TRUE(main == other_main);
}

// The body catches what one of its calls throws, and goes on without it.
TEST_F(BuilderTest, AStepGoesOnAfterARefusedCall) {
  const Variable x = net.Data("x", {5, 3, 4}), h0 = net.Data("h0", {3, 4});
  ProgramDesc foreign, foreign_startup;
  Builder abroad(foreign, foreign_startup);
  const Variable lengths = abroad.Data("lengths", {3}, DType::kInt64);
  StaticRnn with_lengths(net, {.lengths = lengths});
  EXPECT_EQ(ErrorOf([&] {
              with_lengths.Step([&] {
                const BlockDesc* inner = &net.block();
                EXPECT_NE(ErrorOf([&] { with_lengths.StepInput(x); }), "no error");
                EXPECT_EQ(&net.block(), inner);
                ThrowInvalid("mine");
              });
            }),
            "mine");
  EXPECT_EQ(&net.block(), &main.Root());
  StaticRnn rnn(net);
  rnn.Step([&] {
    const Variable slice = rnn.StepInput(x), h = rnn.Memory(h0, "h");
    EXPECT_NE(ErrorOf([&] { rnn.StepInput(x); }), "no error");
    EXPECT_NE(ErrorOf([&] { rnn.Memory(h0, "h"); }), "no error");
    EXPECT_NE(ErrorOf([&] { rnn.StepOutput(h, "h"); }), "no error");
    rnn.UpdateMemory(h, net.Add(h, slice));
    rnn.StepOutput(h);
  });
  EXPECT_EQ(rnn.Outputs().size(), 1u);
  EXPECT_EQ(main.Root().SubBlockOps()[0]->Input("inputs"), std::vector<std::string>{"x"});
}

}  // namespace coracle::builder_test

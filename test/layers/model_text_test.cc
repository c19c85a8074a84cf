// Model text and the builder functions must give the same programs.

#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/layer.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace coracle::model_text_test {

// The program without the places where its parts were made.
ProgramDesc WithoutSites(ProgramDesc program) {
  BlockDesc& block = program.Root();
  for (size_t i = 0; i < block.NumOps(); ++i) block.op(i).RemoveAttr(kOpCallstackAttr);
  for (size_t i = 0; i < block.NumVars(); ++i) block.var(i).MutableTraining().creation_site = "";
  return program;
}

constexpr const char* kInputs = R"(
  data { name: "x" shape: [-1, 4, 6, 6] }
  data { name: "v" shape: [-1, 8] }
  data { name: "ids" shape: [-1, 3] dtype: INT64 }
  data { name: "label" shape: [-1, 1] dtype: int64 }
)";

struct Inputs {
  Variable x, v, ids, label;
};

using Build = void (*)(Builder&, const Inputs&);

struct Case {
  const char* name;
  const char* text;
  Build build;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class SameProgram : public ::testing::TestWithParam<Case> {};

TEST_P(SameProgram, AsTheBuilder) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Inputs in;
  in.x = net.Data("x", {-1, 4, 6, 6});
  in.v = net.Data("v", {-1, 8});
  in.ids = net.Data("ids", {-1, 3}, DType::kInt64);
  in.label = net.Data("label", {-1, 1}, DType::kInt64);
  GetParam().build(net, in);
  BuiltModel model = ParseModelText(std::string(kInputs) + GetParam().text);
  EXPECT_GT(model.main.Root().NumOps(), 0u);
  EXPECT_TRUE(WithoutSites(model.main) == WithoutSites(main))
      << ProgramToText(WithoutSites(model.main)) << "\n--- builder ---\n"
      << ProgramToText(WithoutSites(main));
  EXPECT_TRUE(WithoutSites(model.startup) == WithoutSites(startup))
      << ProgramToText(WithoutSites(model.startup));
  VerifyOrThrow(model.main, DefaultOps());
}

const Case kCases[] = {
    {"fc", R"(layer { fc { input: "v" size: 3 } })",
     [](Builder& net, const Inputs& in) { net.Fc(in.v, {.size = 3}); }},
    {"fc_all", R"(layer { fc {
        input: ["v", "x"] size: 3 act: "relu" name: "top" output: "h" bias_term: false
        param {
          name: "w" learning_rate: 0.5 trainable: true
          initializer { normal { std: 0.01 seed: 4 } }
          regularizer { l2_decay { coeff: 0.25 } }
          gradient_clip { by_value { max: 2 min: -1 } }
        }
        error_clip { by_norm { max_norm: 3 } }
        stop_gradient: true
      } })",
     [](Builder& net, const Inputs& in) {
       net.Fc({in.v, in.x}, {.size = 3,
                             .param_attr = {.name = "w",
                                            .initializer = NormalInitializer(0, 0.01, 4),
                                            .learning_rate = 0.5,
                                            .regularizer = L2DecayRegularizer(0.25),
                                            .gradient_clip = ClipGradByValue(2, -1)},
                             .bias_attr = std::nullopt,
                             .act = "relu",
                             .name = "top",
                             .output = "h",
                             .error_clip = ErrorClipByNorm(3),
                             .stop_gradient = true});
     }},
    {"fc_flatten", R"(layer { fc { input: "x" size: 3 num_flatten_dims: 2
                                   bias { initializer { constant { value: 1 } } } } })",
     [](Builder& net, const Inputs& in) {
       net.Fc(in.x, {.size = 3,
                     .num_flatten_dims = 2,
                     .bias_attr = ParamAttr{.initializer = ConstantInitializer(1)}});
     }},
    {"conv2d", R"(layer { conv2d { input: "x" num_filters: 6 filter_size: [3, 1] stride: 2
                                   padding: [1, 0] dilation: 1 groups: 2 act: "relu" } })",
     [](Builder& net, const Inputs& in) {
       net.Conv2d(in.x, {.num_filters = 6,
                         .filter_size = {3, 1},
                         .stride = 2,
                         .padding = {1, 0},
                         .groups = 2,
                         .act = "relu"});
     }},
    {"conv2d_same", R"(layer { conv2d { input: "x" num_filters: 4 filter_size: 3 groups: 4
                                        padding_algorithm: "SAME" bias_term: false } })",
     [](Builder& net, const Inputs& in) {
       net.Conv2d(in.x, {.num_filters = 4,
                         .filter_size = 3,
                         .padding = "SAME",
                         .groups = 4,
                         .bias_attr = std::nullopt});
     }},
    {"pool2d", R"(layer { pool2d { input: "x" pool_size: 2 pool_stride: 2 } })",
     [](Builder& net, const Inputs& in) { net.Pool2d(in.x, {.pool_size = 2, .pool_stride = 2}); }},
    {"pool2d_global",
     R"(layer { pool2d { input: "x" pool_type: "avg" global_pooling: true exclusive: false } })",
     [](Builder& net, const Inputs& in) {
       net.Pool2d(in.x, {.pool_type = "avg", .global_pooling = true, .exclusive = false});
     }},
    {"batch_norm", R"(layer { batch_norm { input: "x" momentum: 0.8 epsilon: 0.001 act: "relu"
                                           moving_mean_name: "m" } })",
     [](Builder& net, const Inputs& in) {
       net.BatchNorm(in.x,
                     {.momentum = 0.8f, .epsilon = 0.001f, .moving_mean_name = "m", .act = "relu"});
     }},
    {"lstm", R"(
        layer { embedding { input: "ids" num_embeddings: 10 embedding_dim: 4 output: "e" } }
        data { name: "h0" shape: [4, -1, 6] }
        layer { lstm { input: "e" hidden_size: 6 num_layers: 2 direction: "bidirect" dropout: 0.5
                       initial_h: "h0" initial_c: "h0" weight_hh { name: "u" } last_c: "c"
                       output: "y" } })",
     [](Builder& net, const Inputs& in) {
       Variable h0 = net.Data("h0", {4, -1, 6});
       Variable e =
           net.Embedding(in.ids, {.num_embeddings = 10, .embedding_dim = 4, .output = "e"});
       net.Lstm(e, {.hidden_size = 6,
                    .num_layers = 2,
                    .direction = "bidirect",
                    .dropout = 0.5f,
                    .initial_states = {h0, h0},
                    .weight_hh_attr = {.name = "u"},
                    .last_c = "c",
                    .output = "y"});
     }},
    {"gru_and_simple_rnn", R"(
        layer { embedding { input: "ids" num_embeddings: 10 embedding_dim: 4 output: "e" } }
        layer { gru { input: "e" hidden_size: 6 time_major: true bias_term: false output: "g" } }
        layer { simple_rnn { input: "g" hidden_size: 5 activation: "relu" last_h: "h" } })",
     [](Builder& net, const Inputs& in) {
       Variable e =
           net.Embedding(in.ids, {.num_embeddings = 10, .embedding_dim = 4, .output = "e"});
       RnnOutput g = net.Gru(e, {.hidden_size = 6,
                                 .time_major = true,
                                 .bias_ih_attr = std::nullopt,
                                 .bias_hh_attr = std::nullopt,
                                 .output = "g"});
       net.SimpleRnn(g.out, {.hidden_size = 5, .activation = "relu", .last_h = "h"});
     }},
    {"layer_norm", R"(layer { layer_norm { input: "v" shift: false } })",
     [](Builder& net, const Inputs& in) { net.LayerNorm(in.v, {.shift = false}); }},
    {"embedding", R"(layer { embedding { input: "ids" num_embeddings: 10 embedding_dim: 4
                                         padding_idx: -1 is_sparse: true
                                         param { initializer { xavier { uniform: false } } } } })",
     [](Builder& net, const Inputs& in) {
       net.Embedding(in.ids,
                     {.num_embeddings = 10,
                      .embedding_dim = 4,
                      .padding_idx = -1,
                      .is_sparse = true,
                      .param_attr = {.initializer = XavierInitializer({.uniform = false})}});
     }},
    {"dropout", R"(layer { dropout { input: "v" dropout_prob: 0.2 seed: 5
                                     dropout_implementation: "upscale_in_train" } })",
     [](Builder& net, const Inputs& in) {
       net.Dropout(in.v,
                   {.dropout_prob = 0.2f, .seed = 5, .dropout_implementation = "upscale_in_train"});
     }},
    {"activations",
     R"(layer { relu { input: "v" } } layer { leaky_relu { input: "v" alpha: 0.1 } }
        layer { sigmoid { input: "v" } } layer { tanh { input: "v" } }
        layer { gelu { input: "v" approximate: true } } layer { softmax { input: "x" axis: 1 } }
        layer { log_softmax { input: "v" output: "ls" } } layer { exp { input: "v" } })",
     [](Builder& net, const Inputs& in) {
       net.Relu(in.v);
       net.LeakyRelu(in.v, 0.1f);
       net.Sigmoid(in.v);
       net.Tanh(in.v);
       net.Gelu(in.v, true);
       net.Softmax(in.x, 1);
       net.LogSoftmax(in.v, -1, {.output = "ls"});
       net.Activation(in.v, "exp");
     }},
    {"losses",
     R"(layer { softmax { input: "v" output: "p" } }
        layer { cross_entropy { input: "p" label: "label" ignore_index: 3 } }
        layer { softmax_with_cross_entropy { logits: "v" label: "label" softmax_output: "s" } }
        layer { sigmoid_cross_entropy_with_logits { input: "v" label: "p" normalize: true } }
        layer { square_error_cost { input: "v" label: "p" output: "sq" } }
        layer { mean { input: "sq" } }
        layer { accuracy { input: "p" label: "label" k: 2 output: "acc" } })",
     [](Builder& net, const Inputs& in) {
       Variable p = net.Softmax(in.v, -1, {.output = "p"});
       net.CrossEntropy(p, in.label, {.ignore_index = 3});
       net.SoftmaxWithCrossEntropy(in.v, in.label, {.softmax_output = "s"});
       net.SigmoidCrossEntropyWithLogits(in.v, p, {.normalize = true});
       net.Mean(net.SquareErrorCost(in.v, p, {.output = "sq"}));
       net.Accuracy(p, in.label, {.k = 2, .output = "acc"});
     }},
    {"arithmetic",
     R"(layer { elementwise_add { x: "v" y: "v" } } layer { elementwise_sub { x: "v" y: "v" } }
        layer { elementwise_mul { x: "v" y: "v" } } layer { elementwise_div { x: "v" y: "v" } }
        layer { elementwise_max { x: "v" y: "v" } }
        layer { elementwise_min { x: "v" y: "v" axis: 0 act: "relu" } }
        layer { matmul { x: "v" y: "v" transpose_y: true alpha: 2 } }
        layer { scale { input: "v" scale: 2 bias: 1 bias_after_scale: false } }
        layer { sum { input: "v" input: "v" } } layer { cast { input: "v" dtype: FP64 } })",
     [](Builder& net, const Inputs& in) {
       net.Add(in.v, in.v);
       net.Sub(in.v, in.v);
       net.Mul(in.v, in.v);
       net.Div(in.v, in.v);
       net.Max(in.v, in.v);
       net.Min(in.v, in.v, {.axis = 0, .act = "relu"});
       net.Matmul(in.v, in.v, {.transpose_y = true, .alpha = 2});
       net.Scale(in.v, {.scale = 2, .bias = 1, .bias_after_scale = false});
       net.Sum({in.v, in.v});
       net.Cast(in.v, DType::kFloat64);
     }},
    {"reductions",
     R"(layer { reduce_sum { input: "x" } } layer { reduce_mean { input: "x" dim: [1, 2] } }
        layer { reduce_max { input: "x" dim: -1 keep_dim: true } } layer { reduce_min { input: "x" } })",
     [](Builder& net, const Inputs& in) {
       net.ReduceSum(in.x);
       net.ReduceMean(in.x, {.dim = {1, 2}});
       net.ReduceMax(in.x, {.dim = {-1}, .keep_dim = true});
       net.ReduceMin(in.x);
     }},
    {"shapes",
     R"(layer { reshape { input: "x" shape: [0, -1] } } layer { flatten { input: "x" start_axis: 2 } }
        layer { transpose { input: "x" axis: [0, 2, 3, 1] } }
        layer { unsqueeze { input: "v" axes: 1 output: "u" } }
        layer { squeeze { input: "u" axes: 1 } }
        layer { concat { input: ["v", "v"] axis: 1 } } layer { stack { input: ["v", "v"] axis: 1 } }
        layer { split { input: "v" num: 2 output: ["a", "b"] } }
        layer { split { input: "x" sections: [1, 3] axis: 1 } }
        layer { one_hot { input: "ids" depth: 9 } })",
     [](Builder& net, const Inputs& in) {
       net.Reshape(in.x, {0, -1});
       net.Flatten(in.x, {.start_axis = 2});
       net.Transpose(in.x, {0, 2, 3, 1});
       net.Squeeze(net.Unsqueeze(in.v, {1}, {.output = "u"}), {1});
       net.Concat({in.v, in.v}, {.axis = 1});
       net.Stack({in.v, in.v}, 1);
       net.Split(in.v, {.num = 2, .outputs = {"a", "b"}});
       net.Split(in.x, {.sections = {1, 3}, .axis = 1});
       net.OneHot(in.ids, 9);
     }},
    {"op",
     R"(layer { op { clip { X: ["v"] Out: ["c"] min: -1 max: 1 } } }
        layer { op { clip_grad { X: "v" Out_GRAD: "c" X_GRAD: "d" min: -1 max: 1 }
                     op_role: 1 stop_gradient: true error_clip { by_value { max: 1 } } } })",
     [](Builder& net, const Inputs&) {
       net.Append("clip", {{"X", {"v"}}}, {{"Out", {"c"}}}, {{"min", -1.f}, {"max", 1.f}});
       net.Append("clip_grad", {{"X", {"v"}}, {"Out@GRAD", {"c"}}}, {{"X@GRAD", {"d"}}},
                  {{"min", -1.f}, {"max", 1.f}, {"op_role", 1}});
       net.Var("d").desc().SetErrorClip(ErrorClipByValue(1));
       net.Var("d").desc().SetStopGradient(true);
     }},
    {"constants",
     R"(layer { fill_constant { shape: [2, 3] value: 1.5 dtype: float64 output: "k" } })",
     [](Builder& net, const Inputs&) {
       net.Make("fill_constant", {},
                {{"shape", std::vector<int64_t>{2, 3}},
                 {"value", 1.5f},
                 {"dtype", static_cast<int32_t>(DType::kFloat64)}},
                {.output = "k"});
     }},
    {"initializers",
     R"(layer { fc { input: "v" size: 2 param { initializer { uniform { low: -2 high: 2 } } } } }
        layer { fc { input: "v" size: 2 param { initializer { truncated_normal { std: 2 } } } } }
        layer { fc { input: "v" size: 2 param { initializer { msra { fan_in: 3 } } } } }
        layer { fc { input: "v" size: 2 bias { initializer { array { values: [1, 2] } } } } })",
     [](Builder& net, const Inputs& in) {
       net.Fc(in.v, {.size = 2, .param_attr = {.initializer = UniformInitializer(-2, 2)}});
       net.Fc(in.v, {.size = 2, .param_attr = {.initializer = TruncatedNormalInitializer(0, 2)}});
       net.Fc(in.v, {.size = 2, .param_attr = {.initializer = MsraInitializer({.fan_in = 3})}});
       net.Fc(in.v, {.size = 2,
                     .bias_attr = ParamAttr{.initializer =
                                                ArrayInitializer(Tensor::Of<float>({2}, {1, 2}))}});
     }},
    {"parameter",
     R"(layer { parameter { shape: [2, 8] output: "slope" } }
        layer { parameter { shape: [8] param { name: "shift" learning_rate: 2
                                               initializer { constant { value: 3 } } } } }
        layer { parameter { shape: [3] name: "layer" dtype: FP64 } }
        layer { op { elementwise_add { X: "v" Y: "shift" Out: "z" } } })",
     [](Builder& net, const Inputs& in) {
       net.Parameter("", {2, 8}, DType::kFloat32, {.name = "slope"});
       net.Parameter("", {8}, DType::kFloat32,
                     {.name = "shift", .initializer = ConstantInitializer(3), .learning_rate = 2});
       net.Parameter("layer.w", {3}, DType::kFloat64);
       net.Append("elementwise_add", {{"X", {in.v.name()}}, {"Y", {"shift"}}}, {{"Out", {"z"}}});
     }},
    {"repeat",
     R"(layer { fc { input: "v" size: 8 output: "h0" } }
        layer { repeat { times: 3 layer { fc { input: "h$i" size: 8 output: "h${i+1}"
                                               param { name: "w_$i" } } } } })",
     [](Builder& net, const Inputs& in) {
       Variable h = net.Fc(in.v, {.size = 8, .output = "h0"});
       for (int i = 0; i < 3; ++i) {
         h = net.Fc(h, {.size = 8,
                        .param_attr = {.name = "w_" + std::to_string(i)},
                        .output = "h" + std::to_string(i + 1)});
       }
     }},
    {"repeat_nested",
     R"(layer { repeat { times: 2 layer { repeat { times: 2 index: "j" start: 5
          layer { clip { input: "v" min: 0 max: 1 output: "c$i_${ j - 1 }$$" } } } } } })",
     [](Builder& net, const Inputs& in) {
       for (const char* name : {"c0_4$", "c0_5$", "c1_4$", "c1_5$"}) {
         net.Unary("clip", in.v, {{"min", 0.f}, {"max", 1.f}}, {.output = name});
       }
     }},
};

INSTANTIATE_TEST_SUITE_P(ModelText, SameProgram, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ModelText, NameAndInputs) {
  BuiltModel model = ParseModelText(R"(
    # a comment
    name: "tiny"
    data { name: "b" shape: [2] dtype: bool lod_level: 1 }
    data { name: "a" stop_gradient: false error_clip { by_value { max: 2 min: -1 } } })");
  EXPECT_EQ(model.name, "tiny");
  EXPECT_EQ(model.inputs, std::vector<std::string>({"b", "a"}));
  const VarDesc& b = *model.main.Root().FindVar("b");
  EXPECT_EQ(b.dtype(), DType::kBool);
  EXPECT_EQ(b.lod_level(), 1);
  const VarDesc& a = *model.main.Root().FindVar("a");
  EXPECT_EQ(a.shape(), Shape());
  EXPECT_FALSE(a.stop_gradient());
  EXPECT_EQ(a.error_clip()->Save(), ErrorClipByValue(2, -1).Save());
}

TEST(ModelText, OpsKnowTheirPlace) {
  BuiltModel model = ParseModelText(
      "data { name: \"v\" shape: [-1, 8] }\n"
      "layer { fc { input: \"v\" size: 3 } }\n"
      "layer {\n\top { clip { X: \"v\" Out: \"c\" min: 0 max: 1 } } }\n",
      "net.pbtxt");
  EXPECT_EQ(model.main.Root().op(0).creation_site(), "net.pbtxt:2:9");
  EXPECT_EQ(model.main.Root().op(2).creation_site(), "net.pbtxt:4:7");  // a tab is one column
}

class CustomClip : public BaseErrorClipAttr {
 public:
  explicit CustomClip(double x) : x_(x) {}
  void AppendClipOp(BlockDesc&, const std::string&) const override {}
  std::optional<Setting> Save() const override { return Setting{"text_custom", {{"x", x_}}}; }

 private:
  double x_;
};

TEST(ModelText, CustomErrorClip) {
  RegisterErrorClip("text_custom", [](const Setting& s) -> ErrorClipPtr {
    return std::make_shared<CustomClip>(s.Get<double>("x", 0));
  });
  BuiltModel model = ParseModelText(R"(
    data { name: "v" error_clip { custom { kind: "text_custom" attr { name: "x" f: 2.5 } } } })");
  EXPECT_EQ(model.main.Root().FindVar("v")->error_clip()->Save(), CustomClip(2.5).Save());
}

TEST(ModelText, UserOpsAreLayersAndOps) {
  OpRegistry ops;
  ops.Add(OpDef("twice")
              .Doc("Out = 2 X.")
              .Input("X", "tensor")
              .Output("Out", "tensor")
              .Attr<float>("factor", 2, "the factor")
              .Attr<std::vector<Scalar>>("numbers", std::vector<Scalar>(), "numbers")
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .NoGradient("a test"));
  BuiltModel model = ParseModelText(R"(
    data { name: "v" shape: [2] }
    layer { twice { input: "v" factor: 3 numbers: [0.5, -2, 1e300] output: "a" } }
    layer { op { twice { X: "a" Out: "b" } } })",
                                    "model", ".", ops);
  EXPECT_EQ(model.main.Root().op(0).GetAttr<float>("factor", 0), 3);
  EXPECT_EQ(model.main.Root().op(0).GetAttr("numbers", std::vector<Scalar>()),
            (std::vector<Scalar>{{0.5}, {-2.0}, {1e300}}));
  EXPECT_EQ(model.main.Root().op(1).GetAttr<float>("factor", 0), 2);
  EXPECT_EQ(model.main.Root().FindVar("b")->shape(), Shape({2}));
  EXPECT_NE(ModelSchema(ops).find("message twice_layer"), std::string::npos);
}

TEST(ModelText, OpsThatJoinTheDefaultOnesAppear) {
  const std::string text =
      "data { name: \"v\" shape: [2] } layer { layers_test_op { input: \"v\" output: \"a\" } }";
  EXPECT_THROW(ParseModelText(text), Error);
  DefaultOps().Add(OpDef("layers_test_op")
                       .Doc("Out = X.")
                       .Input("X", "tensor")
                       .Output("Out", "tensor")
                       .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
                       .NoGradient("a test"));
  EXPECT_EQ(ParseModelText(text).main.Root().FindVar("a")->shape(), Shape({2}));
}

TEST(ModelText, ProgramTextIsTakenToo) {
  ProgramDesc program;
  program.Root().Var("x");
  program.Root().AppendOp("feed", {{"X", {"feed"}}}, {{"Out", {"x"}}}, {{"col", 0}});
  EXPECT_TRUE(ParseModelText("\xEF\xBB\xBF" + ProgramToText(program)).main == program);
  BuiltModel model = ParseModelText("# a comment\n" + ProgramToText(program));
  EXPECT_TRUE(model.main == program);
  EXPECT_EQ(model.inputs, std::vector<std::string>({"x"}));
  EXPECT_EQ(model.startup.Root().NumOps(), 0u);
  EXPECT_TRUE(ParseModelText(SerializeProgram(program)).main == program);
}

// A directory of its own for texts that include each other.
class IncludeTest : public ::testing::Test {
 protected:
  IncludeTest() {
    char name[] = "/tmp/coracle_layers_XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~IncludeTest() override { std::filesystem::remove_all(directory_); }
  std::string Write(const std::string& name, const std::string& text) {
    std::string path = directory_ + "/" + name;
    WriteFileAtomic(path, text);
    return path;
  }
  std::string ErrorOf(const std::string& path) {
    try {
      ReadModelText(path);
    } catch (const Error& error) {
      std::string text = error.what();
      for (size_t at; (at = text.find(directory_ + "/")) != std::string::npos;) {
        text.erase(at, directory_.size() + 1);
      }
      return text;
    }
    return "no error";
  }
  std::string directory_;
};

TEST_F(IncludeTest, SplicesEntriesInPlace) {
  Write("parts/block.pbtxt",
        "data { name: \"y\" shape: [2] }\n"
        "layer { include: \"inner.pbtxt\" }\n");
  Write("parts/inner.pbtxt", "layer { clip { input: \"x\" min: 0 max: 1 output: \"c\" } }\n");
  std::string path = Write("model.pbtxt",
                           "name: \"outer\"\n"
                           "data { name: \"x\" shape: [2] }\n"
                           "layer { include: \"parts/block.pbtxt\" }\n"
                           "layer { clip { input: \"c\" min: 0 max: 1 output: \"d\" } }\n");
  BuiltModel model = ReadModelText(path);
  EXPECT_EQ(model.name, "outer");
  EXPECT_EQ(model.inputs, std::vector<std::string>({"x", "y"}));
  ASSERT_EQ(model.main.Root().NumOps(), 2u);
  EXPECT_TRUE(model.main.Root().FindVar("d"));
  EXPECT_EQ(model.main.Root().op(0).creation_site(), directory_ + "/parts/inner.pbtxt:1:9");
}

TEST_F(IncludeTest, SeveralTimesWithinARepeat) {
  Write("one.pbtxt", "layer { clip { input: \"c$i\" min: 0 max: 1 output: \"c${i+1}\" } }\n");
  std::string path = Write("model.pbtxt",
                           "data { name: \"c0\" shape: [2] }\n"
                           "layer { repeat { times: 4 layer { include: \"one.pbtxt\" } } }\n");
  EXPECT_EQ(ReadModelText(path).main.Root().NumOps(), 4u);
}

TEST_F(IncludeTest, DataWithinARepeat) {
  Write("one.pbtxt",
        "data { name: \"x$i\" shape: [2] }\n"
        "layer { clip { input: \"x$i\" min: 0 max: 1 output: \"c$i\" } }\n");
  std::string path =
      Write("model.pbtxt", "layer { repeat { times: 2 layer { include: \"one.pbtxt\" } } }\n");
  EXPECT_EQ(ReadModelText(path).inputs, std::vector<std::string>({"x0", "x1"}));
}

TEST_F(IncludeTest, ErrorsSayTheWholeWay) {
  Write("part.pbtxt", "\n  layer { fc { input: \"x\" sizes: 3 } }\n");
  std::string path = Write("model.pbtxt", "layer { include: \"part.pbtxt\" }\n");
  EXPECT_EQ(ErrorOf(path),
            "part.pbtxt:2:27: sizes: no such field in fc; did you mean size?\n"
            "  included from model.pbtxt:1:9");
  path = Write("a.pbtxt", "layer { include: \"b.pbtxt\" }\n");
  Write("b.pbtxt", "layer { include: \"a.pbtxt\" }\n");
  EXPECT_EQ(ErrorOf(path),
            "b.pbtxt:1:9: include: 'a.pbtxt' includes itself\n"
            "  included from a.pbtxt:1:9");
  path = Write("missing.pbtxt", "layer { include: \"nowhere.pbtxt\" }\n");
  EXPECT_EQ(ErrorOf(path).rfind("missing.pbtxt:1:9: ", 0), 0u) << ErrorOf(path);
  path = Write("absolute.pbtxt", "layer { include: \"/etc/passwd\" }\n");
  EXPECT_EQ(ErrorOf(path),
            "absolute.pbtxt:1:9: include: the path must be relative to this text, got "
            "'/etc/passwd'");
}

TEST_F(IncludeTest, ArraysComeFromNpyFiles) {
  Tensor values = Tensor::Of<float>({2}, {3, 4});
  WriteNpy(values, directory_ + "/b.npy");
  std::string path = Write("model.pbtxt",
                           "data { name: \"x\" shape: [-1, 2] }\n"
                           "layer { fc { input: \"x\" size: 2 bias { initializer { array {\n"
                           "  npy: \"b.npy\" } } } } }\n");
  BuiltModel model = ReadModelText(path);
  VarValues env;
  Interpret(model.startup.Root(), DefaultOps(), env);
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("fc_0.b_0")), values));
  std::filesystem::remove(directory_ + "/b.npy");
  EXPECT_EQ(ErrorOf(path).rfind("model.pbtxt:3:3: ", 0), 0u) << ErrorOf(path);
}

TEST_F(IncludeTest, DoublingIsBounded) {
  for (int i = 0; i < 40; ++i) {
    std::string next = "layer { include: \"d" + std::to_string(i + 1) + ".pbtxt\" }\n";
    Write("d" + std::to_string(i) + ".pbtxt", next + next);
  }
  Write("d40.pbtxt", "");
  EXPECT_NE(ErrorOf(directory_ + "/d0.pbtxt").find("the text makes more than 100000 entries"),
            std::string::npos);
}

TEST_F(IncludeTest, ChainsAreBounded) {
  for (int i = 0; i < 70; ++i) {
    Write("d" + std::to_string(i) + ".pbtxt",
          "layer { include: \"d" + std::to_string(i + 1) + ".pbtxt\" }\n");
  }
  Write("d70.pbtxt", "");
  EXPECT_NE(ErrorOf(directory_ + "/d0.pbtxt").find("nested deeper than 64 levels"),
            std::string::npos);
}

TEST(ModelText, Examples) {
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  if (!source) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  const std::pair<const char*, int64_t> examples[] = {
      {"digits/lenet.pbtxt", 431080},
      {"digits/softmax.pbtxt", 7850},
      {"digits/mlp.pbtxt", 784 * 512 + 512 + 512 * 512 + 512 + 5120 + 10},
      {"mnist/lenet_model.pbtxt", 431080}};
  for (const auto& example : examples) {
    BuiltModel model = ReadModelText(std::string(source) + "/examples/" + example.first);
    EXPECT_EQ(model.inputs, std::vector<std::string>({"image", "label"}));
    int64_t elements = 0;
    for (const std::string& name : model.main.Parameters()) {
      elements += model.main.Root().FindVar(name)->shape().numel();
    }
    EXPECT_EQ(elements, example.second) << example.first;
    for (const char* name : {"logits", "loss", "acc", "prob"}) {
      EXPECT_TRUE(model.main.Root().FindVar(name)) << name;
    }
    VerifyOrThrow(model.main, DefaultOps());
    VerifyOrThrow(model.startup, DefaultOps());
  }
}
}  // namespace coracle::model_text_test

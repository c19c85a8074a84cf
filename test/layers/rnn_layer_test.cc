#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/layer.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::rnn_layer_test {

using Names = std::vector<std::string>;

Tensor Random(const Shape& shape, uint64_t seed) {
  Tensor tensor(DType::kFloat32, shape);
  const Philox random(seed, 0, 0);
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data<float>()[i] = 2 * random.UniformFloat(static_cast<uint64_t>(i)) - 1;
  return tensor;
}

void ExpectNear(const Tensor& want, const Tensor& got, float tolerance) {
  ASSERT_EQ(want.shape().ToString(), got.shape().ToString());
  for (int64_t i = 0; i < want.numel(); ++i)
    ASSERT_NEAR(want.data<float>()[i], got.data<float>()[i], tolerance) << i;
}

// Steps [begin, end) of x [N, T, I].
Tensor Steps(const Tensor& x, int64_t begin, int64_t end) {
  const Shape& s = x.shape();
  Tensor part(DType::kFloat32, {s[0], end - begin, s[2]});
  float* to = part.data<float>();
  for (int64_t n = 0; n < s[0]; ++n)
    for (int64_t i = begin * s[2]; i < end * s[2]; ++i)
      *to++ = x.data<float>()[n * s[1] * s[2] + i];
  return part;
}

class RnnLayer : public ::testing::Test {
 protected:
  const OpDesc& OpOf(const std::string& type) {
    for (size_t i = 0; i < main.Root().NumOps(); ++i)
      if (main.Root().op(i).type() == type) return main.Root().op(i);
    throw InternalError("no op " + type);
  }
  ProgramDesc main, startup;
  Builder net{main, startup};
};

TEST_F(RnnLayer, LayersAreFew) {
  try {
    net.Lstm(net.Data("deep", {-1, 3, 4}), {.hidden_size = 1, .num_layers = 1'000'000'000});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "lstm: num_layers must lie in [1, 1024], got 1000000000");
  }
}

TEST_F(RnnLayer, LstmMakesItsParameters) {
  Variable x = net.Data("x", {-1, -1, 5});
  RnnOutput lstm = net.Lstm(
      x,
      {.hidden_size = 3, .num_layers = 2, .direction = "bidirect", .last_h = "h", .output = "y"});
  EXPECT_EQ("y", lstm.out.name());
  EXPECT_EQ("[-1, -1, 6]", lstm.out.shape().ToString());
  ASSERT_EQ(2u, lstm.states.size());
  EXPECT_EQ("h", lstm.states[0].name());
  EXPECT_EQ("[4, -1, 3]", lstm.states[1].shape().ToString());
  const Names names = main.Parameters();
  ASSERT_EQ(16u, names.size());
  EXPECT_EQ("lstm_0.weight_ih_l0", names[0]);
  EXPECT_EQ("lstm_0.weight_hh_l0_reverse", names[3]);
  EXPECT_EQ("lstm_0.bias_hh_l1_reverse", names[15]);
  EXPECT_EQ("[12, 5]", main.Root().FindVar("lstm_0.weight_ih_l0")->shape().ToString());
  EXPECT_EQ("[12, 6]", main.Root().FindVar("lstm_0.weight_ih_l1")->shape().ToString());
  EXPECT_EQ("[12, 3]", main.Root().FindVar("lstm_0.weight_hh_l1_reverse")->shape().ToString());
  EXPECT_EQ("[12]", main.Root().FindVar("lstm_0.bias_ih_l1")->shape().ToString());

  // Uniform in +-1 / sqrt(3), in all of them.
  Scope scope;
  Executor().Run(startup, scope);
  for (const std::string& name : names) {
    float largest = 0;
    for (float v : scope.Get(name).span<float>()) largest = std::max(largest, std::abs(v));
    EXPECT_LE(largest, 0.57736f) << name;
    EXPECT_GT(largest, 0.3f) << name;
  }
}

TEST_F(RnnLayer, ModesAndOptions) {
  Variable x = net.Data("x", {-1, 7, 5});
  net.Gru(x, {.hidden_size = 3, .time_major = true, .dropout = 0.25f});
  EXPECT_EQ("GRU", OpOf("rnn").GetAttr<std::string>("mode", ""));
  EXPECT_EQ(0.25f, OpOf("rnn").GetAttr<float>("dropout_prob", 0));
  for (size_t i = 0; i < main.Root().NumOps(); ++i)
    EXPECT_NE("transpose2", main.Root().op(i).type());
  EXPECT_EQ("[9, 5]", main.Root().FindVar("gru_0.weight_ih_l0")->shape().ToString());
  RnnOutput rnn = net.SimpleRnn(x, {.hidden_size = 3,
                                    .num_layers = 2,
                                    .activation = "relu",
                                    .weight_ih_attr = {.name = "w"},
                                    .bias_hh_attr = std::nullopt});
  const size_t last = main.Root().NumOps() - 2;
  EXPECT_EQ("RNN_RELU", main.Root().op(last).GetAttr<std::string>("mode", ""));
  EXPECT_EQ("[3, 5]", main.Root().FindVar("w")->shape().ToString());
  EXPECT_EQ("[3, 3]", main.Root().FindVar("w_1")->shape().ToString());
  EXPECT_FALSE(main.Root().FindVar("simple_rnn_0.bias_hh_l1")->training().trainable);
  EXPECT_TRUE(main.Root().FindVar("simple_rnn_0.bias_ih_l1")->training().trainable);
  EXPECT_EQ(1u, rnn.states.size());
}

// A sequence in two parts, the states carried, is the whole sequence.
TEST_F(RnnLayer, StatesCarryOver) {
  for (const char* mode : {"lstm", "gru", "simple_rnn"}) {
    ProgramDesc whole_main, part_main, start, unused;
    Builder whole(whole_main, start), part(part_main, unused);
    const bool lstm = mode == std::string("lstm");
    auto build = [&](Builder& b, bool fed) {
      RnnOptions o{.hidden_size = 4, .num_layers = 2, .last_h = "h1", .output = "y"};
      o.name = "r";
      Variable x = b.Data("x", {-1, -1, 3});
      if (lstm) o.last_c = "c1";
      if (fed) o.initial_states.push_back(b.Data("h0", {2, -1, 4}));
      if (fed && lstm) o.initial_states.push_back(b.Data("c0", {2, -1, 4}));
      if (lstm) return b.Lstm(x, o);
      return mode == std::string("gru") ? b.Gru(x, o) : b.SimpleRnn(x, o);
    };
    build(whole, false);
    build(part, true);
    Scope scope;
    Executor exe;
    exe.Run(start, scope);
    const Tensor x = Random({2, 7, 3}, 5);
    const Tensor want = exe.Run(whole_main, scope, {{"x", x}}, {"y"})[0];
    Names fetches = {"y", "h1"};
    if (lstm) fetches.push_back("c1");
    std::map<std::string, Tensor> feeds = {{"h0", Tensor::Zeros(DType::kFloat32, {2, 2, 4})}};
    if (lstm) feeds["c0"] = feeds["h0"];
    for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 3}, {3, 7}}) {
      feeds["x"] = Steps(x, begin, end);
      std::vector<Tensor> out = exe.Run(part_main, scope, feeds, fetches);
      ExpectNear(Steps(want, begin, end), out[0], 1e-6f);
      feeds["h0"] = out[1];
      if (lstm) feeds["c0"] = out[2];
    }
  }
}

// A padded batch gives each sample what it gives alone, and trains the parameters of both.
TEST_F(RnnLayer, LengthsInABatch) {
  Variable x = net.Data("x", {-1, -1, 3});
  Variable length = net.Data("length", {-1}, DType::kInt64);
  RnnOutput y = net.Lstm(x, {.hidden_size = 4,
                             .direction = "bidirectional",
                             .sequence_length = length,
                             .last_h = "h",
                             .output = "y"});
  AppendBackward(net.Mean(y.out));
  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  const Tensor batch = Random({2, 5, 3}, 8);
  auto run = [&](const Tensor& input, const std::vector<int64_t>& lengths) {
    const auto n = static_cast<int64_t>(lengths.size());
    return exe.Run(main, scope, {{"x", input}, {"length", Tensor::Of<int64_t>({n}, lengths)}},
                   {"y", "h", "lstm_0.weight_hh_l0_reverse@GRAD"});
  };
  const std::vector<Tensor> together = run(batch, {3, 5});
  Tensor one(DType::kFloat32, {1, 3, 3});
  std::copy_n(batch.data<float>(), 9, one.data<float>());
  const std::vector<Tensor> alone = run(one, {3});
  for (int64_t i = 0; i < 3 * 8; ++i)
    EXPECT_NEAR(alone[0].data<float>()[i], together[0].data<float>()[i], 1e-6f);
  for (int64_t i = 3 * 8; i < 5 * 8; ++i) EXPECT_EQ(0, together[0].data<float>()[i]);
  for (int64_t d : {0, 1})
    for (int64_t k = 0; k < 4; ++k)
      EXPECT_NEAR(alone[1].data<float>()[4 * d + k], together[1].data<float>()[8 * d + k], 1e-6f);
  float largest = 0;
  for (float v : together[2].span<float>()) largest = std::max(largest, std::abs(v));
  EXPECT_GT(largest, 1e-4f);
}

TEST_F(RnnLayer, DropoutActsInTrainingAlone) {
  Variable x = net.Data("x", {-1, -1, 3});
  net.Gru(x, {.hidden_size = 8, .num_layers = 2, .dropout = 0.5f, .output = "y"});
  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  PreparedProgram train = exe.Prepare(main, {"x"}, {"y"});
  PreparedProgram test = exe.Prepare(main.CloneForTest(), {"x"}, {"y"});
  const Tensor input = Random({2, 5, 3}, 3);
  const Tensor first = train.Run(scope, {input})[0].Clone();
  EXPECT_FALSE(BitEqual(first, train.Run(scope, {input})[0]));
  const Tensor calm = test.Run(scope, {input})[0].Clone();
  EXPECT_TRUE(BitEqual(calm, test.Run(scope, {input})[0]));
}

TEST_F(RnnLayer, Errors) {
  Variable x = net.Data("x", {-1, -1, 5}), flat = net.Data("flat", {-1, 5});
  Variable h = net.Data("h", {1, -1, 3}), wide = net.Data("wide", {1, -1, 4});
  auto error = [&](const Variable& input, const RnnOptions& o) {
    return ErrorOf([&] { net.Lstm(input, o); });
  };
  EXPECT_EQ("lstm: hidden_size must be positive, got 0", error(x, {}));
  EXPECT_EQ("lstm: num_layers must lie in [1, 1024], got -1",
            error(x, {.hidden_size = 3, .num_layers = -1}));
  EXPECT_EQ("lstm: direction must be forward or bidirect, got back",
            error(x, {.hidden_size = 3, .direction = "back"}));
  EXPECT_EQ(
      "lstm: its input must have shape [batch, time, features] with known features, got flat of "
      "shape [-1, 5]",
      error(flat, {.hidden_size = 3}));
  EXPECT_EQ("lstm: initial states must be h and c, got 1 variables",
            error(x, {.hidden_size = 3, .initial_states = {h}}));
  EXPECT_NE(std::string::npos,
            error(x, {.hidden_size = 3, .initial_states = {h, wide}}).find("[rnn.C2]"));
  EXPECT_EQ("simple_rnn: activation must be tanh or relu, got gelu",
            ErrorOf([&] { net.SimpleRnn(x, {.hidden_size = 3, .activation = "gelu"}); }));
  const BuiltModel model = ParseModelText(R"(
    data { name: "x" shape: [-1, -1, 5] }
    layer { lstm { input: "x" hidden_size: 3 output: "y" last_c: "c" } })");
  EXPECT_EQ("[1, -1, 3]", model.main.Root().FindVar("c")->shape().ToString());
  EXPECT_EQ("m.pbtxt:1:47: gru: hidden_size is required", ErrorOf([&] {
              ParseModelText("data { name: 'x' shape: [-1, -1, 5] } layer { gru { input: 'x' } }",
                             "m.pbtxt");
            }));
}

}  // namespace coracle::rnn_layer_test

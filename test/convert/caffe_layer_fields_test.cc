// Fields that every layer of Caffe has: loss_weight, param, propagate_down, phase, tops that Caffe
// makes itself; and what a net with losses gives in use.

#include <coracle/framework/base/file.h>
#include <coracle/proto/caffe.pb.h>
#include <coracle/test/convert/caffe_net.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>

#include <algorithm>
#include <cmath>

namespace coracle::caffe::caffe_layer_fields_test {

std::string Input(const std::string& name, const std::string& dims) {
  return "layer { name: '" + name + "' type: 'Input' top: '" + name + "' input_param { shape { " +
         dims + " } } }\n";
}

// An InnerProduct without bias.
std::string Fc(const std::string& name, const std::string& bottom, int size,
               const std::string& param = "", const std::string& more = "") {
  return fmt::format(
      "layer {{ name: '{0}' type: 'InnerProduct' bottom: '{1}' top: '{0}' {3} inner_product_param "
      "{{ num_output: {2} bias_term: false {4} }} }}\n",
      name, bottom, size, param, more);
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Tensor Numbers(const Shape& shape, const std::vector<float>& values) {
  Tensor tensor(DType::kFloat32, shape);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

// --- loss_weight ---

constexpr char kSquare[] = "layer { name: 's' type: 'Power' bottom: 'x' top: 's' ";

TEST(CaffeLossWeight, AnyTopAddsItsWeightedSum) {
  TestNet net(Input("x", "dim: 2 dim: 3") + Input("t", "dim: 2 dim: 3") +
                  "layer { name: 'l' type: 'EuclideanLoss' bottom: 'x' bottom: 't' top: 'l' }" +
                  kSquare + "power_param { power: 2 } loss_weight: 0.5 }",
              true);
  const Tensor x = Drawn({2, 3}), t = Drawn({2, 3}, 2);
  double distance = 0, sum = 0;
  for (int i = 0; i < 6; ++i) {
    const auto a = static_cast<double>(x.data<float>()[i]);
    distance += std::pow(a - static_cast<double>(t.data<float>()[i]), 2) / 4;
    sum += a * a;
  }
  ExpectNear(net.Run({{"x", x}, {"t", t}}, net.imported.loss), {distance + 0.5 * sum});
}

// A Reduction of each sample has the same rules as other layers.
TEST(CaffeLossWeight, AReductionOfEachSample) {
  TestNet net(Input("x", "dim: 2 dim: 3") +
                  "layer { name: 'r' type: 'Reduction' bottom: 'x' top: 'r' reduction_param { "
                  "axis: 1 } loss_weight: 2 }",
              true);
  const Tensor x = Numbers({2, 3}, {1, 2, 3, 4, 5, 6});
  ExpectNear(net.Run({{"x", x}}, net.imported.loss), {42});
}

// Both an in-place activation's input and its output count towards the objective.
TEST(CaffeLossWeight, IsNotLostInFusedLayers) {
  const std::string first = Input("x", "dim: 1 dim: 2") + Fc("f", "x", 2, "loss_weight: 3");
  const std::string relu = "layer { name: 'r' type: 'ReLU' bottom: 'f' top: 'f' ";
  for (const bool before : {true, false}) {
    TestNet net(before ? first + relu + "}"
                       : Input("x", "dim: 1 dim: 2") + Fc("f", "x", 2) + relu + "loss_weight: 3 }",
                true);
    net.scope.Set("f.w_0", Numbers({2, 2}, {1, 0, 0, 1}));
    const Tensor x = Numbers({1, 2}, {5, -2});
    ExpectNear(net.Run({{"x", x}}, net.imported.loss), {before ? 9. : 15.});
    ExpectNear(net.Run({{"x", x}}, "f"), {5, 0});
  }
}

TEST(CaffeLossWeight, NamesOfTheNetStayFree) {
  const std::string text = Input("x", "dim: 1 dim: 2") + kSquare + "loss_weight: 2 }" +
                           "layer { name: 'q' type: 'Power' bottom: 'x' top: 's.sum' loss_weight: "
                           "3 } layer { name: 'w' type: 'Power' bottom: 'x' top: 'total_loss' "
                           "power_param { scale: 7 } }";
  TestNet net(text, true);
  const Tensor x = Numbers({1, 2}, {1, 1});
  ExpectNear(net.Run({{"x", x}}, "total_loss"), {7, 7});
  ExpectNear(net.Run({{"x", x}}, net.imported.loss), {10});
}

TEST(CaffeLossWeight, MistakesAreNamed) {
  const std::string input = Input("x", "dim: 1 dim: 2") + Input("y", "dim: 1");
  EXPECT_TRUE(Contains(
      ErrorOf([&] { Import(input + kSquare + "loss_weight: 1 loss_weight: 1 }"); }),
      "layer 's' (Power): loss_weight is given once for each top or not at all, got 2 for 1"));
  EXPECT_TRUE(Contains(ErrorOf([&] {
                         Import(input +
                                "layer { name: 'a' type: 'Accuracy' bottom: 'x' bottom: 'y' top: "
                                "'a' loss_weight: 1 }");
                       }),
                       "layer 'a' (Accuracy): its top has no gradient and cannot be a loss"));
}

TEST(CaffeLossWeight, ALossWithoutWeightIsShown) {
  const ImportedNet net =
      Import(Input("x", "dim: 1 dim: 2") + Input("t", "dim: 1 dim: 2") +
             "layer { name: 'l' type: 'EuclideanLoss' bottom: 'x' bottom: 't' top: 'l' } layer { "
             "name: 'm' type: 'EuclideanLoss' bottom: 'x' bottom: 't' top: 'm' loss_weight: 0 }");
  EXPECT_EQ(net.loss, "l");
  EXPECT_EQ(net.train.metrics, std::vector<std::string>{"m"});
}

// --- shared parameters ---

// y = x W^T and z = y W.
TEST(CaffeSharing, ATransposedInnerProductHasTheSameWeights) {
  const std::string w = "param { name: 'w' }";
  for (const bool first : {true, false}) {
    SCOPED_TRACE(first);
    TestNet net(Input("x", "dim: 1 dim: 3") + Fc("a", "x", 2, w, first ? "transpose: true" : "") +
                Fc("b", "a", 3, w, first ? "" : "transpose: true"));
    EXPECT_EQ(net.model.main.Parameters(), std::vector<std::string>{"w"});
    // Here it is [3, 2] in either case: Caffe's [2, 3] of the layer without transpose is turned.
    net.scope.Set("w", Numbers({3, 2}, {1, 4, 2, 5, 3, 6}));
    const Tensor x = Numbers({1, 3}, {1, 0, 2});
    ExpectNear(net.Run({{"x", x}}, "a"), {7, 16});
    ExpectNear(net.Run({{"x", x}}, "b"), {7 + 64, 14 + 80, 21 + 96});
  }
}

TEST(CaffeSharing, TransposedWithABiasAndOfSeveralRows) {
  TestNet net(Input("x", "dim: 1 dim: 2 dim: 2") +
              Fc("a", "x", 2, "param { name: 'w' }", "axis: 2") +
              "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' param { name: 'w' } "
              "inner_product_param { num_output: 2 axis: 2 transpose: true } }");
  net.scope.Set("w", Numbers({2, 2}, {1, 3, 2, 4}));  // [[1, 2], [3, 4]] of Caffe
  net.scope.Set("b.b_0", Numbers({2}, {100, 200}));
  const Tensor got = net.Run({{"x", Numbers({1, 2, 2}, {1, 2, 1, 0})}}, "b");
  EXPECT_EQ(got.shape(), (Shape{1, 2, 2}));
  ExpectNear(got, {138, 254, 110, 214});
}

// An embedding and the scores of its words have one matrix.
TEST(CaffeSharing, AnEmbeddingIsTiedToItsScores) {
  TestNet net(Input("x", "dim: 1 dim: 1") +
              "layer { name: 'e' type: 'Embed' bottom: 'x' top: 'e' param { name: 'w' } "
              "embed_param { input_dim: 3 num_output: 2 bias_term: false } }" +
              Fc("s", "e", 3, "param { name: 'w' }", "axis: 2"));
  net.scope.Set("w", Numbers({3, 2}, {1, 2, 3, 4, 5, 6}));
  ExpectNear(net.Run({{"x", Numbers({1, 1}, {1})}}, "s"), {11, 25, 39});
}

TEST(CaffeSharing, WhatDoesNotFitIsRefused) {
  const std::string w = "param { name: 'w' }", input = Input("x", "dim: 1 dim: 3");
  EXPECT_TRUE(Contains(
      ErrorOf([&] { Import(input + Fc("a", "x", 2, w) + Fc("b", "x", 3, w)); }),
      "layer 'b' (InnerProduct): it shares 'w' with layer 'a', where it has the dims [2, 3], and "
      "here [3, 3]"));
  EXPECT_TRUE(
      Contains(ErrorOf([&] {
                 Import(input + Fc("a", "x", 4, w) +
                        "layer { name: 'e' type: 'Embed' bottom: 'x' top: 'e' param { name: 'w' } "
                        "embed_param { input_dim: 4 num_output: 3 bias_term: false } }");
               }),
               "which has it transposed; only an InnerProduct can share that"));
  EXPECT_TRUE(Contains(
      ErrorOf([&] {
        Import(input + Fc("a", "x", 3, "param { name: 'w' lr_mult: 1 }") +
               Fc("b", "x", 3, "param { name: 'w' lr_mult: 3 }"));
      }),
      "layer 'b' (InnerProduct): the shared parameter 'w' has the lr_mult 3, but an earlier layer "
      "says 1"));
}

// net.cpp, AppendParam: rates that only a later layer gives count, too.
TEST(CaffeSharing, RatesOfALaterLayerCount) {
  const ImportedNet net =
      Import(Input("x", "dim: 1 dim: 3") + Fc("a", "x", 3, "param { name: 'w' decay_mult: 0 }") +
             Fc("b", "x", 3, "param { name: 'w' lr_mult: 3 }"));
  EXPECT_TRUE(Contains(net.text,
                       "param { name: \"w\" learning_rate: 3 regularizer { multiplied { "
                       "by: 0 } } }"))
      << net.text;
}

TEST(CaffeSharing, AParameterMayBeCalledLikeABlob) {
  TestNet net(Input("x", "dim: 1 dim: 2") +
              Fc("a", "x", 2, "param { name: 'w' }")
                  .replace(Fc("a", "x", 2).find("top: 'a'"), 8, "top: 'w'") +
              Fc("b", "w", 2, "param { name: 'w' }") +
              "layer { name: 'c' type: 'Power' bottom: 'b' top: 'b.w_0' }" + Fc("c", "b.w_0", 2));
  const std::vector<std::string> names = net.model.main.Parameters();
  ASSERT_EQ(names, (std::vector<std::string>{"w_", "c.w_0"}));
  net.scope.Set("w_", Numbers({2, 2}, {1, 3, 2, 4}));  // [[1, 2], [3, 4]] of Caffe
  const Tensor x = Numbers({1, 2}, {1, 2});
  ExpectNear(net.Run({{"x", x}}, "w"), {5, 11});
  ExpectNear(net.Run({{"x", x}}, "b"), {27, 59});
}

TEST(CaffeSharing, StatisticsOfABatchNorm) {
  const std::string names = "param { name: 'm' } param { name: 'v' } param { name: 'n' }";
  const auto norm = [&](const std::string& name, const std::string& bottom) {
    return "layer { name: '" + name + "' type: 'BatchNorm' bottom: '" + bottom + "' top: '" + name +
           "' " + names + " }";
  };
  const ImportedNet net = Import(Input("x", "dim: 1 dim: 2") + norm("p", "x") + norm("q", "x"));
  EXPECT_EQ(net.test.params.size(), 2u);
  size_t count = 0;
  for (size_t at = net.text.find("moving_mean_name: \"m\""); at != std::string::npos;
       at = net.text.find("moving_mean_name: \"m\"", at + 1))
    ++count;
  EXPECT_EQ(count, 2u) << net.text;
  EXPECT_NO_THROW(ParseModelText(net.text));
}

// --- propagate_down and phase ---

TEST(CaffePropagateDown, NoGradientGoesOn) {
  const std::string text =
      Import(Input("x", "dim: 1 dim: 3") + Fc("a", "x", 3) +
             "layer { name: 'b' type: 'ReLU' bottom: 'a' top: 'a' propagate_down: false }")
          .text;
  EXPECT_TRUE(Contains(text, "assign { input: \"a.a\" stop_gradient: true output: \"b.stopped\" }"))
      << text;
  EXPECT_TRUE(Contains(text, "relu { input: \"b.stopped\" output: \"a\" }")) << text;
  EXPECT_TRUE(Contains(ErrorOf([&] {
                         Import(
                             Input("x", "dim: 1 dim: 3") +
                             "layer { name: 'e' type: 'Eltwise' bottom: 'x' bottom: 'x' top: 'e' "
                             "propagate_down: true }");
                       }),
                       "propagate_down is given once for each bottom or not at all, got 1 for 2"));
}

TEST(CaffePhase, ALayersOwnPhaseIsRefused) {
  EXPECT_TRUE(Contains(
      ErrorOf([&] {
        Import(Input("x", "dim: 1 dim: 3") +
               "layer { name: 'd' type: 'Dropout' bottom: 'x' top: 'd'\n phase: TRAIN }");
      }),
      "net.prototxt:3:2: layer 'd' (Dropout): a layer that behaves as in TRAIN in a net of the "
      "phase TEST is not converted"));
  EXPECT_NO_THROW(Import(Input("x", "dim: 1 dim: 3") +
                         "layer { name: 'd' type: 'Dropout' bottom: 'x' top: 'd' phase: TRAIN "
                         "include { phase: TRAIN } }" +
                         kSquare + "phase: TRAIN }"));
}

// A net without losses and rules has a phase TEST of its own, too.
TEST(CaffePhase, ABatchNormOfTheBatchInTests) {
  const std::string norm =
      "layer { name: 'n' type: 'BatchNorm' bottom: 'x' top: 'n' batch_norm_param { "
      "use_global_stats: ";
  const std::string input = Input("x", "dim: 2 dim: 1");
  // mean 3, variance 4
  TestNet net(input + norm + "false eps: 0 } }");
  ExpectNear(net.Run({{"x", Numbers({2, 1}, {1, 5})}}, "n"), {-1, 1});
  EXPECT_FALSE(Contains(Import(input + norm + "true } }").text, "include_if"));
}

// --- fields of data layers, and values in the text ---

TEST(CaffeFields, WhatNothingReadsIsNotedOrRefused) {
  const ImportedNet net = Import(
      "layer { name: 'd' type: 'Data' top: 'x' data_param { source: 'mnist'\n rand_skip: 5 } }" +
      Fc("f", "x", 2));
  EXPECT_EQ(std::count(net.notes.begin(), net.notes.end(),
                       "net.prototxt:2:2: rand_skip: data is read from its first row on"),
            1);
  const ImportedNet oldest = Import(
      "layers { layer { name: 'd' type: 'data' source: 'mnist' rand_skip: 5 } top: 'x' } layers { "
      "layer { name: 'f' type: 'innerproduct' num_output: 2 } bottom: 'x' top: 'f' }");
  EXPECT_TRUE(std::any_of(oldest.notes.begin(), oldest.notes.end(),
                          [](const std::string& note) { return Contains(note, "rand_skip"); }));
  EXPECT_TRUE(Contains(
      ErrorOf([] {
        Import("layer { name: 'd' type: 'HDF5Data' top: 'x' transform_param { scale: 2 } }");
      }),
      "layer 'd' (HDF5Data): HDF5Data does not transform its arrays"));
  for (const char* text :
       {"layer { name: 'p' type: 'Power' bottom: 'x' top: 'p' blobs { data: 1 } }",
        "layers { name: 'p' type: POWER bottom: 'x' top: 'p' blobs { data: 1 } }"}) {
    EXPECT_TRUE(Contains(ErrorOf([&] { Import(text); }),
                         "layer 'p' (Power): values of parameters are read from a .caffemodel"));
  }
}

// --- results ---

TEST(CaffeAutoTops, ALossMakesItsTop) {
  const ImportedNet net =
      Import(Input("x", "dim: 1 dim: 3") + Input("y", "dim: 1") +
             "layer { name: 'x' type: 'SoftmaxWithLoss' bottom: 'x' bottom: 'y' }");
  EXPECT_EQ(net.loss, "x_");
}

std::string UnnamedLoss(const std::string& fields = "") {
  return "layer { type: 'SoftmaxWithLoss' bottom: 'x' bottom: 'y' " + fields + " }\n";
}

TEST(CaffeAutoTops, LossesWithoutNameHaveDifferentOnes) {
  const std::string inputs = Input("x", "dim: 1 dim: 3") + Input("y", "dim: 1");
  TestNet net(inputs + UnnamedLoss() + UnnamedLoss("loss_weight: 0.5") + UnnamedLoss(), true);
  EXPECT_EQ(net.imported.loss, "total_loss");
  const std::map<std::string, Tensor> feeds = {
      {"x", Drawn({2, 3})}, {"y", Tensor::Of<int64_t>({2, 1}, std::vector<int64_t>{1, 2})}};
  const float one = net.Run(feeds, "loss").data<float>()[0];
  for (const char* top : {"loss_2", "loss_3"})
    EXPECT_EQ(net.Run(feeds, top).data<float>()[0], one) << top;
  EXPECT_NEAR(net.Run(feeds, "total_loss").data<float>()[0], 2.5f * one, 1e-5f);
  // A layer with the name keeps it.
  EXPECT_EQ(Import(inputs + UnnamedLoss("loss_weight: 0") + UnnamedLoss("name: 'loss'")).loss,
            "loss");
}

// Layers that are never in one net share the name.
TEST(CaffeAutoTops, LossesOfTheTwoPhasesShareTheirName) {
  const std::string inputs = Input("x", "dim: 1 dim: 3") + Input("y", "dim: 1");
  for (const char* test : {"include { phase: TEST }", "exclude { phase: TRAIN }"}) {
    const ImportedNet net =
        Import(inputs + UnnamedLoss("include { phase: TRAIN }") + UnnamedLoss(test));
    EXPECT_EQ(net.loss, "loss") << net.text;
    EXPECT_FALSE(Contains(net.text, "loss_2")) << net.text;
  }
}

constexpr char kSomeWeights[] =
    "layer { name: 'f' blobs { shape { dim: 2 dim: 2 } data: 1 data: 0 "
    "data: 0 data: 2 } }";

std::vector<std::pair<std::string, Tensor>> InUse(const std::string& text, const Tensor& x) {
  proto::caffe::NetParameter weights;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kSomeWeights, &weights));
  TemporaryDirectory directory;
  std::vector<std::string> notes;
  SaveInferenceNet(ParseNet(text, "n.prototxt"), {},
                   ParseCaffeModel(weights.SerializeAsString(), "w.caffemodel"),
                   directory.File("model"), &notes);
  Scope scope;
  const InferenceModel model = LoadInferenceModel(directory.File("model"), scope);
  EXPECT_EQ(model.feed_names, std::vector<std::string>{"x"});
  const std::vector<Tensor> got =
      Executor().Run(model.program, scope, {{"x", x}}, model.fetch_names);
  std::vector<std::pair<std::string, Tensor>> named;
  for (size_t i = 0; i < got.size(); ++i) named.emplace_back(model.fetch_names[i], got[i]);
  return named;
}

TEST(CaffeInUse, ResultsOfLossesAreFetched) {
  const std::string net =
      Input("x", "dim: 1 dim: 2") + Input("t", "dim: 1 dim: 2") + Fc("f", "x", 2);
  const Tensor x = Numbers({1, 2}, {1, -1});
  const auto loss = [](const std::string& type, const std::string& bottoms) {
    return "layer { name: 'l' type: '" + type + "' " + bottoms + " top: 'l' }";
  };
  for (const char* bottoms : {"bottom: 'f' bottom: 't'", "bottom: 't' bottom: 'f'"}) {
    const auto got = InUse(net + loss("EuclideanLoss", bottoms), x);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].first, "f");
    ExpectNear(got[0].second, {1, -2});
  }
  const auto got = InUse(net + loss("SigmoidCrossEntropyLoss", "bottom: 'f' bottom: 't'"), x);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].first, "prob");
  ExpectNear(got[0].second, {1 / (1 + std::exp(-1.)), 1 / (1 + std::exp(2.))});
}

TEST(CaffeInUse, SoftmaxIsOfTheLosssAxis) {
  const std::string net =
      Input("x", "dim: 1 dim: 2 dim: 2") + Input("y", "dim: 1 dim: 2") +
      Fc("f", "x", 2, "", "axis: 2") +
      "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'y' top: 'l' softmax_param { "
      "axis: 2 } loss_param { normalization: BATCH_SIZE } }";
  const Tensor x = Numbers({1, 2, 2}, {1, 1, 3, 0});
  const auto got = InUse(net, x);
  ASSERT_EQ(got.size(), 1u);
  const double a = 1 / (1 + std::exp(1.)), b = 1 / (1 + std::exp(-3.));
  ExpectNear(got[0].second, {a, 1 - a, b, 1 - b});
  // Caffe divides by the number of what lies before the axis: 1 x 2.
  TestNet trained(net, true);
  trained.scope.Set("f.w_0", Numbers({2, 2}, {1, 0, 0, 2}));
  const Tensor y = Tensor::Of<int64_t>({1, 2}, std::vector<int64_t>{0, 0});
  ExpectNear(trained.Run({{"x", x}, {"y", y}}, "l"), {-(std::log(a) + std::log(b)) / 2});
}

// The weights of a layer that shares all of its parameters are not left out: they are the others'.
TEST(CaffeInUse, LayersThatShareAreKnown) {
  proto::caffe::NetParameter weights;
  for (const char* name : {"f", "g"}) {
    proto::caffe::NetParameter one;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kSomeWeights, &one));
    one.mutable_layer(0)->set_name(name);
    weights.MergeFrom(one);
  }
  const std::string w = "param { name: 'w' }";
  const ImportedNet net =
      Import(Input("x", "dim: 1 dim: 2") + Fc("f", "x", 2, w) + Fc("g", "x", 2, w));
  CaffeWeights read = ParseCaffeModel(weights.SerializeAsString(), "w.caffemodel");
  std::vector<std::string> missing, notes;
  EXPECT_EQ(ParameterValues(net.test.params, read, &missing, &notes).size(), 1u);
  EXPECT_TRUE(notes.empty()) << notes.front();
}

}  // namespace coracle::caffe::caffe_layer_fields_test

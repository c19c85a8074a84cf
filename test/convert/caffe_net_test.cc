// Caffe's texts: names, phases, old forms, errors, weights.

#include <coracle/convert/caffe/import.h>
#include <coracle/framework/base/file.h>
#include <coracle/proto/caffe.pb.h>
#include <coracle/test/convert/caffe_net.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>
#include <coracle/train/job/job.h>

#include <filesystem>
#include <functional>

namespace coracle::caffe::caffe_net_test {

constexpr char kInput[] =
    "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 4 } } }\n";

std::string Fc(const std::string& name, const std::string& bottom, int size,
               const std::string& more = "") {
  return fmt::format(
      "layer {{ name: '{0}' type: 'InnerProduct' bottom: '{1}' top: '{0}' inner_product_param {{ "
      "num_output: {2} }} {3} }}\n",
      name, bottom, size, more);
}

TEST(CaffeNet, AnActivationInPlaceIsTheLayersOwn) {
  const ImportedNet net =
      Import(kInput + Fc("h", "x", 3) + "layer { name: 'r' type: 'ReLU' bottom: 'h' top: 'h' }");
  EXPECT_EQ(net.text,
            "data { name: \"x\" shape: [-1, 4] }\n"
            "layer { fc { input: \"x\" size: 3 name: \"h\" act: \"relu\" output: \"h\" } }\n");
}

// The last layer that writes a blob keeps its name; earlier values get their layer's name as
// a suffix.
TEST(CaffeNet, LayersInPlaceKeepTheBlobsName) {
  const ImportedNet net = Import(kInput + Fc("h", "x", 3) +
                                 "layer { name: 'r' type: 'ReLU' bottom: 'h' top: 'h' }"
                                 "layer { name: 'd' type: 'Dropout' bottom: 'h' top: 'h' }" +
                                 Fc("y", "h", 2));
  EXPECT_NE(net.text.find("act: \"relu\" output: \"h.r\""), std::string::npos) << net.text;
  EXPECT_NE(net.text.find("dropout { input: \"h.r\" dropout_implementation: \"upscale_in_train\" "
                          "output: \"h\" }"),
            std::string::npos)
      << net.text;
  EXPECT_EQ(net.test.outputs, std::vector<std::string>{"y"});
}

TEST(CaffeNet, ABlobThatOthersReadBeforeIsNotFused) {
  const ImportedNet net =
      Import(kInput + Fc("h", "x", 3) + Fc("a", "h", 3) +
             "layer { name: 'r' type: 'ReLU' bottom: 'h' top: 'h' }" + Fc("b", "h", 3));
  EXPECT_EQ(net.text.find("act:"), std::string::npos) << net.text;
  EXPECT_NE(net.text.find("relu { input: \"h.h\" output: \"h\" }"), std::string::npos) << net.text;
}

TEST(CaffeNet, LayersOfOnePhaseGetARule) {
  const ImportedNet net = Import(
      "layer { name: 'd' type: 'Data' top: 'x' top: 'y' include { phase: TRAIN } data_param { "
      "source: 'cifar_lmdb' batch_size: 2 } }"
      "layer { name: 'd' type: 'Data' top: 'x' top: 'y' include { phase: TEST } data_param { "
      "source: 'cifar_lmdb' batch_size: 3 } }" +
      Fc("f", "x", 3) +
      "layer { name: 'n' type: 'Dropout' bottom: 'f' top: 'f' include { phase: TRAIN } }"
      "layer { name: 'a' type: 'Accuracy' bottom: 'f' bottom: 'y' top: 'a' exclude { phase: TRAIN "
      "} }"
      "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'y' top: 'l' }");
  EXPECT_EQ(net.train.metrics.size(), 0u);
  EXPECT_EQ(net.test.metrics, std::vector<std::string>{"a"});
  // In training the fc's result is dropped in place; in tests it is the blob itself.
  EXPECT_NE(net.text.find("output: \"f.f\" }"), std::string::npos) << net.text;
  EXPECT_NE(net.text.find("include_if { phase: TRAIN }"), std::string::npos) << net.text;
  for (const bool train : {true, false}) {
    ModelState state;
    state.train = train;
    const BuiltModel model = ParseModelText(net.text, "net", ".", DefaultOps(), state);
    EXPECT_EQ(model.main.Root().FindVar("a") == nullptr, train);
    EXPECT_TRUE(model.main.Root().FindVar("f"));
    EXPECT_EQ(model.main.Root().FindVar("f.f") != nullptr, train);
    EXPECT_EQ(model.inputs, (std::vector<std::string>{"x", "y"}));
  }
}

TEST(CaffeNet, RatesDecaysAndSharing) {
  const ImportedNet net =
      Import(kInput +
             Fc("a", "x", 4, "param { name: 'w' lr_mult: 3 decay_mult: 0 } param { lr_mult: 0 }") +
             Fc("b", "a", 4, "param { name: 'w' } param { lr_mult: 2 decay_mult: 0.5 }"));
  EXPECT_NE(net.text.find("param { name: \"w\" learning_rate: 3 regularizer { multiplied { by: 0 } "
                          "} }"),
            std::string::npos)
      << net.text;
  EXPECT_NE(net.text.find("bias { trainable: false }"), std::string::npos) << net.text;
  EXPECT_NE(net.text.find("bias { learning_rate: 2 regularizer { multiplied { by: 0.5 } } }"),
            std::string::npos)
      << net.text;
  const BuiltModel model = ParseModelText(net.text);
  EXPECT_EQ(model.main.Parameters(), (std::vector<std::string>{"w", "b.b_0"}));
}

// --- old forms ---

constexpr char kNew[] =
    "name: 'n'\n"
    "layer { name: 'input' type: 'Input' top: 'data' input_param { shape { dim: 2 dim: 3 dim: 8 "
    "dim: 8 } } }\n"
    "layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c' param { lr_mult: 1 decay_mult: "
    "1 } param { lr_mult: 2 decay_mult: 0 } convolution_param { num_output: 4 kernel_size: 3 pad: "
    "1 "
    "weight_filler { type: 'gaussian' std: 0.1 } } }\n"
    "layer { name: 'p' type: 'Pooling' bottom: 'c' top: 'p' pooling_param { pool: AVE kernel_size: "
    "3 stride: 2 } }\n"
    "layer { name: 'r' type: 'ReLU' bottom: 'p' top: 'p' }\n"
    "layer { name: 'f' type: 'InnerProduct' bottom: 'p' top: 'f' inner_product_param { num_output: "
    "5 } }\n";

TEST(CaffeOldTexts, LayersOf2014) {
  const std::string old =
      "name: 'n' input: 'data' input_dim: 2 input_dim: 3 input_dim: 8 input_dim: 8\n"
      "layers { name: 'c' type: CONVOLUTION bottom: 'data' top: 'c' blobs_lr: 1 blobs_lr: 2 "
      "weight_decay: 1 weight_decay: 0 convolution_param { num_output: 4 kernel_size: 3 pad: 1 "
      "weight_filler { type: 'gaussian' std: 0.1 } } }\n"
      "layers { name: 'p' type: POOLING bottom: 'c' top: 'p' pooling_param { pool: AVE "
      "kernel_size: "
      "3 stride: 2 } }\n"
      "layers { name: 'r' type: RELU bottom: 'p' top: 'p' }\n"
      "layers { name: 'f' type: INNER_PRODUCT bottom: 'p' top: 'f' inner_product_param { "
      "num_output: 5 } }\n";
  EXPECT_EQ(Import(old).text, Import(kNew).text);
}

TEST(CaffeOldTexts, LayersOf2013WithAPaddingLayer) {
  const std::string old =
      "name: 'n' input: 'data' input_dim: 2 input_dim: 3 input_dim: 8 input_dim: 8\n"
      "layers { layer { name: 'pad' type: 'padding' pad: 1 } bottom: 'data' top: 'padded' }\n"
      "layers { layer { name: 'c' type: 'conv' num_output: 4 kernelsize: 3 weight_filler { type: "
      "'gaussian' std: 0.1 } blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0 } bottom: "
      "'padded' top: 'c' }\n"
      "layers { layer { name: 'p' type: 'pool' pool: AVE kernelsize: 3 stride: 2 } bottom: 'c' "
      "top: "
      "'p' }\n"
      "layers { layer { name: 'r' type: 'relu' } bottom: 'p' top: 'p' }\n"
      "layers { layer { name: 'f' type: 'innerproduct' num_output: 5 } bottom: 'p' top: 'f' }\n";
  EXPECT_EQ(Import(old).text, Import(kNew).text);
}

// --- errors ---

TEST(CaffeErrors, NameThePlaceAndTheNearestName) {
  const auto error = [](const std::string& text) { return ErrorOf([&] { Import(text); }); };
  EXPECT_EQ(error("layer { name: 'c'\n  type: 'Convolutoin' top: 'c' }"),
            "net.prototxt:2:3: layer 'c' (Convolutoin): no such type of layer; did you mean "
            "Convolution? Or leave it out, since no layer reads its tops: --shape=c:1");
  EXPECT_EQ(
      error("layer { name: 'c' type: 'Convolution'\n convolution_param { num_outputs: 3 } }"),
      "net.prototxt:2:22: num_outputs: no such field in Caffe's ConvolutionParameter; did you "
      "mean num_output?");
  EXPECT_EQ(
      error("layer { name: 'p' type: 'Pooling' pooling_param {\n pool: AVG } }").substr(0, 52),
      "net.prototxt:2:8: AVG: no such value of pool; did yo");
  EXPECT_EQ(error(kInput + Fc("f", "y", 2)).substr(0, 61),
            "net.prototxt:2:40: layer 'f' (InnerProduct): unknown bottom '");
  EXPECT_NE(error("layer { name: 'c' ").find("is a closing brace missing?"), std::string::npos);
  EXPECT_NE(error("layer { name: 'l' type: 'LSTM' }").find("1:19: layer 'l' (LSTM): not converted"),
            std::string::npos);
  EXPECT_NE(error("layers { type: RELU } layer { type: 'ReLU' }").find("exclude each other"),
            std::string::npos);
  EXPECT_NE(error("layer { name: 'd' type: 'Data' top: 'x' data_param { source: 'mine' } }")
                .find("--shape=x:3x224x224"),
            std::string::npos);
  EXPECT_NE(error(std::string("\x0a\x03net", 5)).find("a binary file"), std::string::npos);
}

// --- weights ---

void AddBlob(const std::vector<int64_t>& dims, const std::vector<float>& values, bool old,
             google::protobuf::RepeatedPtrField<proto::caffe::BlobProto>* blobs) {
  proto::caffe::BlobProto& blob = *blobs->Add();
  if (old) {
    std::vector<int64_t> four(4 - dims.size(), 1);
    four.insert(four.end(), dims.begin(), dims.end());
    blob.set_num(static_cast<int32_t>(four[0]));
    blob.set_channels(static_cast<int32_t>(four[1]));
    blob.set_height(static_cast<int32_t>(four[2]));
    blob.set_width(static_cast<int32_t>(four[3]));
  } else {
    for (const int64_t dim : dims) blob.mutable_shape()->add_dim(dim);
  }
  blob.mutable_data()->Assign(values.begin(), values.end());
}

// BatchNorm and Scale, then an InnerProduct.
proto::caffe::NetParameter SomeWeights() {
  proto::caffe::NetParameter net;
  auto* norm = net.add_layer();
  norm->set_name("bn");
  AddBlob({2}, {4, 8}, false, norm->mutable_blobs());
  AddBlob({2}, {2, 6}, false, norm->mutable_blobs());
  AddBlob({1}, {2}, false, norm->mutable_blobs());
  auto* scale = net.add_layer();
  scale->set_name("sc");
  AddBlob({2}, {3, 5}, false, scale->mutable_blobs());
  AddBlob({2}, {1, -1}, false, scale->mutable_blobs());
  auto* fc = net.add_layer();
  fc->set_name("fc");
  AddBlob({3, 2}, {1, 2, 3, 4, 5, 6}, false, fc->mutable_blobs());
  AddBlob({3}, {10, 20, 30}, false, fc->mutable_blobs());
  return net;
}

constexpr char kNormNet[] =
    "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 2 } } }"
    "layer { name: 'bn' type: 'BatchNorm' bottom: 'x' top: 'bn' batch_norm_param { eps: 0.5 } }"
    "layer { name: 'sc' type: 'Scale' bottom: 'bn' top: 'bn' scale_param { bias_term: true } }"
    "layer { name: 'fc' type: 'InnerProduct' bottom: 'bn' top: 'fc' inner_product_param { "
    "num_output: 3 } }";

std::vector<double> NormReference() {
  // mean [2, 4], variance [1, 3]; x = [5, 1]
  const double a = 3 * (5 - 2) / std::sqrt(1.5) + 1, b = 5 * (1 - 4) / std::sqrt(3.5) - 1;
  return {a + 2 * b + 10, 3 * a + 4 * b + 20, 5 * a + 6 * b + 30};
}

void ExpectNormNet(CaffeWeights weights) {
  TemporaryDirectory directory;
  std::vector<std::string> notes;
  SaveInferenceNet(ParseNet(kNormNet, "n.prototxt"), {}, std::move(weights),
                   directory.File("model"), &notes);
  EXPECT_TRUE(notes.empty());
  Scope scope;
  const InferenceModel model = LoadInferenceModel(directory.File("model"), scope);
  EXPECT_EQ(model.feed_names, std::vector<std::string>{"x"});
  const Tensor x = Tensor::Of<float>({1, 2}, {5.f, 1.f});
  ExpectNear(Executor().Run(model.program, scope, {{"x", x}}, model.fetch_names)[0],
             NormReference(), 1e-4);
}

TEST(CaffeWeightsFile, BatchNormScaleAndInnerProduct) {
  const std::string bytes = SomeWeights().SerializeAsString();
  ExpectNormNet(ParseCaffeModel(bytes, "w.caffemodel"));
  TemporaryDirectory directory;
  WriteFileAtomic(directory.File("w.caffemodel"), bytes);
  ExpectNormNet(ReadCaffeModel(directory.File("w.caffemodel")));
}

TEST(CaffeWeightsFile, OldLayersWithFourDims) {
  const proto::caffe::NetParameter now = SomeWeights();
  proto::caffe::NetParameter old;
  for (const auto& layer : now.layer()) {
    auto* to = old.add_layers();
    auto* blobs = to->mutable_blobs();
    if (layer.name() == "fc") {  // the oldest form has the layer inside
      to->mutable_layer()->set_name("fc");
      blobs = to->mutable_layer()->mutable_blobs();
    } else {
      to->set_name(layer.name());
    }
    for (const auto& blob : layer.blobs()) {
      AddBlob({blob.shape().dim().begin(), blob.shape().dim().end()},
              {blob.data().begin(), blob.data().end()}, true, blobs);
    }
  }
  ExpectNormNet(ParseCaffeModel(old.SerializeAsString(), "w.caffemodel"));
}

TEST(CaffeWeightsFile, WrongShapesAndMissingLayersAreNamed) {
  const auto error = [](const proto::caffe::NetParameter& net) {
    return ErrorOf([&] {
      TemporaryDirectory directory;
      std::vector<std::string> notes;
      SaveInferenceNet(ParseNet(kNormNet, "n.prototxt"), {},
                       ParseCaffeModel(net.SerializeAsString(), "w.caffemodel"),
                       directory.File("m"), &notes);
    });
  };
  proto::caffe::NetParameter net = SomeWeights();
  net.mutable_layer(2)->mutable_blobs(0)->mutable_shape()->set_dim(0, 2);
  net.mutable_layer(2)->mutable_blobs(0)->mutable_shape()->set_dim(1, 3);
  EXPECT_NE(error(net).find("w.caffemodel: layer 'fc', blob 0: its shape is [2, 3], and "),
            std::string::npos)
      << error(net);
  net = SomeWeights();
  net.mutable_layer(2)->set_name("fc8");
  EXPECT_NE(error(net).find("it has no weights for fc.w_0; did you mean fc8? and 1 more"),
            std::string::npos)
      << error(net);
  net = SomeWeights();
  net.mutable_layer(0)->mutable_blobs(0)->add_data(1);
  EXPECT_NE(error(net).find("layer 'bn', blob 0: shape [2] for 3 values"), std::string::npos)
      << error(net);
}

// Every beginning of the file is refused or holds the layers that are whole.
TEST(CaffeWeightsFile, TruncatedFilesAreRefused) {
  const std::string bytes = SomeWeights().SerializeAsString();
  int refused = 0;
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::string error =
        ErrorOf([&] { ParseCaffeModel(std::string_view(bytes).substr(0, n), "w"); });
    refused += error != "no error";
    if (error != "no error") {
      EXPECT_NE(error.find("not a .caffemodel, or a damaged one"), std::string::npos) << error;
    }
  }
  EXPECT_GT(refused, static_cast<int>(bytes.size()) - 5);
}

// --- the shared texts ---

TEST(CaffeShared, EveryNetConverts) {
  const std::string data = TestDataDirectory();
  if (data.empty()) GTEST_SKIP() << "no shared data";
  int nets = 0, solvers = 0;
  for (const auto& entry : std::filesystem::directory_iterator(data + "/caffe")) {
    const std::string path = entry.path().string();
    SCOPED_TRACE(path);
    if (IsSolverFile(path)) {
      const ImportedJob job = ImportSolver(path, {}, "");
      EXPECT_NO_THROW(ParseJobText(job.text, "job"));
      ++solvers;
    } else {
      const ImportedNet net = ImportNetFile(path, {});
      for (const bool train : {true, false}) {
        ModelState state;
        state.train = train;
        EXPECT_NO_THROW(ParseModelText(net.text, "net", ".", DefaultOps(), state));
      }
      ++nets;
    }
  }
  EXPECT_EQ(nets, 5);
  EXPECT_EQ(solvers, 4);
}

int64_t ParameterCount(const BuiltModel& model) {
  int64_t count = 0;
  for (const std::string& name : model.main.Parameters())
    count += model.main.Root().FindVar(name)->shape().numel();
  return count;
}

TEST(CaffeShared, ParameterCountsAreThePublishedOnes) {
  const std::string data = TestDataDirectory();
  if (data.empty()) GTEST_SKIP() << "no shared data";
  const auto count = [&](const char* file) {
    return ParameterCount(ParseModelText(ImportNetFile(data + "/caffe/" + file, {}).text));
  };
  EXPECT_EQ(count("bvlc_alexnet_deploy.prototxt"), 60965224);
  EXPECT_EQ(count("bvlc_alexnet_train_val.prototxt"), 60965224);
  EXPECT_EQ(count("mnist_lenet.prototxt"), 431080);
  EXPECT_EQ(count("cifar10_cifar10_quick_train_test.prototxt"), 145578);
}

TEST(CaffeShared, LeNetIsTextThatAPersonWouldWrite) {
  const std::string data = TestDataDirectory();
  if (data.empty()) GTEST_SKIP() << "no shared data";
  const std::string text = ImportNetFile(data + "/caffe/mnist_lenet.prototxt", {}).text;
  EXPECT_NE(text.find("layer { pool2d { input: \"conv1\" pool_size: 2 pool_stride: 2 output: "
                      "\"pool1\" } }\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 17) << text;
  EXPECT_TRUE(text.ends_with("layer { softmax { input: \"ip2\" output: \"prob\" } }\n")) << text;
}

std::string Repeated(int times, const std::function<std::string(int)>& text) {
  std::string all =
      "layer { name: 'd' type: 'Input' top: 'data' input_param { shape { dim: 1 dim: 3 } } } ";
  for (int i = 0; i < times; ++i) all += text(i);
  return all;
}

// Chains in place and not, fans, tops of one layer, layers of one name: all in one line.
TEST(CaffeNet, ThousandsOfLayers) {
  constexpr int kLayers = 3000;
  const auto layer = [](const std::string& name, const std::string& type, const std::string& bottom,
                        const std::string& top) {
    return fmt::format("layer {{ name: '{}' type: '{}' bottom: '{}' top: '{}' }} ", name, type,
                       bottom, top);
  };
  const auto top = [](int i) { return i < 0 ? "data" : fmt::format("t{}", i); };
  const auto entries = [](const std::string& text) {
    const std::string net = Import(text).text;
    return std::count(net.begin(), net.end(), '\n') - 1;
  };
  EXPECT_EQ(
      entries(Repeated(
          kLayers, [&](int i) { return layer(fmt::format("r{}", i), "AbsVal", "data", "data"); })),
      kLayers);
  EXPECT_EQ(entries(Repeated(kLayers, [&](int) { return layer("r", "AbsVal", "data", "data"); })),
            kLayers);
  EXPECT_EQ(
      entries(Repeated(kLayers, [&](int i) { return layer("r", "TanH", top(i - 1), top(i)); })),
      kLayers);
  EXPECT_EQ(entries(Repeated(kLayers, [&](int i) { return layer("r", "TanH", "data", top(i)); })),
            kLayers);
  std::string split = "layer { name: 's' type: 'Split' bottom: 'data' ";
  for (int i = 0; i < 20000; ++i) split += fmt::format("top: 't{}' ", i);
  const ImportedNet net = Import(Repeated(1, [&](int) { return split + "} "; }));
  EXPECT_EQ(net.train.outputs.size(), 20000u);
}

}  // namespace coracle::caffe::caffe_net_test

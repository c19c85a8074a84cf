// Texts of other versions of Caffe: unknown fields, layers whose results inputs replace, and texts
// for one phase.

#include <coracle/test/convert/caffe_net.h>
#include <coracle/test/error_of.h>

#include <algorithm>

namespace coracle::caffe::caffe_inputs_test {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string Fc(const std::string& bottom) {
  return "layer { name: 'f' type: 'InnerProduct' bottom: '" + bottom +
         "' top: 'f' inner_product_param { num_output: 2 } } ";
}

constexpr char kInput[] =
    "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 3 } } } ";

std::string Error(const std::string& text, const ImportOptions& options = {}) {
  return ErrorOf([&] { Import(text, options); });
}

// --- inputs instead of layers ---

constexpr char kDense[] =
    "layer { name: 'd' type: 'DenseImageData' top: 'data' top: 'label' dense_image_data_param { "
    "source: 'train.txt' batch_size: 4 shuffle: true } } ";

TEST(CaffeInputs, ReplaceAPrivateDataLayer) {
  const std::string text =
      kDense + Fc("data") +
      "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'label' top: 'l' }";
  const std::string error = Error(text);
  EXPECT_TRUE(Contains(error, "net.prototxt:1:19: layer 'd' (DenseImageData): not converted: "))
      << error;
  EXPECT_TRUE(Contains(error, "--shape=data:3x224x224,label:1")) << error;
  // The label is read, too.
  const std::string both = Error(text, {.shapes = {{"data", {3, 4, 5}}}});
  EXPECT_TRUE(both.ends_with(": --shape=data:3x4x5,label:1")) << both;
  TestNet net(text, true, {.shapes = {{"data", {3, 4, 5}}, {"label", {1}}}});
  EXPECT_EQ(net.imported.train.labels, std::vector<std::string>{"label"});
  EXPECT_EQ(net.Run({{"data", Drawn({2, 3, 4, 5})}, {"label", Tensor::Of<int64_t>({2, 1}, {0, 1})}},
                    net.imported.loss)
                .numel(),
            1);
  // With the batch, which four numbers name; a label that no layer reads is no input.
  const ImportedNet only = Import(kDense + Fc("data"), {.shapes = {{"data", {7, 3, 4, 5}}}});
  EXPECT_EQ(only.test.inputs, std::vector<std::string>{"data"});
  EXPECT_TRUE(Contains(only.text, "shape: [-1, 3, 4, 5]")) << only.text;
}

TEST(CaffeInputs, ReplaceACodedLayer) {
  const std::string text =
      kInput +
      std::string(
          "layer { name: 'p' type: 'Python' bottom: 'x' top: 'rois' python_param { "
          "module: 'rpn' layer: 'L' } } ") +
      Fc("rois");
  const std::string error = Error(text);
  EXPECT_TRUE(Contains(error, "layer 'p' (Python): not converted: its code is Python")) << error;
  EXPECT_TRUE(error.ends_with(": --shape=rois:5")) << error;
  const ImportedNet net = Import(text, {.shapes = {{"rois", {5}}}});
  EXPECT_EQ(net.test.inputs, (std::vector<std::string>{"x", "rois"}));
  EXPECT_TRUE(Contains(Error("layer { name: 'm' type: 'Mine' top: 'y' } " + Fc("y")),
                       "layer 'm' (Mine): no such type of layer; inputs can replace it"));
}

TEST(CaffeInputs, ReplaceDataOfUnknownSize) {
  const std::string text =
      "layer { name: 'd' type: 'Data' top: 'y' data_param { source: 'mine' } } " + Fc("y");
  EXPECT_TRUE(Contains(Error(text), "--shape=y:3x224x224"));
  for (const Dims& dims : {Dims{3, 8, 9}, Dims{2, 3, 8, 9}})
    EXPECT_TRUE(Contains(Import(text, {.shapes = {{"y", dims}}}).text, "shape: [-1, 3, 8, 9]"));
}

std::string Layer(const std::string& type, const std::vector<std::string>& bottoms,
                  const std::vector<std::string>& tops, const std::string& more = "") {
  std::string text = "layer { name: '" + tops[0] + "' type: '" + type + "'";
  for (const std::string& bottom : bottoms) text += " bottom: '" + bottom + "'";
  for (const std::string& top : tops) text += " top: '" + top + "'";
  return text + " " + more + " } ";
}

// Shapes as --shape gives them.
std::map<std::string, Dims> Proposed(const std::string& error) {
  std::map<std::string, Dims> shapes;
  const size_t begin = error.find("--shape=");
  std::string left = begin == std::string::npos ? "" : error.substr(begin + 8) + ",";
  while (!left.empty()) {
    const size_t end = left.find(','), colon = left.rfind(':', end);
    Dims& dims = shapes[left.substr(0, colon)];
    for (size_t at = colon; at < end; at = std::min(left.find('x', at + 1), end))
      dims.push_back(std::stoll(left.substr(at + 1)));
    left = left.substr(end + 1);
  }
  return shapes;
}

// The message names every input that the net needs, with dims that its readers take; typed as it
// stands, it converts the net.
TEST(CaffeInputs, TheProposalIsWhole) {
  const std::string conv = "convolution_param { num_output: 6 kernel_size: 3 pad: 1 } ";
  const std::string text =
      Layer("Python", {}, {"data", "im_info", "gt_boxes"}) +
      Layer("Convolution", {"data"}, {"maps"}, conv) +
      Layer("Python", {"maps", "im_info", "gt_boxes"}, {"seg", "targets", "inside", "outside"}) +
      Layer("SoftmaxWithLoss", {"maps", "seg"}, {"seg_loss"}) +
      Layer("SmoothL1Loss", {"maps", "targets", "inside", "outside"}, {"box_loss"}) +
      Layer("Mine", {"maps"}, {"rois", "ids"}) +
      Layer("ROIPooling", {"maps", "rois"}, {"pool"},
            "roi_pooling_param { pooled_w: 2 pooled_h: 2 spatial_scale: 1 }") +
      Layer("InnerProduct", {"pool"}, {"score"}, "inner_product_param { num_output: 5 }") +
      Layer("SoftmaxWithLoss", {"score", "ids"}, {"loss"}) +
      Layer("Python", {"score", "ids"}, {"counted"});
  const std::string error = Error(text);
  EXPECT_TRUE(
      error.ends_with("--shape=data:3x224x224,seg:1x224x224,targets:6x224x224,inside:6x224x"
                      "224,outside:6x224x224,rois:5,ids:1,counted:1"))
      << error;
  const ImportedNet net = Import(text, {.shapes = Proposed(error)});
  EXPECT_EQ(net.train.inputs, (std::vector<std::string>{"data", "seg", "targets", "inside",
                                                        "outside", "rois", "ids"}));
  EXPECT_EQ(net.train.labels, (std::vector<std::string>{"seg", "ids"}));
  EXPECT_TRUE(std::any_of(net.notes.begin(), net.notes.end(), [](const std::string& note) {
    return Contains(note, "layer 'counted' (Python) is left out");
  }));
}

TEST(CaffeInputs, TheProposalOfDataOfUnknownSize) {
  const std::string text =
      Layer("Data", {}, {"pairs"}, "data_param { source: 'mine' }") +
      Layer("Data", {}, {"map"}, "data_param { source: 'maps' }") +
      Layer("HDF5Data", {}, {"t"}, "hdf5_data_param { source: 'h' }") +
      Layer("Slice", {"pairs"}, {"a", "b"}, "slice_param { slice_point: 4 }") + Fc("a") +
      Layer("Convolution", {"b"}, {"c"}, "convolution_param { num_output: 3 kernel_size: 1 }") +
      Layer("EuclideanLoss", {"f", "t"}, {"l"}) + Layer("SoftmaxWithLoss", {"c", "map"}, {"s"});
  const std::string error = Error(text);
  EXPECT_TRUE(error.ends_with("give it: --shape=pairs:8x224x224,map:1x224x224,t:2")) << error;
  EXPECT_EQ(Import(text, {.shapes = Proposed(error)}).train.labels,
            std::vector<std::string>{"map"});
}

// As many channels as the first convolution takes.
TEST(CaffeInputs, TheProposalFitsGroups) {
  const auto check = [](const std::string& type, const std::string& param, const char* option) {
    const std::string text = Layer("Python", {}, {"x"}) + Layer(type, {"x"}, {"c"},
                                                                "convolution_param { num_output: 8 "
                                                                "kernel_size: 3 " +
                                                                    param + " }");
    const std::string error = Error(text);
    EXPECT_TRUE(error.ends_with(option)) << error;
    Import(text, {.shapes = Proposed(error)});
  };
  check("Convolution", "group: 4", "--shape=x:4x224x224");
  check("Convolution", "group: 2", "--shape=x:4x224x224");
  check("Convolution", "", "--shape=x:3x224x224");
  check("Deconvolution", "group: 8", "--shape=x:8x224x224");
  check("DepthwiseConvolution", "", "--shape=x:8x224x224");
}

// Layers that pass on all channels may come before the grouped convolution.
TEST(CaffeInputs, TheProposalFitsGroupsAfterOtherLayers) {
  const std::string conv = "convolution_param { num_output: 8 kernel_size: 1 group: 4 }";
  const std::string pool = "pooling_param { kernel_size: 2 stride: 2 }";
  const auto expect = [](const std::string& text, const std::string& option) {
    const std::string error = Error(text);
    EXPECT_TRUE(error.ends_with(option)) << error;
    Import(text, {.shapes = Proposed(error)});
  };
  const std::string x = Layer("Python", {}, {"x"});
  expect(x + Layer("ReLU", {"x"}, {"x"}) + Layer("Convolution", {"x"}, {"c"}, conv),
         "--shape=x:4x224x224");
  expect(x + Layer("Pooling", {"x"}, {"p"}, pool) + Layer("ReLU", {"p"}, {"r"}) +
             Layer("Convolution", {"r"}, {"c"}, conv),
         "--shape=x:4x224x224");
  // Another layer between them decides about the channels.
  expect(x + Layer("ReLU", {"x"}, {"x"}) + Fc("x"), "--shape=x:3x224x224");
}

// A name that the option cannot have is not proposed, and one that a shell would split is quoted.
TEST(CaffeInputs, TheProposalIsAnOption) {
  for (const char* name : {"we:ird,na me", "it\\'s", "a\\nb"}) {
    const std::string error = Error(Layer("Python", {}, {name}) + Fc(name));
    EXPECT_FALSE(Contains(error, "--shape=")) << error;
    EXPECT_TRUE(Contains(error, "with --shape, which cannot name the blob ")) << error;
    EXPECT_TRUE(Contains(error, "first rename it in the text")) << error;
  }
  const std::string error = Error(Layer("Python", {}, {"na me"}) + Fc("na me"));
  EXPECT_TRUE(error.ends_with("--shape='na me:3x224x224'")) << error;
}

TEST(CaffeInputs, SsdsDataHasTheSizeOfItsPictures) {
  const std::string text =
      "layer { name: 'd' type: 'AnnotatedData' top: 'data' top: 'label' transform_param { "
      "resize_param { prob: 1 resize_mode: WARP height: 30 width: 40 interp_mode: LINEAR } } "
      "data_param { source: 'x' batch_size: 8 } annotated_data_param { label_map_file: 'm' } } " +
      Fc("data") +
      "layer { name: 'e' type: 'DetectionEvaluate' bottom: 'f' bottom: 'label' top: 'e' "
      "detection_evaluate_param { num_classes: 21 } }";
  const ImportedNet net = Import(text);
  EXPECT_TRUE(Contains(net.text, "shape: [-1, 3, 30, 40]")) << net.text;
  EXPECT_EQ(net.test.inputs, std::vector<std::string>{"data"});
  EXPECT_TRUE(std::any_of(net.notes.begin(), net.notes.end(), [](const std::string& note) {
    return Contains(note, "DetectionEvaluate is left out");
  }));
}

// BVLC's siamese nets cut pairs of pictures apart.
TEST(CaffeInputs, PairsOfMnistHaveTwoChannels) {
  const ImportedNet net = Import(
      "layer { name: 'd' type: 'Data' top: 'pair' top: 'sim' data_param { source: "
      "'examples/siamese/mnist_siamese_train_leveldb' } } layer { name: 's' type: 'Slice' bottom: "
      "'pair' top: 'a' top: 'b' slice_param { slice_dim: 1 slice_point: 1 } }");
  EXPECT_TRUE(Contains(net.text, "shape: [-1, 2, 28, 28]")) << net.text;
}

// --- one phase ---

TEST(CaffeInputs, TextsForOnePhase) {
  for (const char* phase : {"TEST", "TRAIN"}) {
    const std::string text =
        std::string("layer { name: 'x' type: 'Input' top: 'x' include { phase: ") + phase +
        " } input_param { shape { dim: 1 dim: 3 } } } " + Fc("x");
    const ImportedNet net = Import(text);
    EXPECT_FALSE(Contains(net.text, "include_if")) << net.text;
    EXPECT_EQ(TestNet(text).Run({{"x", Drawn({4, 3})}}, "f").shape(), (Shape{4, 2}));
  }
}

// --- unknown fields ---

TEST(CaffeUnknownFields, OfConvertedLayersAreNamed) {
  EXPECT_TRUE(Contains(
      Error(std::string(kInput) + "\nlayer { name: 'r' type: 'ReLU' bottom: 'x' top: 'y'\n "
                                  "mine_param { a: 1 } }"),
      "net.prototxt:3:2: mine_param: no such field in Caffe's LayerParameter"));
  EXPECT_TRUE(Contains(Error("mine: 3\n" + std::string(kInput)),
                       "net.prototxt:1:1: mine: no such field in Caffe's NetParameter"));
  // After a layer that is not converted anyway.
  EXPECT_TRUE(Contains(Error(kDense + std::string("\nmine: 3")),
                       "net.prototxt:2:1: mine: no such field in Caffe's NetParameter"));
  EXPECT_TRUE(Contains(Error("layers { name: 'r' type: RELU mine_param { } }"),
                       "mine_param: no such field in Caffe's V1LayerParameter"));
}

TEST(CaffeUnknownFields, WithoutEffectAreAccepted) {
  const std::string net =
      "default_forward_type: FLOAT16 engine: 'MKLDNN' mem_param { optimize_train: true } ";
  const std::string layer =
      "layer { name: 'f' type: 'InnerProduct' bottom: 'x' top: 'f' forward_type: FLOAT engine: "
      "'CAFFE' "
      "inner_product_param { engine: MKL2017 num_output: 2 } } ";
  EXPECT_EQ(Import(net + kInput + layer).text, Import(kInput + Fc("x")).text);
}

// How other versions of Caffe read pictures: a message for a net, a mistake for a job.
TEST(CaffeUnknownFields, OfReadingAreNoted) {
  const std::string data =
      "layer { name: 'd' type: 'Data' top: 'x' transform_param { crop_size: 6 img_rand_lower: 3 } "
      "data_param { source: 'mine' batch_size: 2 } } ";
  const ImportedNet net = Import(data + Fc("x"));
  EXPECT_TRUE(std::any_of(net.notes.begin(), net.notes.end(), [](const std::string& note) {
    return Contains(note, "img_rand_lower: no such field in Caffe's TransformationParameter");
  }));
  const std::string typo =
      "layer { name: 'd' type: 'Data' top: 'x' transform_param { crop_sise: 6 "
      "} data_param { source: 'mnist' } } ";
  EXPECT_TRUE(Contains(Error(typo + Fc("x")), "crop_sise: no such field"));
  const std::string solver = "base_lr: 1 lr_policy: 'fixed' max_iter: 2 net_param { " + data +
                             Fc("x") +
                             "layer { name: 'l' type: 'Reduction' bottom: 'f' top: 'l' "
                             "loss_weight: 1 } }";
  EXPECT_TRUE(Contains(ErrorOf([&] { ImportSolverText(solver, "s.prototxt", {}, ""); }),
                       "img_rand_lower: no such field"));
}

TEST(CaffeUnknownFields, MayNotBeNestedDeeply) {
  for (const char* open : {"a {", "a <", "a: ["}) {
    std::string text = "layer { name: 'm' type: 'Mine' ";
    for (int i = 0; i < 200000; ++i) text += open;
    EXPECT_TRUE(Contains(Error(text), "messages are nested too deeply")) << open;
  }
}

}  // namespace coracle::caffe::caffe_inputs_test

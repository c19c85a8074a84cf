// Detectors and segmentation nets of Caffe with drawn weights, run by OpenCV too. For development:
// $CORACLE_CV2 is a python3 that has cv2. $CORACLE_CAFFE_TEXTS is a folder of further texts
// (.prototxt) to compare, of nets for use.

#include <coracle/convert/caffe/weights.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/proto/caffe.pb.h>
#include <coracle/test/convert/caffe_net.h>
#include <coracle/test/test_data.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace coracle::caffe::caffe_peer_test {

constexpr double kTolerance = 1e-4;

// --- weights ---

class Draws {
 public:
  float operator()(double low, double high) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(low + (high - low) * static_cast<double>(state_ >> 40) / (1 << 24));
  }

 private:
  uint64_t state_ = 7;
};

// Values of the size at which activations keep theirs.
void Fill(const ParamSource& param, Draws& draw, proto::caffe::BlobProto* blob) {
  double low = -0.1, high = 0.1;
  const bool statistic = param.layout == ParamSource::Layout::kScaledSum;
  if (param.dims.size() > 1) {
    high = 0.9 * std::sqrt(6.0 / static_cast<double>(NumelOf(param.dims, 1)));
    low = -high;
  } else if (statistic ? param.blob == 1 : param.blob == 0) {
    low = 0.5;
    high = 1.5;
  }
  for (const int64_t dim : param.dims) blob->mutable_shape()->add_dim(dim);
  for (int64_t i = 0; i < NumelOf(param.dims); ++i) blob->add_data(draw(low, high));
}

// Writes a .caffemodel with all parameters of the net.
void WriteWeights(const ImportedNet& net, const std::string& path) {
  Draws draw;
  proto::caffe::NetParameter file;
  std::map<std::string, proto::caffe::LayerParameter*> layers;
  for (const ParamSource& param : net.test.params) {
    auto*& layer = layers[param.layer];
    if (!layer) {
      layer = file.add_layer();
      layer->set_name(param.layer);
    }
    while (layer->blobs_size() <= param.blob) layer->add_blobs();
    Fill(param, draw, layer->mutable_blobs(param.blob));
    if (param.layout != ParamSource::Layout::kScaledSum || layer->blobs_size() > 2) continue;
    while (layer->blobs_size() < 3) layer->add_blobs();
    layer->mutable_blobs(2)->mutable_shape()->add_dim(1);  // the divisor of the sums
    layer->mutable_blobs(2)->add_data(1);
  }
  WriteFileAtomic(path, file.SerializeAsString());
}

// --- comparison ---

double Largest(const Tensor& x) {
  double largest = 1e-30;
  for (const float value : x.span<float>())
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  return largest;
}

double DifferenceOf(const Tensor& want, const Tensor& got) {
  double difference = 0;
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double a = static_cast<double>(want.data<float>()[i]);
    const double b = static_cast<double>(got.data<float>()[i]);
    if (!(std::abs(a - b) <= 1e30)) return INFINITY;
    difference = std::max(difference, std::abs(a - b));
  }
  return difference / Largest(want);
}

// Detections [1, 1, D, 7] in any order among nearly equal scores: the largest distance of a row to
// the nearest one of its image and class that is not taken.
double DifferenceOfRows(const Tensor& want, const Tensor& got) {
  const int64_t rows = want.numel() / 7;
  if (got.numel() != want.numel()) return INFINITY;
  std::vector<char> taken(static_cast<size_t>(rows), 0);
  double largest = 0;
  for (int64_t i = 0; i < rows; ++i) {
    double nearest = INFINITY;
    int64_t place = -1;
    for (int64_t k = 0; k < rows; ++k) {
      if (taken[static_cast<size_t>(k)]) continue;
      double distance = 0;
      for (int64_t c = 0; c < 7; ++c) {
        const float a = want.data<float>()[7 * i + c], b = got.data<float>()[7 * k + c];
        distance = c < 2 && a != b ? INFINITY : std::max<double>(distance, std::abs(a - b));
      }
      if (!(distance < nearest)) continue;
      nearest = distance;
      place = k;
    }
    if (place < 0) return INFINITY;
    taken[static_cast<size_t>(place)] = 1;
    largest = std::max(largest, nearest);
  }
  return largest;
}

// OpenCV fills detections up with rows of 0.
Tensor WithoutEmptyRows(const Tensor& rows) {
  std::vector<float> kept;
  for (int64_t i = 0; i < rows.numel() / 7; ++i) {
    const float* row = rows.data<float>() + 7 * i;
    if (std::any_of(row, row + 7, [](float value) { return value != 0; }))
      kept.insert(kept.end(), row, row + 7);
  }
  return Tensor::Of<float>({1, 1, static_cast<int64_t>(kept.size()) / 7, 7}, kept);
}

const Layer* WriterOf(const Net& net, const std::string& blob) {
  const Layer* found = nullptr;
  for (const Layer& layer : net.layers)
    for (const std::string& top : layer.def.top())
      if (top == blob) found = &layer;
  return found;
}

class CaffePeer : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("CORACLE_CV2")) GTEST_SKIP() << "no $CORACLE_CV2 (a python3 with cv2)";
    if (!std::getenv("CORACLE_SOURCE_DIR")) GTEST_SKIP() << "no $CORACLE_SOURCE_DIR";
  }

  // `rows`: the values of inputs that are no pictures.
  void Compare(const std::string& text, std::map<std::string, Tensor> feeds = {}) {
    const std::string folder = directory_.File(std::to_string(cases_++));
    MakeDirectories(folder);
    const Net net = ParseNet(text, "net.prototxt");
    TestNet ours(text);
    WriteFileAtomic(folder + "/net.prototxt", text);
    WriteWeights(ours.imported, folder + "/net.caffemodel");
    WriteFeeds(ours, folder, &feeds);
    std::string names;
    for (const std::string& var : ours.imported.test.outputs) {
      const Layer* layer = WriterOf(net, var);
      ASSERT_NE(layer, nullptr) << var;
      names += layer->def.name() + "\n";
    }
    WriteFileAtomic(folder + "/layers.txt", names);
    const std::string run =
        fmt::format("{} {}/test/convert/peer/cv2_run.py {}", std::getenv("CORACLE_CV2"),
                    std::getenv("CORACLE_SOURCE_DIR"), folder);
    ASSERT_EQ(std::system(run.c_str()), 0) << run;
    SetWeights(folder + "/net.caffemodel", ours);
    const auto& outputs = ours.imported.test.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool rows = WriterOf(net, outputs[i])->def.type() == "DetectionOutput";
      const Tensor theirs = ReadNpy(fmt::format("{}/out_{}.npy", folder, i));
      const Tensor want = rows ? WithoutEmptyRows(theirs) : theirs;
      const Tensor got = ours.Run(feeds, outputs[i]);
      ASSERT_EQ(got.numel(), want.numel()) << outputs[i] << " " << got.ToString();
      const double difference = rows ? DifferenceOfRows(want, got) : DifferenceOf(want, got);
      EXPECT_LE(difference, kTolerance) << outputs[i];
      if (rows) {
        EXPECT_GT(want.numel(), 7) << "too few detections to compare";
      }
      RecordProperty(fmt::format("{} {}", cases_, outputs[i]), fmt::format("{:.2g}", difference));
      std::printf("  %s: %s, differs by %.2g\n", outputs[i].c_str(),
                  want.shape().ToString().c_str(), difference);
    }
  }

  static void SetWeights(const std::string& file, TestNet& net) {
    std::vector<std::string> missing, notes;
    for (auto& [name, value] : StartValues(net.imported, {file}, &missing, &notes))
      net.scope.Set(name, value);
    EXPECT_TRUE(missing.empty()) << missing[0];
  }

  static void WriteFeeds(const TestNet& net, const std::string& folder,
                         std::map<std::string, Tensor>* feeds) {
    std::string names;
    size_t i = 0;
    for (const std::string& name : net.imported.test.inputs) {
      if (feeds->count(name) == 0) {
        std::vector<int64_t> dims = net.model.main.Root().FindVar(name)->meta().shape.ToVector();
        dims[0] = 1;
        feeds->emplace(name, Drawn(Shape(dims), 5));
      }
      WriteNpy(feeds->at(name), fmt::format("{}/in_{}.npy", folder, i++));
      names += name + "\n";
    }
    WriteFileAtomic(folder + "/inputs.txt", names);
  }

  TemporaryDirectory directory_;
  int cases_ = 0;
};

// --- texts ---

std::string Input(const std::string& name, const std::vector<int64_t>& dims) {
  std::string text =
      "layer { name: '" + name + "' type: 'Input' top: '" + name + "' input_param { shape {";
  for (const int64_t dim : dims) text += fmt::format(" dim: {}", dim);
  return text + " } } } ";
}

// A layer with one bottom and a top of its name.
std::string One(const std::string& type, const std::string& name, const std::string& bottom,
                const std::string& param = "") {
  return "layer { name: '" + name + "' type: '" + type + "' bottom: '" + bottom + "' top: '" +
         name + "' " + param + " } ";
}

std::string InPlace(const std::string& type, const std::string& blob,
                    const std::string& param = "") {
  return "layer { name: '" + blob + "_" + type + "' type: '" + type + "' bottom: '" + blob +
         "' top: '" + blob + "' " + param + " } ";
}

std::string Conv(const std::string& name, const std::string& bottom, int outputs, int kernel,
                 const std::string& more = "") {
  return One("Convolution", name, bottom,
             fmt::format("convolution_param {{ num_output: {} kernel_size: {} {} }}", outputs,
                         kernel, more));
}

std::string ConvBn(const std::string& name, const std::string& bottom, int outputs, int kernel,
                   const std::string& more = "") {
  return Conv(name, bottom, outputs, kernel, "bias_term: false " + more) +
         InPlace("BatchNorm", name) + InPlace("Scale", name, "scale_param { bias_term: true }") +
         InPlace("ReLU", name);
}

std::string Join2(const std::string& type, const std::string& name, const std::string& a,
                  const std::string& b, const std::string& param = "") {
  return "layer { name: '" + name + "' type: '" + type + "' bottom: '" + a + "' bottom: '" + b +
         "' top: '" + name + "' " + param + " } ";
}

// The locations, scores and priors of a map, each flat.
std::string Head(const std::string& map, double size) {
  const std::string flat = "flatten_param { axis: 1 }";
  const std::string order = "permute_param { order: 0 order: 2 order: 3 order: 1 }";
  std::string text;
  for (const auto& [kind, outputs] : std::map<std::string, int>{{"loc", 16}, {"conf", 16}}) {
    const std::string name = map + "_" + kind;
    text += Conv(name, map, outputs, 3, "pad: 1") + One("Permute", name + "_p", name, order) +
            One("Flatten", name + "_f", name + "_p", flat);
  }
  return text +
         Join2("PriorBox", map + "_prior", map, "data",
               fmt::format(
                   "prior_box_param {{ min_size: {} max_size: {} aspect_ratio: 2 "
                   "flip: true clip: false variance: 0.1 variance: 0.1 variance: 0.2 variance: "
                   "0.2 }}",
                   size, 2 * size));
}

TEST_F(CaffePeer, SingleShotDetector) {
  Compare(
      Input("data", {1, 3, 64, 64}) + ConvBn("c1", "data", 16, 3, "pad: 1 stride: 2") +
      ConvBn("d1", "c1", 16, 3, "pad: 1 group: 16") + ConvBn("p1", "d1", 32, 1) +
      ConvBn("d2", "p1", 32, 3, "pad: 1 stride: 2 group: 32") + ConvBn("p2", "d2", 48, 1) +
      One("Normalize", "n2", "p2",
          "norm_param { across_spatial: false channel_shared: false scale_filler { value: 20 "
          "} }") +
      Conv("c3", "p2", 64, 3, "pad: 1 stride: 2") + InPlace("ReLU", "c3") + Head("n2", 12) +
      Head("c3", 24) + Join2("Concat", "loc", "n2_loc_f", "c3_loc_f") +
      Join2("Concat", "conf", "n2_conf_f", "c3_conf_f") +
      Join2("Concat", "prior", "n2_prior", "c3_prior", "concat_param { axis: 2 }") +
      One("Reshape", "conf_r", "conf", "reshape_param { shape { dim: 0 dim: -1 dim: 4 } }") +
      One("Softmax", "conf_s", "conf_r", "softmax_param { axis: 2 }") +
      One("Flatten", "conf_f", "conf_s", "flatten_param { axis: 1 }") +
      "layer { name: 'out' type: 'DetectionOutput' bottom: 'loc' bottom: 'conf_f' bottom: "
      "'prior' top: 'out' include { phase: TEST } detection_output_param { num_classes: 4 "
      "share_location: true background_label_id: 0 nms_param { nms_threshold: 0.45 top_k: 400 } "
      "code_type: CENTER_SIZE keep_top_k: 400 confidence_threshold: 0.3 } }");
}

TEST_F(CaffePeer, FullyConvolutionalSegmentation) {
  Compare(Input("data", {1, 3, 48, 64}) + Conv("c1", "data", 16, 3, "pad: 20") +
          InPlace("ReLU", "c1") +
          One("Pooling", "p1", "c1", "pooling_param { kernel_size: 2 stride: 2 }") +
          Conv("c2", "p1", 32, 3, "pad: 1") + InPlace("ReLU", "c2") +
          One("Pooling", "p2", "c2", "pooling_param { kernel_size: 3 stride: 2 }") +
          Conv("fc", "p2", 64, 5) + InPlace("ReLU", "fc") + InPlace("Dropout", "fc") +
          Conv("score", "fc", 6, 1) +
          One("Deconvolution", "up2", "score",
              "convolution_param { num_output: 6 bias_term: false kernel_size: 4 stride: 2 }") +
          Conv("score1", "p1", 6, 1) +
          Join2("Crop", "crop1", "score1", "up2", "crop_param { axis: 2 offset: 5 }") +
          Join2("Eltwise", "fused", "up2", "crop1") +
          One("Deconvolution", "up", "fused",
              "convolution_param { num_output: 6 group: 6 bias_term: false kernel_size: 4 stride: "
              "2 }") +
          Join2("Crop", "crop", "up", "data", "crop_param { axis: 2 offset: 9 }"));
}

TEST_F(CaffePeer, TwoStagesOfPoses) {
  const std::string prelu = "prelu_param { channel_shared: false }";
  Compare(
      Input("data", {1, 3, 40, 56}) + Conv("c1", "data", 24, 3, "pad: 1") +
      InPlace("PReLU", "c1", prelu) +
      One("Pooling", "p1", "c1", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }") +
      Conv("maps", "p1", 32, 3, "pad: 2 dilation: 2") + InPlace("ReLU", "maps") +
      Conv("a1", "maps", 10, 1) + Conv("b1", "maps", 6, 1) +
      "layer { name: 'stage2' type: 'Concat' bottom: 'a1' bottom: 'b1' bottom: 'maps' top: "
      "'stage2' concat_param { axis: 1 } } " +
      Conv("a2", "stage2", 10, 7, "pad: 3") + Conv("b2", "stage2", 6, 7, "pad: 3") +
      Join2("Concat", "out", "a2", "b2"));
}

// Regions of the picture in pixels.
Tensor Regions() {
  const std::vector<float> rows = {0, 2, 3, 40, 30, 0, 10, 12, 55, 47, 0, 0, 0, 63, 63};
  return Tensor::Of<float>({3, 5}, rows);
}

TEST_F(CaffePeer, RegionsOfFasterRcnn) {
  Compare(Input("data", {1, 3, 64, 64}) + Input("rois", {3, 5}) +
              Conv("c1", "data", 16, 3, "pad: 1 stride: 2") + InPlace("ReLU", "c1") +
              One("LRN", "n1", "c1", "lrn_param { local_size: 3 alpha: 0.00005 beta: 0.75 }") +
              Conv("c2", "n1", 24, 3, "pad: 1 stride: 2") + InPlace("ReLU", "c2") +
              Join2("ROIPooling", "pool", "c2", "rois",
                    "roi_pooling_param { pooled_w: 6 pooled_h: 6 spatial_scale: 0.25 }") +
              One("InnerProduct", "fc", "pool", "inner_product_param { num_output: 40 }") +
              InPlace("ReLU", "fc") +
              One("InnerProduct", "cls", "fc", "inner_product_param { num_output: 5 }") +
              One("InnerProduct", "boxes", "fc", "inner_product_param { num_output: 20 }") +
              One("Softmax", "prob", "cls"),
          {{"rois", Regions()}});
}

TEST_F(CaffePeer, RegionsOfRfcn) {
  Compare(
      Input("data", {1, 3, 64, 64}) + Input("rois", {3, 5}) +
          Conv("c1", "data", 16, 3, "pad: 1 stride: 2") + InPlace("ReLU", "c1") +
          Conv("maps", "c1", 36, 1) +
          Join2("PSROIPooling", "pool", "maps", "rois",
                "psroi_pooling_param { spatial_scale: 0.5 output_dim: 4 group_size: 3 }") +
          One("Pooling", "score", "pool", "pooling_param { pool: AVE kernel_size: 3 stride: 3 }") +
          One("Softmax", "prob", "score"),
      {{"rois", Regions()}});
}

TEST_F(CaffePeer, DilatedGroups) {
  Compare(Input("data", {1, 3, 33, 49}) + ConvBn("c1", "data", 24, 3, "pad: 1 stride: 2") +
          Conv("c2", "c1", 24, 3, "pad: 4 dilation: 4 group: 3") + InPlace("ELU", "c2") +
          Conv("score", "c2", 5, 1) + One("Softmax", "prob", "score"));
}

TEST_F(CaffePeer, FurtherTexts) {
  const char* folder = std::getenv("CORACLE_CAFFE_TEXTS");
  if (!folder) GTEST_SKIP() << "no $CORACLE_CAFFE_TEXTS (a folder of .prototxt)";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".prototxt") continue;
    SCOPED_TRACE(entry.path().filename().string());
    std::printf("%s\n", entry.path().filename().c_str());
    Compare(ReadFile(entry.path().string()));
  }
}

}  // namespace coracle::caffe::caffe_peer_test

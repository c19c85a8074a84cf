// Detection ops, exported and run by ONNX Runtime.
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/operators.h>
#include <coracle/test/convert/ort_peer.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

namespace coracle::onnx_detection_peer_test {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

class OnnxDetectionPeer : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = WhyNoOrt();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  // A program of one op on these inputs. `open` inputs have unknown dims in the program.
  void Compare(const std::string& type, const std::map<std::string, Tensor>& inputs,
               const std::vector<std::string>& outputs, const AttrList& attrs, bool open = false,
               double tolerance = 1e-5) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    SlotList in, out;
    std::vector<std::string> feeds;
    for (const auto& [slot, value] : inputs) {
      Shape shape = value.shape();
      // Sizes of images and maps; the numbers of classes and corners stay.
      for (int i = 0; open && i < shape.rank(); ++i)
        if (i == 0 || shape.rank() == 4 ? i != 1 : shape[i] > 8) shape[i] = -1;
      root.Var(slot).SetMeta({VarType::kLoDTensor, value.dtype(), shape, 0});
      in.push_back({slot, {slot}});
      feeds.push_back(slot);
    }
    for (const std::string& slot : outputs) {
      root.Var("out." + slot);
      out.push_back({slot, {"out." + slot}});
    }
    std::vector<std::string> fetches;
    for (const std::string& slot : outputs) fetches.push_back("out." + slot);
    Writer(root, DefaultOps()).Append(type, in, out, attrs);
    SetFeedsAndFetches(program, feeds, fetches);
    const std::string wrong = CompareWithOrt(directory_.File(std::to_string(cases_++)), program,
                                             Scope(), inputs, tolerance);
    EXPECT_EQ(wrong, "") << type << " case " << cases_ << (open ? ", open" : "");
  }

  static Tensor Random(const Shape& shape, double low, double high, uint64_t seed = 1) {
    Tensor x(DType::kFloat32, shape);
    uint64_t state = seed;
    for (float& v : x.span<float>()) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      v = static_cast<float>(low + (high - low) * static_cast<double>(state >> 40) / (1 << 24));
    }
    return x;
  }
  // Boxes [images, count, 4] whose corners are in order.
  static Tensor Boxes(int64_t images, int64_t count, double size = 1) {
    Tensor boxes = Random({images, count, 4}, 0, 0.6 * size, 7);
    for (int64_t i = 0; i < images * count; ++i) {
      float* b = boxes.data<float>() + 4 * i;
      b[2] = b[0] + 0.05f + b[2];
      b[3] = b[1] + 0.05f + b[3];
    }
    return boxes;
  }

  TemporaryDirectory directory_;
  int cases_ = 0;
};

TEST_F(OnnxDetectionPeer, MulticlassNms) {
  const auto attrs = [](float score, int top, int keep, int background) {
    return AttrList{{"score_threshold", score},
                    {"nms_top_k", top},
                    {"keep_top_k", keep},
                    {"nms_threshold", 0.4f},
                    {"background_label", background},
                    {"normalized", true}};
  };
  for (const int64_t images : {1, 3}) {
    const std::map<std::string, Tensor> inputs = {{"BBoxes", Boxes(images, 40)},
                                                  {"Scores", Random({images, 5, 40}, 0, 1, 3)}};
    for (const bool open : {false, true}) {
      for (const auto& [top, keep] : {std::pair{-1, -1}, {10, 7}, {400, 200}, {3, 1}}) {
        for (const int background : {-1, 0, 4}) {
          Compare("multiclass_nms3", inputs, {"Out", "Index", "NmsRoisNum"},
                  attrs(0.3f, top, keep, background), open);
        }
      }
      Compare("multiclass_nms3", inputs, {"Out", "Index", "NmsRoisNum"}, attrs(2, 10, 5, 0), open);
    }
    if (images > 1) continue;
    Compare("multiclass_nms2", inputs, {"Out", "Index"}, attrs(0.3f, 20, 10, 0));
    Compare("multiclass_nms", inputs, {"Out"}, attrs(0.3f, 20, 10, 0));
    Compare("multiclass_nms", inputs, {"Out"}, attrs(2, 20, 10, 0));
  }
}

TEST_F(OnnxDetectionPeer, YoloBox) {
  for (const bool open : {false, true}) {
    for (const bool aware : {false, true}) {
      for (const bool clip : {false, true}) {
        const int64_t channels = 3 * (5 + 4 + (aware ? 1 : 0));
        Compare("yolo_box",
                {{"X", Random({2, channels, 5, 6}, -3, 3)},
                 {"ImgSize", Tensor::Of<int32_t>({2, 2}, {320, 400, 100, 60})}},
                {"Boxes", "Scores"},
                {{"anchors", Ints{10, 13, 16, 30, 33, 23}},
                 {"class_num", 4},
                 {"conf_thresh", 0.3f},
                 {"downsample_ratio", 32},
                 {"clip_bbox", clip},
                 {"scale_x_y", 1.05f},
                 {"iou_aware", aware},
                 {"iou_aware_factor", 0.4f}},
                open);
      }
    }
  }
}

TEST_F(OnnxDetectionPeer, BoxCoder) {
  Tensor prior = Boxes(1, 6, 4).Reshaped({6, 4});
  Tensor box = Boxes(1, 5, 4).Reshaped({5, 4});
  const Tensor variances = Random({6, 4}, 0.1, 0.5, 5), four = Random({4}, 0.1, 0.5, 6);
  for (const bool normalized : {true, false}) {
    const NamedAttr pixels{"box_normalized", normalized};
    for (const bool fixed : {false, true}) {
      AttrList attrs = {pixels};
      std::map<std::string, Tensor> inputs = {{"PriorBox", prior}};
      if (fixed)
        attrs.push_back({"variance", Floats{0.1f, 0.1f, 0.2f, 0.2f}});
      else
        inputs["PriorBoxVar"] = normalized ? variances : four;
      AttrList encode = attrs, decode = attrs;
      encode.push_back({"code_type", "encode_center_size"});
      decode.push_back({"code_type", "decode_center_size"});
      inputs["TargetBox"] = box;
      Compare("box_coder", inputs, {"OutputBox"}, encode);
      inputs["TargetBox"] = Random({3, 6, 4}, -1, 1);
      Compare("box_coder", inputs, {"OutputBox"}, decode);
      decode.push_back({"axis", 1});
      inputs["TargetBox"] = Random({6, 2, 4}, -1, 1);
      Compare("box_coder", inputs, {"OutputBox"}, decode);
    }
  }
}

TEST_F(OnnxDetectionPeer, PriorBox) {
  const std::map<std::string, Tensor> inputs = {{"Input", Random({1, 2, 5, 7}, 0, 1)},
                                                {"Image", Random({1, 3, 60, 90}, 0, 1)}};
  for (const bool open : {false, true}) {
    for (const bool clip : {false, true}) {
      for (const bool order : {false, true}) {
        for (const float step : {0.f, 16.f}) {
          Compare("prior_box", inputs, {"Boxes", "Variances"},
                  {{"min_sizes", Floats{20, 30}},
                   {"max_sizes", Floats{40, 50}},
                   {"aspect_ratios", Floats{1, 2, 3}},
                   {"variances", Floats{0.1f, 0.1f, 0.2f, 0.2f}},
                   {"flip", true},
                   {"clip", clip},
                   {"step_w", step},
                   {"step_h", step},
                   {"offset", 0.5f},
                   {"min_max_aspect_ratios_order", order}},
                  open);
        }
      }
    }
  }
}

TEST_F(OnnxDetectionPeer, CrfDecoding) {
  const std::map<std::string, Tensor> inputs = {{"Emission", Random({3, 6, 4}, -2, 2)},
                                                {"Transition", Random({6, 4}, -1, 1, 9)},
                                                {"Length", Tensor::Of<int64_t>({3}, {6, 1, 4})}};
  Compare("crf_decoding", inputs, {"ViterbiPath"}, {});
  auto labelled = inputs;
  labelled["Label"] = Tensor::Full<int64_t>({3, 6}, 2);
  Compare("crf_decoding", labelled, {"ViterbiPath"}, {});
}

}  // namespace coracle::onnx_detection_peer_test

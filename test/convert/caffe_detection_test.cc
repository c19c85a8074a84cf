// Layers of detectors, compared with loops written from the sources of SSD's, Fast R-CNN's and
// R-FCN's Caffe.

#include <coracle/test/convert/caffe_net.h>
#include <coracle/test/error_of.h>

#include <algorithm>
#include <cmath>

namespace coracle::caffe::caffe_detection_test {

std::string In(const std::string& name, const std::string& dims) {
  std::string text =
      "layer { name: '" + name + "' type: 'Input' top: '" + name + "' input_param { shape {";
  for (size_t begin = 0; begin < dims.size(); begin = dims.find('x', begin) + 1) {
    text += " dim: " + dims.substr(begin, dims.find('x', begin) - begin);
    if (dims.find('x', begin) == std::string::npos) break;
  }
  return text + " } } } ";
}

double At(const Tensor& x, int64_t i) { return static_cast<double>(x.data<float>()[i]); }

// --- regions ---

// Regions of two images in no order: one outside of the image, one of a single pixel.
Tensor Regions() {
  const std::vector<float> rows = {1,  2,  3, 9, 12, 0, 0, 0, 15, 15, 1, 30, 30,
                                   50, 60, 0, 7, 5,  7, 5, 1, -4, -2, 6, 8};
  return Tensor::Of<float>({5, 5}, rows);
}

struct Bin {
  int64_t y0, y1, x0, x1;
};

Bin Clipped(double y0, double y1, double x0, double x1, int64_t h, int64_t w) {
  const auto clip = [](double v, int64_t most) {
    return std::min(std::max(static_cast<int64_t>(v), int64_t{0}), most);
  };
  return {clip(std::floor(y0), h), clip(std::ceil(y1), h), clip(std::floor(x0), w),
          clip(std::ceil(x1), w)};
}

// roi_pooling_layer.cpp
std::vector<double> RoiPool(const Tensor& x, const Tensor& rois, int64_t ph, int64_t pw,
                            double scale) {
  const int64_t c = x.shape()[1], h = x.shape()[2], w = x.shape()[3];
  std::vector<double> out;
  for (int64_t r = 0; r < rois.shape()[0]; ++r) {
    double corner[4];
    for (int k = 0; k < 4; ++k) corner[k] = std::round(At(rois, 5 * r + 1 + k) * scale);
    const double bh = std::max(corner[3] - corner[1] + 1, 1.0) / static_cast<double>(ph);
    const double bw = std::max(corner[2] - corner[0] + 1, 1.0) / static_cast<double>(pw);
    for (int64_t k = 0; k < c; ++k) {
      const int64_t image = (static_cast<int64_t>(At(rois, 5 * r)) * c + k) * h * w;
      for (int64_t i = 0; i < ph; ++i) {
        for (int64_t j = 0; j < pw; ++j) {
          const auto di = static_cast<double>(i), dj = static_cast<double>(j);
          const Bin b =
              Clipped(std::floor(di * bh) + corner[1], std::ceil((di + 1) * bh) + corner[1],
                      std::floor(dj * bw) + corner[0], std::ceil((dj + 1) * bw) + corner[0], h, w);
          double best = b.y1 <= b.y0 || b.x1 <= b.x0 ? 0 : -1e30;
          for (int64_t y = b.y0; y < b.y1; ++y)
            for (int64_t z = b.x0; z < b.x1; ++z) best = std::max(best, At(x, image + y * w + z));
          out.push_back(best);
        }
      }
    }
  }
  return out;
}

TEST(CaffeDetection, RoiPoolingOfRegionsInAnyOrder) {
  const std::string text =
      In("data", "2x3x11x13") + In("rois", "5x5") +
      "layer { name: 'p' type: 'ROIPooling' bottom: 'data' bottom: 'rois' top: 'p' "
      "roi_pooling_param { pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 } }";
  TestNet net(text);
  const Tensor x = Drawn({2, 3, 11, 13}), rois = Regions();
  const Tensor got = net.Run({{"data", x}, {"rois", rois}}, "p");
  EXPECT_EQ(got.shape(), (Shape{5, 3, 3, 2}));
  ExpectNear(got, RoiPool(x, rois, 3, 2, 0.5), 0);
  const Tensor none(DType::kFloat32, {0, 5});
  EXPECT_EQ(net.Run({{"data", x}, {"rois", none}}, "p").shape(), (Shape{0, 3, 3, 2}));
  // An image that is not there.
  const Tensor wrong = Tensor::Of<float>({1, 5}, {2.f, 0.f, 0.f, 3.f, 3.f});
  EXPECT_NE(ErrorOf([&] { net.Run({{"data", x}, {"rois", wrong}}, "p"); }), "no error");
}

// psroi_pooling_layer.cu
std::vector<double> PsRoiPool(const Tensor& x, const Tensor& rois, int64_t outputs, int64_t k,
                              double scale) {
  const int64_t c = x.shape()[1], h = x.shape()[2], w = x.shape()[3];
  std::vector<double> out;
  for (int64_t r = 0; r < rois.shape()[0]; ++r) {
    double corner[4];
    for (int i = 0; i < 4; ++i)
      corner[i] = (std::round(At(rois, 5 * r + 1 + i)) + (i > 1 ? 1 : 0)) * scale;
    const double bw = std::max(corner[2] - corner[0], 0.1) / static_cast<double>(k);
    const double bh = std::max(corner[3] - corner[1], 0.1) / static_cast<double>(k);
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t j = 0; j < k; ++j) {
          const auto di = static_cast<double>(i), dj = static_cast<double>(j);
          const Bin b = Clipped(di * bh + corner[1], (di + 1) * bh + corner[1], dj * bw + corner[0],
                                (dj + 1) * bw + corner[0], h, w);
          const int64_t plane =
              (static_cast<int64_t>(At(rois, 5 * r)) * c + (o * k + i) * k + j) * h * w;
          double sum = 0;
          for (int64_t y = b.y0; y < b.y1; ++y)
            for (int64_t z = b.x0; z < b.x1; ++z) sum += At(x, plane + y * w + z);
          const int64_t area = (b.y1 - b.y0) * (b.x1 - b.x0);
          out.push_back(b.y1 <= b.y0 || b.x1 <= b.x0 ? 0 : sum / static_cast<double>(area));
        }
      }
    }
  }
  return out;
}

TEST(CaffeDetection, PsRoiPoolingOfRegionsInAnyOrder) {
  const std::string text =
      In("data", "2x18x11x13") + In("rois", "5x5") +
      "layer { name: 'p' type: 'PSROIPooling' bottom: 'data' bottom: 'rois' top: 'p' "
      "psroi_pooling_param { spatial_scale: 0.5 output_dim: 2 group_size: 3 } }";
  const Tensor x = Drawn({2, 18, 11, 13}), rois = Regions();
  const Tensor got = TestNet(text).Run({{"data", x}, {"rois", rois}}, "p");
  EXPECT_EQ(got.shape(), (Shape{5, 2, 3, 3}));
  ExpectNear(got, PsRoiPool(x, rois, 2, 3, 0.5), 1e-6);
}

TEST(CaffeDetection, RegionsThatDoNotFitAreRefused) {
  const auto error = [](const std::string& rois, const std::string& layer) {
    return ErrorOf([&] {
      Import(In("data", "1x8x4x4") + In("rois", rois) +
             "layer { name: 'p' bottom: 'data' bottom: "
             "'rois' top: 'p' " +
             layer + " }");
    });
  };
  EXPECT_NE(error("1x4", "type: 'ROIPooling' roi_pooling_param { pooled_h: 2 pooled_w: 2 }")
                .find("its regions must be [R, 5]"),
            std::string::npos);
  EXPECT_NE(error("1x5", "type: 'ROIPooling'").find("pooled_h and pooled_w must be positive"),
            std::string::npos);
  EXPECT_NE(error("1x5",
                  "type: 'PSROIPooling' psroi_pooling_param { spatial_scale: 1 output_dim: 3 "
                  "group_size: 2 }")
                .find("output_dim group_size^2 = 3 2^2 channels, got 8"),
            std::string::npos);
}

// --- SSD ---

struct Prior {
  std::vector<double> min = {}, max = {}, ratios = {};
  bool flip = true, clip = false;
  double step = 0, offset = 0.5;
};

// prior_box_layer.cpp, with the corners of all priors.
std::vector<double> PriorBoxes(const Prior& p, int64_t h, int64_t w, double ih, double iw) {
  std::vector<double> ratios = {1}, out;
  for (const double ratio : p.ratios) {
    const auto near = [&](double other) { return std::abs(other - ratio) < 1e-6; };
    if (std::any_of(ratios.begin(), ratios.end(), near)) continue;
    ratios.push_back(ratio);
    if (p.flip) ratios.push_back(1 / ratio);
  }
  const double sh = p.step > 0 ? p.step : ih / static_cast<double>(h);
  const double sw = p.step > 0 ? p.step : iw / static_cast<double>(w);
  for (int64_t y = 0; y < h; ++y) {
    for (int64_t x = 0; x < w; ++x) {
      const double cx = (static_cast<double>(x) + p.offset) * sw;
      const double cy = (static_cast<double>(y) + p.offset) * sh;
      const auto add = [&](double bw, double bh) {
        for (double v :
             {(cx - bw / 2) / iw, (cy - bh / 2) / ih, (cx + bw / 2) / iw, (cy + bh / 2) / ih})
          out.push_back(p.clip ? std::min(std::max(v, 0.0), 1.0) : v);
      };
      for (size_t s = 0; s < p.min.size(); ++s) {
        const double size = std::trunc(p.min[s]);
        add(size, size);
        if (!p.max.empty()) {
          const double middle = std::sqrt(size * std::trunc(p.max[s]));
          add(middle, middle);
        }
        for (size_t r = 1; r < ratios.size(); ++r)
          add(size * std::sqrt(ratios[r]), size / std::sqrt(ratios[r]));
      }
    }
  }
  return out;
}

std::string PriorText(const std::string& name, const std::string& map, const std::string& param) {
  return "layer { name: '" + name + "' type: 'PriorBox' bottom: '" + map +
         "' bottom: 'image' top: '" + name + "' prior_box_param { " + param + " } } ";
}

TEST(CaffeDetection, PriorBoxes) {
  const auto check = [](const Prior& p, const std::string& param, double ih, double iw,
                        const std::vector<double>& variances) {
    SCOPED_TRACE(param);
    TestNet net(In("map", "1x2x3x5") + In("image", "1x3x40x60") + PriorText("p", "map", param));
    const Tensor got =
        net.Run({{"map", Drawn({1, 2, 3, 5})}, {"image", Drawn({1, 3, 40, 60})}}, "p");
    std::vector<double> want = PriorBoxes(p, 3, 5, ih, iw);
    EXPECT_EQ(got.shape(), (Shape{1, 2, static_cast<int64_t>(want.size())}));
    const size_t size = want.size();
    for (size_t i = 0; i < size; ++i) want.push_back(variances[i % 4]);
    ExpectNear(got, want, 1e-6);
  };
  check({.min = {11}, .ratios = {2, 3}}, "min_size: 11 aspect_ratio: 2 aspect_ratio: 3", 40, 60,
        {0.1f, 0.1f, 0.1f, 0.1f});
  check({.min = {10.9, 20}, .max = {15, 33.5}, .ratios = {2, 0.5}, .clip = true, .step = 9},
        "min_size: 10.9 min_size: 20 max_size: 15 max_size: 33.5 aspect_ratio: 2 aspect_ratio: 0.5 "
        "clip: true step: 9 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2",
        40, 60, {0.1f, 0.1f, 0.2f, 0.2f});
  check({.min = {30}, .ratios = {1, 1.5}, .flip = false, .offset = 0.25},
        "min_size: 30 aspect_ratio: 1 aspect_ratio: 1.5 flip: false offset: 0.25 img_h: 80 img_w: "
        "30 variance: 0.3",
        80, 30, {0.3f, 0.3f, 0.3f, 0.3f});
}

TEST(CaffeDetection, PriorBoxesThatAreRefused) {
  const auto error = [](const std::string& param) {
    return ErrorOf([&] {
      Import(In("map", "1x2x3x5") + In("image", "1x3x40x60") + PriorText("p", "map", param));
    });
  };
  EXPECT_NE(error("aspect_ratio: 2").find("it needs a min_size"), std::string::npos);
  EXPECT_NE(error("min_size: 0.5").find("at least one pixel"), std::string::npos);
  EXPECT_NE(error("min_size: 5 variance: 1 variance: 1").find("one variance or four, got 2"),
            std::string::npos);
  EXPECT_NE(error("min_size: 5 max_size: 6 max_size: 7").find("2 max sizes for 1 min sizes"),
            std::string::npos);
}

struct Box {
  double v[4];
  double area() const { return v[2] < v[0] || v[3] < v[1] ? 0 : (v[2] - v[0]) * (v[3] - v[1]); }
};

double Overlap(const Box& a, const Box& b) {
  const double w = std::min(a.v[2], b.v[2]) - std::max(a.v[0], b.v[0]);
  const double h = std::min(a.v[3], b.v[3]) - std::max(a.v[1], b.v[1]);
  return w > 0 && h > 0 ? w * h / (a.area() + b.area() - w * h) : 0;
}

struct Detections {
  int64_t classes = 3, background = 0, top_k = -1, keep = -1;
  double confidence = 0.3, nms = 0.45;
  bool corner = false, encoded = false;
};

Box Decoded(const Detections& d, const Tensor& priors, const Tensor& loc, int64_t n, int64_t p,
            int64_t count) {
  Box prior{}, out{};
  double t[4];
  for (int k = 0; k < 4; ++k) {
    prior.v[k] = At(priors, 4 * p + k);
    t[k] = At(loc, (n * count + p) * 4 + k);
    if (!d.encoded) t[k] *= At(priors, 4 * count + 4 * p + k);
  }
  if (d.corner) {
    for (int k = 0; k < 4; ++k) out.v[k] = prior.v[k] + t[k];
    return out;
  }
  for (int k = 0; k < 2; ++k) {
    const double size = prior.v[k + 2] - prior.v[k], centre = (prior.v[k + 2] + prior.v[k]) / 2;
    const double c = t[k] * size + centre, s = std::exp(t[k + 2]) * size;
    out.v[k] = c - s / 2;
    out.v[k + 2] = c + s / 2;
  }
  return out;
}

// detection_output_layer.cpp
std::vector<double> DetectionRows(const Detections& d, const Tensor& loc, const Tensor& conf,
                                  const Tensor& priors, int64_t images, int64_t count) {
  struct Found {
    double score;
    int64_t label, box;
  };
  std::vector<double> rows;
  const auto better = [](const Found& a, const Found& b) { return a.score > b.score; };
  for (int64_t n = 0; n < images; ++n) {
    std::vector<Box> boxes;
    for (int64_t p = 0; p < count; ++p) boxes.push_back(Decoded(d, priors, loc, n, p, count));
    std::vector<Found> kept;
    for (int64_t label = 0; label < d.classes; ++label) {
      if (label == d.background) continue;
      std::vector<Found> found;
      for (int64_t p = 0; p < count; ++p) {
        const double score = At(conf, (n * count + p) * d.classes + label);
        if (score > d.confidence) found.push_back({score, label, p});
      }
      std::stable_sort(found.begin(), found.end(), better);
      if (d.top_k >= 0 && static_cast<int64_t>(found.size()) > d.top_k)
        found.resize(static_cast<size_t>(d.top_k));
      const size_t begin = kept.size();
      for (const Found& one : found) {
        bool keep = true;
        for (size_t i = begin; i < kept.size() && keep; ++i) {
          keep = Overlap(boxes[static_cast<size_t>(one.box)],
                         boxes[static_cast<size_t>(kept[i].box)]) <= d.nms;
        }
        if (keep) kept.push_back(one);
      }
    }
    if (d.keep >= 0 && static_cast<int64_t>(kept.size()) > d.keep) {
      std::stable_sort(kept.begin(), kept.end(), better);
      kept.resize(static_cast<size_t>(d.keep));
      std::stable_sort(kept.begin(), kept.end(),
                       [](const Found& a, const Found& b) { return a.label < b.label; });
    }
    for (const Found& one : kept) {
      rows.push_back(static_cast<double>(n));
      rows.push_back(static_cast<double>(one.label));
      rows.push_back(one.score);
      const Box& box = boxes[static_cast<size_t>(one.box)];
      rows.insert(rows.end(), box.v, box.v + 4);
    }
  }
  return rows;
}

// The last layers of an SSD with one map of 3 x 4 cells and 4 priors in each.
std::string DetectorText(const std::string& param) {
  return In("map", "1x2x3x4") + In("image", "1x3x40x60") + In("loc", "2x192") +
         In("conf", "2x144") +
         PriorText(
             "priors", "map",
             "min_size: 15 max_size: 25 aspect_ratio: 2 variance: 0.1 variance: 0.1 variance: "
             "0.2 variance: 0.2") +
         "layer { name: 'out' type: 'DetectionOutput' bottom: 'loc' bottom: 'conf' bottom: "
         "'priors' "
         "top: 'out' detection_output_param { num_classes: 3 " +
         param + " } }";
}

TEST(CaffeDetection, DetectionsAreSsds) {
  const auto check = [](const Detections& d, const std::string& param) {
    SCOPED_TRACE(param);
    TestNet net(DetectorText(param));
    Tensor conf = Drawn({2, 144}, 5);
    for (float& score : conf.span<float>()) score = (score + 1) / 2;
    const std::map<std::string, Tensor> feeds = {{"map", Drawn({1, 2, 3, 4})},
                                                 {"image", Drawn({1, 3, 40, 60})},
                                                 {"loc", Drawn({2, 192}, 6)},
                                                 {"conf", conf}};
    const Tensor priors = net.Run(feeds, "priors"), got = net.Run(feeds, "out");
    const std::vector<double> want = DetectionRows(d, feeds.at("loc"), conf, priors, 2, 48);
    EXPECT_GT(want.size(), 7u);
    EXPECT_EQ(got.shape(), (Shape{1, 1, static_cast<int64_t>(want.size() / 7), 7}));
    ExpectNear(got, want, 1e-5);
  };
  check({}, "code_type: CENTER_SIZE confidence_threshold: 0.3 nms_param { nms_threshold: 0.45 }");
  check({.top_k = 12, .keep = 7, .confidence = -3e38},
        "code_type: CENTER_SIZE keep_top_k: 7 nms_param { nms_threshold: 0.45 top_k: 12 }");
  check({.background = -1, .confidence = 0.6, .nms = 0.3, .corner = true},
        "background_label_id: -1 confidence_threshold: 0.6");
  check({.keep = 5, .encoded = true},
        "code_type: CENTER_SIZE variance_encoded_in_target: true confidence_threshold: 0.3 "
        "keep_top_k: 5 nms_param { nms_threshold: 0.45 }");
}

TEST(CaffeDetection, NoDetections) {
  TestNet net(DetectorText("code_type: CENTER_SIZE confidence_threshold: 2"));
  const Tensor got = net.Run({{"map", Drawn({1, 2, 3, 4})},
                              {"image", Drawn({1, 3, 40, 60})},
                              {"loc", Drawn({2, 192}, 6)},
                              {"conf", Drawn({2, 144}, 5)}},
                             "out");
  EXPECT_EQ(got.shape(), (Shape{1, 1, 0, 7}));
}

TEST(CaffeDetection, DetectionsThatAreRefused) {
  const auto error = [](const std::string& param) {
    return ErrorOf([&] { Import(DetectorText(param)); });
  };
  EXPECT_NE(error("code_type: CORNER_SIZE").find("CORNER_SIZE is not converted"),
            std::string::npos);
  EXPECT_NE(error("share_location: false").find("boxes of each class are not converted"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              std::string text = DetectorText("");
              text.replace(text.find("num_classes: 3"), 14, "num_classes: 4");
              Import(text);
            }).find("do not fit 4 classes"),
            std::string::npos);
}

// --- SmoothL1Loss ---

double SmoothL1(double d, double sigma) {
  const double s = sigma * sigma;
  return std::abs(d) < 1 / s ? d * d * s / 2 : std::abs(d) - 0.5 / s;
}

TEST(CaffeDetection, SmoothL1Loss) {
  const std::vector<const char*> names = {"a", "b", "inside", "outside"};
  const auto loss = [&](size_t bottoms, const std::string& dims, const Shape& shape,
                        const std::string& param) {
    std::string text, list;
    std::map<std::string, Tensor> feeds;
    for (size_t i = 0; i < bottoms; ++i) {
      text += In(names[i], dims);
      list += std::string(" bottom: '") + names[i] + "'";
      feeds[names[i]] = Drawn(shape, static_cast<uint32_t>(i + 1));
      for (float& v : feeds[names[i]].span<float>()) v *= 2;
    }
    TestNet net(
        text + "layer { name: 'l' type: 'SmoothL1Loss'" + list + " top: 'l' " + param + " }", true);
    return std::pair{net.Run(feeds, net.imported.loss), feeds};
  };
  const auto sum = [&](const std::map<std::string, Tensor>& feeds, size_t bottoms, double sigma) {
    double total = 0;
    for (int64_t i = 0; i < feeds.at("a").numel(); ++i) {
      double d = At(feeds.at("a"), i) - At(feeds.at("b"), i);
      if (bottoms > 2) d *= At(feeds.at("inside"), i);
      const double value = SmoothL1(d, sigma);
      total += bottoms > 3 ? value * At(feeds.at("outside"), i) : value;
    }
    return total;
  };
  for (size_t bottoms : {size_t{2}, size_t{3}, size_t{4}}) {
    const auto [got, feeds] = loss(bottoms, "3x5", {3, 5}, "smooth_l1_loss_param { sigma: 3 }");
    ExpectNear(got, {sum(feeds, bottoms, 3) / 3}, 1e-5);
  }
  const auto [by_image, feeds] = loss(4, "2x3x4x5", {2, 3, 4, 5}, "");
  ExpectNear(by_image, {sum(feeds, 4, 1) / 2}, 1e-4);
  // R-FCN's divisors.
  const auto [valid, same] =
      loss(3, "2x3x4x5", {2, 3, 4, 5}, "loss_param { normalization: VALID }");
  ExpectNear(valid, {sum(same, 3, 1) / 40}, 1e-5);
  const auto [fixed, again] =
      loss(3, "2x3x4x5", {2, 3, 4, 5},
           "loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 64 }");
  ExpectNear(fixed, {sum(again, 3, 1) / 64}, 1e-5);
}

// SegNet: factors of classes, and a label that is ignored.
TEST(CaffeDetection, SoftmaxLossWithFactorsOfClasses) {
  TestNet net(In("x", "2x3x2x2") + In("t", "2x1x2x2") +
                  "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'x' bottom: 't' top: 'l' "
                  "loss_param { weight_by_label_freqs: true ignore_label: 7 class_weighting: 0.5 "
                  "class_weighting: 2 class_weighting: 3 } }",
              true);
  const Tensor x = Drawn({2, 3, 2, 2});
  const std::vector<int64_t> labels = {0, 1, 2, 7, 2, 2, 0, 1};
  const double factors[] = {0.5, 2, 3};
  double want = 0;
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t t = labels[static_cast<size_t>(i)];
    if (t == 7) continue;
    double all = 0;
    for (int64_t c = 0; c < 3; ++c) all += std::exp(At(x, (i / 4 * 3 + c) * 4 + i % 4));
    want -= (At(x, (i / 4 * 3 + t) * 4 + i % 4) - std::log(all)) * factors[t] / 7;
  }
  ExpectNear(
      net.Run({{"x", x}, {"t", Tensor::Of<int64_t>({2, 1, 2, 2}, labels)}}, net.imported.loss),
      {want});
}

}  // namespace coracle::caffe::caffe_detection_test

// SSD's MultiBoxLoss and R-FCN's hard examples, compared with loops written from the sources of
// those versions of Caffe.

#include <coracle/backward/backward.h>
#include <coracle/test/convert/caffe_net.h>
#include <coracle/test/error_of.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace coracle::caffe::caffe_multibox_test {

using Corners = std::array<double, 4>;

double At(const Tensor& x, int64_t i) { return static_cast<double>(x.data<float>()[i]); }

constexpr int64_t kImages = 3, kPriors = 16, kClasses = 4;

struct Truth {
  int64_t image;
  int64_t label;
  Corners box;
  bool difficult;
};

// Image 1 has no box. The rows are not in the order of images.
std::vector<Truth> Truths() {
  return {{2, 3, {0.1, 0.1, 0.3, 0.35}, false},   {0, 1, {0.02, 0.03, 0.27, 0.24}, false},
          {2, 1, {0.5, 0.55, 0.98, 0.9}, true},   {0, 2, {0.45, 0.5, 0.8, 0.76}, false},
          {2, 2, {0.24, 0.26, 0.52, 0.5}, false}, {-1, 1, {0.0, 0.0, 1.0, 1.0}, false}};
}

struct Options {
  bool logistic = false, squares = false, difficult = true, mines = true;
  double weight = 1, ratio = 3, threshold = 0.5;
  std::string normalization = {};
  int64_t background = 0;
  std::vector<Truth> truths = Truths();
};

Tensor TruthRows(const std::vector<Truth>& truths = Truths()) {
  std::vector<float> rows;
  for (const Truth& truth : truths) {
    rows.push_back(static_cast<float>(truth.image));
    rows.push_back(static_cast<float>(truth.label));
    rows.push_back(0);
    for (const double corner : truth.box) rows.push_back(static_cast<float>(corner));
    rows.push_back(truth.difficult ? 1.f : 0.f);
  }
  return Tensor::Of<float>({static_cast<int64_t>(truths.size()), 1, 1, 8}, rows);
}

// A grid of 4 x 4 boxes, and variances.
Tensor PriorRows() {
  std::vector<float> rows;
  for (int i = 0; i < kPriors; ++i) {
    const float x = static_cast<float>(i % 4) / 4, y = static_cast<float>(i / 4) / 4;
    for (const float v : {x, y, x + 0.26f, y + 0.24f}) rows.push_back(v);
  }
  for (int i = 0; i < kPriors; ++i)
    for (const float v : {0.1f, 0.1f, 0.2f, 0.2f}) rows.push_back(v);
  return Tensor::Of<float>({1, 2, 4 * kPriors}, rows);
}

Corners PriorOf(int64_t i) {
  const Tensor rows = PriorRows();
  return {At(rows, 4 * i), At(rows, 4 * i + 1), At(rows, 4 * i + 2), At(rows, 4 * i + 3)};
}

double Overlap(const Corners& a, const Corners& b) {
  const double w = std::min(a[2], b[2]) - std::max(a[0], b[0]);
  const double h = std::min(a[3], b[3]) - std::max(a[1], b[1]);
  const auto area = [](const Corners& c) { return (c[2] - c[0]) * (c[3] - c[1]); };
  return w > 0 && h > 0 ? w * h / (area(a) + area(b) - w * h) : 0;
}

// MatchBBox with PER_PREDICTION.
std::vector<int64_t> Matches(const std::vector<Truth>& truths, double threshold) {
  std::vector<int64_t> match(kPriors, -1);
  std::vector<char> taken(truths.size(), 0);
  const auto overlap = [&](int64_t prior, size_t truth) {
    return Overlap(PriorOf(prior), truths[truth].box);
  };
  while (true) {
    int64_t best = -1;
    size_t of = 0;
    for (int64_t i = 0; i < kPriors; ++i) {
      for (size_t k = 0; k < truths.size(); ++k) {
        if (match[static_cast<size_t>(i)] >= 0 || taken[k] || overlap(i, k) <= 1e-6) continue;
        if (best >= 0 && overlap(i, k) <= overlap(best, of)) continue;
        best = i;
        of = k;
      }
    }
    if (best < 0) break;
    match[static_cast<size_t>(best)] = static_cast<int64_t>(of);
    taken[of] = 1;
  }
  for (int64_t i = 0; i < kPriors; ++i) {
    int64_t& found = match[static_cast<size_t>(i)];
    double most = 0;
    for (size_t k = 0; k < truths.size() && (found < 0 || most > 0); ++k) {
      if (overlap(i, k) < threshold || overlap(i, k) <= most) continue;
      most = overlap(i, k);
      found = static_cast<int64_t>(k);
    }
  }
  return match;
}

double ScoreLoss(const Options& options, const Tensor& conf, int64_t row, int64_t label) {
  double loss = 0, sum = 0;
  for (int64_t c = 0; c < kClasses; ++c) {
    const double x = At(conf, row * kClasses + c);
    sum += std::exp(x);
    loss += std::log(1 + std::exp(x)) - (c == label ? x : 0);
  }
  return options.logistic ? loss : std::log(sum) - At(conf, row * kClasses + label);
}

double BoxLoss(const Options& options, const Tensor& loc, int64_t row, int64_t prior,
               const Corners& box) {
  const Corners p = PriorOf(prior);
  const double pw = p[2] - p[0], ph = p[3] - p[1], w = box[2] - box[0], h = box[3] - box[1];
  const Corners target = {((box[0] + box[2]) / 2 - (p[0] + p[2]) / 2) / pw / 0.1,
                          ((box[1] + box[3]) / 2 - (p[1] + p[3]) / 2) / ph / 0.1,
                          std::log(w / pw) / 0.2, std::log(h / ph) / 0.2};
  double loss = 0;
  for (int64_t k = 0; k < 4; ++k) {
    const double d = std::abs(At(loc, 4 * row + k) - target[static_cast<size_t>(k)]);
    loss += options.squares || d < 1 ? d * d / 2 : d - 0.5;
  }
  return loss;
}

// multibox_loss_layer.cpp. With MAX_NEGATIVE (`mines`), an image without boxes has no loss; with
// NONE, the scores of all priors have one.
double Expected(const Options& options, const Tensor& loc, const Tensor& conf) {
  double boxes = 0, scores = 0;
  int64_t matches = 0;
  for (int64_t n = 0; n < kImages; ++n) {
    std::vector<Truth> truths;
    for (const Truth& truth : options.truths)
      if (truth.image == n && (options.difficult || !truth.difficult)) truths.push_back(truth);
    if (truths.empty() && options.mines) continue;
    const std::vector<int64_t> match = Matches(truths, options.threshold);
    std::vector<double> negatives;
    int64_t positives = 0;
    for (int64_t i = 0; i < kPriors; ++i) {
      const int64_t row = n * kPriors + i, found = match[static_cast<size_t>(i)];
      if (found < 0) {
        negatives.push_back(ScoreLoss(options, conf, row, options.background));
        continue;
      }
      const Truth& truth = truths[static_cast<size_t>(found)];
      ++positives;
      scores += ScoreLoss(options, conf, row, truth.label);
      boxes += BoxLoss(options, loc, row, i, truth.box);
    }
    std::sort(negatives.rbegin(), negatives.rend());
    const auto most = options.mines
                          ? static_cast<size_t>(static_cast<double>(positives) * options.ratio)
                          : negatives.size();
    for (size_t i = 0; i < std::min(most, negatives.size()); ++i) scores += negatives[i];
    matches += positives;
  }
  const std::string& mode = options.normalization;
  const double divisor = mode == "NONE"         ? 1
                         : mode == "BATCH_SIZE" ? kImages
                         : mode == "FULL"       ? kImages * kPriors
                                                : std::max(1., static_cast<double>(matches));
  return (options.weight * boxes + scores) / divisor;
}

std::string In(const std::string& name, const std::string& dims) {
  return "layer { name: '" + name + "' type: 'Input' top: '" + name + "' input_param { shape { " +
         dims + " } } } ";
}

std::string Text(const std::string& param, const std::string& loss_param = "") {
  return In("loc", "dim: 1 dim: 64") + In("conf", "dim: 1 dim: 64") +
         In("prior", "dim: 1 dim: 2 dim: 64") + In("label", "dim: 1 dim: 1 dim: 1 dim: 8") +
         "layer { name: 'l' type: 'MultiBoxLoss' bottom: 'loc' bottom: 'conf' bottom: 'prior' "
         "bottom: 'label' top: 'l' propagate_down: true propagate_down: true propagate_down: false "
         "propagate_down: false multibox_loss_param { num_classes: 4 code_type: CENTER_SIZE " +
         param + " } " + loss_param + " }";
}

void Check(const Options& options, const std::string& param, const std::string& loss_param = "") {
  SCOPED_TRACE(param + loss_param);
  Tensor loc = Drawn({kImages, 4 * kPriors}), conf = Drawn({kImages, kPriors * kClasses}, 2);
  for (float& x : loc.span<float>()) x *= 2;
  TestNet net(Text(param, loss_param), true);
  const Tensor got = net.Run(
      {{"loc", loc}, {"conf", conf}, {"prior", PriorRows()}, {"label", TruthRows(options.truths)}},
      "l");
  ExpectNear(got, {Expected(options, loc, conf)}, 1e-4);
}

TEST(CaffeMultiBox, LossOfMatchedBoxesAndHardNegatives) {
  Check({}, "");
  Check({.weight = 2, .ratio = 1.5, .threshold = 0.35},
        "loc_weight: 2 neg_pos_ratio: 1.5 overlap_threshold: 0.35 neg_overlap: 0.35");
  Check({.squares = true}, "loc_loss_type: L2");
  Check({.logistic = true}, "conf_loss_type: LOGISTIC");
  Check({.difficult = false}, "use_difficult_gt: false do_neg_mining: true");
  for (const char* mode : {"NONE", "BATCH_SIZE", "FULL", "VALID"}) {
    Check({.normalization = mode}, "", std::string("loss_param { normalization: ") + mode + " }");
  }
  Check({.normalization = "BATCH_SIZE"}, "", "loss_param { normalize: false }");
}

TEST(CaffeMultiBox, LossOfAllScores) {
  Check({.mines = false}, "mining_type: NONE");
  Check({.mines = false, .threshold = 0.35}, "mining_type: NONE overlap_threshold: 0.35");
  Check({.difficult = false, .mines = false, .normalization = "FULL"},
        "mining_type: NONE use_difficult_gt: false", "loss_param { normalization: FULL }");
}

TEST(CaffeMultiBox, AnyClassMayBeTheBackground) {
  std::vector<Truth> truths = Truths();
  for (Truth& truth : truths) truth.label %= 3;  // 0 instead of 3
  Check({.background = 3, .truths = truths}, "background_label_id: 3");
  Check({.mines = false, .background = 3, .truths = truths},
        "background_label_id: 3 mining_type: NONE");
}

// Rows of no image of the batch: alone, and with an ignored one that fits a prior.
TEST(CaffeMultiBox, BoxesOfNoImageAreIgnored) {
  const Truth none = {-1, 1, {0, 0, 0.26, 0.24}, false};
  std::vector<Truth> more = Truths();
  more.insert(more.begin(), {kImages, 1, {0.5, 0.5, 0.76, 0.74}, false});
  more.push_back({kImages + 4, 2, {0.25, 0.25, 0.51, 0.49}, false});
  for (const std::vector<Truth>& truths :
       {more, std::vector<Truth>{none, none}, std::vector<Truth>{more[0]}}) {
    Check({.truths = truths}, "");
    Check({.mines = false, .truths = truths}, "mining_type: NONE");
  }
}

// Caffe checks that no true box has the class of the background, except boxes of no image.
TEST(CaffeMultiBox, TrueBoxesOfTheBackgroundAreRefused) {
  for (const int64_t background : {0, 3}) {
    std::vector<Truth> truths = Truths();
    for (Truth& truth : truths) truth.label = 1;
    truths.back().label = background;  // of no image
    const std::string param = "background_label_id: " + std::to_string(background);
    Check({.background = background, .truths = truths}, param);
    truths[2].label = background;  // a difficult one
    TestNet net(Text(param + " use_difficult_gt: false"), true);
    const std::string error = ErrorOf([&] {
      net.Run({{"loc", Drawn({kImages, 4 * kPriors})},
               {"conf", Drawn({kImages, kPriors * kClasses}, 2)},
               {"prior", PriorRows()},
               {"label", TruthRows(truths)}},
              "l");
    });
    const std::string words = "a true box of the class " + std::to_string(background);
    EXPECT_NE(error.find(words), std::string::npos) << error;
  }
}

// The gradient with respect to each prediction, against differences.
TEST(CaffeMultiBox, HasItsGradient) {
  const std::string fc =
      In("x", "dim: 1 dim: 1") +
      "layer { name: 'loc' type: 'InnerProduct' bottom: 'x' top: 'loc' inner_product_param { "
      "num_output: 64 bias_term: false weight_filler { type: 'uniform' min: -2 max: 2 } } } "
      "layer { name: 'conf' type: 'InnerProduct' bottom: 'x' top: 'conf' inner_product_param { "
      "num_output: 64 bias_term: false weight_filler { type: 'uniform' min: -1 max: 1 } } } ";
  std::string text = Text("");
  text = fc + text.substr(text.find("layer { name: 'prior'"));
  TestNet net(text, true);
  BlockDesc& root = net.model.main.Root();
  AppendBackward(Variable(&root, root.FindVar("l")));
  const std::map<std::string, Tensor> feeds = {
      {"x", Tensor::Of<float>({1, 1}, {1.f})}, {"prior", PriorRows()}, {"label", TruthRows()}};
  // Only image 0 of the truth is in the batch of one.
  std::map<std::string, Tensor> one = feeds;
  std::vector<float> rows;
  const Tensor all = TruthRows();
  for (const int64_t row : {1, 3})
    for (int64_t k = 0; k < 8; ++k) rows.push_back(all.data<float>()[8 * row + k]);
  one["label"] = Tensor::Of<float>({2, 1, 1, 8}, rows);
  for (const char* name : {"loc.w_0", "conf.w_0"}) {
    const Tensor gradient =
        Executor().Run(net.model.main, net.scope, one, {std::string(name) + "@GRAD"})[0];
    Tensor weights = net.scope.Get(name).Clone();
    int64_t not_zero = 0;
    for (int64_t i = 0; i < weights.numel(); ++i) {
      const float before = weights.data<float>()[i];
      const auto loss = [&](float change) {
        Tensor moved = weights.Clone();
        moved.data<float>()[i] = before + change;
        net.scope.Set(name, moved);
        return At(net.Run(one, "l"), 0);
      };
      const double slope = (loss(1e-2f) - loss(-1e-2f)) / 2e-2;
      not_zero += slope != 0;
      EXPECT_NEAR(At(gradient, i), slope, 2e-3) << name << " " << i;
    }
    EXPECT_GT(not_zero, 4);
    net.scope.Set(name, weights);
  }
}

TEST(CaffeMultiBox, FormsThatAreRefused) {
  const auto error = [](const std::string& param) { return ErrorOf([&] { Import(Text(param)); }); };
  const std::map<std::string, std::string> cases = {
      {"share_location: false", "boxes of each class"},
      {"use_prior_for_matching: false", "only priors are matched"},
      {"mining_type: HARD_EXAMPLE", "HARD_EXAMPLE"},
      {"mining_type: NONE conf_loss_type: LOGISTIC", "LOGISTIC needs"},
      {"neg_overlap: 0.3", "a neg_overlap that is not less than overlap_threshold"},
      {"match_type: BIPARTITE", "match_type PER_PREDICTION"},
      {"encode_variance_in_target: true", "variances that divide the targets"},
      {"background_label_id: 4", "less than num_classes"},
      {"do_neg_mining: false", "contradicts mining_type"}};
  for (const auto& [param, words] : cases)
    EXPECT_NE(error(param).find(words), std::string::npos) << param << ": " << error(param);
}

// --- R-FCN ---

TEST(CaffeMultiBox, HardExamplesOfEachImage) {
  const std::string text =
      In("rois", "dim: 6 dim: 5") + In("loss", "dim: 6 dim: 1 dim: 1 dim: 1") +
      In("label", "dim: 6 dim: 1 dim: 1 dim: 1") + In("w", "dim: 6 dim: 2 dim: 1 dim: 1") +
      "layer { name: 'b' type: 'BoxAnnotatorOHEM' bottom: 'rois' bottom: 'loss' bottom: 'label' "
      "bottom: 'w' top: 'hard' top: 'hard_w' box_annotator_ohem_param { roi_per_img: 2 "
      "ignore_label: -1 } }";
  TestNet net(text);
  const auto column = [](const std::vector<float>& values) {
    return Tensor::Of<float>({6, 1, 1, 1}, values);
  };
  std::vector<float> rois;
  for (const float image : {0.f, 2.f, 0.f, 0.f, 2.f, 2.f})
    rois.insert(rois.end(), {image, 0.f, 0.f, 3.f, 3.f});
  const std::map<std::string, Tensor> feeds = {
      {"rois", Tensor::Of<float>({6, 5}, rois)},
      {"loss", column({0.5f, 0.1f, 0.2f, 0.9f, 0.3f, 0.05f})},
      {"label", column({1, 2, 3, 4, 5, 6})},
      {"w",
       Tensor::Of<float>({6, 2, 1, 1}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})}};
  ExpectNear(net.Run(feeds, "hard"), {1, 2, -1, 4, 5, -1}, 0);
  ExpectNear(net.Run(feeds, "hard_w"), {1, 2, 3, 4, 0, 0, 7, 8, 9, 10, 0, 0}, 0);
}

TEST(CaffeMultiBox, LossesOfRegions) {
  const std::string text =
      In("s", "dim: 3 dim: 2") + In("label", "dim: 3") + In("a", "dim: 3 dim: 2") +
      In("b", "dim: 3 dim: 2") +
      "layer { name: 'c' type: 'SoftmaxWithLossOHEM' bottom: 's' bottom: 'label' top: 'c' top: "
      "'prob' top: 'each_c' loss_weight: 0 loss_weight: 0 loss_weight: 0 } layer { name: 'l' type: "
      "'SmoothL1LossOHEM' bottom: 'a' bottom: 'b' top: 'l' top: 'each_l' loss_param { "
      "normalization: PRE_FIXED pre_fixed_normalizer: 4 } }";
  TestNet net(text, true);
  const std::map<std::string, Tensor> feeds = {
      {"s", Tensor::Of<float>({3, 2}, {0.f, 1.f, 2.f, 0.f, 1.f, 1.f})},
      {"label", Tensor::Of<int64_t>({3, 1}, {1, 1, 0})},
      {"a", Tensor::Of<float>({3, 2}, {0.f, 0.5f, 3.f, 0.f, -1.f, 0.f})},
      {"b", Tensor::Of<float>({3, 2}, {0.f, 0.f, 0.f, 0.25f, 1.f, 0.f})}};
  const std::vector<double> scores = {std::log(1 + std::exp(-1.0)), std::log(1 + std::exp(2.0)),
                                      std::log(2.0)};
  ExpectNear(net.Run(feeds, "each_c"), scores);
  ExpectNear(net.Run(feeds, "c"), {(scores[0] + scores[1] + scores[2]) / 3});
  ExpectNear(net.Run(feeds, "each_l"), {0.125, 2.5 + 0.03125, 1.5});
  ExpectNear(net.Run(feeds, "l"), {(0.125 + 2.53125 + 1.5) / 4});
}

}  // namespace coracle::caffe::caffe_multibox_test

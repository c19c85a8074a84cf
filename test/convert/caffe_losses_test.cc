// Results of Caffe's losses and of Accuracy, compared with their formulas.

#include <coracle/test/convert/caffe_net.h>
#include <coracle/test/error_of.h>

#include <algorithm>
#include <cmath>

namespace coracle::caffe::caffe_losses_test {

std::string WithLoss(const std::string& dims, const std::string& labels, const std::string& layer) {
  return "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { " + dims +
         " } } } layer { name: 'y' type: 'Input' top: 'y' input_param { shape { " + labels +
         " } } } layer { name: 'l' bottom: 'x' bottom: 'y' top: 'l' " + layer + " }";
}

double LossOf(const std::string& text, const Tensor& x, const Tensor& y) {
  TestNet net(text, true);
  return static_cast<double>(net.Run({{"x", x}, {"y", y}}, "l").data<float>()[0]);
}

double LogSoftmax(const float* x, int n, int stride, int k) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i * stride]));
  return static_cast<double>(x[k * stride]) - std::log(sum);
}

// Scores [2, 3, 2, 1] and labels with one to ignore.
TEST(CaffeLosses, SoftmaxWithLossNormalises) {
  const Tensor x = Drawn({2, 3, 2, 1});
  const Tensor y = Tensor::Of<int64_t>({2, 1, 2, 1}, std::vector<int64_t>{2, 255, 0, 1});
  double sum = 0;
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 2; ++i) {
      const auto k = static_cast<int>(y.data<int64_t>()[n * 2 + i]);
      if (k != 255) sum -= LogSoftmax(x.data<float>() + n * 6 + i, 3, 2, k);
    }
  }
  const auto loss = [&](const std::string& param) {
    return LossOf(
        WithLoss("dim: 2 dim: 3 dim: 2 dim: 1", "dim: 2 dim: 1 dim: 2 dim: 1",
                 "type: 'SoftmaxWithLoss' loss_param { ignore_label: 255 " + param + " }"),
        x, y);
  };
  EXPECT_NEAR(loss(""), sum / 3, 1e-5);
  EXPECT_NEAR(loss("normalization: VALID"), sum / 3, 1e-5);
  EXPECT_NEAR(loss("normalization: FULL"), sum / 4, 1e-5);
  EXPECT_NEAR(loss("normalization: BATCH_SIZE"), sum / 2, 1e-5);
  EXPECT_NEAR(loss("normalization: NONE"), sum, 1e-5);
  EXPECT_NEAR(loss("normalize: false"), sum / 2, 1e-5);
  EXPECT_NEAR(loss("normalize: true"), sum / 3, 1e-5);
}

TEST(CaffeLosses, Formulas) {
  const Tensor x = Tensor::Of<float>({2, 3}, {0.5f, -0.2f, 0.1f, 0.3f, 0.9f, 0.2f});
  const Tensor y = Tensor::Of<int64_t>({2, 1}, std::vector<int64_t>{0, 2});
  const auto v = [&](int i) { return static_cast<double>(x.data<float>()[i]); };
  const std::string scores = "dim: 2 dim: 3", labels = "dim: 2";
  EXPECT_NEAR(LossOf(WithLoss(scores, labels, "type: 'MultinomialLogisticLoss'"), x, y),
              -(std::log(v(0)) + std::log(v(5))) / 2, 1e-5);
  double l1 = 0, l2 = 0;
  for (int i = 0; i < 6; ++i) {
    const double t = i == 0 || i == 5 ? 1 : -1;
    l1 += std::max(0., 1 - t * v(i)) / 2;
    l2 += std::pow(std::max(0., 1 - t * v(i)), 2) / 2;
  }
  EXPECT_NEAR(LossOf(WithLoss(scores, labels, "type: 'HingeLoss'"), x, y), l1, 1e-5);
  EXPECT_NEAR(
      LossOf(WithLoss(scores, labels, "type: 'HingeLoss' hinge_loss_param { norm: L2 }"), x, y), l2,
      1e-5);
  const Tensor t = Tensor::Of<float>({2, 3}, {1.f, 0.f, 0.f, 1.f, 1.f, 0.f});
  double square = 0, entropy = 0;
  for (int i = 0; i < 6; ++i) {
    const double d = v(i) - static_cast<double>(t.data<float>()[i]);
    square += d * d / 4;
    entropy += (std::log1p(std::exp(v(i))) - static_cast<double>(t.data<float>()[i]) * v(i)) / 2;
  }
  EXPECT_NEAR(LossOf(WithLoss(scores, scores, "type: 'EuclideanLoss'"), x, t), square, 1e-5);
  EXPECT_NEAR(LossOf(WithLoss(scores, scores, "type: 'SigmoidCrossEntropyLoss'"), x, t), entropy,
              1e-5);
}

TEST(CaffeLosses, ContrastiveLoss) {
  const auto loss = [](const std::string& param) {
    TestNet net(
        "layer { name: 'i' type: 'Input' top: 'a' top: 'b' input_param { shape { dim: 2 "
        "dim: 2 } } } layer { name: 'j' type: 'Input' top: 's' input_param { shape { dim: 2 "
        "} } } layer { name: 'l' type: 'ContrastiveLoss' bottom: 'a' bottom: 'b' bottom: "
        "'s' top: 'l' contrastive_loss_param { margin: 2 " +
            param + " } }",
        true);
    return static_cast<double>(net.Run({{"a", Tensor::Of<float>({2, 2}, {1.f, 2.f, 0.f, 1.f})},
                                        {"b", Tensor::Of<float>({2, 2}, {1.f, 1.f, 1.f, 1.f})},
                                        {"s", Tensor::Of<float>({2}, {1.f, 0.f})}},
                                       "l")
                                   .data<float>()[0]);
  };
  EXPECT_NEAR(loss(""), (1 + 1) / 4., 1e-5);  // d = 1 in both rows
  EXPECT_NEAR(loss("legacy_version: true"), (1 + 1) / 4., 1e-5);
}

TEST(CaffeLosses, AccuracyOfScoresAndOfImages) {
  const Tensor x = Tensor::Of<float>({2, 3}, {0.5f, 0.4f, 0.1f, 0.3f, 0.9f, 0.2f});
  const Tensor y = Tensor::Of<int64_t>({2, 1}, std::vector<int64_t>{1, 1});
  EXPECT_EQ(LossOf(WithLoss("dim: 2 dim: 3", "dim: 2", "type: 'Accuracy'"), x, y), 0.5);
  EXPECT_EQ(
      LossOf(WithLoss("dim: 2 dim: 3", "dim: 2", "type: 'Accuracy' accuracy_param { top_k: 2 }"), x,
             y),
      1);
  const Tensor map = Tensor::Of<float>({1, 2, 1, 3}, {5.f, 0.f, 1.f, 0.f, 1.f, 0.f});
  const Tensor classes = Tensor::Of<int64_t>({1, 1, 1, 3}, std::vector<int64_t>{0, 0, 9});
  EXPECT_EQ(LossOf(WithLoss("dim: 1 dim: 2 dim: 1 dim: 3", "dim: 1 dim: 1 dim: 1 dim: 3",
                            "type: 'Accuracy' accuracy_param { ignore_label: 9 }"),
                   map, classes),
            0.5);
}

// A second top: the accuracy of each class; a class that is ignored or has no position gets 0.
TEST(CaffeLosses, AccuracyOfEachClass) {
  const auto check = [](const std::string& param, double all, const std::vector<double>& each) {
    TestNet net(
        "layer { name: 'i' type: 'Input' top: 'x' top: 'y' input_param { shape { dim: 1 dim: 4 "
        "dim: 1 dim: 5 } shape { dim: 1 dim: 1 dim: 1 dim: 5 } } } layer { name: 'a' type: "
        "'Accuracy' bottom: 'x' bottom: 'y' top: 'all' top: 'each' " +
        param + " }");
    // The largest scores are of the classes 0, 1, 1, 2, 0.
    Tensor scores(DType::kFloat32, {1, 4, 1, 5});
    const std::vector<int64_t> best = {0, 1, 1, 2, 0};
    for (int64_t i = 0; i < 20; ++i)
      scores.data<float>()[i] = best[static_cast<size_t>(i % 5)] == i / 5 ? 2.f : -1.f;
    const std::map<std::string, Tensor> feeds = {
        {"x", scores},
        {"y", Tensor::Of<int64_t>({1, 1, 1, 5}, std::vector<int64_t>{0, 1, 0, 2, 2})}};
    ExpectNear(net.Run(feeds, "all"), {all}, 1e-6);
    ExpectNear(net.Run(feeds, "each"), each, 1e-6);
  };
  check("", 0.6, {0.5, 1, 0.5, 0});
  check("accuracy_param { ignore_label: 2 }", 2. / 3, {0.5, 1, 0, 0});
  check("accuracy_param { ignore_label: 255 }", 0.6, {0.5, 1, 0.5, 0});
}

TEST(CaffeLosses, TopKNamesWhatItIsNotConvertedWith) {
  const auto check = [](const std::string& text, const std::string& cause) {
    const std::string error = ErrorOf([&] { Import(text); });
    EXPECT_NE(error.find("top_k 2 is not converted with " + cause), std::string::npos) << error;
  };
  const std::string with = "type: 'Accuracy' accuracy_param { top_k: 2 ";
  check(WithLoss("dim: 2 dim: 3", "dim: 2", "top: 'each' " + with + "}"), "a second top");
  check(WithLoss("dim: 2 dim: 3", "dim: 2", with + "ignore_label: 1 }"), "ignore_label");
  check(WithLoss("dim: 1 dim: 3 dim: 1 dim: 2", "dim: 1 dim: 1 dim: 1 dim: 2", with + "}"),
        "scores that are not [N, classes]");
}

TEST(CaffeLosses, SeveralLossesAreWeightedAndSummed) {
  const std::string text = WithLoss("dim: 2 dim: 3", "dim: 2", "type: 'SoftmaxWithLoss'") +
                           "layer { name: 'k' type: 'SoftmaxWithLoss' bottom: 'x' bottom: 'y' top: "
                           "'k' loss_weight: 0.5 }";
  TestNet net(text, true);
  EXPECT_EQ(net.imported.loss, "total_loss");
  const std::map<std::string, Tensor> feeds = {
      {"x", Drawn({2, 3})}, {"y", Tensor::Of<int64_t>({2, 1}, std::vector<int64_t>{1, 2})}};
  const float one = net.Run(feeds, "l").data<float>()[0];
  EXPECT_NEAR(net.Run(feeds, "total_loss").data<float>()[0], 1.5f * one, 1e-5f);
}

TEST(CaffeLosses, ASingleWeightedLossIsCalledSo) {
  const std::string labels = "dim: 2 dim: 3";
  EXPECT_EQ(Import(WithLoss(labels, "dim: 2", "type: 'SoftmaxWithLoss' loss_weight: 0.5")).loss,
            "l.weighted");
  EXPECT_EQ(Import(WithLoss(labels, "dim: 2", "type: 'SoftmaxWithLoss'")).loss, "l");
}

// A shape without dims is one number in Caffe.
TEST(CaffeLosses, HingeNeedsADimOfSamples) {
  const std::string error = ErrorOf([] { Import(WithLoss("", "", "type: 'HingeLoss'")); });
  EXPECT_NE(error.find("layer 'l' (HingeLoss): its scores need a dim of samples"),
            std::string::npos)
      << error;
}

}  // namespace coracle::caffe::caffe_losses_test

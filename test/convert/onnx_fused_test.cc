// Sums, norms and activations that exporters of transformers join to one node.
#include <coracle/test/convert/any_node.h>
#include <coracle/test/convert/attention_reference.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

namespace coracle::onnx::onnx_fused_test {

constexpr int64_t kRows = 6, kWidth = 4;
const Tensor x = Waves({2, 3, kWidth}, 0.1f), skip = Waves({2, 3, kWidth}, 0.9f);
const Tensor gamma = Waves({kWidth}, 0.4f), bias = Waves({kWidth}, 1.4f);

double At(const Tensor& tensor, int64_t i) { return double{tensor.data<float>()[i]}; }

struct Norm {
  Numbers y, factors;
};

// values / sqrt(mean of squares + epsilon) times gamma.
Norm Normalised(const Numbers& values, double epsilon) {
  Norm norm;
  for (int64_t row = 0; row < kRows; ++row) {
    double squares = 0;
    for (int64_t i = 0; i < kWidth; ++i)
      squares += std::pow(double{values[static_cast<size_t>(row * kWidth + i)]}, 2);
    const double factor = 1 / std::sqrt(squares / kWidth + epsilon);
    norm.factors.push_back(static_cast<float>(factor));
    for (int64_t i = 0; i < kWidth; ++i)
      norm.y.push_back(static_cast<float>(double{values[static_cast<size_t>(row * kWidth + i)]} *
                                          factor * At(gamma, i)));
  }
  return norm;
}

TEST(OnnxFused, SimplifiedLayerNormalization) {
  const Norm wanted = Normalised(NumbersOf(x), 0.01);
  for (const char* domain : {"", "com.microsoft"}) {
    OneNode node("SimplifiedLayerNormalization", *domain ? 1 : 17, {x, gamma}, domain);
    const std::vector<Tensor> results =
        node.Set("epsilon", 0.01f).Outputs(2).FeedInput(0, true).Results();
    ExpectNear(NumbersOf(results[0]), wanted.y);
    ExpectNear(NumbersOf(results[1]), wanted.factors);
  }
}

TEST(OnnxFused, SimplifiedLayerNormalizationHasTheTypeOfItsScale) {
  OneNode node("SimplifiedLayerNormalization", 17, {x.Cast(DType::kFloat16), gamma});
  const Tensor y = node.Set("epsilon", 0.01f).FeedInput(0).Result();
  EXPECT_EQ(y.dtype(), DType::kFloat32);
  const Numbers wanted = Normalised(NumbersOf(x.Cast(DType::kFloat16)), 0.01).y;
  const Numbers got = NumbersOf(y);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 2e-3) << "element " << i;
}

TEST(OnnxFused, SkipSimplifiedLayerNormalization) {
  for (bool biased : {false, true}) {
    std::vector<std::optional<Tensor>> inputs = {x, skip, gamma};
    if (biased) inputs.push_back(bias);
    Numbers sum;
    for (int64_t i = 0; i < x.numel(); ++i)
      sum.push_back(
          static_cast<float>(At(x, i) + At(skip, i) + (biased ? At(bias, i % kWidth) : 0)));
    OneNode node("SkipSimplifiedLayerNormalization", 1, inputs, "com.microsoft");
    node.Set("epsilon", 0.01f).FeedInput(0, true);
    ExpectNear(node.Run(), Normalised(sum, 0.01).y);
  }
}

double Gelu(double value) { return value * (1 + std::erf(value / std::sqrt(2.0))) / 2; }

TEST(OnnxFused, BiasSplitGelu) {
  Numbers wanted;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < 2; ++i) {
      const double left = At(x, row * kWidth + i) + At(bias, i);
      const double right = At(x, row * kWidth + 2 + i) + At(bias, 2 + i);
      wanted.push_back(static_cast<float>(left * Gelu(right)));
    }
  }
  OneNode node("BiasSplitGelu", 1, {x, bias}, "com.microsoft");
  ExpectNear(node.FeedInput(0).Run(), wanted);
}

TEST(OnnxFused, SwiGlu) {
  for (float alpha : {1.0f, 0.5f}) {
    Numbers wanted;
    for (int64_t i = 0; i < x.numel(); ++i)
      wanted.push_back(
          static_cast<float>(At(x, i) / (1 + std::exp(-double{alpha} * At(x, i))) * At(skip, i)));
    OneNode node("SwiGLU", 28, {x, skip});
    if (alpha != 1) node.Set("alpha", alpha);
    ExpectNear(node.FeedInput(0).Run(), wanted);
  }
  EXPECT_NE(OneNode("SwiGLU", 28, {x, bias}).Refusal().find("must have one shape"),
            std::string::npos);
}

TEST(OnnxFused, FusedGemm) {
  const Tensor a = Waves({2, 3}, 0.1f), b = Waves({3, kWidth}, 0.9f);
  const std::map<std::string, std::function<double(double)>> activations = {
      {"Relu", [](double v) { return std::max(v, 0.0); }},
      {"Tanh", [](double v) { return std::tanh(v); }},
      {"Sigmoid", [](double v) { return 1 / (1 + std::exp(-v)); }},
      {"LeakyRelu", [](double v) { return v > 0 ? v : 0.25 * v; }},
      {"Elu", [](double v) { return v > 0 ? v : 0.25 * (std::exp(v) - 1); }},
      {"HardSigmoid", [](double v) { return std::min(1.0, std::max(0.0, 0.25 * v + 0.75)); }},
      {"Softplus", [](double v) { return std::log1p(std::exp(v)); }},
  };
  for (const auto& [name, apply] : activations) {
    SCOPED_TRACE(name);
    Numbers wanted;
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t j = 0; j < kWidth; ++j) {
        double sum = 0;
        for (int64_t m = 0; m < 3; ++m) sum += At(a, i * 3 + m) * At(b, m * kWidth + j);
        wanted.push_back(static_cast<float>(apply(2 * sum + At(bias, j))));
      }
    }
    OneNode node("FusedGemm", 1, {a, b, bias}, "com.microsoft");
    node.Set("alpha", 2.0f).Set("activation", name);
    node.Set("activation_alpha", 0.25f).Set("activation_beta", 0.75f);
    ExpectNear(node.FeedInput(0).Run(), wanted);
  }
  OneNode node("FusedGemm", 1, {a, b}, "com.microsoft");
  EXPECT_NE(node.Set("activation", std::string("Cube")).Refusal().find("'Cube'"),
            std::string::npos);
  const std::string missing = OneNode("FusedGemm", 1, {a, b}, "com.microsoft").Refusal();
  EXPECT_NE(missing.find("attribute activation is missing"), std::string::npos) << missing;
}

Tensor Bytes(const Shape& shape, const std::vector<uint8_t>& values) {
  return Tensor::Of<uint8_t>(shape, values);
}

TEST(OnnxFused, ProductsOfIntegersAsFloats) {
  const Tensor a = Bytes({2, 2}, {3, 250, 7, 128}), b = Bytes({2, 3}, {1, 200, 90, 77, 5, 255});
  const Tensor zeros = Bytes({3}, {100, 7, 128}), scales = F({3}, {0.5f, 0.25f, 2.0f});
  const Tensor shift = F({3}, {1, -2, 3});
  Numbers wanted;
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      double sum = 0;
      for (int64_t m = 0; m < 2; ++m)
        sum += (a.data<uint8_t>()[i * 2 + m] - 120.0) *
               (double{b.data<uint8_t>()[m * 3 + j] * 1.0} - zeros.data<uint8_t>()[j]);
      wanted.push_back(static_cast<float>(sum * 0.125 * At(scales, j) + At(shift, j)));
    }
  }
  OneNode node("MatMulIntegerToFloat", 1,
               {a, b, F({1}, {0.125f}), scales, Bytes({1}, {120}), zeros, shift}, "com.microsoft");
  ExpectNear(node.FeedInput(0).Run(), wanted);
  const Tensor one = F({1}, {0.125f}), zero = Bytes({1}, {120});
  OneNode open("MatMulIntegerToFloat", 1, {a, b, one, scales, zero, zeros, shift}, "com.microsoft");
  ExpectNear(open.FeedInput(2, true).FeedInput(4, true).Run(), wanted);
  // A vector would scale the columns of B.
  for (int i : {2, 4}) {
    OneNode vector("MatMulIntegerToFloat", 1,
                   {a, b, i == 2 ? scales : one, scales, i == 4 ? zeros : zero, zeros, shift},
                   "com.microsoft");
    EXPECT_NE(vector.Refusal().find("quantize A with one scale"), std::string::npos);
    const std::string error = vector.FeedInput(i, true).Refusal();
    EXPECT_NE(error.find("reshape"), std::string::npos) << error;
  }
}

TEST(OnnxFused, DynamicQuantizeMatMul) {
  // The range is [-1, 1.55]: the scale is 0.01, the zero point 100.
  const Tensor a = F({2, 2}, {-1.0f, 0.5f, 1.55f, 0.253f});
  const std::vector<double> rounded = {-1.0, 0.5, 1.55, 0.25};
  const Tensor b = Tensor::Of<int8_t>({2, 3}, std::vector<int8_t>{1, -100, 90, 77, 5, -128});
  Numbers wanted;
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      double sum = 0;
      for (int64_t m = 0; m < 2; ++m)
        sum += rounded[static_cast<size_t>(i * 2 + m)] * (b.data<int8_t>()[m * 3 + j] - 3.0);
      wanted.push_back(static_cast<float>(sum * 0.5));
    }
  }
  OneNode node("DynamicQuantizeMatMul", 1,
               {a, b, F({1}, {0.5f}), Tensor::Of<int8_t>({1}, std::vector<int8_t>{3})},
               "com.microsoft");
  const Numbers got = node.FeedInput(0).Run();
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-3) << "element " << i;
}

// --- diffusion models ---

TEST(OnnxFused, GroupNorm) {
  const int64_t channels = 4, pixels = 6;
  const Tensor image = Waves({2, 2, 3, channels}, 0.1f), added = Waves({2, channels}, 0.9f);
  for (bool skips : {false, true}) {
    for (int64_t activation : {0, 1}) {
      std::vector<double> sum;
      for (int64_t i = 0; i < image.numel(); ++i) {
        const int64_t sample = i / (pixels * channels), channel = i % channels;
        const double more = At(added, sample * channels + channel) + At(bias, channel);
        sum.push_back(At(image, i) + (skips ? more : 0));
      }
      Numbers wanted(sum.size());
      for (int64_t sample = 0; sample < 2; ++sample) {
        for (int64_t group = 0; group < 2; ++group) {
          std::vector<size_t> places;
          for (int64_t p = 0; p < pixels; ++p)
            for (int64_t c = 2 * group; c < 2 * group + 2; ++c)
              places.push_back(static_cast<size_t>((sample * pixels + p) * channels + c));
          double mean = 0, variance = 0;
          for (size_t at : places) mean += sum[at] / 12;
          for (size_t at : places) variance += std::pow(sum[at] - mean, 2) / 12;
          for (size_t at : places) {
            const auto channel = static_cast<int64_t>(at) % channels;
            double y = (sum[at] - mean) / std::sqrt(variance + 0.01);
            y = y * At(gamma, channel) + At(skip, channel);
            wanted[at] = static_cast<float>(activation == 1 ? y / (1 + std::exp(-y)) : y);
          }
        }
      }
      const Tensor beta = F({channels}, {skip.data<float>(), skip.data<float>() + channels});
      std::vector<std::optional<Tensor>> inputs = {image, gamma, beta};
      if (skips) inputs.insert(inputs.end(), {added, bias});
      OneNode node(skips ? "SkipGroupNorm" : "GroupNorm", 1, inputs, "com.microsoft");
      node.Set("groups", int64_t{2}).Set("activation", activation).Set("epsilon", 0.01f);
      if (skips) node.Outputs(2);
      const std::vector<Tensor> results = node.FeedInput(0).Results();
      ExpectNear(NumbersOf(results[0]), wanted);
      if (skips) ExpectNear(NumbersOf(results[1]), {sum.begin(), sum.end()});
    }
  }
}

TEST(OnnxFused, SkipGroupNormOfChannelsFirst) {
  OneNode node("SkipGroupNorm", 1, {Waves({2, 4, 2, 3}, 0.1f), gamma, bias, Waves({2, 4}, 0.9f)},
               "com.microsoft");
  node.Set("groups", int64_t{2}).Set("activation", int64_t{0}).Set("channels_last", int64_t{0});
  EXPECT_NE(node.Refusal().find("transpose the images"), std::string::npos) << node.Refusal();
}

// --- what only a run knows ---

void ExpectRefusal(OneNode node, const std::string& text) {
  EXPECT_NE(node.Refusal().find(text), std::string::npos) << node.Refusal();
}

TEST(OnnxFused, OnePositionIsNotForAllTokens) {
  const Tensor tokens = Waves({2, 3, 8}, 0.2f), table = Waves({9, 2}, 0.5f);
  const Tensor ids = Tensor::Of<int64_t>({2, 1}, {2, 1});
  for (const char* domain : {"", "com.microsoft"}) {
    SCOPED_TRACE(domain);
    std::vector<std::optional<Tensor>> inputs = {tokens, table, table, ids};
    if (*domain) inputs = {tokens, ids, table, table};
    OneNode node("RotaryEmbedding", *domain ? 1 : 23, inputs, domain);
    node.Set("num_heads", int64_t{2});
    ExpectRefusal(node, "position_ids must have one row for each of 3 tokens, got 1");
    ExpectRefusal(node.FeedInput(*domain ? 1 : 3, true), "reshape");
  }
  const Tensor rows = Waves({2, 1, 2}, 0.5f);
  OneNode own("RotaryEmbedding", 23, {tokens, rows, rows});
  ExpectRefusal(own.Set("num_heads", int64_t{2}), "a cache must have one row for each");
  OneNode scaled("RotaryEmbedding", 1, {tokens, I({2}), table, table}, "com.microsoft");
  ExpectRefusal(scaled.Set("scale", 2.0f), "with a scale of 1");
}

TEST(OnnxFused, BiasesOfImagesOfUnknownChannels) {
  const Tensor two = F({1, 2, 1, 2}, {1, 2, 3, 4}), one = F({1, 1, 1, 2}, {1, 2});
  const Numbers biases = {10, -1};
  EXPECT_EQ(OneNode("ImageScaler", 9, {two}).Set("bias", biases).FeedInput(0, true).Run(),
            (Numbers{11, 12, 2, 3}));
  ExpectRefusal(OneNode("ImageScaler", 9, {one}).Set("bias", biases).FeedInput(0, true), "reshape");
}

TEST(OnnxFused, TransformsOfUnknownParts) {
  const std::string text = "the last dimension of the input (1 or 2) is known only at run time";
  ExpectRefusal(OneNode("DFT", 20, {F({1, 4, 1}, {1, 2, 3, 4})}).FeedInput(0, true), text);
  OneNode frames("STFT", 17, {F({1, 4, 1}, {1, 2, 3, 4}), I({2}), kAbsent, I({2})});
  ExpectRefusal(frames.FeedInput(0, true), text);
}

// The inverse of one side has complex numbers: the run fails for others.
TEST(OnnxFused, InverseTransformOfUnknownParts) {
  ModelProto model;
  model.add_opset_import()->set_version(20);
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", DType::kFloat32, 3);
  auto& dims = *graph.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  dims.mutable_dim(0)->set_dim_value(1);
  dims.mutable_dim(1)->set_dim_value(3);
  dims.mutable_dim(2)->set_dim_param("parts");
  NodeProto& node = AddNode(graph, "DFT", {"x"}, "y");
  for (const char* name : {"inverse", "onesided"})
    AddAttr(node, name, AttributeProto::INT).set_i(1);
  graph.add_output()->set_name("y");
  Scope scope;
  const InferenceModel imported = ParseOnnx(model.SerializeAsString(), "m.onnx", scope, {});
  PreparedProgram prepared = Executor().Prepare(imported.program);
  ExpectNear(NumbersOf(prepared.Run(scope, {F({1, 3, 2}, {10, 7, -2, 2, -2, 5})}).at(0)),
             {1, 2, 3, 4});
  const std::string error = ErrorOf([&] { prepared.Run(scope, {F({1, 3, 1}, {10, -2, -2})}); });
  EXPECT_NE(error.find("reshape"), std::string::npos) << error;
}

TEST(OnnxFused, BiasAddAndGemmFastGelu) {
  Numbers sum;
  for (int64_t i = 0; i < x.numel(); ++i)
    sum.push_back(static_cast<float>(At(x, i) + At(bias, i % kWidth) + At(skip, i)));
  OneNode add("BiasAdd", 1, {x, bias, skip}, "com.microsoft");
  ExpectNear(add.FeedInput(0).Run(), sum);
  const Tensor weights = Waves({kWidth, 3}, 0.2f), shift = Waves({3}, 0.8f);
  Numbers wanted;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t j = 0; j < 3; ++j) {
      double v = At(shift, j);
      for (int64_t i = 0; i < kWidth; ++i) v += At(x, row * kWidth + i) * At(weights, i * 3 + j);
      const double inner = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
      wanted.push_back(static_cast<float>(v * (1 + std::tanh(inner)) / 2));
    }
  }
  OneNode gemm("GemmFastGelu", 1, {x, weights, shift}, "com.microsoft");
  ExpectNear(gemm.FeedInput(0).Run(), wanted);
}

// Positions that are not given follow from a length that a run knows.
TEST(OnnxFused, EmbeddingsOfUnknownLength) {
  const Tensor ids = Tensor::Of<int32_t>({2, 3}, {1, 0, 2, 2, 1, 0});
  const Tensor words = Waves({3, kWidth}, 0.1f), places = Waves({5, kWidth}, 0.7f);
  std::vector<std::optional<Tensor>> inputs = {ids, kAbsent, words, places, kAbsent, gamma, bias};
  OneNode fixed("EmbedLayerNormalization", 1, inputs, "com.microsoft");
  const Numbers wanted = fixed.FeedInput(0).Run();
  OneNode open("EmbedLayerNormalization", 1, inputs, "com.microsoft");
  ExpectNear(open.FeedInput(0, true).Run(), wanted);
  // The first row: word 1 at place 0.
  double mean = 0, variance = 0;
  Numbers sum;
  for (int64_t i = 0; i < kWidth; ++i)
    sum.push_back(static_cast<float>(At(words, kWidth + i) + At(places, i)));
  for (float value : sum) mean += double{value} / kWidth;
  for (float value : sum) variance += std::pow(double{value} - mean, 2) / kWidth;
  for (int64_t i = 0; i < kWidth; ++i) {
    const double normal = (double{sum[static_cast<size_t>(i)]} - mean) / std::sqrt(variance);
    EXPECT_NEAR(wanted[static_cast<size_t>(i)], normal * At(gamma, i) + At(bias, i), 1e-5);
  }
}

}  // namespace coracle::onnx::onnx_fused_test

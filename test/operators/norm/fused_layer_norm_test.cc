#include <coracle/test/op_test.h>

namespace coracle::fused_layer_norm_test {

using Values = std::vector<double>;

Values Draw(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Values values(static_cast<size_t>(count));
  for (double& v : values) v = uniform(random);
  return values;
}

// layer_norm of rows; `scale` and `bias` may be empty.
Values Normed(const Values& x, size_t columns, const Values& scale, const Values& bias,
              double epsilon, Values* means = nullptr, Values* variances = nullptr) {
  Values out = x;
  for (size_t row = 0; row < x.size(); row += columns) {
    double mean = 0, variance = 0;
    for (size_t k = 0; k < columns; ++k) mean += x[row + k] / static_cast<double>(columns);
    for (size_t k = 0; k < columns; ++k)
      variance += (x[row + k] - mean) * (x[row + k] - mean) / static_cast<double>(columns);
    for (size_t k = 0; k < columns; ++k)
      out[row + k] =
          (x[row + k] - mean) / std::sqrt(variance + epsilon) * (scale.empty() ? 1 : scale[k]) +
          (bias.empty() ? 0 : bias[k]);
    if (means) means->push_back(mean);
    if (variances) variances->push_back(variance);
  }
  return out;
}

TEST(SkipLayernorm, Values) {
  const Values x = Draw(24, 1), y = Draw(24, 2), scale = Draw(4, 3), bias = Draw(4, 4);
  Values sum = x;
  for (size_t k = 0; k < sum.size(); ++k) sum[k] += y[k];
  OpTest("skip_layernorm")
      .Attr("epsilon", 0.125f)
      .Attr("begin_norm_axis", 2)
      .Input("X", {2, 3, 4}, x)
      .Input("Y", {2, 3, 4}, y)
      .Input("Scale", {4}, scale)
      .Input("Bias", {4}, bias)
      .Expect("Out", {2, 3, 4}, Normed(sum, 4, scale, bias, 0.125));
  OpTest("skip_layernorm")
      .Attr("epsilon", 0.125f)
      .Attr("begin_norm_axis", 1)
      .Input("X", {2, 3, 4}, x)
      .Input("Y", {2, 3, 4}, y)
      .Expect("Out", {2, 3, 4}, Normed(sum, 12, {}, {}, 0.125));
  OpTest("skip_layernorm")
      .Attr("epsilon", 0.125f)
      .Attr("begin_norm_axis", 1)
      .Input("X", {0, 3}, {})
      .Input("Y", {0, 3}, {})
      .Expect("Out", {0, 3}, {});
}

TEST(SkipLayernorm, Gradients) {
  OpTest("skip_layernorm")
      .Attr("epsilon", 0.125f)
      .Attr("begin_norm_axis", 2)
      .RandomInput("X", {2, 3, 4})
      .RandomInput("Y", {2, 3, 4})
      .RandomInput("Scale", {4})
      .RandomInput("Bias", {4})
      .CheckGradient({"X", "Y", "Scale", "Bias"})
      .CheckHigherGradients(2);
}

TEST(SkipLayernorm, Constraints) {
  const auto with = [](int32_t axis, const Shape& y, const Shape& scale) {
    return std::move(OpTest("skip_layernorm")
                         .Attr("epsilon", 0.f)
                         .Attr("begin_norm_axis", axis)
                         .RandomInput("X", {2, 3})
                         .RandomInput("Y", y)
                         .RandomInput("Scale", scale));
  };
  with(0, {2, 3}, {3}).ExpectError("skip_layernorm.C1");
  with(2, {2, 3}, {3}).ExpectError("skip_layernorm.C1");
  with(1, {2, 3}, {2}).ExpectError("skip_layernorm.C2");
  with(1, {3, 2}, {3}).ExpectError("skip_layernorm.C3");
}

TEST(FusedEmbeddingEltwiseLayernorm, Values) {
  const Values first = Draw(12, 1), second = Draw(6, 2), scale = Draw(3, 3), bias = Draw(3, 4);
  const std::vector<int64_t> a = {0, 3, 1, 2}, b = {1, 1, 0, 1};
  Values sum;
  for (size_t r = 0; r < 4; ++r) {
    for (size_t k = 0; k < 3; ++k)
      sum.push_back(first[static_cast<size_t>(a[r]) * 3 + k] +
                    second[static_cast<size_t>(b[r]) * 3 + k]);
  }
  OpTest("fused_embedding_eltwise_layernorm")
      .Attr("epsilon", 0.125f)
      .IntInput("Ids", {2, 2}, a)
      .IntInput("Ids", {2, 2, 1}, b, DType::kInt32)
      .Input("Embs", {4, 3}, first)
      .Input("Embs", {2, 3}, second)
      .Input("Scale", {3}, scale)
      .Input("Bias", {3}, bias)
      .Expect("Out", {2, 2, 3}, Normed(sum, 3, scale, bias, 0.125));
}

TEST(FusedEmbeddingEltwiseLayernorm, Gradients) {
  OpTest("fused_embedding_eltwise_layernorm")
      .Attr("epsilon", 0.125f)
      .IntInput("Ids", {2, 2}, {0, 3, 1, 2})
      .IntInput("Ids", {2, 2, 1}, {1, 1, 0, 1})
      .RandomInput("Embs", {4, 3})
      .RandomInput("Embs", {2, 3})
      .RandomInput("Scale", {3})
      .RandomInput("Bias", {3})
      .CheckGradient({"Embs", "Scale", "Bias"});
}

TEST(FusedEmbeddingEltwiseLayernorm, Constraints) {
  const std::string type = "fused_embedding_eltwise_layernorm";
  const auto with = [&](const Shape& ids, const Shape& table) {
    return std::move(OpTest(type)
                         .TensorInput("Ids", Tensor::Zeros(DType::kInt64, ids))
                         .RandomInput("Embs", table));
  };
  with({1, 1}, {2, 0}).Expect("Out", {1, 1, 0}, {});
  with({1, 1}, {2, 3}).RandomInput("Scale", {2}).ExpectError(type + ".C2");
  with({1, 1}, {2, 3}).RandomInput("Embs", {2, 3}).ExpectError(type + ".C3");
  with({1}, {2, 3}).ExpectError(type + ".C4");
  with({1, 1}, {2}).ExpectError(type + ".C5");
  OpTest(type)
      .IntInput("Ids", {1, 1}, {2})
      .RandomInput("Embs", {2, 3})
      .ExpectError("outside [0, 2)");
}

TEST(FusedFcElementwiseLayernorm, Values) {
  for (const bool relu : {false, true}) {
    const Values x = Draw(12, 1), w = Draw(12, 2), y = Draw(8, 3), bias0 = Draw(2, 4);
    const Values scale = Draw(2, 5), bias1 = Draw(2, 6);
    Values sum;
    for (size_t r = 0; r < 2; ++r) {
      for (size_t k = 0; k < 2; ++k) {
        double z = bias0[k];
        for (size_t j = 0; j < 6; ++j) z += x[r * 6 + j] * w[j * 2 + k];
        sum.push_back((relu ? std::max(z, 0.0) : z) + y[r * 2 + k]);
      }
    }
    Values means, variances;
    const Values out = Normed(sum, 2, scale, bias1, 0.125, &means, &variances);
    OpTest("fused_fc_elementwise_layernorm")
        .Attr("epsilon", 0.125f)
        .Attr("activation_type", std::string(relu ? "relu" : ""))
        .Input("X", {2, 3, 2}, x)
        .Input("W", {6, 2}, w)
        .Input("Bias0", {2}, bias0)
        .Input("Y", {2, 2}, Values(y.begin(), y.begin() + 4))
        .Input("Scale", {2}, scale)
        .Input("Bias1", {2}, bias1)
        .Expect("Out", {2, 2}, out)
        .Expect("Mean", {2}, means)
        .Expect("Variance", {2}, variances);
  }
}

TEST(FusedFcElementwiseLayernorm, Gradients) {
  OpTest("fused_fc_elementwise_layernorm")
      .Attr("epsilon", 0.125f)
      .Attr("activation_type", std::string("relu"))
      .RandomInput("X", {3, 4}, 0.1, 1)
      .RandomInput("W", {4, 3}, 0.1, 1)
      .RandomInput("Bias0", {3}, 0.1, 1)
      .RandomInput("Y", {3, 3})
      .RandomInput("Scale", {3})
      .RandomInput("Bias1", {3})
      .NoOutput("Mean")
      .NoOutput("Variance")
      .CheckGradient({"X", "W", "Bias0", "Y", "Scale", "Bias1"});
}

TEST(FusedFcElementwiseLayernorm, Constraints) {
  const std::string type = "fused_fc_elementwise_layernorm";
  const auto with = [&](const Shape& w, const Shape& y) {
    return std::move(OpTest(type).RandomInput("X", {2, 3}).RandomInput("W", w).RandomInput("Y", y));
  };
  with({3, 2}, {2, 2}).Attr("begin_norm_axis", 2).ExpectError(type + ".C1");
  with({3, 2}, {2, 2}).RandomInput("Bias1", {3}).ExpectError(type + ".C2");
  with({3, 2}, {2, 2}).Attr("x_num_col_dims", 2).ExpectError(type + ".C3");
  with({2, 2}, {2, 2}).ExpectError(type + ".C4");
  with({3, 2}, {2, 2}).RandomInput("Bias0", {3}).ExpectError(type + ".C4");
  with({3, 2}, {2, 3}).ExpectError(type + ".C5");
}

TEST(FusedEmbeddingEltwiseLayernorm, EmptyBatch) {
  OpTest("fused_embedding_eltwise_layernorm")
      .IntInput("Ids", {0, 1}, {})
      .RandomInput("Embs", {2, 3})
      .Expect("Out", {0, 1, 3}, {});
}
}  // namespace coracle::fused_layer_norm_test

// Ops on integers with scales and zero points against their formulas in double.
#include <coracle/test/convert/one_node.h>

#include <cmath>
#include <functional>

namespace coracle::onnx::onnx_quantized_test {

constexpr const char* kMicrosoft = "com.microsoft";

Tensor Bytes(const Shape& shape, const Integers& values, DType dtype = DType::kUInt8) {
  return Tensor::Of<int64_t>(shape, values).Cast(dtype);
}
Tensor Byte(int64_t value, DType dtype = DType::kUInt8) { return Bytes({}, {value}, dtype); }
Tensor Scale(float value) { return F({}, {value}); }

// Integers all over the range of a dtype.
Integers Some(int64_t count, DType dtype, int64_t step = 37) {
  Integers values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back((i * step + 11) % 256 - (dtype == DType::kInt8 ? 128 : 0));
  return values;
}

struct Affine {
  float scale;
  int64_t zero;
  double Real(int64_t q) const {
    return static_cast<double>(scale) * static_cast<double>(q - zero);
  }
  // The nearest integer of the dtype.
  float Rounded(double real, DType dtype) const {
    const int64_t least = dtype == DType::kInt8 ? -128 : 0;
    const double q = std::nearbyint(real / static_cast<double>(scale)) + static_cast<double>(zero);
    return static_cast<float>(
        std::clamp(q, static_cast<double>(least), static_cast<double>(least + 255)));
  }
};

// At most one integer apart, where the number lies near the middle of two.
void ExpectClose(const Numbers& got, const Numbers& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  int64_t different = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], wanted[i], 1) << what << " element " << i;
    different += got[i] != wanted[i];
  }
  EXPECT_LE(different, static_cast<int64_t>(got.size()) / 20 + 1) << what;
}

// With x known to the importer, and fed.
void ExpectNode(const OneNode& node, const Numbers& wanted, const std::string& what) {
  OneNode known = node, fed = node;
  ExpectClose(known.Run(), wanted, what + " of constants");
  ExpectClose(fed.FeedInput(0).Run(), wanted, what);
}

// --- functions of single numbers ---

TEST(OnnxQuantized, FunctionsByTable) {
  for (const DType dtype : {DType::kUInt8, DType::kInt8}) {
    const int64_t least = dtype == DType::kInt8 ? -128 : 0;
    Integers codes;
    for (int64_t q = 0; q < 256; ++q) codes.push_back(q + least);
    const Affine x = {0.05f, least + 130}, y = {1 / 256.0f, least}, wide = {0.06f, least + 90};
    Numbers sigmoid, leaky;
    for (int64_t q : codes) {
      const double real = x.Real(q);
      sigmoid.push_back(y.Rounded(1 / (1 + std::exp(-real)), dtype));
      leaky.push_back(wide.Rounded(real < 0 ? static_cast<double>(0.2f) * real : real, dtype));
    }
    const Tensor all = Bytes({256}, codes, dtype);
    ExpectNode(
        OneNode("QLinearSigmoid", 1,
                {all, Scale(x.scale), Byte(x.zero, dtype), Scale(y.scale), Byte(y.zero, dtype)},
                kMicrosoft),
        sigmoid, "QLinearSigmoid");
    OneNode node(
        "QLinearLeakyRelu", 1,
        {all, Scale(x.scale), Byte(x.zero, dtype), Scale(wide.scale), Byte(wide.zero, dtype)},
        kMicrosoft);
    ExpectNode(node.Set("alpha", 0.2f), leaky, "QLinearLeakyRelu");
  }
}

// [2, 3, 4]: over the last axis; over axis 1; from axis 1 on, as up to operator set 12.
TEST(OnnxQuantized, Softmax) {
  const DType dtype = DType::kUInt8;
  const Affine x = {0.04f, 120}, y = {1 / 256.0f, 0};
  const Integers q = Some(24, dtype);
  const auto softmax = [&](const std::function<int64_t(int64_t)>& group) {
    Numbers out;
    for (int64_t i = 0; i < 24; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < 24; ++j)
        if (group(i) == group(j)) sum += std::exp(x.Real(q[static_cast<size_t>(j)]));
      out.push_back(y.Rounded(std::exp(x.Real(q[static_cast<size_t>(i)])) / sum, dtype));
    }
    return out;
  };
  const auto node = [&](int64_t axis, int64_t opset) {
    return std::move(
        OneNode("QLinearSoftmax", 1,
                {Bytes({2, 3, 4}, q), Scale(x.scale), Byte(x.zero), Scale(y.scale), Byte(0)},
                kMicrosoft)
            .Set("axis", axis)
            .Set("opset", opset));
  };
  const auto last = softmax([](int64_t i) { return i / 4; });
  ExpectNode(node(-1, 13), last, "last axis");
  ExpectNode(node(2, 12), last, "last axis, joined");
  ExpectNode(node(1, 13), softmax([](int64_t i) { return i / 12 * 4 + i % 4; }), "axis 1");
  ExpectNode(node(1, 11), softmax([](int64_t i) { return i / 12; }), "from axis 1 on");
  EXPECT_NE(node(5, 13).Refusal(), "");
  OneNode without = node(1, 13);
  EXPECT_NE(without.Clear("opset").Refusal().find("opset"), std::string::npos);
}

TEST(OnnxQuantized, ReduceMean) {
  const DType dtype = DType::kInt8;
  const Affine x = {0.1f, 3}, y = {0.07f, -9};
  const Integers q = Some(24, dtype);
  Numbers rows, all(1);
  double total = 0;
  for (int64_t row = 0; row < 6; ++row) {
    double sum = 0;
    for (int64_t i = 0; i < 4; ++i) sum += x.Real(q[static_cast<size_t>(row * 4 + i)]);
    rows.push_back(y.Rounded(sum / 4, dtype));
    total += sum;
  }
  all[0] = y.Rounded(total / 24, dtype);
  const OneNode node("QLinearReduceMean", 1,
                     {Bytes({2, 3, 4}, q, dtype), Scale(x.scale), Byte(x.zero, dtype),
                      Scale(y.scale), Byte(y.zero, dtype)},
                     kMicrosoft);
  for (int64_t keep : {0, 1}) {
    OneNode last = node, whole = node;
    ExpectNode(last.Set("axes", Integers{-1}).Set("keepdims", keep), rows, "rows");
    ExpectNode(whole.Set("keepdims", keep), all, "all");
  }
}

TEST(OnnxQuantized, Where) {
  const DType dtype = DType::kUInt8;
  const Affine x = {0.1f, 128}, y = {0.2f, 3}, z = {0.15f, 40};
  const Integers a = Some(6, dtype), b = Some(3, dtype, 101);
  const std::vector<bool> chosen = {true, false, false, true, true, false};
  Tensor condition = Tensor::Zeros(DType::kBool, {2, 3});
  Numbers wanted;
  for (size_t i = 0; i < 6; ++i) {
    condition.data<bool>()[i] = chosen[i];
    wanted.push_back(z.Rounded(chosen[i] ? x.Real(a[i]) : y.Real(b[i % 3]), dtype));
  }
  ExpectNode(OneNode("QLinearWhere", 1,
                     {condition, Bytes({2, 3}, a), Scale(x.scale), Byte(x.zero), Bytes({3}, b),
                      Scale(y.scale), Byte(y.zero), Scale(z.scale), Byte(z.zero)},
                     kMicrosoft),
             wanted, "QLinearWhere");
}

// --- Concat and pools ---

TEST(OnnxQuantized, Concat) {
  for (const DType dtype : {DType::kUInt8, DType::kInt8}) {
    const int64_t least = dtype == DType::kInt8 ? -128 : 0;
    const Affine out = {0.1f, least + 100}, first = {0.2f, least + 128}, second = out;
    const Integers a = Some(6, dtype), b = Some(4, dtype, 55);  // [2, 3] and [2, 2]
    Numbers wanted;
    for (size_t row = 0; row < 2; ++row) {
      for (size_t i = 0; i < 3; ++i)
        wanted.push_back(out.Rounded(first.Real(a[row * 3 + i]), dtype));
      for (size_t i = 0; i < 2; ++i)
        wanted.push_back(out.Rounded(second.Real(b[row * 2 + i]), dtype));
    }
    for (int64_t axis : {1, -1}) {
      OneNode node("QLinearConcat", 1,
                   {Scale(out.scale), Byte(out.zero, dtype), Bytes({2, 3}, a, dtype),
                    Scale(first.scale), Byte(first.zero, dtype), Bytes({2, 2}, b, dtype),
                    Scale(second.scale), Byte(second.zero, dtype)},
                   kMicrosoft);
      node.Set("axis", axis);
      OneNode fed = node;
      ExpectClose(node.Run(), wanted, "constants");
      ExpectClose(fed.FeedInput(2).Run(), wanted, "fed");
    }
  }
  EXPECT_NE(OneNode("QLinearConcat", 1, {Scale(1), Byte(0), Bytes({1}, {1}), Scale(1)}, kMicrosoft)
                .Set("axis", int64_t{0})
                .Refusal()
                .find("three for each tensor"),
            std::string::npos);
}

// Means of windows of 2 x 3 with strides 2 and 1 and padding, of images [2, 2, 5, 4].
Numbers Means(const Integers& q, const Affine& x, const Affine& y, DType dtype, bool counts,
              bool channels_last) {
  Numbers out;
  const int64_t height = 5, width = 4, channels = 2;
  const auto at = [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    return q[static_cast<size_t>(channels_last ? ((n * height + h) * width + w) * channels + c
                                               : ((n * channels + c) * height + h) * width + w)];
  };
  const auto mean = [&](int64_t n, int64_t c, int64_t oh, int64_t ow) {
    double sum = 0;
    int64_t inside = 0;
    for (int64_t h = oh * 2 - 1; h < oh * 2 + 1; ++h) {
      for (int64_t w = ow - 1; w < ow + 2; ++w) {
        if (h < 0 || w < 0 || h >= height || w >= width) continue;
        sum += x.Real(at(n, c, h, w));
        ++inside;
      }
    }
    out.push_back(y.Rounded(sum / static_cast<double>(counts ? 6 : inside), dtype));
  };
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t i = 0; i < 3 * 4 * channels; ++i) {
      const int64_t c = channels_last ? i % channels : i / 12;
      const int64_t pixel = channels_last ? i / channels : i % 12;
      mean(n, c, pixel / 4, pixel % 4);
    }
  }
  return out;
}

TEST(OnnxQuantized, AveragePool) {
  for (const DType dtype : {DType::kUInt8, DType::kInt8}) {
    const int64_t least = dtype == DType::kInt8 ? -128 : 0;
    const Affine x = {0.1f, least + 60}, y = {0.12f, least + 128};
    const Integers q = Some(80, dtype);
    for (const bool last : {false, true}) {
      for (const bool counts : {false, true}) {
        OneNode node("QLinearAveragePool", 1,
                     {Bytes(last ? Shape{2, 5, 4, 2} : Shape{2, 2, 5, 4}, q, dtype), Scale(x.scale),
                      Byte(x.zero, dtype), Scale(y.scale), Byte(y.zero, dtype)},
                     kMicrosoft);
        node.Set("kernel_shape", Integers{2, 3})
            .Set("strides", Integers{2, 1})
            .Set("pads", Integers{1, 1, 0, 1})
            .Set("channels_last", int64_t{last})
            .Set("count_include_pad", int64_t{counts});
        ExpectNode(node, Means(q, x, y, dtype, counts, last), last ? "NHWC" : "NCHW");
      }
    }
  }
}

TEST(OnnxQuantized, PoolsOfOtherRanks) {
  const Affine x = {0.1f, 60}, y = {0.12f, 128};
  const Integers q = Some(16, DType::kUInt8);
  for (const Shape& shape : {Shape{1, 2, 8}, Shape{1, 2, 4, 2}, Shape{1, 2, 2, 2, 2}}) {
    Numbers means, pairs;
    for (size_t c = 0; c < 2; ++c) {
      double sum = 0;
      for (size_t i = 0; i < 8; ++i) sum += x.Real(q[c * 8 + i]);
      means.push_back(y.Rounded(sum / 8, DType::kUInt8));
    }
    for (size_t i = 0; i < 16; i += 2)
      pairs.push_back(y.Rounded((x.Real(q[i]) + x.Real(q[i + 1])) / 2, DType::kUInt8));
    const std::vector<std::optional<Tensor>> inputs = {Bytes(shape, q), Scale(x.scale),
                                                       Byte(x.zero), Scale(y.scale), Byte(y.zero)};
    ExpectNode(OneNode("QLinearGlobalAveragePool", 1, inputs, kMicrosoft), means, "global");
    // Pairs along the last axis.
    Integers kernel(static_cast<size_t>(shape.rank()) - 2, 1);
    kernel.back() = 2;
    OneNode node("QLinearAveragePool", 1, inputs, kMicrosoft);
    ExpectNode(node.Set("kernel_shape", kernel).Set("strides", kernel), pairs, "pairs");
  }
}

// --- QGemm ---

struct Gemm {
  bool trans_a, trans_b, by_column, floats;
  Shape c;  // rank 0: none
  float alpha;
};

void CheckGemm(const Gemm& g) {
  const int64_t m = 3, k = 5, n = 4;
  const DType int8 = DType::kInt8;
  const Integers a = Some(m * k, DType::kUInt8), b = Some(k * n, int8, 91);
  const Affine ax = {0.02f, 120}, y = {0.5f, 100};
  const Numbers scales = {0.01f, 0.02f, 0.03f, 0.005f};
  const Integers zeros = {3, -4, 0, 9};
  Integers c;
  for (int64_t i = 0; i < g.c.numel(); ++i) c.push_back(i * 700 - 900);
  Numbers wanted;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const auto column = static_cast<size_t>(g.by_column ? j : 0);
      int64_t sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += (a[static_cast<size_t>(g.trans_a ? l * m + i : i * k + l)] - ax.zero) *
               (b[static_cast<size_t>(g.trans_b ? j * k + l : l * n + j)] - zeros[column]);
      if (g.c.rank() > 0) {
        const int64_t rows = g.c.rank() == 2 && g.c[0] > 1 ? i : 0;
        const int64_t width = g.c[g.c.rank() - 1];
        sum += c[static_cast<size_t>(rows * width + (width > 1 ? j : 0))];
      }
      const double real = static_cast<double>(sum) * static_cast<double>(g.alpha) *
                          static_cast<double>(ax.scale) * static_cast<double>(scales[column]);
      wanted.push_back(g.floats ? static_cast<float>(real) : y.Rounded(real, DType::kUInt8));
    }
  }
  const auto lines = [&](bool all) { return all ? Shape{n} : Shape{}; };
  std::vector<std::optional<Tensor>> inputs = {
      Bytes(g.trans_a ? Shape{k, m} : Shape{m, k}, a),
      Scale(ax.scale),
      Byte(ax.zero),
      Bytes(g.trans_b ? Shape{n, k} : Shape{k, n}, b, int8),
      F(lines(g.by_column), g.by_column ? scales : Numbers{scales[0]}),
      Bytes(lines(g.by_column), g.by_column ? zeros : Integers{zeros[0]}, int8)};
  if (g.c.rank() > 0)
    inputs.push_back(Bytes(g.c, c, DType::kInt32));
  else
    inputs.push_back(kAbsent);
  if (!g.floats) inputs.insert(inputs.end(), {Scale(y.scale), Byte(y.zero)});
  OneNode node("QGemm", 1, inputs, kMicrosoft);
  node.Set("transA", int64_t{g.trans_a}).Set("transB", int64_t{g.trans_b}).Set("alpha", g.alpha);
  const std::string what = "C " + g.c.ToString();
  if (!g.floats) return ExpectNode(node, wanted, what);
  OneNode fed = node;
  const Numbers got = node.Run(), again = fed.FeedInput(0).Run();
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(got[i], wanted[i], 1e-4f * (1 + std::abs(wanted[i]))) << what;
    EXPECT_NEAR(again[i], wanted[i], 1e-4f * (1 + std::abs(wanted[i]))) << what;
  }
}

TEST(OnnxQuantized, Gemm) {
  for (const bool floats : {false, true}) {
    for (const Shape& c : {Shape{}, Shape{4}, Shape{1, 4}, Shape{3, 4}, Shape{3, 1}, Shape{1}}) {
      CheckGemm({false, false, true, floats, c, 1.0f});
      CheckGemm({true, false, false, floats, c, 0.5f});
      CheckGemm({false, true, true, floats, c, 3.0f});
    }
  }
}

// --- convolutions with the channels last ---

TEST(OnnxQuantized, ConvWithChannelsLast) {
  const Affine x = {0.5f, 12}, y = {8.0f, 100};
  const Integers image = Some(18, DType::kUInt8), filters = Some(16, DType::kInt8, 29);
  const Numbers scales = {0.25f, 0.5f};
  Numbers wanted;
  for (int64_t pixel = 0; pixel < 4; ++pixel) {
    for (int64_t f = 0; f < 2; ++f) {
      int64_t sum = 0;
      for (int64_t c = 0; c < 2; ++c)
        for (int64_t i = 0; i < 4; ++i)
          sum +=
              (image[static_cast<size_t>(((pixel / 2 + i / 2) * 3 + pixel % 2 + i % 2) * 2 + c)] -
               x.zero) *
              filters[static_cast<size_t>((f * 2 + c) * 4 + i)];
      wanted.push_back(y.Rounded(
          static_cast<double>(sum) * 0.5 * static_cast<double>(scales[static_cast<size_t>(f)]),
          DType::kUInt8));
    }
  }
  OneNode node("QLinearConv", 1,
               {Bytes({1, 3, 3, 2}, image), Scale(x.scale), Byte(x.zero),
                Bytes({2, 2, 2, 2}, filters, DType::kInt8), F({2}, scales),
                Bytes({2}, {0, 0}, DType::kInt8), Scale(y.scale), Byte(y.zero)},
               kMicrosoft);
  ExpectNode(node.Set("channels_last", int64_t{1}), wanted, "NHWC");
}

// --- DynamicQuantizeLSTM ---

// The numbers after rounding to 8 bits over their own range.
std::vector<double> ByRange(const std::vector<double>& x) {
  double least = 0, most = 0;
  for (double v : x) {
    least = std::min(least, v);
    most = std::max(most, v);
  }
  const double scale = most == least ? 1 : (most - least) / 255;
  const double zero = std::nearbyint(-least / scale);
  std::vector<double> out;
  for (double v : x)
    out.push_back(scale * (std::clamp(std::nearbyint(v / scale) + zero, 0.0, 255.0) - zero));
  return out;
}

TEST(OnnxQuantized, DynamicLstm) {
  const int64_t steps = 3, batch = 2, in = 3, hidden = 2, gates = 4 * hidden;
  const DType int8 = DType::kInt8;
  const Integers w = Some(in * gates, int8), r = Some(hidden * gates, int8, 73);
  const float w_scale = 0.01f, r_scale = 0.012f;
  std::vector<double> x, b;
  Numbers x_floats, b_floats;
  for (int64_t i = 0; i < steps * batch * in; ++i)
    x_floats.push_back(std::sin(static_cast<float>(i)));
  for (int64_t i = 0; i < 2 * gates; ++i)
    b_floats.push_back(0.1f * std::cos(static_cast<float>(i)));
  x.assign(x_floats.begin(), x_floats.end());
  b.assign(b_floats.begin(), b_floats.end());
  const std::vector<double> rounded = ByRange(x);
  std::vector<double> h(static_cast<size_t>(batch * hidden)), c(h.size());
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  Numbers wanted;
  for (int64_t t = 0; t < steps; ++t) {
    const std::vector<double> state = ByRange(h);
    for (int64_t n = 0; n < batch; ++n) {
      std::vector<double> z(static_cast<size_t>(gates));
      for (int64_t g = 0; g < gates; ++g) {
        double sum = b[static_cast<size_t>(g)] + b[static_cast<size_t>(gates + g)];
        for (int64_t i = 0; i < in; ++i)
          sum += rounded[static_cast<size_t>((t * batch + n) * in + i)] *
                 static_cast<double>(w[static_cast<size_t>(i * gates + g)]) *
                 static_cast<double>(w_scale);
        for (int64_t i = 0; i < hidden; ++i)
          sum += state[static_cast<size_t>(n * hidden + i)] *
                 static_cast<double>(r[static_cast<size_t>(i * gates + g)] - 5) *
                 static_cast<double>(r_scale);
        z[static_cast<size_t>(g)] = sum;
      }
      for (int64_t i = 0; i < hidden; ++i) {
        const auto at = static_cast<size_t>(n * hidden + i);
        const auto gate = [&](int64_t k) { return z[static_cast<size_t>(k * hidden + i)]; };
        c[at] = sigmoid(gate(2)) * c[at] + sigmoid(gate(0)) * std::tanh(gate(3));
        h[at] = sigmoid(gate(1)) * std::tanh(c[at]);
        wanted.push_back(static_cast<float>(h[at]));
      }
    }
  }
  OneNode node(
      "DynamicQuantizeLSTM", 1,
      {F({steps, batch, in}, x_floats), Bytes({1, in, gates}, w, int8),
       Bytes({1, hidden, gates}, r, int8), F({1, 2 * gates}, b_floats), kAbsent, kAbsent, kAbsent,
       kAbsent, F({1}, {w_scale}), Bytes({1}, {0}, int8), F({1}, {r_scale}), Bytes({1}, {5}, int8)},
      kMicrosoft);
  node.Set("hidden_size", hidden);
  // The float32 state may be rounded to the next integer of 8 bits.
  OneNode fed = node;
  for (const Numbers& got : {node.Run(), fed.FeedInput(0).Run()}) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 2e-3f) << i;
  }
}

// --- scales of any shape ---

TEST(OnnxQuantized, ProductsWithScalesOfRows) {
  const Integers a = Some(6, DType::kUInt8), b = Some(6, DType::kInt8);
  const Numbers as = {0.1f, 0.3f}, ys = {2.0f, 0.5f};
  const Integers az = {100, 20}, yz = {128, 3};
  Numbers wanted;
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 2; ++j) {
      int64_t sum = 0;
      for (size_t k = 0; k < 3; ++k) sum += (a[i * 3 + k] - az[i]) * (b[k * 2 + j] + 7);
      const Affine y = {ys[i], yz[i]};
      wanted.push_back(y.Rounded(
          static_cast<double>(sum) * static_cast<double>(as[i]) * static_cast<double>(0.05f),
          DType::kUInt8));
    }
  }
  ExpectNode(OneNode("QLinearMatMul", 21,
                     {Bytes({2, 3}, a), F({2}, as), Bytes({2}, az), Bytes({3, 2}, b, DType::kInt8),
                      Scale(0.05f), Byte(-7, DType::kInt8), F({2}, ys), Bytes({2}, yz)}),
             wanted, "rows");
}

// The quotient of float16 numbers is a float16.
TEST(OnnxQuantized, QuotientsOf16Bits) {
  const Tensor x = F({1}, {1.50097656f}).Cast(DType::kFloat16);
  const Tensor scale = F({}, {3.0019531f}).Cast(DType::kFloat16);
  EXPECT_EQ(OneNode("QuantizeLinear", 19, {x, scale}).Run(), Numbers{0});
  OneNode fed("QuantizeLinear", 19, {x, scale});
  EXPECT_EQ(fed.FeedInput(0).Run(), Numbers{0});
}

TEST(OnnxQuantized, Refusals) {
  const Tensor x = Bytes({2, 2}, {1, 2, 3, 4});
  EXPECT_NE(OneNode("DequantizeLinear", 13, {x, F({3}, {1, 2, 3})}).Refusal().find("C2"),
            std::string::npos);
  EXPECT_NE(OneNode("DequantizeLinear", 13, {x, F({1, 2}, {1, 2})}).Refusal().find("block_size"),
            std::string::npos);
  EXPECT_NE(OneNode("QuantizeLinear", 13, {F({2}, {1, 2}), Scale(1), I({1})})
                .Refusal()
                .find("quantized elements of type INT64"),
            std::string::npos);
}

}  // namespace coracle::onnx::onnx_quantized_test

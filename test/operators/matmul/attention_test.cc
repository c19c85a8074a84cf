#include <coracle/test/op_test.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace coracle::attention_test {

using Values = std::vector<double>;

constexpr const char *kType = "scaled_dot_product_attention",
                     *kGradType = "scaled_dot_product_attention_grad";

Values Draw(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Values values(static_cast<size_t>(count));
  for (double& v : values) v = uniform(random);
  return values;
}

struct Sizes {
  int64_t batch, heads, rows, keys, depth, width;
};

size_t At(int64_t i) { return static_cast<size_t>(i); }

// The formula, one element after the other, for [B, H, S, D]; `score` is added to the score of (b,
// h, i, j).
template <class Score>
Values Attend(const Sizes& s, const Values& q, const Values& k, const Values& v, double scale,
              const Score& score) {
  Values out(At(s.batch * s.heads * s.rows * s.width));
  for (int64_t m = 0; m < s.batch * s.heads; ++m) {
    for (int64_t i = 0; i < s.rows; ++i) {
      Values weights(At(s.keys));
      double total = 0;
      for (int64_t j = 0; j < s.keys; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < s.depth; ++d)
          dot += q[At((m * s.rows + i) * s.depth + d)] * k[At((m * s.keys + j) * s.depth + d)];
        total += weights[At(j)] = std::exp(scale * dot + score(m / s.heads, m % s.heads, i, j));
      }
      for (int64_t j = 0; j < s.keys; ++j) {
        for (int64_t d = 0; d < s.width; ++d)
          out[At((m * s.rows + i) * s.width + d)] +=
              weights[At(j)] / total * v[At((m * s.keys + j) * s.width + d)];
      }
    }
  }
  return out;
}
double Nothing(int64_t, int64_t, int64_t, int64_t) { return 0; }

OpTest With(const Shape& q, const Shape& k, const Shape& v) {
  return std::move(OpTest(kType).RandomInput("Q", q).RandomInput("K", k).RandomInput("V", v));
}

TEST(Attention, WeightsByHand) {
  // Scores 0 and log 3: weights 1/4 and 3/4.
  OpTest(kType)
      .Input("Q", {1, 1, 1, 1}, {std::log(3.0)})
      .Input("K", {1, 1, 2, 1}, {0, 1})
      .Input("V", {1, 1, 2, 2}, {4, 8, 0, 4})
      .Expect("Out", {1, 1, 1, 2}, {1, 5})
      .Expect("SoftmaxStats", {1, 1, 1, 2}, {std::log(3.0), 4.0 / 3}, 1e-5)
      .Expect("Weights", {1, 1, 1, 2}, {0.25, 0.75});
}

TEST(Attention, Formula) {
  const Sizes s = {2, 2, 3, 4, 5, 2};
  const Values q = Draw(60, 1), k = Draw(80, 2), v = Draw(32, 3), mask = Draw(48, 4);
  const Shape qs = {2, 2, 3, 5}, ks = {2, 2, 4, 5}, vs = {2, 2, 4, 2}, os = {2, 2, 3, 2};
  OpTest plain(kType);
  plain.Attr("scale", 0.5f).Input("Q", qs, q).Input("K", ks, k).Input("V", vs, v);
  OpTest(plain).Expect("Out", os, Attend(s, q, k, v, 0.5, Nothing));
  OpTest(plain)
      .Input("Mask", {2, 2, 3, 4}, mask)
      .Expect("Out", os, Attend(s, q, k, v, 0.5, [&](auto b, auto h, auto i, auto j) {
                return mask[At(((b * 2 + h) * 3 + i) * 4 + j)];
              }));
  OpTest(plain)
      .Input("Mask", {2, 1, 1, 4}, Draw(8, 4))
      .Expect("Out", os, Attend(s, q, k, v, 0.5, [&](auto b, auto, auto, auto j) {
                return mask[At(b * 4 + j)];
              }));
  OpTest(plain)
      .Input("Mask", {2, 3, 1}, Draw(6, 4))
      .Expect("Out", os, Attend(s, q, k, v, 0.5, [&](auto, auto h, auto i, auto) {
                return mask[At(h * 3 + i)];
              }));
  const auto causal = [](auto, auto, auto i, auto j) {
    return j <= i + 1 ? 0.0 : -std::numeric_limits<double>::infinity();
  };
  OpTest(plain).Attr("is_causal", true).Expect("Out", os, Attend(s, q, k, v, 0.5, causal));
}

// [B, S, H, D] has the same elements as [B, H, S, D] with the dims in the middle exchanged.
Values Exchange(const Values& x, int64_t batch, int64_t a, int64_t b, int64_t columns) {
  Values y(x.size());
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t i = 0; i < a; ++i) {
      for (int64_t j = 0; j < b; ++j) {
        for (int64_t c = 0; c < columns; ++c)
          y[At(((n * b + j) * a + i) * columns + c)] = x[At(((n * a + i) * b + j) * columns + c)];
      }
    }
  }
  return y;
}

TEST(Attention, HeadsInside) {
  const Sizes s = {2, 3, 4, 5, 2, 6};
  const Values q = Draw(48, 1), k = Draw(60, 2), v = Draw(180, 3);
  OpTest(kType)
      .Attr("layout", std::string("BSHD"))
      .Input("Q", {2, 4, 3, 2}, Exchange(q, 2, 3, 4, 2))
      .Input("K", {2, 5, 3, 2}, Exchange(k, 2, 3, 5, 2))
      .Input("V", {2, 5, 3, 6}, Exchange(v, 2, 3, 5, 6))
      .Expect("Out", {2, 4, 3, 6}, Exchange(Attend(s, q, k, v, 1, Nothing), 2, 3, 4, 6))
      .CheckGradient({"Q", "K", "V"})
      .CheckFast();
}

TEST(Attention, JointOperands) {
  // Q, K and V side by side: [batch, rows, 3, heads, columns].
  const Sizes s = {2, 3, 4, 4, 5, 5};
  const Values all = Draw(2 * 4 * 3 * 15, 1);
  const auto part = [&](int64_t p) {
    Values x;
    for (int64_t row = 0; row < 8; ++row) {
      const auto from = all.begin() + (row * 3 + p) * 15;
      x.insert(x.end(), from, from + 15);
    }
    return Exchange(x, 2, 4, 3, 5);
  };
  const auto test = [](const Shape& shape) {
    return std::move(OpTest(kType).Attr("layout", std::string("BS3HD")).RandomInput("Q", shape));
  };
  OpTest(kType)
      .Attr("layout", std::string("BS3HD"))
      .Input("Q", {2, 4, 3, 3, 5}, all)
      .Expect("Out", {2, 4, 3, 5},
              Exchange(Attend(s, part(0), part(1), part(2), 1, Nothing), 2, 3, 4, 5));
  test({2, 4, 3, 3, 5}).Attr("scale", 0.5f).CheckGradient({"Q"}).CheckFast();
  test({2, 4, 3, 3, 5})
      .RandomInput("Mask", {2, 1, 1, 4})
      .Attr("dropout_prob", 0.3f)
      .CheckGradient({"Q", "Mask"})
      .CheckFast();
  test({2, 4, 3, 1, 5})  // one head for all of the mask's
      .RandomInput("Mask", {2, 3, 4, 4})
      .CheckGradient({"Q", "Mask"})
      .CheckFast();
  test({1, 4, 3, 2, 5}).RandomInput("Mask", {3, 1, 4, 4}).CheckGradient({"Q", "Mask"}).CheckFast();
  test({1, 1, 3, 1, 1}).CheckGradient({"Q"}).CheckFast();
  test({2, 70, 3, 2, 20}).Attr("is_causal", true).CheckFast();
  test({1, 300, 3, 2, 17}).Attr("is_causal", true).CheckFast();
  for (const Shape& empty : {Shape{0, 2, 3, 2, 2}, Shape{2, 0, 3, 2, 2}, Shape{2, 2, 3, 0, 2}})
    test(empty).Expect("Out", {empty[0], empty[1], empty[3], empty[4]}, {}).CheckFast();
}

TEST(Attention, FewerDimsAndRepeatedOnes) {
  const Sizes s = {1, 2, 3, 4, 2, 2};
  const Values q = Draw(12, 1), k = Draw(16, 2), v = Draw(16, 3);
  OpTest(kType)
      .Input("Q", {2, 3, 2}, q)
      .Input("K", {2, 4, 2}, k)
      .Input("V", {2, 4, 2}, v)
      .Expect("Out", {2, 3, 2}, Attend(s, q, k, v, 1, Nothing));
  // The same keys and values for both heads.
  Values twice = Draw(8, 2), values = Draw(8, 3);
  const Values one = twice, two = values;
  twice.insert(twice.end(), one.begin(), one.end());
  values.insert(values.end(), two.begin(), two.end());
  OpTest(kType)
      .Input("Q", {2, 3, 2}, q)
      .Input("K", {4, 2}, one)
      .Input("V", {1, 4, 2}, two)
      .Expect("Out", {2, 3, 2}, Attend(s, q, twice, values, 1, Nothing))
      .CheckGradient({"Q", "K", "V"})
      .CheckFast();
  // One row of queries, to whose scores a mask for more rows, heads and samples is added.
  With({1, 2}, {4, 2}, {4, 3})
      .RandomInput("Mask", {2, 2, 3, 4})
      .CheckGradient({"Q", "K", "V", "Mask"})
      .CheckFast();
  // One key, and scores for three.
  With({2, 2, 2, 3}, {2, 1, 1, 3}, {2, 2, 3, 2})
      .RandomInput("Mask", {2, 1, 1, 3})
      .CheckGradient({"Q", "K", "V", "Mask"})
      .CheckFast();
}

TEST(Attention, Gradients) {
  const Shape q = {2, 2, 3, 4}, k = {2, 2, 5, 4}, v = {2, 2, 5, 3};
  With(q, k, v).Attr("scale", 0.5f).CheckGradient({"Q", "K", "V"});
  With(q, k, v).Attr("is_causal", true).CheckGradient({"Q", "K", "V"});
  for (const Shape& mask : {Shape{2, 2, 3, 5}, Shape{1, 2, 3, 5}, Shape{2, 1, 1, 5}, Shape{3, 1}})
    With(q, k, v).RandomInput("Mask", mask).CheckGradient({"Q", "K", "V", "Mask"});
  for (const char* slot : {"Q", "K", "V"}) With(q, k, v).CheckGradient({slot});
  With(q, k, v).NoOutput("Weights").CheckGradient({"Q", "K", "V"});
}

TEST(Attention, Dropout) {
  // V reveals the weights: in each step half of them, drawn again, are 0 and the others twice
  // as large.
  OpTest test(kType);
  test.Attr("dropout_prob", 0.5f)
      .Input("Q", {1, 64, 1}, Values(64, 0))
      .Input("K", {1, 64, 1}, Values(64, 0));
  Values identity(64 * 64);
  for (size_t i = 0; i < 64; ++i) identity[i * 65] = 1;
  test.Input("V", {1, 64, 64}, identity);
  Values first;
  for (uint64_t step : {0, 1, 0}) {
    const Tensor out = test.Step(step).Output("Out");
    Values got(out.data<float>(), out.data<float>() + out.numel());
    int64_t kept = 0;
    for (double w : got) {
      EXPECT_TRUE(w == 0 || w == 1.0 / 32);
      kept += w != 0;
    }
    EXPECT_NEAR(static_cast<double>(kept), 2048, 150);
    if (first.empty()) first = got;
    EXPECT_EQ(got == first, step == 0);
  }
  const Shape q = {2, 2, 3, 4}, k = {2, 2, 5, 4}, v = {2, 2, 5, 3};
  for (const char* way : {"upscale_in_train", "downgrade_in_infer"}) {
    for (bool is_test : {false, true}) {
      for (bool fixed : {false, true}) {
        OpTest dropped = With(q, k, v);
        dropped.Attr("dropout_prob", 0.4f)
            .Attr("is_test", is_test)
            .Attr("fix_seed", fixed)
            .Attr("seed", 5)
            .Attr("dropout_implementation", std::string(way))
            .RandomInput("Mask", {5})
            .CheckGradient({"Q", "K", "V", "Mask"})
            .CheckFast();
      }
    }
  }
  // A test multiplies the weights, which are all kept.
  OpTest(kType)
      .Attr("dropout_prob", 0.25f)
      .Attr("is_test", true)
      .Attr("dropout_implementation", std::string("downgrade_in_infer"))
      .Input("Q", {1, 1}, {1})
      .Input("K", {1, 1}, {1})
      .Input("V", {1, 1}, {8})
      .Expect("Out", {1, 1}, {6});
  OpTest(kType)
      .Attr("dropout_prob", 1.0f)
      .Input("Q", {1, 1}, {1})
      .Input("K", {1, 1}, {1})
      .Input("V", {1, 1}, {8})
      .Expect("Out", {1, 1}, {0});
}

// The draws of an op dropout whose output has that name.
TEST(Attention, DrawsByAName) {
  const auto draw = [](const char* name, const Shape& keys) {
    return With({2, 3, 4}, keys, {2, 7, 2})
        .Attr("dropout_prob", 0.5f)
        .Attr("random_name", std::string(name))
        .Output("Out");
  };
  const Tensor a = draw("a", {2, 7, 4}), b = draw("b", {2, 7, 4}), again = draw("a", {2, 7, 4});
  EXPECT_TRUE(std::equal(a.data<float>(), a.data<float>() + a.numel(), again.data<float>()));
  EXPECT_FALSE(std::equal(a.data<float>(), a.data<float>() + a.numel(), b.data<float>()));
}

TEST(Attention, Empty) {
  With({0, 2, 3, 4}, {0, 2, 5, 4}, {0, 2, 5, 3}).Expect("Out", {0, 2, 3, 3}, {}).CheckFast();
  With({2, 0, 4}, {2, 5, 4}, {2, 5, 3}).Expect("Out", {2, 0, 3}, {}).CheckFast();
  With({2, 1, 4}, {2, 0, 4}, {2, 0, 3}).Expect("Out", {2, 1, 3}, Values(6, 0)).CheckFast();
  With({1, 0}, {2, 0}, {2, 1}).Input("Mask", {1}, {0}).CheckFast(1e-4, {"V"});
  With({1, 2}, {2, 2}, {2, 0}).Expect("Out", {1, 0}, {}).CheckFast();
}

TEST(Attention, RowsWithoutAKey) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (KernelMode mode : {KernelMode::kAuto, KernelMode::kReference}) {
    const Tensor out = OpTest(kType)
                           .RandomInput("Q", {2, 3})
                           .RandomInput("K", {2, 3})
                           .Input("V", {2, 1}, {4, 8})
                           .Input("Mask", {2, 2}, {-inf, -inf, 0, -inf})
                           .Output("Out", mode);
    EXPECT_TRUE(std::isnan(out.data<float>()[0]));
    EXPECT_EQ(out.data<float>()[1], 4);
    // Large finite masks act as scores: their differences are lost.
    const Tensor even = OpTest(kType)
                            .RandomInput("Q", {1, 3})
                            .RandomInput("K", {2, 3})
                            .Input("V", {2, 1}, {4, 8})
                            .Input("Mask", {1, 2}, {-1e30, -1e30})
                            .Output("Out", mode);
    EXPECT_EQ(even.data<float>()[0], 6);
    const Tensor spread = OpTest(kType)
                              .Input("Q", {1, 1}, {nan})
                              .Input("K", {1, 1}, {1})
                              .Input("V", {1, 1}, {1})
                              .Output("Out", mode);
    EXPECT_TRUE(std::isnan(spread.data<float>()[0]));
  }
  // Keys of the first tile that no row sees.
  Values mask(600, 0.0);
  std::fill_n(mask.begin(), 300, -inf);
  With({1, 1, 3, 4}, {1, 1, 600, 4}, {1, 1, 600, 3}).Input("Mask", {600}, mask).CheckFast();
}

// The weights of a row without a key are nans, but those that are dropped are 0.
TEST(Attention, DropoutOfRowsWithoutAKey) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto rows = [&](float p, int64_t keys) {
    Values mask(At(4 * keys), 0.0);
    for (int64_t i = 0; i < 2 * keys; ++i) mask[At(i)] = -inf;             // two rows see nothing
    for (int64_t i = 0; i < keys - 1; ++i) mask[At(3 * keys + i)] = -inf;  // one sees the last key
    return std::move(With({1, 1, 4, 3}, {1, 1, keys, 3}, {1, 1, keys, 2})
                         .Attr("dropout_prob", p)
                         .Input("Mask", {4, keys}, mask));
  };
  rows(1, 1).Expect("Out", {1, 1, 4, 2}, Values(8, 0));
  rows(1, 600).Expect("Out", {1, 1, 4, 2}, Values(8, 0));
  for (const float p : {0.5f, 0.9f, 1.0f}) {
    for (const int64_t keys : {1, 2, 3, 300, 600}) {
      SCOPED_TRACE(testing::Message() << p << " " << keys);
      rows(p, keys).CheckFast();
      rows(p, keys).NoOutput("Weights").CheckFast();
    }
  }
}

TEST(Attention, LargeScores) {
  OpTest(kType)
      .RandomInput("Q", {1, 2, 5, 8}, -10, 10)
      .RandomInput("K", {1, 2, 700, 8}, -10, 10)
      .RandomInput("V", {1, 2, 700, 8})
      .CheckFast(1e-3);
  // All scores of a row hidden, by a number so large that their differences are lost.
  With({1, 1, 5, 8}, {1, 1, 70, 8}, {1, 1, 70, 8}).Input("Mask", {1}, {-1e9}).CheckFast(1e-3);
}

TEST(Attention, FastOnRandomShapes) {
  std::mt19937 random(3);
  const auto draw = [&](int64_t most) {
    return 1 + static_cast<int64_t>(random() % static_cast<uint32_t>(most));
  };
  for (int round = 0; round < 40; ++round) {
    const int64_t b = draw(3), h = draw(3), d = draw(round % 4 == 0 ? 80 : 20), e = draw(40);
    const int64_t rows = draw(round % 3 == 0 ? 150 : 20);
    const int64_t keys = rows + draw(round % 5 == 0 ? 600 : 30) - 1;
    SCOPED_TRACE(testing::Message()
                 << b << " " << h << " " << rows << " " << keys << " " << d << " " << e);
    const bool inside = round % 2 == 1;
    const auto shape = [&](int64_t n, int64_t columns) {
      return inside ? Shape{b, n, h, columns} : Shape{b, h, n, columns};
    };
    OpTest test = With(shape(rows, d), shape(keys, d), shape(keys, e));
    test.Attr("scale", 0.3f)
        .Attr("is_causal", round % 3 == 1)
        .Attr("layout", std::string(inside ? "BSHD" : "BHSD"))
        .Attr("dropout_prob", round % 4 == 1 ? 0.3f : 0.0f);
    const Shape masks[] = {{b, h, rows, keys}, {b, 1, 1, keys}, {h, rows, 1}, {rows, keys}, {1}};
    if (round % 7 < 5) test.RandomInput("Mask", masks[round % 7]);
    OpTest(test).CheckFast();
    test.NoOutput("Weights").CheckFast();  // they are computed again
  }
}

TEST(Attention, Constraints) {
  const Shape q = {2, 2, 3, 4}, k = {2, 2, 5, 4}, v = {2, 2, 5, 3};
  const auto error = [](OpTest test, const char* id) {
    test.ExpectError(fmt::format("{}.{}", kType, id));
  };
  error(With({4}, k, v), "C1");
  error(With({3, 4}, {5, 4}, {5, 3}).Attr("layout", std::string("BSHD")), "C1");
  const auto joint = [](const Shape& all) {
    return std::move(OpTest(kType).RandomInput("Q", all).Attr("layout", std::string("BS3HD")));
  };
  error(joint({2, 4, 2, 3, 5}), "C1");
  error(joint({2, 4, 3, 5}), "C1");
  error(joint({2, 4, 3, 3, 5}).RandomInput("K", {2, 4, 3, 5}), "C1");
  error(std::move(OpTest(kType).RandomInput("Q", q)), "C1");
  error(With(q, k, v).TensorInput("Mask", Tensor(DType::kFloat64, {5})), "C2");
  error(With(q, {2, 3, 5, 4}, v), "C3");
  error(With(q, k, v).RandomInput("Mask", {3, 1, 1, 1}), "C3");
  error(With(q, k, v).RandomInput("Mask", {2, 5}), "C4");
  error(With(q, k, v).RandomInput("Mask", {3, 4}), "C4");
  error(With(q, {2, 2, 5, 3}, v), "C5");
  error(With(q, k, {2, 2, 4, 3}), "C6");
  error(With(q, {2, 2, 2, 4}, {2, 2, 2, 3}).Attr("is_causal", true), "C7");
}

TEST(Attention, GradientConstraints) {
  const auto test = [](const Shape& q, const Shape& k, const Shape& v, const Shape& out,
                       const Shape& stats) {
    return std::move(OpTest(kGradType)
                         .RandomInput("Q", q)
                         .RandomInput("K", k)
                         .RandomInput("V", v)
                         .RandomInput("Out", out)
                         .RandomInput("SoftmaxStats", stats)
                         .RandomInput("Out@GRAD", out));
  };
  const auto error = [](OpTest test, const char* id) {
    test.ExpectError(fmt::format("{}_grad.{}", kType, id));
  };
  const Shape q = {3, 4}, k = {5, 4}, v = {5, 2}, out = {3, 2}, stats = {3, 2};
  error(test({4}, k, v, out, stats), "C1");
  error(test(q, k, v, out, stats).TensorInput("Mask", Tensor(DType::kFloat64, {5})), "C2");
  error(test({2, 3, 4}, {3, 5, 4}, v, out, stats), "C3");
  error(test(q, k, v, out, stats).RandomInput("Mask", {2, 5}), "C4");
  error(test(q, {5, 3}, v, out, stats), "C5");
  error(test(q, k, {4, 2}, out, stats), "C6");
  error(test(q, {2, 4}, {2, 2}, out, stats).Attr("is_causal", true), "C7");
  error(test(q, k, v, {2, 2}, stats), "C8");
  error(test(q, k, v, out, {3, 1}), "C8");
  error(test(q, k, v, out, stats).RandomInput("Weights", {3, 4}), "C8");
  error(test(q, k, v, out, stats).Attr("dropout_prob", 0.5f), "C9");
  error(test(q, k, v, out, stats).Attr("dropout_prob", 0.5f).IntInput("SeedOffset", {2}, {1, 2}),
        "C9");
}
}  // namespace coracle::attention_test

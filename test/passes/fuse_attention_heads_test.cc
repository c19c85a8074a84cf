// Attention as one op, together with what makes its operands; and what is computed again.

#include <coracle/passes/passes.h>
#include <coracle/test/passes/attention_net.h>

namespace coracle::fuse_attention_heads_test {

// How queries, keys and values come about: from projections of their own; from one, cut by slices
// or by a split.
enum class Heads { kApart, kSliced, kSplit };

// Element i of the first axis.
Variable Slice(Builder& b, const Variable& x, int32_t i, const std::string& out = "") {
  using Ints = std::vector<int32_t>;
  return b.Make(
      "slice", {{"Input", {x.name()}}},
      {{"axes", Ints{0}}, {"starts", Ints{i}}, {"ends", Ints{i + 1}}, {"decrease_axis", Ints{0}}},
      {.output = out});
}

// The whole of what comes before and after, as in an encoder; several times, with one mask.
Variable Encoder(AttentionNet& net, int layers, Heads heads_of, float dropout) {
  const int32_t heads = 2, columns = 4, width = heads * columns;
  const bool apart = heads_of == Heads::kApart, split = heads_of == Heads::kSplit;
  Variable x = net.Trained("x", {2, 5, width});
  const Variable mask = net.Data("bias", {2, 1, 1, 5});
  for (int i = 0; i < layers; ++i) {
    const auto name = [&](const char* part) { return fmt::format("{}{}", part, i); };
    const auto fc = [&](const Variable& in, int32_t size) {
      return net.b.Fc(in, {.size = size, .num_flatten_dims = 2});
    };
    std::vector<Variable> parts;
    if (apart) {
      for (int p = 0; p < 3; ++p)
        parts.push_back(
            net.b.Transpose(net.b.Reshape(fc(x, width), {0, 0, heads, columns}), {0, 2, 1, 3}));
    } else {
      // [3, batch, heads, time, columns], cut along the first dim.
      const Variable all = net.b.Transpose(
          net.b.Reshape(fc(x, 3 * width), {0, 0, 3, heads, columns}), {2, 0, 3, 1, 4});
      if (split) {
        for (const Variable& part : net.b.Split(all, {.num = 3, .axis = 0}))
          parts.push_back(net.b.Squeeze(part, {0}));
      } else {
        for (int32_t p = 0; p < 3; ++p) parts.push_back(Slice(net.b, all, p));
      }
    }
    const Variable q = split ? net.b.Scale(parts[0], {.scale = 0.5f}) : parts[0];
    Variable scores = net.b.Matmul(q, parts[1], {.transpose_y = true, .alpha = split ? 1 : 0.5f});
    scores = net.b.Add(scores, mask);
    Variable weights = net.b.Softmax(scores);
    if (dropout > 0) {
      weights = net.b.Dropout(weights, {.dropout_prob = dropout,
                                        .dropout_implementation = "upscale_in_train",
                                        .output = name("weights")});
    }
    const Variable seen = net.b.Transpose(net.b.Matmul(weights, parts[2]), {0, 2, 1, 3});
    const Variable a = fc(net.b.Reshape(seen, {0, 0, width}), width);
    x = net.b.LayerNorm(net.b.Add(x, a), {.begin_norm_axis = 2, .output = name("norm")});
  }
  // The mean of squares of normed rows alone would be the same for all parameters.
  return net.b.Mul(x, net.Data("factors", {2, 5, width}));
}

// Inference as Paddle exports it: Q is scaled, and K transposed, before the product.
TEST(FuseAttention, ScaledQueriesAndTransposedKeys) {
  const auto make = [](AttentionNet& net, const std::vector<int32_t>& flip, float bias) {
    Builder& b = net.b;
    const Variable all =
        b.Transpose(net.Trained("x", {2, 5, 3, 2, 4}), {2, 0, 3, 1, 4}, {.output = "all"});
    const Variable q =
        b.Scale(Slice(b, all, 0, "q"), {.scale = 0.5f, .bias = bias, .output = "qs"});
    const Variable k = b.Transpose(Slice(b, all, 1, "k"), flip, {.output = "kt"});
    const Variable scores = b.Scale(b.Matmul(q, k), {.scale = 3.0f});
    return b.Transpose(b.Matmul(b.Softmax(scores), Slice(b, all, 2, "v")), {0, 2, 1, 3},
                       {.output = "out"});
  };
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    for (bool fixed : {true, false}) {
      AttentionNet net(dtype, fixed);
      make(net, {0, 1, 3, 2}, 0);
      ExpectFused(net, {"out"}, 1, 0, dtype == DType::kFloat64 ? 1e-11 : 1e-5);
      for (const char* gone : {"transpose2", "scale", "slice"})
        EXPECT_EQ(Count(Fused(net, {"out"}), gone), 0u) << gone;
      // Who sees the transposed keys keeps all ops; the scaled queries are Q then.
      EXPECT_EQ(Fused(net, {"out", "kt"}), Listing(net.main));
      const std::string text = Fused(net, {"out", "qs"});
      EXPECT_EQ(Count(text, "scaled_dot_product_attention"), 1u) << text;
      EXPECT_EQ(Count(text, "scale"), 1u) << text;
      ExpectFused(net, {"out", "qs"}, 1, 0, dtype == DType::kFloat64 ? 1e-11 : 1e-5);
    }
  }
  AttentionNet shifted;
  make(shifted, {0, 1, 3, 2}, 1);
  EXPECT_EQ(Count(Fused(shifted, {"out"}), "scale"), 1u);
  ExpectFused(shifted, {"out"}, 1, 0, 1e-11);
  AttentionNet trained;  // the gradients of such keys are left to single ops
  const Names fetches = trained.Train(make(trained, {0, 1, 3, 2}, 0));
  EXPECT_EQ(Count(Fused(trained, fetches), "scaled_dot_product_attention"), 0u);
}

TEST(FuseAttention, Encoders) {
  for (Heads heads : {Heads::kApart, Heads::kSliced, Heads::kSplit}) {
    for (float dropout : {0.0f, 0.25f}) {
      for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
        for (bool fixed : {true, false}) {
          AttentionNet net(dtype, fixed);
          const Names fetches = net.Train(Encoder(net, 3, heads, dropout));
          ExpectFused(net, fetches, 3, 3, dtype == DType::kFloat64 ? 1e-11 : 1e-4);
          // Transpositions of heads alone are done by the op, and so is what cuts its operands.
          const std::string text = Fused(net, fetches);
          const size_t left = heads == Heads::kSplit ? 12 : 0;
          EXPECT_EQ(Count(text, "transpose2") + Count(text, "transpose2_grad"), left) << text;
          EXPECT_EQ(Count(text, "slice") + Count(text, "slice_grad"), 0u) << text;
        }
      }
    }
  }
}

// Q, K and V in one tensor [batch, time, 3, heads, columns].
TEST(FuseAttention, JointHeads) {
  const auto build = [](AttentionNet& net, std::vector<int32_t> order, int64_t parts = 3) {
    const Variable x =
        net.b.Transpose(net.Trained("x", {2, 4, parts, 3, 5}), {2, 0, 3, 1, 4}, {.output = "all"});
    std::vector<Variable> cut;
    for (int32_t i : order) cut.push_back(Slice(net.b, x, i, fmt::format("part{}", cut.size())));
    return net.b.Transpose(net.Attend({.mask = {2, 1, 1, 4}}, cut[0], cut[1], cut[2], "out"),
                           {0, 2, 1, 3}, {.output = "y"});
  };
  const auto expect = [](AttentionNet& net, const Names& fetches, bool trained, size_t slices,
                         const char* why) {
    SCOPED_TRACE(why);
    ExpectFused(net, fetches, 1, trained ? 1 : 0, 1e-12);
    const std::string text = Fused(net, fetches);
    EXPECT_EQ(Count(text, "slice"), slices) << text;
    EXPECT_EQ(Count(text, "slice_grad"), trained ? slices : 0) << text;
  };
  {
    AttentionNet net;
    build(net, {0, 1, 2});
    const std::string text = Fused(net, {"y"});
    EXPECT_NE(text.find("Out=y = scaled_dot_product_attention(Q="), text.npos) << text;
    EXPECT_EQ(text.find("K="), text.npos) << text;
    expect(net, {"y"}, false, 0, "forward");
    expect(net, {"y", "part1"}, false, 3, "the keys are fetched");
    expect(net, {"y", "all"}, false, 3, "the whole is fetched");
  }
  {
    AttentionNet net;
    const Names fetches = net.Train(build(net, {0, 1, 2}));
    expect(net, fetches, true, 0, "training");
    Names more = fetches;
    more.push_back("part1@GRAD");
    expect(net, more, true, 3, "a gradient is fetched");
  }
  for (const std::vector<int32_t>& order : {std::vector<int32_t>{1, 0, 2}, {0, 0, 2}, {0, 2, 1}}) {
    AttentionNet net;
    expect(net, net.Train(build(net, order)), true, 3, "in another order");
  }
  {
    AttentionNet net;
    expect(net, net.Train(build(net, {0, 1, 2}, 4)), true, 3, "one of four is not used");
  }
  {
    AttentionNet net;
    const Variable y = build(net, {0, 1, 2});
    const Variable other = net.b.ReduceMean(net.b.Var("part2"));
    expect(net, net.Train(net.b.Mul(y, other)), true, 3, "the values are read elsewhere");
  }
}

TEST(FuseAttention, TransposedHeads) {
  AttentionNet net;
  const auto turned = [&](const char* name, int64_t rows) {
    return net.b.Transpose(net.Data(name, {2, rows, 3, 5}), {0, 2, 1, 3},
                           {.output = fmt::format("{}_heads", name)});
  };
  const Variable q = turned("q", 4), k = turned("k", 6), v = turned("v", 6);
  net.b.Transpose(net.Attend({.mask = {2, 1, 1, 6}}, q, k, v, "out"), {0, 2, 1, 3},
                  {.output = "y"});
  EXPECT_EQ(Fused(net, {"y"}),
            "Out=y = scaled_dot_product_attention(Q=q, K=k, V=v, Mask=out_mask)\n");
  ExpectFused(net, {"y"}, 1, 0, 1e-12);
  // Somebody else reads the heads.
  ExpectFused(net, {"y", "k_heads"}, 1, 0, 1e-12);
  EXPECT_EQ(Count(Fused(net, {"y", "k_heads"}), "transpose2"), 4u);
}

TEST(FuseAttention, Recomputed) {
  for (Heads heads : {Heads::kApart, Heads::kSliced}) {
    for (float dropout : {0.0f, 0.25f}) {
      for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
        AttentionNet plain(dtype);
        const Names fetches = plain.Train(Encoder(plain, 3, heads, dropout));
        AttentionNet net(dtype);
        BackwardOptions options;
        options.recompute.checkpoints = {"norm0", "norm1"};
        EXPECT_EQ(net.Train(Encoder(net, 3, heads, dropout), options), fetches);
        EXPECT_NE(Listing(net.main).find("@RECOMPUTED"), std::string::npos);
        ExpectFused(net, fetches, 5, 3, dtype == DType::kFloat64 ? 1e-11 : 1e-4);
        // As without recomputation.
        ExpectSameBits(plain.Run({}, fetches), net.Run({}, fetches));
      }
    }
  }
}

// Where the scaled queries are computed again, their gradient is a matter of its own op.
TEST(FuseAttention, ScaledQueriesRecomputed) {
  const auto make = [](AttentionNet& net, const Names& checkpoints) {
    const Variable q = net.b.Scale(net.Trained("q", {2, 3, 4, 5}), {.scale = 0.3f, .output = "qs"});
    const Variable k = net.Trained("k", {2, 3, 6, 5}), v = net.Trained("v", {2, 3, 6, 4});
    const Variable out = net.Attend({}, q, k, v, "out");
    BackwardOptions options;
    options.recompute.checkpoints = checkpoints;
    return net.Train(net.b.Mul(out, out, {.output = "y"}), options);
  };
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const double tolerance = dtype == DType::kFloat64 ? 1e-12 : 2e-5;
    AttentionNet plain(dtype), weights(dtype), all(dtype);
    const Names fetches = make(plain, {});
    ExpectFused(plain, fetches, 1, 1, tolerance);
    EXPECT_EQ(make(weights, {"out_weights"}), fetches);
    EXPECT_NE(Listing(weights.main).find("qs@RECOMPUTED"), std::string::npos);
    ExpectFused(weights, fetches, 1, 1, tolerance);
    // What is computed again is fused as the first time.
    EXPECT_EQ(make(all, {"y"}), fetches);
    ExpectFused(all, fetches, 2, 1, tolerance);
    const std::string text = Fused(all, fetches);
    EXPECT_NE(text.find("scaled_dot_product_attention(Q=qs,"), text.npos) << text;
    EXPECT_NE(text.find("scaled_dot_product_attention(Q=qs@RECOMPUTED,"), text.npos) << text;
    ExpectSameBits(plain.Run({}, fetches), all.Run({}, fetches));
  }
}

// An op that two attentions could take is taken by the first one.
TEST(FuseAttention, OneBehindAnother) {
  {
    AttentionNet net;
    Variable x = net.b.Transpose(net.Data("x", {2, 4, 3, 5}), {0, 2, 1, 3}, {.output = "t0"});
    for (int i = 1; i <= 2; ++i) {
      x = net.Attend({}, x, x, x, fmt::format("a{}", i));
      x = net.b.Transpose(x, {0, 2, 1, 3}, {.output = fmt::format("t{}", i)});
    }
    const std::string text = Fused(net, {"t2"});
    EXPECT_EQ(text.find("Out=t1 = scaled_dot_product_attention(Q=x, K=x, V=x)\n"
                        "Out=a2 = scaled_dot_product_attention(Q=t1, K=t1, V=t1)\n"),
              0u)
        << text;
    EXPECT_EQ(Count(text, "transpose2"), 1u) << text;
    ExpectFused(net, {"t2"}, 2, 0, 1e-12);
  }
  {
    AttentionNet net;
    const Variable v = net.b.Transpose(net.Data("v", {2, 3, 4, 6}), {0, 1, 3, 2}, {.output = "vt"});
    const Variable out = net.Attend({.product = "matmul_v2"}, net.Data("q", {2, 3, 5, 7}),
                                    net.Data("k", {2, 3, 6, 7}), v, "out");
    net.b.Matmul(net.b.Softmax(out), net.Data("w", {2, 3, 4, 8}), {.output = "y"});
    const std::string text = Fused(net, {"y"});
    EXPECT_EQ(Count(text, "scaled_dot_product_attention"), 1u) << text;
    EXPECT_EQ(Count(text, "softmax"), 1u) << text;
    ExpectSameValues(net, {"y"}, 1e-12);
  }
}

// The ops of one attention move down to its last one, those of the other one up to its first one,
// which overwrites the mask of the first.
TEST(FuseAttention, PastEachOther) {
  AttentionNet net;
  const Shape q = {2, 3, 4, 5}, k = {2, 3, 6, 5}, v = {2, 3, 6, 6};
  const Variable q1 = net.Data("q1", q), k1 = net.Data("k1", k), v1 = net.Data("v1", v);
  const Variable q2 = net.Data("q2", q), v2 = net.Data("v2", v);
  const Variable k2 = net.b.Scale(net.Data("raw", k), {.scale = 0.5f, .output = "k2"});
  const Variable mask = net.b.Parameter("mask", {2, 3, 4, 6}, DType::kFloat64, {.name = "mask"});
  const Variable s1 = net.b.Add(net.b.Matmul(q1, k1, {.transpose_y = true}), mask);
  const Variable s2 = net.b.Matmul(q2, k2, {.transpose_y = true});
  net.b.Matmul(net.b.Softmax(s1), v1, {.output = "out"});
  const Variable w2 = net.b.Softmax(s2);
  Assign(net.b, net.b.Scale(k2, {.scale = 2}), k2);
  net.b.Append("matmul", {{"X", {w2.name()}}, {"Y", {"v2"}}}, {{"Out", {"mask"}}});
  const std::string text = Fused(net, {"out", "mask", "k2"});
  EXPECT_EQ(Count(text, "scaled_dot_product_attention"), 1u) << text;
  ExpectSameValues(net, {"out", "mask", "k2"}, 1e-12);
}

// A file may declare other sizes than its ops compute.
TEST(FuseAttention, WronglyDeclared) {
  AttentionNet net;
  const Variable k = net.b.Relu(net.Data("kdata", {2, 3, 6, 5}), {.output = "k"});
  net.Attend({}, net.Data("q", {2, 3, 4, 5}), k, net.Data("v", {2, 3, 6, 4}), "out");
  net.main.Root().FindVar("k")->SetShape({2, 3, 6, 7});
  ExpectFused(net, {"out"}, 1, 0, 1e-12);
  // There are four parts, of which the attention uses three.
  AttentionNet joint;
  const Variable x = joint.b.Relu(joint.Data("x", {2, 4, 4, 3, 5}), {.output = "parts"});
  const Variable all = joint.b.Transpose(x, {2, 0, 3, 1, 4});
  std::vector<Variable> part;
  for (int32_t i = 0; i < 3; ++i) part.push_back(Slice(joint.b, all, i));
  joint.b.Transpose(joint.Attend({}, part[0], part[1], part[2], "out"), {0, 2, 1, 3},
                    {.output = "y"});
  joint.main.Root().FindVar("parts")->SetShape({2, 4, 3, 3, 5});
  EXPECT_EQ(Count(Fused(joint, {"y"}), "slice"), 3u);
  ExpectFused(joint, {"y"}, 1, 0, 1e-12);
}

// Some of an attention's ops are in a segment that is computed again, and some are not.
TEST(FuseAttention, RecomputedInPart) {
  for (const char* cut : {"out_scores", "out_masked", "out_weights", "out"}) {
    AttentionNet net;
    BackwardOptions options;
    options.recompute.checkpoints = {cut};
    const Names fetches = net.Train(net.Usual({.mask = {4, 6}}), options);
    const std::vector<Tensor> expected = net.Run({.optimize = false}, fetches);
    const std::vector<Tensor> got = net.Run({}, fetches);
    for (size_t f = 0; f < fetches.size(); ++f) {
      for (int64_t i = 0; i < got[f].numel(); ++i)
        EXPECT_NEAR(got[f].data<double>()[i], expected[f].data<double>()[i], 1e-12) << cut;
    }
  }
}
}  // namespace coracle::fuse_attention_heads_test

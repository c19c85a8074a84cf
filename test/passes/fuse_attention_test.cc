// Attention as one op: programs before and after, near misses, and the same numbers.

#include <coracle/passes/passes.h>
#include <coracle/test/passes/attention_net.h>

#include <functional>
#include <limits>
#include <memory>

namespace coracle::fuse_attention_test {

std::vector<Form> Forms() {
  std::vector<Form> forms;
  for (const char* product : {"matmul", "matmul_v2"}) {
    for (bool scale_after : {false, true}) {
      for (const Shape& mask : {Shape{}, Shape{2, 1, 1, 6}, Shape{2, 3, 4, 6}, Shape{4, 6}}) {
        for (float dropout : {0.0f, 0.4f}) forms.push_back({product, scale_after, mask, dropout});
      }
    }
  }
  forms.push_back({.dropout = 0.3f, .is_test = true});
  forms.push_back({.dropout = 0.3f, .is_test = true, .way = "downgrade_in_infer"});
  forms.push_back({.dropout = 0.3f, .way = "downgrade_in_infer"});
  forms.push_back({.dropout = 0.3f, .seed = 7});
  forms.push_back({.dropout = 1.0f});
  return forms;
}

TEST(FuseAttention, Listing) {
  AttentionNet net;
  const Variable q = net.Data("q", {2, 3, 4, 5}), k = net.Data("k", {2, 3, 6, 5});
  net.Attend({.mask = {2, 1, 1, 6}, .dropout = 0.5f}, q, k, net.Data("v", {2, 3, 6, 4}), "y");
  EXPECT_EQ(Fused(net, {"y"}),
            "Out=y = scaled_dot_product_attention(Q=q, K=k, V=v, Mask=y_mask)\n");
}

TEST(FuseAttention, ListingOfGradients) {
  AttentionNet net;
  net.Train(net.Usual({.mask = {2, 1, 1, 6}, .dropout = 0.5f}));
  const std::string text = Fused(net, {"loss", "wq@GRAD", "wk@GRAD", "wv@GRAD"});
  EXPECT_EQ(Count(text, "matmul") + Count(text, "matmul_grad") + Count(text, "elementwise_add") +
                Count(text, "elementwise_add_grad") + Count(text, "softmax_grad"),
            0u)
      << text;
  EXPECT_NE(text.find("Out=out, SoftmaxStats=out@SOFTMAX_STATS, Weights=out@WEIGHTS, "
                      "SeedOffset=out@SEED_OFFSET = "
                      "scaled_dot_product_attention("),
            text.npos)
      << text;
  EXPECT_NE(text.find("Mask=out_mask, Out=out, SoftmaxStats=out@SOFTMAX_STATS, "
                      "Weights=out@WEIGHTS, SeedOffset=out@SEED_OFFSET, Out@GRAD=out@GRAD)"),
            text.npos)
      << text;
}

TEST(FuseAttention, ForwardAlone) {
  for (const Form& form : Forms()) {
    for (bool fixed : {true, false}) {
      for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
        AttentionNet net(dtype, fixed);
        net.Usual(form);
        ExpectFused(net, {"out"}, 1, 0, dtype == DType::kFloat64 ? 1e-12 : 1e-5);
      }
    }
  }
}

// A row that sees no key has nans, as the softmax of a row of -inf, and so have the gradients that
// it takes part in; other rows have what they have without it.
TEST(FuseAttention, RowsWithoutAKeyAsUnfused) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const int64_t keys : {int64_t{6}, int64_t{300}}) {
    for (const float dropout : {0.0f, 0.4f}) {
      for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
        AttentionNet net(dtype);
        const Variable q = net.Data("q", {2, 3, 4, 5}), k = net.Data("k", {2, 3, keys, 5});
        const Variable v = net.Data("v", {2, 3, keys, 4});
        for (const Variable* wanted : {&q, &k, &v}) wanted->desc().SetStopGradient(false);
        const Form form{.mask = {2, 1, 4, keys}, .dropout = dropout, .seed = 5};
        const Variable out = net.Attend(form, q, k, v, "y");
        // Of the second batch row 1 sees nothing, row 2 the last key alone, row 3 all but
        // the first.
        Tensor mask = Tensor::Zeros(DType::kFloat64, form.mask);
        double* row = mask.data<double>() + 5 * keys;
        std::fill_n(row, 2 * keys - 1, -kInf);
        row[2 * keys] = -kInf;
        net.given["y_mask"] = mask;
        Names fetches = Gradients({out}, {q, k, v});
        fetches.push_back(out.name());
        EXPECT_EQ(Count(Fused(net, fetches), "scaled_dot_product_attention_grad"), 1u);
        const std::vector<Tensor> expected =
            net.Run({.kernels = KernelMode::kReference, .optimize = false}, fetches);
        for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
          const std::vector<Tensor> got = net.Run({.kernels = mode}, fetches);
          for (size_t f = 0; f < fetches.size(); ++f) {
            const Tensor a = expected[f].Cast(DType::kFloat64), b = got[f].Cast(DType::kFloat64);
            int64_t nans = 0;
            for (int64_t i = 0; i < a.numel(); ++i) {
              const double want = a.data<double>()[i], is = b.data<double>()[i];
              nans += std::isnan(want);
              ASSERT_EQ(std::isnan(is), std::isnan(want)) << fetches[f] << " " << i;
              ASSERT_NEAR(std::isnan(want) ? 0 : is, std::isnan(want) ? 0 : want, 1e-5)
                  << fetches[f] << " " << i;
            }
            EXPECT_GT(nans, 0) << fetches[f];
            EXPECT_LT(nans, a.numel()) << fetches[f];
          }
        }
      }
    }
  }
}

TEST(FuseAttention, WithGradients) {
  for (const Form& form : Forms()) {
    for (bool fixed : {true, false}) {
      for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
        AttentionNet net(dtype, fixed);
        const Names fetches = net.Train(net.Usual(form));
        EXPECT_EQ(fetches.size(), 4u);
        ExpectFused(net, fetches, 1, 1, dtype == DType::kFloat64 ? 1e-12 : 2e-5);
      }
    }
  }
}

TEST(FuseAttention, SomeGradients) {
  for (const char* wanted : {"wq", "wk", "wv"}) {
    AttentionNet net;
    BackwardOptions options;
    options.parameter_list = {wanted, "wq"};
    if (wanted == std::string("wq")) options.parameter_list = {"wq"};
    const Names fetches = net.Train(net.Usual(), options);
    ExpectFused(net, fetches, 1, 1, 1e-12);
  }
}

// Dims that are not known when the program is compiled, and that repeat an operand in a run.
TEST(FuseAttention, RepeatedOperands) {
  struct Case {
    Shape q, k, v, mask;
  };
  const std::vector<Case> cases = {
      {{2, 3, 4, 5}, {1, 3, 6, 5}, {1, 3, 6, 4}, {2, 1, 1, 6}},
      {{1, 3, 1, 5}, {1, 3, 6, 5}, {1, 3, 6, 4}, {2, 3, 4, 6}},
      {{2, 3, 4, 5}, {2, 3, 1, 5}, {2, 3, 6, 4}, {1, 1, 4, 6}},
      {{1, 3, 4, 5}, {1, 3, 6, 5}, {2, 3, 6, 4}, {1, 1, 1, 6}},
  };
  for (const Case& c : cases) {
    for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
      AttentionNet net(dtype, false);
      const Variable q = net.Trained("q", c.q), k = net.Trained("k", c.k);
      const Variable v = net.Trained("v", c.v);
      const Names fetches =
          net.Train(net.Attend({.mask = c.mask, .dropout = 0.3f}, q, k, v, "out"));
      ExpectFused(net, fetches, 1, 1, dtype == DType::kFloat64 ? 1e-12 : 2e-5);
    }
  }
}

// Gradients of operands that are known to be repeated are left to the single ops.
TEST(FuseAttention, KnownToBeRepeated) {
  for (const Shape& k : {Shape{1, 3, 6, 5}, Shape{2, 1, 6, 5}, Shape{3, 6, 5}, Shape{6, 5}}) {
    AttentionNet net(DType::kFloat32);
    const Variable q = net.Trained("q", {2, 3, 4, 5}), v = net.Trained("v", {2, 3, 6, 4});
    const Variable out = net.Attend({}, q, net.Trained("k", k), v, "out");
    ExpectFused(net, {"out"}, 1, 0, 1e-5);
    ExpectLeft(net, net.Train(out), "the keys are repeated");
  }
}

TEST(FuseAttention, RowsThatSeeNothing) {
  AttentionNet net(DType::kFloat32);
  const Variable q = net.Data("q", {1, 1, 2, 3}), k = net.Data("k", {1, 1, 2, 3});
  const Variable hidden =
      net.b.Scale(net.b.Softmax(net.Data("mask", {1, 1, 2, 2})),
                  {.scale = -std::numeric_limits<float>::infinity(), .output = "hidden"});
  Variable s = net.b.Add(net.b.Matmul(q, k, {.transpose_y = true}), hidden);
  net.b.Matmul(net.b.Softmax(s), net.Data("v", {1, 1, 2, 3}), {.output = "y"});
  EXPECT_EQ(Count(Fused(net, {"y"}), "scaled_dot_product_attention"), 1u);
  for (bool optimize : {false, true}) {
    const Tensor y = net.Run({.optimize = optimize}, {"y"})[0];
    for (int64_t i = 0; i < y.numel(); ++i) EXPECT_TRUE(std::isnan(y.data<float>()[i]));
  }
}

TEST(FuseAttention, WhatSomebodySees) {
  for (const char* seen : {"out_scores", "out_masked", "out_weights", "out_dropped"}) {
    AttentionNet net;
    net.Usual({.mask = {4, 6}, .dropout = 0.5f});
    ExpectLeft(net, {"out", seen}, seen);
    AttentionNet read;
    read.Usual({.mask = {4, 6}, .dropout = 0.5f});
    read.b.Relu(read.b.Var(seen), {.output = "other"});
    ExpectLeft(read, {"out", "other"}, seen);
    AttentionNet kept;
    kept.Usual({.mask = {4, 6}, .dropout = 0.5f});
    kept.main.Root().FindVar(seen)->SetPersistable(true);
    ExpectLeft(kept, {"out"}, seen);
    AttentionNet trained;
    Names fetches = trained.Train(trained.Usual({.mask = {4, 6}, .dropout = 0.5f}));
    fetches.push_back(seen);
    ExpectLeft(trained, fetches, seen);
  }
  for (const char* seen : {"out_masked@GRAD", "out_weights@GRAD", "out_dropped@GRAD"}) {
    AttentionNet net;
    Names fetches = net.Train(net.Usual({.mask = {4, 6}, .dropout = 0.5f}));
    ASSERT_NE(net.main.Root().FindVar(seen), nullptr);
    fetches.push_back(seen);
    ExpectLeft(net, fetches, seen);
  }
}

TEST(FuseAttention, OtherForms) {
  const Shape q = {2, 3, 4, 5}, k = {2, 3, 6, 5}, v = {2, 3, 6, 4};
  const auto build = [&](const std::function<Variable(AttentionNet&, Variable, Variable)>& weights,
                         bool transposed = false) {
    auto net = std::make_unique<AttentionNet>();
    const Variable w = weights(*net, net->Data("q", q), net->Data("k", k));
    if (transposed)
      net->b.Matmul(w, net->Data("v", {2, 3, 4, 6}), {.transpose_y = true, .output = "out"});
    else
      net->b.Matmul(w, net->Data("v", v), {.output = "out"});
    return net;
  };
  const auto scores = [](AttentionNet& net, Variable x, Variable y) {
    return net.b.Matmul(x, y, {.transpose_y = true});
  };
  ExpectLeft(*build([&](AttentionNet& net, Variable x, Variable y) {
    return net.b.Softmax(scores(net, x, y), 2);
  }),
             {"out"}, "another axis");
  ExpectLeft(*build([&](AttentionNet& net, Variable x,
                        Variable y) { return net.b.Softmax(scores(net, x, y)); },
                    true),
             {"out"}, "V transposed");
  ExpectLeft(*build([&](AttentionNet& net, Variable x, Variable y) {
    return net.b.Softmax(net.b.Scale(scores(net, x, y), {.scale = 0.5f, .bias = 1}));
  }),
             {"out"}, "a bias");
  ExpectLeft(*build([&](AttentionNet& net, Variable x, Variable y) {
    return net.b.Softmax(net.b.Add(scores(net, x, y), net.Data("mask", {3, 4}), {.axis = 1}));
  }),
             {"out"}, "a mask of the first dims");
  ExpectLeft(*build([&](AttentionNet& net, Variable x, Variable y) {
    return net.b.Softmax(net.b.Relu(scores(net, x, y)));
  }),
             {"out"}, "an op between");
  ExpectLeft(*build([&](AttentionNet& net, Variable x, Variable y) {
    const Variable s = scores(net, x, y);
    return net.b.Softmax(net.b.Add(s, s));
  }),
             {"out"}, "scores as the mask");
  AttentionNet squared;
  const Variable square =
      squared.b.Softmax(scores(squared, squared.Data("q", q), squared.Data("k", q)));
  squared.b.Matmul(square, square, {.output = "out"});
  ExpectLeft(squared, {"out"}, "weights as values");
  AttentionNet twice;
  const Variable w = twice.b.Softmax(scores(twice, twice.Data("q", q), twice.Data("k", k)));
  const Variable value = twice.Data("v", v);
  twice.b.Matmul(w, value, {.output = "out"});
  twice.b.Matmul(w, value, {.output = "out2"});
  ExpectLeft(twice, {"out", "out2"}, "weights used twice");
  AttentionNet half(DType::kFloat16);
  half.Attend({}, half.Data("q", q), half.Data("k", k), half.Data("v", v), "out");
  ExpectLeft(half, {"out"}, "16 bits");
}

TEST(FuseAttention, TrainedMask) {
  AttentionNet net;
  const Variable q = net.Trained("q", {2, 3, 4, 5}), k = net.Trained("k", {2, 3, 6, 5});
  Variable s = net.b.Matmul(q, k, {.transpose_y = true});
  s = net.b.Add(s, net.b.Parameter("table", {3, 4, 6}, DType::kFloat64, {.name = "table"}));
  const Names fetches = net.Train(net.b.Matmul(net.b.Softmax(s), net.Trained("v", {2, 3, 6, 4})));
  EXPECT_EQ(fetches.size(), 5u);
  ExpectLeft(net, fetches, "the mask has a gradient");
}

// In a branch of a condition, and with weights that a branch reads.
TEST(FuseAttention, SubBlocks) {
  const Shape q = {2, 3, 4, 5}, k = {2, 3, 6, 5};
  const auto condition = [](AttentionNet& net) {
    return FillConstant(net.b, {1}, DType::kBool, 1, "yes");
  };
  AttentionNet inside;
  const Variable x = inside.Data("q", q), y = inside.Data("k", k);
  const auto attend = [&] {
    const Variable s = inside.b.Matmul(x, y, {.transpose_y = true});
    return std::vector<Variable>{inside.b.Matmul(inside.b.Softmax(s), y)};
  };
  Cond(inside.b, condition(inside), attend, [&] { return std::vector<Variable>{x}; }, {"out"});
  ExpectLeft(inside, {"out"}, "in a branch");
  AttentionNet read;
  read.Usual();
  Cond(
      read.b, condition(read),
      [&] { return std::vector<Variable>{read.b.Relu(read.b.Var("out_weights"))}; },
      [&] { return std::vector<Variable>{read.b.Var("out_weights")}; }, {"other"});
  ExpectLeft(read, {"out", "other"}, "weights that a branch reads");
}

// Too many to keep the weights.
TEST(FuseAttention, ManyKeys) {
  for (bool fixed : {true, false}) {
    AttentionNet net(DType::kFloat32, fixed);
    const Variable q = net.Trained("q", {1, 2, 3, 4}), k = net.Trained("k", {1, 2, 300, 4});
    const Names fetches = net.Train(net.Attend({.mask = {1, 1, 1, 300}, .dropout = 0.3f}, q, k,
                                               net.Trained("v", {1, 2, 300, 4}), "out"));
    ExpectFused(net, fetches, 1, 1, 2e-5);
  }
}

// One gradient op at a time is not that of its forward op.
TEST(FuseAttention, GradientsOfAnotherOp) {
  struct Change {
    const char* type;
    const char* output;  // of the op that is changed
    const char* attr;
    Attribute value;
  };
  const std::vector<Change> changes = {
      {"softmax_grad", "out_masked@GRAD", "axis", int32_t{2}},
      {"dropout_grad", "out_weights@GRAD", "dropout_prob", 0.25f},
      {"dropout_grad", "out_weights@GRAD", "dropout_implementation",
       std::string("downgrade_in_infer")},
      {"elementwise_add_grad", "out_scaled@GRAD", "axis", int32_t{2}},
      {"scale", "out_scores@GRAD", "scale", 0.25f},
      {"scale", "out_scores@GRAD", "bias", 1.0f},
      {"matmul_grad", "out_dropped@GRAD", "alpha", 0.25f},
      {"matmul_grad", "out_dropped@GRAD", "transpose_Y", true},
      {"matmul_grad", "y@GRAD", "alpha", 0.25f},
      {"matmul_grad", "y@GRAD", "transpose_Y", false},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(std::string(change.type) + " " + change.attr);
    AttentionNet net;
    const Variable q = net.Trained("q", {2, 3, 5, 5}), y = net.Trained("k", {2, 3, 5, 5});
    const Form form = {.scale_after = true, .mask = {5, 5}, .dropout = 0.5f};
    const std::string key = y.name() + "@GRAD";
    const Names fetches = net.Train(net.Attend(form, q, y, net.Trained("v", {2, 3, 5, 5}), "out"));
    EXPECT_EQ(Count(Fused(net, fetches), "scaled_dot_product_attention_grad"), 1u);
    int changed = 0;
    net.main.Root().ForEachOp([&](OpDesc& op) {
      const std::string output = change.output == std::string("y@GRAD") ? key : change.output;
      if (op.type() != change.type || !op.Writes(output)) return;
      op.SetAttr(change.attr, change.value);
      ++changed;
    });
    EXPECT_EQ(changed, 1);
    ExpectLeft(net, fetches, change.attr);
  }
}

// An axis that is counted from the first one is the last one only if the rank is certain.
TEST(FuseAttention, CountedAxes) {
  for (bool certain : {true, false}) {
    for (bool of_mask : {false, true}) {
      AttentionNet net;
      const Variable q = net.Data("q", {3, 4, 5}), k = net.Data("k", {3, 6, 5});
      Variable s = net.b.Matmul(q, k, {.transpose_y = true});
      if (of_mask) s = net.b.Add(s, net.Data("mask", {3, 4, 6}), {.axis = 0});
      net.b.Matmul(net.b.Softmax(s, of_mask ? -1 : 2), net.Data("v", {3, 6, 4}), {.output = "y"});
      for (const std::string& name : net.feeds)
        net.main.Root().FindVar(name)->SetNeedCheckFeed(certain);
      if (certain)
        ExpectFused(net, {"y"}, 1, 0, 1e-12);
      else
        ExpectLeft(net, {"y"}, "another rank may be fed");
    }
  }
  AttentionNet net;  // the mask may have a higher rank than the scores
  const Variable s = net.b.Add(
      net.b.Matmul(net.Data("q", {3, 4, 5}), net.Data("k", {3, 6, 5}), {.transpose_y = true}),
      net.Data("mask", {4, 6}));
  net.b.Matmul(net.b.Softmax(s, 2), net.Data("v", {3, 6, 4}), {.output = "y"});
  ExpectFused(net, {"y"}, 1, 0, 1e-12);
  net.main.Root().FindVar("mask")->SetNeedCheckFeed(false);
  ExpectLeft(net, {"y"}, "another mask may be fed");
}

// Whoever checks each result for infinite numbers learns which op made them.
TEST(FuseAttention, ChecksOfResults) {
  AttentionNet net(DType::kFloat32);
  const Variable q = net.b.Scale(net.Data("q", {2, 3, 4, 5}), {.scale = 1e30f});
  const Variable k = net.b.Scale(net.Data("k", {2, 3, 6, 5}), {.scale = 1e30f});
  net.Attend({}, q, k, net.Data("v", {2, 3, 6, 4}), "out");
  try {
    net.Run({.check_nan_inf = true}, {"out"});
    ADD_FAILURE() << "nothing is thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'out_scores'"), std::string::npos) << e.what();
  }
}

// The mask changes between the forward op and its gradient.
TEST(FuseAttention, MaskOverwritten) {
  AttentionNet net;
  const Variable q = net.Trained("q", {2, 3, 4, 5}), k = net.Trained("k", {2, 3, 6, 5});
  const Variable mask = net.b.Scale(net.Data("raw", {4, 6}), {.scale = 1, .output = "mask"});
  Variable s = net.b.Add(net.b.Matmul(q, k, {.transpose_y = true}), mask);
  const Variable out = net.b.Matmul(net.b.Softmax(s), net.Trained("v", {2, 3, 6, 4}));
  Assign(net.b, net.b.Scale(mask, {.scale = 3}), mask);
  const Names fetches = net.Train(net.b.Mul(out, net.b.ReduceMean(mask)));
  ExpectLeft(net, fetches, "the mask is written twice");
}
}  // namespace coracle::fuse_attention_test

// The golden traces follow the published rules: torch.amp.GradScaler, insightface's
// MaxClipGradScaler (whose cap acts here in the update), Paddle's counts.

#include <coracle/test/op_test.h>

#include <limits>

namespace coracle::update_loss_scaling_test {

struct LossTrace {
  std::vector<float> scale;
  std::vector<int32_t> good, bad;
};

// With `gradients` inputs X.
OpTest Step(bool overflow, float scale, int32_t good, int32_t bad, int32_t skipped,
            const AttrList& attrs, int gradients = 0) {
  OpTest op("update_loss_scaling");
  op.TensorInput("FoundInfinite", Tensor::Of<bool>({1}, {overflow}))
      .TensorInput("PrevLossScaling", Tensor::Of<float>({1}, {scale}))
      .TensorInput("InGoodSteps", Tensor::Of<int32_t>({1}, {good}))
      .TensorInput("InBadSteps", Tensor::Of<int32_t>({1}, {bad}))
      .TensorInput("InSkippedSteps", Tensor::Of<int32_t>({1}, {skipped}));
  for (const NamedAttr& attr : attrs) op.Attr(attr.name, attr.value);
  op.Outputs("Out", gradients);
  return op;
}

AttrList Rule(int32_t interval, int32_t backoff_interval = 1, float incr = 2, float decr = 0.5f) {
  return {{"incr_every_n_steps", interval},
          {"decr_every_n_nan_or_inf", backoff_interval},
          {"incr_ratio", incr},
          {"decr_ratio", decr}};
}
AttrList With(AttrList attrs, AttrList more) {
  attrs.insert(attrs.end(), more.begin(), more.end());
  return attrs;
}

LossTrace TraceOf(float scale, const std::vector<int>& overflows, const AttrList& attrs) {
  LossTrace trace;
  int32_t good = 0, bad = 0, skipped = 0;
  for (int overflow : overflows) {
    OpTest op = Step(overflow != 0, scale, good, bad, skipped, attrs);
    scale = op.Output("LossScaling").Item<float>();
    good = op.Output("OutGoodSteps").Item<int32_t>();
    bad = op.Output("OutBadSteps").Item<int32_t>();
    skipped = op.Output("OutSkippedSteps").Item<int32_t>();
    trace.scale.push_back(scale);
    trace.good.push_back(good);
    trace.bad.push_back(bad);
  }
  return trace;
}

TEST(UpdateLossScaling, TorchTrace) {
  const LossTrace trace = TraceOf(8, {0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1}, Rule(3));
  EXPECT_EQ(trace.scale, (std::vector<float>{8, 8, 16, 16, 16, 8, 8, 8, 16, 8, 4}));
  EXPECT_EQ(trace.good, (std::vector<int32_t>{1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0}));
}

// The scale that a step uses is the one after the step before. With the cap applied on use, as
// insightface has it, the scale in between would be 24.
TEST(UpdateLossScaling, MaxClipTrace) {
  std::vector<int> overflows(14, 0);
  overflows[10] = 1;
  const LossTrace trace = TraceOf(3, overflows, With(Rule(2), {{"max_scale", 20.0f}}));
  std::vector<float> used = {3};
  used.insert(used.end(), trace.scale.begin(), trace.scale.end() - 1);
  EXPECT_EQ(used, (std::vector<float>{3, 3, 6, 6, 12, 12, 20, 20, 20, 20, 20, 10, 10, 20}));
  for (float scale : trace.scale) EXPECT_LE(scale, 20);
}

// Backoff at the second overflow in a row; a clean step between them begins the count again.
TEST(UpdateLossScaling, PaddleCounts) {
  const LossTrace trace = TraceOf(32768, {1, 0, 1, 1, 1, 0, 0, 0}, Rule(3, 2, 2, 0.8f));
  const float lower = 32768 * 0.8f;
  EXPECT_EQ(trace.scale,
            (std::vector<float>{32768, 32768, 32768, lower, lower, lower, lower, lower * 2}));
  EXPECT_EQ(trace.bad, (std::vector<int32_t>{1, 0, 1, 0, 1, 0, 0, 0}));
}

// Megatron: the tracker falls with each overflow and is filled again by a growth only; at 0 each
// overflow backs off.
TEST(UpdateLossScaling, Hysteresis) {
  const LossTrace trace = TraceOf(64, {1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1},
                                  With(Rule(3), {{"hysteresis", int32_t{2}}}));
  EXPECT_EQ(trace.scale, (std::vector<float>{64, 64, 32, 16, 16, 16, 8, 8, 8, 16, 16, 8}));
}

TEST(UpdateLossScaling, FloorAndNoInfinity) {
  EXPECT_EQ(TraceOf(4, {1, 1, 1, 1}, Rule(3)).scale, (std::vector<float>{2, 1, 1, 1}));
  EXPECT_EQ(TraceOf(4, {1, 1, 1, 1}, With(Rule(3), {{"min_scale", 0.25f}})).scale,
            (std::vector<float>{2, 1, 0.5, 0.25}));
  EXPECT_EQ(TraceOf(3e38f, {0, 0, 0}, Rule(1)).scale, (std::vector<float>{3e38f, 3e38f, 3e38f}));
}

TEST(UpdateLossScaling, StopsWithoutUsableScale) {
  const AttrList rule = With(Rule(3), {{"max_skipped_steps", int32_t{4}}});
  EXPECT_EQ(TraceOf(4, {1, 1, 1, 0, 1, 1, 1}, rule).scale.back(), 1);  // a clean step between them
  Step(true, 1, 0, 0, 3, rule).ExpectError("the last 4 steps in a row were skipped");
  // Not while there is room below.
  EXPECT_EQ(Step(true, 4096, 0, 0, 3, rule).Output("LossScaling").Item<float>(), 2048);
}

TEST(UpdateLossScaling, GradientsBecomeZero) {
  for (bool overflow : {false, true}) {
    OpTest op = Step(overflow, 8, 0, 0, 0, Rule(3), 2);
    op.Input("X", {2}, {1, 2}).RowsInput("X", {4, 1}, {3}, {5});
    op.Expect("Out", {2}, overflow ? std::vector<double>{0, 0} : std::vector<double>{1, 2});
  }
  OpTest rows = Step(true, 8, 0, 0, 0, Rule(3), 1);
  rows.RowsInput("X", {4, 1}, {3}, {5}).ExpectRows("Out", 4, {3}, {0});
}

TEST(UpdateLossScaling, StopUpdateOnlyZeroes) {
  OpTest op = Step(true, 8, 2, 1, 0, With(Rule(3), {{"stop_update", true}}), 1);
  op.Input("X", {1}, {7}).Expect("Out", {1}, {0});
  EXPECT_EQ(op.Output("LossScaling").Item<float>(), 8);
  EXPECT_EQ(op.Output("OutGoodSteps").Item<int32_t>(), 2);
  EXPECT_EQ(op.Output("OutBadSteps").Item<int32_t>(), 1);
}

// As a file may have them.
TEST(UpdateLossScaling, CountsStayAtTheirLimit) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  OpTest good = Step(false, 8, kMost, 0, 0, Rule(kMost));
  EXPECT_EQ(good.Output("LossScaling").Item<float>(), 16);
  OpTest bad = Step(true, 8, 0, kMost, kMost, With(Rule(3), {{"hysteresis", kMost}}));
  EXPECT_EQ(bad.Output("OutBadSteps").Item<int32_t>(), kMost);
  EXPECT_EQ(bad.Output("OutSkippedSteps").Item<int32_t>(), kMost);
}

TEST(UpdateLossScaling, Constraints) {
  const auto fails = [](const AttrList& attrs, const char* id) {
    Step(false, 8, 0, 0, 0, attrs).ExpectError(std::string("update_loss_scaling.") + id);
  };
  fails(Rule(3, 1, 1.0f), "C3");
  fails(Rule(3, 1, std::numeric_limits<float>::quiet_NaN()), "C3");
  fails(Rule(3, 1, 2, 1.0f), "C4");
  fails(Rule(3, 1, 2, 0.0f), "C4");
  fails(With(Rule(3), {{"min_scale", 4.0f}, {"max_scale", 2.0f}}), "C5");
  fails(With(Rule(3), {{"min_scale", -1.0f}}), "C5");
  Step(false, 8, 0, 0, 0, Rule(3), 2).Input("X", {1}, {1}).ExpectError("update_loss_scaling.C2");
  OpTest no_count("update_loss_scaling");
  no_count.NoOutput("Out");
  no_count.TensorInput("FoundInfinite", Tensor::Of<bool>({1}, {true}))
      .TensorInput("PrevLossScaling", Tensor::Of<float>({1}, {1}))
      .TensorInput("InGoodSteps", Tensor::Of<int32_t>({1}, {0}))
      .TensorInput("InBadSteps", Tensor::Of<int32_t>({1}, {0}));
  for (const NamedAttr& attr : With(Rule(3), {{"max_skipped_steps", int32_t{4}}}))
    no_count.Attr(attr.name, attr.value);
  no_count.ExpectError("update_loss_scaling.C6");
  OpTest counts("update_loss_scaling");
  counts.NoOutput("Out");
  counts.TensorInput("FoundInfinite", Tensor::Of<bool>({1}, {true}))
      .TensorInput("PrevLossScaling", Tensor::Of<float>({1}, {1}))
      .TensorInput("InGoodSteps", Tensor::Of<int64_t>({1}, {0}))
      .TensorInput("InBadSteps", Tensor::Of<int32_t>({1}, {0}));
  for (const NamedAttr& attr : Rule(3)) counts.Attr(attr.name, attr.value);
  counts.ExpectError("update_loss_scaling.C1");
}

}  // namespace coracle::update_loss_scaling_test

// Paddle's tables (1.x and 2.1) of defaults and precision lists.

#include <coracle/framework/op/op_registry.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace coracle::paddle_tables_test {

TEST(PaddleTable, DefaultsOfTheOptimizers) {
  EXPECT_EQ(MomentumOptions{}.momentum, 0.9);
  EXPECT_FALSE(MomentumOptions{}.use_nesterov);
  EXPECT_EQ(LarsMomentumOptions{}.lars_coeff, 0.001);
  EXPECT_EQ(LarsMomentumOptions{}.lars_weight_decay, 0.0005);
  EXPECT_EQ(LarsMomentumOptions{}.epsilon, 0);
  EXPECT_EQ(AdagradOptions{}.epsilon, 1e-6);
  EXPECT_EQ(AdagradOptions{}.initial_accumulator_value, 0);
  EXPECT_EQ(DecayedAdagradOptions{}.decay, 0.95);
  EXPECT_EQ(DecayedAdagradOptions{}.epsilon, 1e-6);
  EXPECT_EQ(AdadeltaOptions{}.epsilon, 1e-6);
  EXPECT_EQ(AdadeltaOptions{}.rho, 0.95);
  EXPECT_EQ(AdamOptions{}.learning_rate, 0.001);
  EXPECT_EQ(AdamOptions{}.beta1, 0.9);
  EXPECT_EQ(AdamOptions{}.beta2, 0.999);
  EXPECT_EQ(AdamOptions{}.epsilon, 1e-8);
  EXPECT_FALSE(AdamOptions{}.lazy_mode);
  EXPECT_FALSE(AdamOptions{}.use_epsilon_hat);
  EXPECT_EQ(AdamaxOptions{}.learning_rate, 0.001);
  EXPECT_EQ(AdamaxOptions{}.epsilon, 1e-8);
  EXPECT_EQ(RmspropOptions{}.rho, 0.95);
  EXPECT_EQ(RmspropOptions{}.epsilon, 1e-6);
  EXPECT_EQ(RmspropOptions{}.momentum, 0);
  EXPECT_FALSE(RmspropOptions{}.centered);
  EXPECT_EQ(FtrlOptions{}.l1, 0);
  EXPECT_EQ(FtrlOptions{}.l2, 0);
  EXPECT_EQ(FtrlOptions{}.lr_power, -0.5);
  EXPECT_EQ(LambOptions{}.learning_rate, 0.001);
  EXPECT_EQ(LambOptions{}.lamb_weight_decay, 0.01);
  EXPECT_EQ(LambOptions{}.epsilon, 1e-6);
  EXPECT_EQ(AdamWOptions{}.weight_decay, 0.01);
  EXPECT_EQ(DpsgdOptions{}.clip, 0.9);
  EXPECT_EQ(DpsgdOptions{}.batch_size, 0.999);
  EXPECT_EQ(DpsgdOptions{}.sigma, 1e-8);
  EXPECT_EQ(ExponentialMovingAverageOptions{}.decay, 0.999);
  EXPECT_EQ(ModelAverageOptions{}.min_window, 10000);
  EXPECT_EQ(ModelAverageOptions{}.max_window, 10000);
  EXPECT_EQ(LookaheadOptions{}.alpha, 0.5);
  EXPECT_EQ(LookaheadOptions{}.k, 5);
}

// Defaults of the ops where they differ from the classes' defaults, and values that the classes do
// not set.
TEST(PaddleTable, DefaultsOfTheOps) {
  const auto expect = [](const char* type, const char* attr, const Attribute& value) {
    for (const AttrDef& def : DefaultOps().Get(type).attrs) {
      if (def.name != attr) continue;
      ASSERT_TRUE(def.default_value.has_value()) << type << "." << attr;
      EXPECT_EQ(*def.default_value, value) << type << "." << attr;
      return;
    }
    ADD_FAILURE() << type << " has no attr " << attr;
  };
  expect("rmsprop", "decay", 0.9f);
  expect("rmsprop", "epsilon", 1e-10f);
  expect("rmsprop", "momentum", 0.0f);
  expect("dpsgd", "clip", 10.0f);
  expect("dpsgd", "batch_size", 16.0f);
  expect("dpsgd", "sigma", 1.0f);
  expect("momentum", "use_nesterov", false);
  expect("momentum", "regularization_method", std::string());
  expect("momentum", "regularization_coeff", 0.0f);
  expect("momentum", "rescale_grad", 1.0f);
  expect("adam", "beta1", 0.9f);
  expect("adam", "beta2", 0.999f);
  expect("adam", "epsilon", 1e-8f);
  expect("adam", "lazy_mode", false);
  expect("adam", "use_global_beta_pow", false);
  expect("lars_momentum", "lars_coeff", 0.001f);
  expect("lars_momentum", "lars_weight_decay", 0.0005f);
  expect("lars_momentum", "epsilon", 0.0f);
  expect("ftrl", "lr_power", -0.5f);
  expect("proximal_gd", "l1", 0.0f);
  expect("proximal_gd", "l2", 0.0f);
  expect("update_loss_scaling", "stop_update", false);
}

TEST(PaddleTable, PrecisionLists) {
  const std::set<std::string> white = {"conv2d", "matmul", "matmul_v2", "mul"};
  const std::set<std::string> black = {"exp",
                                       "square",
                                       "log",
                                       "mean",
                                       "sum",
                                       "cos_sim",
                                       "softmax",
                                       "softmax_with_cross_entropy",
                                       "sigmoid_cross_entropy_with_logits",
                                       "cross_entropy",
                                       "cross_entropy2",
                                       "lookup_table",
                                       "lookup_table_v2",
                                       "reduce_sum"};
  std::set<std::string> gray = {"batch_norm",
                                "layer_norm",
                                "tanh",
                                "sigmoid",
                                "top_k",
                                "pool2d",
                                "pool3d",
                                "dropout",
                                "relu",
                                "relu6",
                                "leaky_relu",
                                "soft_relu",
                                "flatten2",
                                "stack",
                                "unstack",
                                "uniform_random",
                                "uniform_random_batch_size_like",
                                "gaussian_random",
                                "gaussian_random_batch_size_like",
                                "slice",
                                "rank",
                                "scale",
                                "transpose2",
                                "reshape2",
                                "gather",
                                "fill_constant",
                                "get_tensor_from_selected_rows",
                                "sign",
                                "cast",
                                "fused_bn_add_activation",
                                "c_identity",
                                "c_concat",
                                "c_allreduce_sum"};
  for (const char* op : {"add", "sub", "mul", "div", "max", "min", "pow", "mod", "floordiv"})
    gray.insert(std::string("elementwise_") + op);
  PrecisionLists lists = DefaultPrecisionLists();
  EXPECT_EQ(lists.white.erase("scaled_dot_product_attention"), 1);  // ours: two matrix products
  EXPECT_EQ(lists.white, white);
  for (const std::string& op : gray)
    EXPECT_FALSE(lists.white.contains(op) || lists.black.contains(op)) << op;
  for (const std::string& op : black) EXPECT_TRUE(lists.black.contains(op)) << op;
  for (const std::string& op : lists.black)  // ours are new ones
    EXPECT_FALSE(white.contains(op) || gray.contains(op)) << op;
}

// ReduceOnPlateau: a change of at most epsilon is not made; "rel" means a share of the best.
TEST(PaddleTable, PlateauOptions) {
  PlateauRate small(1e-7, {.factor = 0.95, .patience = 0, .epsilon = 1e-8});
  small.Update(1);
  EXPECT_EQ(small.Update(1), 1e-7);  // 5e-9 less would be at most epsilon
  PlateauRate large(1e-7, {.factor = 0.5, .patience = 0, .epsilon = 1e-8});
  large.Update(1);
  EXPECT_EQ(large.Update(1), 0.5e-7);
  PlateauRate most(1, {.minimize = false, .factor = 0.5, .patience = 0, .threshold = 0.1});
  EXPECT_EQ(most.Update(10), 1);
  EXPECT_EQ(most.Update(11.5), 1);  // above 10 (1 + 0.1)
  EXPECT_EQ(most.Update(12), 0.5);  // not above 12.65
  EXPECT_EQ(most.Update(12.7), 0.5);
  const PlateauRate::Options defaults;
  EXPECT_EQ(defaults.factor, 0.1);
  EXPECT_EQ(defaults.patience, 10);
  EXPECT_EQ(defaults.threshold, 1e-4);
  EXPECT_TRUE(defaults.minimize && defaults.relative);
  EXPECT_EQ(defaults.cooldown, 0);
  EXPECT_EQ(defaults.min_rate, 0);
  EXPECT_EQ(defaults.epsilon, 1e-8);
}

// paddle.optimizer.lr.LinearWarmup: after the warm-up the inner schedule counts from there.
TEST(PaddleTable, WarmupInFrontOfACountOfItsOwn) {
  const LrSchedulePtr inner = StepRate({0.5, 0.1, 3});
  const LrSchedulePtr schedule =
      SequenceRate({{0, WarmupRate(FixedRate(0.5), 4, 0, 0.5)}, {4, inner}});
  for (int64_t e = 0; e < 12; ++e)
    EXPECT_EQ(schedule->At(e), e < 4 ? 0.5 * static_cast<double>(e) / 4 : inner->At(e - 4)) << e;
}
}  // namespace coracle::paddle_tables_test

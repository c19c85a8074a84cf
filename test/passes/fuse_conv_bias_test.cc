// Bias gradients that gradient ops of convolutions compute with those of their filters.

#include <coracle/layers/builder.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/passes/pass.h>
#include <coracle/test/passes/listing.h>
#include <gtest/gtest.h>

namespace coracle::fuse_conv_bias_test {

bool Has(const std::string& listing, const std::string& text) {
  return listing.find(text) != std::string::npos;
}

// In mixed precision the cast of the bias's gradient stands between the two ops that
// fuse_conv_bias joins.
TEST(FuseConvBias, MixedPrecision) {
  ProgramDesc main, startup;
  Builder b(main, startup);
  const Variable y = b.Conv2d(b.Data("x", {-1, 4, 6, 5}), {.num_filters = 4,
                                                           .filter_size = 3,
                                                           .param_attr = {.name = "w"},
                                                           .bias_attr = ParamAttr{.name = "b"}});
  const Variable loss = b.Mean(Square(y), {.output = "loss"});
  DecorateMixedPrecision(main, startup, {.dtype = DType::kBFloat16});
  Sgd({.learning_rate = 0.1}).Minimize(b.Var(loss.name()), startup);
  const auto after = [&](std::unordered_set<std::string> fetches) {
    ProgramDesc program = main;
    RunPasses(program, {DefaultOps(), {"x"}, std::move(fetches)}, {"fuse_conv_bias"});
    return Listing(program);
  };
  const std::string fused = after({"loss"});
  EXPECT_TRUE(Has(fused, "Bias@GRAD=b.cast_bf16@GRAD")) << fused;
  EXPECT_FALSE(Has(fused, "elementwise_add_grad")) << fused;
  EXPECT_TRUE(Has(after({"loss", "b.cast_bf16@GRAD"}), "elementwise_add_grad"));
}
}  // namespace coracle::fuse_conv_bias_test

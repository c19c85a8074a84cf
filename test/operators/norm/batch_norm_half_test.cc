// batch_norm and its fusions on bfloat16 images, with all else in float32: what float32 gives for
// the same numbers, rounded once.

#include <coracle/test/op_test.h>

#include <cmath>
#include <random>

namespace coracle::batch_norm_half_test {

class BatchNormHalf : public ::testing::TestWithParam<std::string> {
 protected:
  Tensor Random(const Shape& shape, float least = -1) {
    Tensor tensor(DType::kFloat32, shape);
    std::uniform_real_distribution<float> uniform(least, least + 2);
    for (float& v : tensor.span<float>()) v = uniform(random_);
    return tensor;
  }
  // Numbers of bfloat16.
  Tensor Image(const Shape& shape) {
    return Random(shape).Cast(DType::kBFloat16).Cast(DType::kFloat32);
  }

  static void Compare(const Tensor& low, const Tensor& exact, DType dtype) {
    ASSERT_EQ(low.ToString(), exact.Cast(dtype).ToString());
    const Tensor wide = low.Cast(DType::kFloat32);
    const double unit = dtype == DType::kBFloat16 ? 0x1p-8 : 1e-5;
    for (int64_t i = 0; i < exact.numel(); ++i) {
      const auto e = static_cast<double>(exact.data<float>()[i]);
      ASSERT_NEAR(static_cast<double>(wide.data<float>()[i]), e, unit * std::fabs(e) + 1e-4) << i;
    }
  }

  std::mt19937 random_{3};
};

std::vector<Shape> Shapes() {
  return {{2, 3, 5, 7}, {4, 16, 8, 8}, {3, 64, 9, 5}, {2, 100, 4, 4}, {8, 5, 33, 40}, {1, 1, 1, 2}};
}

TEST_P(BatchNormHalf, ForwardAndGradient) {
  const std::string type = GetParam();
  const bool add = type == "fused_bn_add_activation";
  for (const Shape& nchw : Shapes()) {
    for (const bool last : {false, true}) {
      for (const bool by_x : {false, true}) {
        SCOPED_TRACE(::testing::Message() << nchw.ToString() << last << by_x);
        const Shape shape = last ? Shape{nchw[0], nchw[2], nchw[3], nchw[1]} : nchw;
        const Shape channels{nchw[1]};
        const Tensor x = Image(shape), z = Image(shape), dy = Image(shape);
        const Tensor scale = Random(channels, 0.5f), bias = Random(channels);
        const Tensor mean = Random(channels), variance = Random(channels, 0.5f);
        const auto layout = [&](OpTest& op) {
          op.Attr("data_layout", std::string(last ? "NHWC" : "NCHW"));
        };
        const auto forward = [&](DType dtype) {
          OpTest op(type);
          layout(op);
          op.TensorInput("X", x.Cast(dtype)).TensorInput("Scale", scale);
          op.TensorInput("Bias", bias).TensorInput("Mean", mean);
          op.TensorInput("Variance", variance);
          if (add) op.TensorInput("Z", z.Cast(dtype));
          return op;
        };
        const auto reference = [&](const char* slot) {
          return forward(DType::kFloat32).Output(slot, KernelMode::kReference);
        };
        const Tensor y = reference("Y");
        Compare(forward(DType::kBFloat16).Output("Y"), y, DType::kBFloat16);
        for (const char* slot : {"MeanOut", "VarianceOut", "SavedMean", "SavedVariance"})
          Compare(forward(DType::kBFloat16).Output(slot), reference(slot), DType::kFloat32);
        const Tensor saved_mean = reference("SavedMean"), inv = reference("SavedVariance");
        const Tensor rounded = y.Cast(DType::kBFloat16).Cast(DType::kFloat32);
        const auto gradient = [&](DType dtype) {
          OpTest op(type + "_grad");
          layout(op);
          op.TensorInput("X", x.Cast(dtype)).TensorInput("Scale", scale);
          op.TensorInput("SavedMean", saved_mean).TensorInput("SavedVariance", inv);
          op.TensorInput("Y@GRAD", dy.Cast(dtype));
          if (type != "batch_norm") {
            op.TensorInput("Y", rounded.Cast(dtype));
            if (by_x && !add) op.TensorInput("Bias", bias).Attr("mask_from_x", true);
          }
          return op;
        };
        std::vector<std::string> slots = {"X@GRAD"};
        if (add) slots.push_back("Z@GRAD");
        for (const std::string& slot : slots) {
          SCOPED_TRACE(slot);
          Compare(gradient(DType::kBFloat16).Output(slot),
                  gradient(DType::kFloat32).Output(slot, KernelMode::kReference), DType::kBFloat16);
        }
        for (const char* slot : {"Scale@GRAD", "Bias@GRAD"}) {
          SCOPED_TRACE(slot);
          Compare(gradient(DType::kBFloat16).Output(slot),
                  gradient(DType::kFloat32).Output(slot, KernelMode::kReference), DType::kFloat32);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BatchNormHalf,
                         ::testing::Values("batch_norm", "fused_batch_norm_act",
                                           "fused_bn_add_activation"));
}  // namespace coracle::batch_norm_half_test

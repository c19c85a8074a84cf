// The range of a run in steps of uint8, against the formulas of ONNX written out.

#include <coracle/test/operators/quantize/quantized_tools.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace coracle::dynamic_scale_test {

using quantized_tools::Draw;

void ExpectSteps(const Tensor& x, float scale, int zero) {
  OpTest test("dynamic_scale");
  test.TensorInput("X", x);
  for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
    const Tensor s = test.Output("Scale", mode), z = test.Output("ZeroPoint", mode);
    ASSERT_EQ(s.shape(), Shape{1});
    ASSERT_EQ(z.dtype(), DType::kUInt8);
    if (std::isnan(scale))
      EXPECT_TRUE(std::isnan(s.data<float>()[0]));
    else
      EXPECT_EQ(s.data<float>()[0], scale);
    EXPECT_EQ(z.data<uint8_t>()[0], zero);
  }
}

Tensor Of(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}

TEST(DynamicScale, Formula) {
  Draw draw(3);
  for (const int64_t n : {1, 3, 16, 17, 64, 65, 127, 65536, 65537, 200003}) {
    for (const auto& [low, high] : {std::pair{-3.0, 5.0}, {2.0, 7.0}, {-9.0, -1.0}}) {
      SCOPED_TRACE(fmt::format("{} from {}", n, low));
      const Tensor x = draw.Reals({n}, low, high);
      float least = 0, most = 0;
      for (int64_t i = 0; i < n; ++i) {
        least = std::min(least, x.data<float>()[i]);
        most = std::max(most, x.data<float>()[i]);
      }
      const float scale = (most - least) / 255;
      const float zero = std::nearbyint((0 - least) / scale);
      ExpectSteps(x, scale, static_cast<int>(std::min(255.0f, std::max(0.0f, zero))));
    }
  }
}

TEST(DynamicScale, SpecialNumbers) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float huge = std::numeric_limits<float>::max();
  ExpectSteps(Of({0, 0}), 1, 0);
  ExpectSteps(Tensor::Zeros(DType::kFloat32, {0, 3}), 1, 0);
  ExpectSteps(Of({tiny, 0}), 1, 0);  // the quotient is 0
  ExpectSteps(Of({-255, 0}), 1, 255);
  ExpectSteps(Of({1, inf}), inf, 0);
  ExpectSteps(Of({1, -inf}), inf, 0);
  ExpectSteps(Of({-huge, huge}), inf, 0);
  for (const size_t at : {0, 5, 40, 99}) {
    std::vector<float> values(100, 2.0f);
    values[at] = nan;
    ExpectSteps(Of(values), nan, 0);
  }
}

TEST(DynamicScale, OtherTypes) {
  OpTest("dynamic_scale")
      .TensorInput("X", Tensor::Zeros(DType::kInt32, {2}))
      .ExpectError("dynamic_scale");
}

}  // namespace coracle::dynamic_scale_test

#include <coracle/test/op_test.h>

namespace coracle::multihead_matmul_test {

using Values = std::vector<double>;

Values Draw(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Values values(static_cast<size_t>(count));
  for (double& v : values) v = uniform(random);
  return values;
}

// Sizes of the test: batch, steps, columns of the input and the output, heads.
constexpr size_t kB = 2, kS = 3, kC = 5, kH = 4, kHeads = 2, kSize = kH / kHeads;

TEST(MultiheadMatmul, AgreesWithItsFormula) {
  const Values x = Draw(kB * kS * kC, 1), w = Draw(kC * 3 * kH, 2), bias = Draw(3 * kH, 3);
  const Values mask = Draw(kB * kHeads * kS * kS, 4);
  constexpr double kAlpha = 0.5;
  // Element h of q (part 0), k or v of step t of sample b.
  const auto part = [&](size_t p, size_t b, size_t t, size_t h) {
    double sum = bias[p * kH + h];
    for (size_t c = 0; c < kC; ++c) sum += x[(b * kS + t) * kC + c] * w[(c * 3 + p) * kH + h];
    return sum;
  };
  Values out(kB * kS * kH);
  for (size_t b = 0; b < kB; ++b) {
    for (size_t t = 0; t < kS; ++t) {
      for (size_t h = 0; h < kH; ++h) {
        const size_t head = h / kSize;
        double sum = 0, total = 0;
        for (size_t s = 0; s < kS; ++s) {
          double score = mask[((b * kHeads + head) * kS + t) * kS + s];
          for (size_t k = head * kSize; k < (head + 1) * kSize; ++k)
            score += kAlpha * part(0, b, t, k) * part(1, b, s, k);
          sum += std::exp(score) * part(2, b, s, h);
          total += std::exp(score);
        }
        out[(b * kS + t) * kH + h] = sum / total;
      }
    }
  }
  OpTest("multihead_matmul")
      .Attr("head_number", 2)
      .Attr("alpha", 0.5f)
      .Input("Input", {kB, kS, kC}, x)
      .Input("W", {kC, 3, kH}, w)
      .Input("Bias", {3, kH}, bias)
      .Input("BiasQK", {kB, kHeads, kS, kS}, mask)
      .Expect("Out", {kB, kS, kH}, out);
}

TEST(MultiheadMatmul, Gradients) {
  OpTest("multihead_matmul")
      .Attr("head_number", 2)
      .Attr("alpha", 0.5f)
      .RandomInput("Input", {2, 3, 5})
      .RandomInput("W", {5, 3, 4})
      .RandomInput("Bias", {3, 4})
      .RandomInput("BiasQK", {2, 2, 3, 3})
      .CheckGradient({"Input", "W", "Bias", "BiasQK"});
}

TEST(MultiheadMatmul, Empty) {
  OpTest("multihead_matmul")
      .Input("Input", {0, 2, 1}, {})
      .RandomInput("W", {1, 3, 2})
      .RandomInput("Bias", {3, 2})
      .Input("BiasQK", {0, 1, 2, 2}, {})
      .Expect("Out", {0, 2, 2}, {});
}

TEST(MultiheadMatmul, Constraints) {
  const auto with = [](const Shape& x, const Shape& w, const Shape& bias, const Shape& mask) {
    return std::move(OpTest("multihead_matmul")
                         .RandomInput("Input", x)
                         .RandomInput("W", w)
                         .RandomInput("Bias", bias)
                         .RandomInput("BiasQK", mask));
  };
  const Shape x = {1, 2, 3}, w = {3, 3, 4}, bias = {3, 4}, mask = {1, 1, 2, 2};
  with({2, 3}, w, bias, mask).ExpectError("multihead_matmul.C1");
  with(x, w, bias, mask).Attr("transpose_V", true).ExpectError("multihead_matmul.C2");
  with(x, {3, 2, 4}, bias, mask).ExpectError("multihead_matmul.C3");
  with(x, w, bias, mask).Attr("head_number", 3).ExpectError("multihead_matmul.C4");
  with(x, w, {12}, mask).ExpectError("multihead_matmul.C5");
  with(x, w, bias, {1, 1, 1, 2}).ExpectError("multihead_matmul.C6");
}
}  // namespace coracle::multihead_matmul_test

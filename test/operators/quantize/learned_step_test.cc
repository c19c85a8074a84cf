#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace coracle::learned_step_test {

constexpr const char* kType = "fake_quantize_dequantize_learned_step";
constexpr const char* kGrad = "fake_quantize_dequantize_learned_step_grad";

// Three bits: integers from -4 to 3, halves to even.
TEST(LearnedStep, Values) {
  OpTest(kType)
      .Attr("bit_length", 3)
      .Input("X", {2, 4}, {0.25, 0.75, -0.75, 1.3, 100, -100, 0, -1.9})
      .Input("Step", {1}, {0.5})
      .Expect("Out", {2, 4}, {0, 1, -1, 1.5, 1.5, -2, 0, -2});
  OpTest(kType)
      .Attr("bit_length", 3)
      .Attr("quant_axis", 1)
      .Input("X", {2, 2}, {0.6, 0.6, -9, -9})
      .Input("Step", {2}, {0.5, 2})
      .Expect("Out", {2, 2}, {0.5, 0, -2, -8});
}

// A step that is not positive counts as 1e-8; nan and empty tensors do no harm.
TEST(LearnedStep, Edges) {
  for (const double step : {0.0, -3.0}) {
    OpTest(kType)
        .Input("X", {2}, {1, -1})
        .Input("Step", {1}, {step})
        .Expect("Out", {2}, {127e-8, -128e-8});
  }
  OpTest(kType).Input("X", {0, 2}, {}).Input("Step", {1}, {1}).Expect("Out", {0, 2}, {});
  OpTest(kType)
      .Attr("quant_axis", 1)
      .Input("X", {2, 0}, {})
      .Input("Step", {0}, {})
      .Expect("Out", {2, 0}, {});
  const double nan = std::nan(""), inf = INFINITY;
  OpTest(kType)
      .Input("X", {3}, {nan, inf, 1})
      .Input("Step", {1}, {1})
      .Expect("Out", {3}, {nan, 127, 1});
  OpTest(kType).Input("X", {1}, {1}).Input("Step", {1}, {nan}).Expect("Out", {1}, {nan});
}

TEST(LearnedStep, Refused) {
  OpTest(kType)
      .Attr("quant_axis", 1)
      .Input("X", {2}, {1, 2})
      .Input("Step", {1}, {1})
      .ExpectError("fake_quantize_dequantize_learned_step.C1");
  OpTest(kType)
      .Attr("quant_axis", 0)
      .Input("X", {2}, {1, 2})
      .Input("Step", {1}, {1})
      .ExpectError("fake_quantize_dequantize_learned_step.C2");
  OpTest(kType)
      .Input("X", {2}, {1, 2})
      .Input("Step", {2}, {1, 1})
      .ExpectError("fake_quantize_dequantize_learned_step.C2");
}

TEST(LearnedStep, GradientRefused) {
  OpTest(kGrad)
      .Input("X", {2}, {1, 2})
      .Input("Step", {1}, {1})
      .Input("Out@GRAD", {3}, {1, 2, 3})
      .ExpectError("fake_quantize_dequantize_learned_step_grad.C3");
}

// The formulas of the paper, written out for an X of [outer, channels, inner].
void ExpectGradients(int64_t outer, int64_t channels, int64_t inner, int bits) {
  const Shape shape = {outer, channels, inner};
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0, 1);
  std::vector<double> x, dout;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    x.push_back(normal(random));
    dout.push_back(normal(random));
  }
  const double most = std::exp2(bits - 1) - 1, least = -most - 1;
  for (const int axis : {-1, 1}) {
    std::vector<double> steps(static_cast<size_t>(axis < 0 ? 1 : channels)), dx(x.size());
    for (size_t c = 0; c < steps.size(); ++c) steps[c] = 1.5 / most * (1 + 0.1 * c);
    std::vector<double> dstep(steps.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = axis < 0 ? 0 : i / static_cast<size_t>(inner) % steps.size();
      const double v = x[i] / steps[c];
      if (v > least && v < most) dx[i] = dout[i];
      const double slope = v <= least ? least : v >= most ? most : std::nearbyint(v) - v;
      dstep[c] += dout[i] * slope;
    }
    const double elements = static_cast<double>(axis < 0 ? channels * inner : outer * inner);
    for (double& d : dstep) d /= std::sqrt(elements * most);
    const Shape of_steps = {static_cast<int64_t>(steps.size())};
    OpTest(kGrad)
        .Attr("bit_length", bits)
        .Attr("quant_axis", axis)
        .Input("X", shape, x)
        .Input("Step", of_steps, steps)
        .Input("Out@GRAD", shape, dout)
        .Expect("X@GRAD", shape, dx)
        .Expect("Step@GRAD", of_steps, dstep, 1e-4);
  }
}

TEST(LearnedStep, GradientsOfThePaper) {
  ExpectGradients(2, 3, 5, 4);
  ExpectGradients(4, 1, 9000, 8);  // several parts
  ExpectGradients(1, 40, 1, 2);
  NoteCheckedGradient(kType);  // by the formulas, since differences see steps
}

}  // namespace coracle::learned_step_test

#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::sigmoid_focal_loss_test {

OpTest Focal(const Shape& x, const std::vector<double>& values, const std::vector<int64_t>& labels,
             int64_t foreground) {
  return std::move(OpTest("sigmoid_focal_loss")
                       .Input("X", x, values)
                       .IntInput("Label", {x[0], 1}, labels, DType::kInt32)
                       .IntInput("FgNum", {1}, {foreground}, DType::kInt32));
}

TEST(SigmoidFocalLoss, Values) {
  const double p = 1 / (1 + std::exp(-1.0)), q = 1 - p;
  // Right for the second class, wrong for the first; no class; ignored.
  Focal({3, 2}, {1, 1, -1, 1, 5, -5}, {2, 0, -1}, 2)
      .Expect("Out", {3, 2},
              {-.375 * p * p * std::log(q), -.125 * q * q * std::log(p),
               -.375 * q * q * std::log(p), -.375 * p * p * std::log(q), 0, 0})
      .CheckGradient({"X"});
  Focal({1, 2}, {1, 2}, {1}, 0)
      .Attr("gamma", 0.f)
      .Attr("alpha", 0.5f)
      .Expect("Out", {1, 2}, {-.5 * std::log(p), .5 * std::log1p(std::exp(2.0))})
      .CheckGradient({"X"});
  // Far from 0: linear, without infinities.
  Focal({1, 2}, {-800, 800}, {1}, 1).Expect("Out", {1, 2}, {200, 600});
  Focal({0, 2}, {}, {}, 1).Expect("Out", {0, 2}, {});
}

TEST(SigmoidFocalLoss, Constraints) {
  const auto with = [](const Shape& x, const Shape& label, const Shape& number) {
    return std::move(
        OpTest("sigmoid_focal_loss")
            .RandomInput("X", x)
            .IntInput("Label", label, {0, 0})
            .IntInput("FgNum", number, std::vector<int64_t>(static_cast<size_t>(number[0]), 1)));
  };
  with({2}, {2, 1}, {1}).ExpectError("sigmoid_focal_loss.C1");
  with({2, 2}, {2}, {1}).ExpectError("sigmoid_focal_loss.C2");
  with({2, 2}, {2, 1}, {2}).ExpectError("sigmoid_focal_loss.C3");
  OpTest("sigmoid_focal_loss_grad")
      .RandomInput("X", {1, 2})
      .IntInput("Label", {1, 1}, {0})
      .IntInput("FgNum", {1}, {1})
      .RandomInput("Out@GRAD", {1, 3})
      .ExpectError("sigmoid_focal_loss_grad.C4");
}
}  // namespace coracle::sigmoid_focal_loss_test

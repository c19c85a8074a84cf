#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::clip_statistics_test {

OpTest Statistics(const std::vector<double>& then) {
  OpTest op("clip_statistics");
  op.TensorInput("Statistics", Tensor::Of<double>({3}, then));
  return op;
}

TEST(ClipStatistics, CountsWhatActed) {
  Statistics({4, 1, 0.25})
      .Input("Before", {2}, {3, 4})
      .Input("After", {2}, {3, 4})
      .Expect("StatisticsOut", {3}, {5, 1, 0.25});
  Statistics({4, 1, 0.25})
      .Input("Before", {2}, {3, 4})
      .Input("After", {2}, {0.3, 0.4})
      .Expect("StatisticsOut", {3}, {5, 2, 0.9}, 1e-6);
  // An earlier clip took more.
  Statistics({4, 1, 0.95})
      .Input("Before", {2}, {3, 4})
      .Input("After", {2}, {0.3, 0.4})
      .Expect("StatisticsOut", {3}, {5, 2, 0.95});
}

// One clip of two gradients: their common norm.
TEST(ClipStatistics, SeveralGradientsAreOneClip) {
  Statistics({0, 0, 0})
      .Input("Before", {1}, {3})
      .Input("Before", {1}, {4})
      .Input("After", {1}, {0})
      .Input("After", {1}, {4})
      .Expect("StatisticsOut", {3}, {1, 1, 0.2}, 1e-6);
}

// The smallest change of one element among many counts: no sum would show it.
TEST(ClipStatistics, NoClipIsTooSmall) {
  std::vector<double> before(100000, 1000), after = before;
  before[77777] = std::nextafterf(1000.f, 2000.f);
  Statistics({0, 0, 0})
      .Input("Before", {100000}, before)
      .Input("After", {100000}, after)
      .Expect("StatisticsOut", {3}, {1, 1, 0}, 1e-6);
}

// Sums over all threads, and where squares of float32 vanish or overflow.
TEST(ClipStatistics, FastAsReference) {
  for (const double size : {1.0, 1e-25, 1e-11, 1e14, 1e25}) {
    std::vector<double> before(70000), after;
    for (size_t i = 0; i < before.size(); ++i)
      before[i] = size * (static_cast<double>(i % 37) - 18) / 18;
    after = before;
    for (double& x : after) x = std::clamp(x, -0.25 * size, 0.5 * size);
    Statistics({1, 0, 0.1})
        .Input("Before", {70000}, before)
        .Input("Before", {2}, {3, 4})
        .Input("After", {70000}, after)
        .Input("After", {2}, {3, 4})
        .CheckFast(1e-6);
  }
}

TEST(ClipStatistics, OverflowsCountNowhere) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Statistics({4, 1, 0.25})
        .Input("Before", {2}, {bad, 4})
        .Input("After", {2}, {1, 4})
        .Expect("StatisticsOut", {3}, {4, 1, 0.25});
  }
}

// A clip whose lower limit is positive makes gradients larger.
TEST(ClipStatistics, GradientsThatGrewLoseNothing) {
  Statistics({0, 0, 0})
      .Input("Before", {1}, {0})
      .Input("After", {1}, {2})
      .Expect("StatisticsOut", {3}, {1, 1, 0});
}

TEST(ClipStatistics, Constraints) {
  Statistics({0, 0, 0})
      .Input("Before", {1}, {1})
      .Input("After", {1}, {1})
      .Input("After", {1}, {1})
      .ExpectError("clip_statistics.C1");
  Statistics({0, 0, 0})
      .Input("Before", {1}, {1})
      .Input("After", {2}, {1, 1})
      .ExpectError("clip_statistics.C2");
  OpTest("clip_statistics")
      .Input("Statistics", {2}, {0, 0})
      .Input("Before", {1}, {1})
      .Input("After", {1}, {1})
      .ExpectError("clip_statistics.C3");
}

}  // namespace coracle::clip_statistics_test

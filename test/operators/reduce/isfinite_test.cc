#include <limits>

#include "../../op_test.h"

namespace coracle {

TEST(IsFinite, Values) {
  const double inf = std::numeric_limits<double>::infinity();
  OpTest("isfinite")
      .Input("X", {3}, {1, -2, 0})
      .Expect("Out", {1}, {1})
      .ExpectDType("Out", DType::kBool);
  OpTest("isfinite").Input("X", {3}, {1, inf, 0}).Expect("Out", {1}, {0});
  OpTest("isfinite").Input("X", {3}, {1, -inf, 0}).Expect("Out", {1}, {0});
  OpTest("isfinite").Input("X", {}, {std::nan("")}).Expect("Out", {1}, {0});
  OpTest("isfinite").Input("X", {0}, {}).Expect("Out", {1}, {1});
  OpTest("isfinite").IntInput("X", {1}, {7}).Expect("Out", {1}, {1});
}

TEST(IsFinite, EveryPlace) {
  for (size_t at = 0; at < 70; ++at) {
    std::vector<double> x(70, 3e38);
    x[at] = at % 2 ? std::nan("") : std::numeric_limits<double>::infinity();
    OpTest("isfinite").Input("X", {70}, x).Expect("Out", {1}, {0});
  }
}

}  // namespace coracle

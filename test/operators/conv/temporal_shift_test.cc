#include <coracle/test/op_test.h>

#include <numeric>

namespace coracle::temporal_shift_test {

// Two sequences of two frames with four channels: one shifts forwards, one backwards.
OpTest Shift(const std::string& format, std::vector<double> x) {
  OpTest test("temporal_shift");
  test.Attr("seg_num", 2).Attr("data_format", format).Input("X", {4, 4, 1, 1}, std::move(x));
  return test;
}

TEST(TemporalShift, Values) {
  std::vector<double> x(16);
  std::iota(x.begin(), x.end(), 1);
  Shift("NCHW", x)
      .Expect("Out", {4, 4, 1, 1}, {0, 6, 3, 4, 1, 0, 7, 8, 0, 14, 11, 12, 9, 0, 15, 16})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("temporal_shift")
      .Attr("seg_num", 2)
      .Attr("data_format", std::string("NHWC"))
      .Input("X", {2, 1, 2, 4}, x)
      .Expect("Out", {2, 1, 2, 4}, {0, 10, 3, 4, 0, 14, 7, 8, 1, 0, 11, 12, 5, 0, 15, 16})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("temporal_shift")
      .Attr("seg_num", 2)
      .Input("X", {0, 4, 1, 1}, {})
      .Expect("Out", {0, 4, 1, 1}, {});
}

// 5 * 0.3 and 10 * 0.3 channels, rounded down.
TEST(TemporalShift, RatiosAreRoundedDown) {
  OpTest("temporal_shift")
      .Attr("seg_num", 1)
      .Attr("shift_ratio", 0.3f)
      .Input("X", {1, 5, 1, 1}, {1, 2, 3, 4, 5})
      .Expect("Out", {1, 5, 1, 1}, {0, 0, 0, 4, 5});
}

TEST(TemporalShift, Constraints) {
  const auto shift = [](int32_t steps) { return OpTest("temporal_shift").Attr("seg_num", steps); };
  shift(1).Input("X", {1}, {1}).ExpectError("temporal_shift.C1");
  shift(2).Input("X", {1, 1, 1, 1}, {1}).ExpectError("temporal_shift.C2");
  for (float ratio : {0.f, 0.5f}) {
    shift(1)
        .Attr("shift_ratio", ratio)
        .Input("X", {1, 1, 1, 1}, {1})
        .ExpectError("temporal_shift.C3");
  }
}
}  // namespace coracle::temporal_shift_test

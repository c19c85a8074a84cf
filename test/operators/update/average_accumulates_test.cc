#include <coracle/test/op_test.h>

#include <limits>

namespace coracle::average_accumulates_test {

OpTest Make(int64_t accumulated, int64_t old_accumulated, int64_t updates, float share,
            int64_t least, int64_t most, bool good_sums = true, bool good_counts = true) {
  OpTest test("average_accumulates");
  test.Attr("average_window", share)
      .Attr("min_average_window", least)
      .Attr("max_average_window", most)
      .Input("param", {2}, {1, -2})
      .Input("in_sum_1", {2}, {10, 20})
      .Input("in_sum_3", {2}, {1000, 2000})
      .IntInput("in_num_accumulates", {1}, {accumulated})
      .IntInput("in_old_num_accumulates", {1}, {old_accumulated});
  good_sums ? test.Input("in_sum_2", {2}, {100, 200}) : test.RandomInput("in_sum_2", {3});
  good_counts ? test.IntInput("in_num_updates", {1}, {updates})
              : test.IntInput("in_num_updates", {2}, {1, 2});
  return test;
}

void Expect(OpTest test, const std::vector<std::vector<double>>& sums,
            const std::vector<double>& counts) {
  test.Expect("out_sum_1", {2}, sums[0])
      .Expect("out_sum_2", {2}, sums[1])
      .Expect("out_sum_3", {2}, sums[2])
      .Expect("out_num_accumulates", {1}, {counts[0]})
      .Expect("out_old_num_accumulates", {1}, {counts[1]})
      .Expect("out_num_updates", {1}, {counts[2]});
}

TEST(AverageAccumulates, Adds) {
  Expect(Make(3, 7, 10, 1, 5, 100), {{11, 18}, {100, 200}, {1000, 2000}}, {4, 7, 11});
}

// The newest parameter is part of what moves.
TEST(AverageAccumulates, BeginsAnew) {
  // 4 >= min(100, 11 * 0.4 = 4.4, as an integer 4)
  Expect(Make(3, 7, 10, 0.4f, 2, 100), {{0, 0}, {0, 0}, {111, 218}}, {0, 4, 11});
  // not before min_average_window
  Expect(Make(3, 7, 10, 0.4f, 5, 100), {{11, 18}, {100, 200}, {1000, 2000}}, {4, 7, 11});
  // at max_average_window at the latest
  Expect(Make(3, 7, 1000, 0.4f, 2, 4), {{0, 0}, {0, 0}, {111, 218}}, {0, 4, 1001});
}

TEST(AverageAccumulates, WindowsThatNoIntegerHolds) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  Expect(Make(3, 7, 10, 3e30f, 2, most), {{11, 18}, {100, 200}, {1000, 2000}}, {4, 7, 11});
  Expect(Make(3, 7, 10, -3e30f, 2, most), {{0, 0}, {0, 0}, {111, 218}}, {0, 4, 11});
}

TEST(AverageAccumulates, MovesLongSums) {
  Expect(Make(3, 7, 16383, 1, 5, 1000000), {{0, 0}, {111, 218}, {1000, 2000}}, {4, 7, 16384});
  Expect(Make(3, 7, 16384, 1, 5, 1000000), {{11, 18}, {100, 200}, {1000, 2000}}, {4, 7, 16385});
}

TEST(AverageAccumulates, C1_OtherShape) {
  Make(0, 0, 0, 1, 5, 100, false).ExpectError("average_accumulates.C1");
}

TEST(AverageAccumulates, C2_Counts) {
  Make(0, 0, 0, 1, 5, 100, true, false).ExpectError("average_accumulates.C2");
}

TEST(AverageAccumulates, C3_Windows) {
  Make(0, 0, 0, 1, 101, 100).ExpectError("average_accumulates.C3");
}
}  // namespace coracle::average_accumulates_test

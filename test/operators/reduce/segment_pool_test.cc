#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::segment_pool_test {

// Segment 1 is missing.
OpTest Pool(const std::string& type) {
  OpTest test("segment_pool");
  test.Attr("pooltype", type)
      .Input("X", {4, 2}, {1, 8, 3, 6, 5, 4, 7, 2})
      .IntInput("SegmentIds", {4}, {0, 0, 2, 2}, DType::kInt32);
  return test;
}

TEST(SegmentPool, Values) {
  Pool("SUM").Expect("Out", {3, 2}, {4, 14, 0, 0, 12, 6});
  Pool("MEAN").Expect("Out", {3, 2}, {2, 7, 0, 0, 6, 3}).Expect("SummedIds", {3, 1}, {2, 0, 2});
  Pool("MIN").Expect("Out", {3, 2}, {1, 6, 0, 0, 5, 2});
  Pool("MAX").Expect("Out", {3, 2}, {3, 8, 0, 0, 7, 4});
  OpTest("segment_pool")
      .Input("X", {0, 2}, {})
      .IntInput("SegmentIds", {0}, {})
      .Expect("Out", {0, 2}, {});
  OpTest("segment_pool")
      .Attr("pooltype", std::string("MAX"))
      .Input("X", {3}, {-1, std::nan(""), -2})
      .IntInput("SegmentIds", {3}, {0, 0, 1})
      .Expect("Out", {2}, {std::nan(""), -2});
}

TEST(SegmentPool, Gradients) {
  for (const char* type : {"SUM", "MEAN", "MIN", "MAX"})
    Pool(type).CheckGradient({"X"}).CheckHigherGradients();
}

TEST(SegmentPool, FloatsAddUpInDouble) {
  for (const char* type : {"SUM", "MEAN"}) {
    OpTest("segment_pool")
        .Attr("pooltype", std::string(type))
        .Input("X", {3, 2}, {1e8, 0, 3, 0, -1e8, 0})
        .IntInput("SegmentIds", {3}, {0, 0, 0})
        .Expect("Out", {1, 2}, {*type == 'S' ? 3.0 : 1.0, 0});
  }
}

// More columns than are added up at a time.
TEST(SegmentPool, WideRows) {
  std::vector<double> x, sums;
  for (int i = 0; i < 300; ++i) x.push_back(i);
  for (int j = 0; j < 150; ++j) sums.push_back(j + j + 150);
  OpTest("segment_pool")
      .Input("X", {2, 150}, x)
      .IntInput("SegmentIds", {2}, {0, 0})
      .Expect("Out", {1, 150}, sums);
}

TEST(SegmentPool, Constraints) {
  const auto pool = [] { return OpTest("segment_pool").Input("X", {2}, {1, 2}); };
  pool().Input("SegmentIds", {2}, {0, 0}).ExpectError("segment_pool.C1");
  pool().IntInput("SegmentIds", {1}, {0}).ExpectError("segment_pool.C2");
  pool().IntInput("SegmentIds", {2}, {1, 0}).ExpectError("segment_pool.C3");
  pool().IntInput("SegmentIds", {2}, {-1, 0}).ExpectError("segment_pool.C3");
}
}  // namespace coracle::segment_pool_test

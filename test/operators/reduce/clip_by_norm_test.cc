#include <cmath>

#include "../../op_test.h"

namespace coracle::clip_by_norm_test {

TEST(ClipByNorm, Values) {
  OpTest("clip_by_norm")
      .Attr("max_norm", 1.f)
      .Input("X", {2}, {3, -4})
      .Expect("Out", {2}, {0.6, -0.8});
  OpTest("clip_by_norm").Attr("max_norm", 5.f).Input("X", {2}, {3, -4}).Expect("Out", {2}, {3, -4});
  OpTest("clip_by_norm").Attr("max_norm", 9.f).Input("X", {2}, {3, -4}).Expect("Out", {2}, {3, -4});
}

TEST(ClipByNorm, EdgesAndInPlace) {
  OpTest("clip_by_norm").Attr("max_norm", 1.f).Input("X", {}, {-3}).Expect("Out", {}, {-1});
  OpTest("clip_by_norm").Attr("max_norm", 1.f).Input("X", {0}, {}).Expect("Out", {0}, {});
  OpTest("clip_by_norm").Attr("max_norm", 1.f).Input("X", {2}, {0, 0}).Expect("Out", {2}, {0, 0});
  OpTest("clip_by_norm")
      .Attr("max_norm", 1.f)
      .InPlace("X", "Out")
      .Input("X", {2}, {3, -4})
      .Expect("Out", {2}, {0.6, -0.8});
  const double nan = std::nan("");
  OpTest("clip_by_norm")
      .Attr("max_norm", 1.f)
      .Input("X", {2}, {nan, 1})
      .Expect("Out", {2}, {nan, nan});
}

TEST(ClipByNorm, FastAgainstReference) {
  for (int64_t n : {1, 17, 2049, 100003})
    OpTest("clip_by_norm").Attr("max_norm", 2.f).RandomInput("X", {n}).CheckFast(1e-6);
}

// The squares are more than floats hold; a piece of such ones stands between others.
TEST(ClipByNorm, LargeNorm) {
  OpTest("clip_by_norm")
      .Attr("max_norm", 1.f)
      .Input("X", {4}, std::vector<double>(4, 3e19))
      .Expect("Out", {4}, std::vector<double>(4, 0.5));
  std::vector<double> x(10000, 1.0), out(10000, 0.0);
  for (size_t i : {5000, 5001, 5002, 5003}) {
    x[i] = -2e30;
    out[i] = -2;
  }
  OpTest("clip_by_norm").Attr("max_norm", 4.f).Input("X", {10000}, x).Expect("Out", {10000}, out);
}

TEST(ClipByNorm, C1_MaxNormNotPositive) {
  for (float max_norm : {0.f, -1.f, NAN})
    OpTest("clip_by_norm")
        .Attr("max_norm", max_norm)
        .Input("X", {1}, {1})
        .ExpectError("clip_by_norm.C1");
}

TEST(ClipByNorm, NormFromAnInput) {
  for (double max_norm : {1.0, 9.0}) {
    OpTest("clip_by_norm")
        .Input("X", {2}, {3, -4})
        .Input("MaxNorm", {1}, {max_norm})
        .Expect("Out", {2},
                max_norm < 5 ? std::vector<double>{0.6, -0.8} : std::vector<double>{3, -4});
  }
  OpTest("clip_by_norm")
      .RowsInput("X", {4, 1}, {1, 1}, {3, 3})
      .Input("MaxNorm", {1}, {3})
      .ExpectRows("Out", 4, {1}, {3});
}

TEST(ClipByNorm, C2_MaxNormIsNoNumber) {
  OpTest("clip_by_norm")
      .Input("X", {1}, {1})
      .Input("MaxNorm", {2}, {1, 1})
      .ExpectError("clip_by_norm.C2");
  OpTest("clip_by_norm")
      .Input("X", {1}, {1})
      .IntInput("MaxNorm", {1}, {1})
      .ExpectError("clip_by_norm.C2");
}

}  // namespace coracle::clip_by_norm_test

#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <algorithm>
#include <cmath>

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

// The squares overflow float32; a part of such elements is between ordinary parts.
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

// From the smallest number to the largest: a sum of squares, or limit / norm, may be none.
TEST(ClipByNorm, AllFiniteNumbers) {
  struct Case {
    double x, limit;
  };
  for (const Case& c : {Case{3e-23, 1e-24}, Case{1e-25, 1e-26}, Case{1e-40, 1e-41},
                        Case{1e30, 1e-24}, Case{3e38, 1}, Case{3e38, 1e-30}, Case{3.4e38, 1e38}}) {
    OpTest test("clip_by_norm");
    const Tensor x = Tensor::Full<float>({4}, static_cast<float>(c.x));
    test.TensorInput("X", x).TensorInput("MaxNorm", Tensor::Of<double>({1}, {c.limit}));
    test.Expect("Out", {4}, std::vector<double>(4, c.limit / 2),
                2e-7 * std::min(1.0, c.limit) + 1e-45);
  }
  for (const Case& c : {Case{1e-200, 1e-201}, Case{1e-310, 1e-311}, Case{1e200, 1e-200},
                        Case{1.7e308, 1}, Case{1.7e308, 1e-30}, Case{1.7e308, 1.7e308}}) {
    OpTest test("clip_by_norm");
    test.TensorInput("X", Tensor::Full<double>({4}, c.x))
        .TensorInput("MaxNorm", Tensor::Of<double>({1}, {c.limit}));
    test.Expect("Out", {4}, std::vector<double>(4, c.limit / 2),
                1e-14 * std::min(1.0, c.limit) + 5e-324);
  }
}

// Each slice by its own norm: rows, then columns.
TEST(ClipByNorm, Slices) {
  const std::vector<double> x = {3, 4, 0.3, 0.4, 6, 8};
  OpTest("clip_by_norm")
      .Attr("max_norm", 1.f)
      .Attr("axis", 0)
      .Input("X", {3, 2}, x)
      .Expect("Out", {3, 2}, {0.6, 0.8, 0.3, 0.4, 0.6, 0.8});
  OpTest("clip_by_norm")
      .Attr("axis", 0)
      .Input("X", {3, 2}, x)
      .Input("MaxNorm", {3, 1}, {10, 0.05, 5})
      .Expect("Out", {3, 2}, {3, 4, 0.03, 0.04, 3, 4});
  OpTest("clip_by_norm")
      .Attr("axis", 1)
      .Input("X", {2, 2}, {3, 5, 4, 12})
      .Input("MaxNorm", {1, 2}, {1, 1})
      .Expect("Out", {2, 2}, {0.6, 5.0 / 13, 0.8, 12.0 / 13});
  OpTest("clip_by_norm")
      .Attr("axis", 0)
      .Attr("max_norm", 1.f)
      .Input("X", {0, 2}, {})
      .Expect("Out", {0, 2}, {});
}

// Along the last of three dims, with more slices than are summed at a time, and in place. Slices
// that no float32 factor can scale are between ordinary ones.
TEST(ClipByNorm, ManySlices) {
  const std::vector<double> sizes = {1, 1e-30, 3e38, 0, 1e-44, 2};
  const auto size_of = [&](int64_t k) { return sizes[static_cast<size_t>(k) % sizes.size()]; };
  for (const int32_t axis : {0, 1, 2}) {
    SCOPED_TRACE(axis);
    Shape shape = {2, 2, 2};
    shape[axis] = 700;
    Tensor x(DType::kFloat32, shape);
    std::vector<double> out, limits;
    for (int64_t k = 0; k < 700; ++k) limits.push_back(k == 5 ? 10 : size_of(k) / 2 + 1e-45);
    const int64_t inner = axis == 0 ? 4 : axis == 1 ? 2 : 1;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const int64_t k = i / inner % 700;
      x.data<float>()[i] = static_cast<float>(size_of(k));
      // The norm of a slice is twice its elements.
      out.push_back(k == 5 ? 2 : std::min(size_of(k), limits[static_cast<size_t>(k)] / 2));
    }
    const Tensor max_norm = Tensor::Of<double>({700}, limits);
    ExpectSameNumbers(ValueOf("clip_by_norm", {{"axis", axis}}, {{"X", x}, {"MaxNorm", max_norm}}),
                      out, 1e-6);
    OpTest test("clip_by_norm");
    test.Attr("axis", axis).TensorInput("X", x).TensorInput("MaxNorm", max_norm);
    test.InPlace("X", "Out").Expect("Out", shape, out, 1e-6);
  }
}

TEST(ClipByNorm, C3_Axis) {
  for (int32_t axis : {1, 2})
    OpTest("clip_by_norm")
        .Attr("axis", axis)
        .Attr("max_norm", 1.f)
        .Input("X", {1}, {1})
        .ExpectError("clip_by_norm.C3");
  OpTest("clip_by_norm")
      .Attr("axis", 0)
      .Attr("max_norm", 1.f)
      .RowsInput("X", {4, 1}, {1}, {3})
      .ExpectError("clip_by_norm.C3");
  OpTest("clip_by_norm")
      .Attr("axis", 0)
      .Input("X", {3, 1}, {1, 1, 1})
      .Input("MaxNorm", {2}, {1, 1})
      .ExpectError("clip_by_norm.C2");
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

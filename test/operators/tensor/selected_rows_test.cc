// Ops on selected rows: merge_selected_rows, get_tensor_from_selected_rows, and every op that takes
// selected rows in the place of a dense gradient.
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/test/op_test.h>

namespace coracle::selected_rows_test {

TEST(SelectedRows, Merge) {
  OpTest("merge_selected_rows")
      .RowsInput("X", {9, 2}, {5, 1, 5, 8, 5}, {1, 2, 3, 4, 10, 20, 7, 8, 100, 200})
      .ExpectRows("Out", 9, {1, 5, 8}, {3, 4, 111, 222, 7, 8})
      .CheckGradient({"X"});
  OpTest("merge_selected_rows")
      .RowsInput("X", {9, 1, 2}, {0, 3}, {1, 2, 3, 4})
      .ExpectRows("Out", 9, {0, 3}, {1, 2, 3, 4});
  OpTest("merge_selected_rows").RowsInput("X", {3, 2}, {}, {}).ExpectRows("Out", 3, {}, {});
  OpTest("merge_selected_rows").RowsInput("X", {3, 0}, {1, 1}, {}).ExpectRows("Out", 3, {1}, {});
  OpTest("merge_selected_rows")
      .InPlace("X", "Out")
      .RowsInput("X", {3}, {2, 0, 2}, {1, 2, 3})
      .ExpectRows("Out", 3, {0, 2}, {2, 4});
  OpTest("merge_selected_rows").Input("X", {1, 1}, {1}).ExpectError("merge_selected_rows.C1");
}

// Rows that need all bits of the sort, and those past what its keys hold.
TEST(SelectedRows, MergeOfLargeNumbers) {
  const int64_t big = 1000000007, huge = (int64_t{1} << 40) + 3;
  OpTest("merge_selected_rows")
      .RowsInput("X", {big + 1}, {big, 5, 2048, big, 4096, 5}, {1, 2, 3, 4, 5, 6})
      .ExpectRows("Out", big + 1, {5, 2048, 4096, big}, {8, 3, 5, 5});
  OpTest("merge_selected_rows")
      .RowsInput("X", {huge + 1}, {huge, 5, huge - 1, huge, 5}, {1, 2, 3, 4, 5})
      .ExpectRows("Out", huge + 1, {5, huge - 1, huge}, {7, 3, 5});
}

TEST(SelectedRows, GetTensor) {
  OpTest("get_tensor_from_selected_rows")
      .RowsInput("X", {4, 2}, {3, 0, 3}, {1, 2, 3, 4, 10, 20})
      .Expect("Out", {4, 2}, {3, 4, 0, 0, 0, 0, 11, 22})
      .CheckGradient({"X"});
  OpTest("get_tensor_from_selected_rows").Input("X", {2}, {3, 4}).Expect("Out", {2}, {3, 4});
  OpTest("get_tensor_from_selected_rows")
      .RowsInput("X", {2, 1}, {}, {})
      .Expect("Out", {2, 1}, {0, 0});
}

TEST(SelectedRows, Sum) {
  OpTest("sum")
      .RowsInput("X", {4, 1}, {3, 0}, {1, 2})
      .RowsInput("X", {4, 1}, {0}, {5})
      .ExpectRows("Out", 4, {3, 0, 0}, {1, 2, 5});
  OpTest("sum")
      .InPlace("X", "Out")
      .RowsInput("X", {4, 1}, {3, 0}, {1, 2})
      .RowsInput("X", {4, 1}, {0}, {5})
      .ExpectRows("Out", 4, {3, 0, 0}, {1, 2, 5});
  for (bool first : {false, true}) {
    OpTest sum("sum");
    if (first) sum.Input("X", {3, 1}, {10, 20, 30});
    sum.RowsInput("X", {3, 1}, {2, 0, 2}, {1, 2, 3});
    if (!first) sum.Input("X", {3, 1}, {10, 20, 30});
    sum.RowsInput("X", {3, 1}, {2}, {100});
    sum.Expect("Out", {3, 1}, {12, 20, 134});
  }
  OpTest("sum")
      .RowsInput("X", {4, 1}, {0}, {1})
      .RowsInput("X", {4, 2}, {0}, {1, 2})
      .ExpectError("sum.C1");
}

TEST(SelectedRows, Scale) {
  OpTest("scale")
      .Attr("scale", 0.5f)
      .RowsInput("X", {4, 2}, {3, 3}, {1, 2, 3, 4})
      .ExpectRows("Out", 4, {3, 3}, {0.5, 1, 1.5, 2});
  OpTest("scale").Attr("bias", 1.0f).RowsInput("X", {4, 1}, {3}, {1}).ExpectError("scale.C3");
}

// 3 + 4 is clipped, not 3 and 4.
TEST(SelectedRows, Clip) {
  OpTest("clip")
      .Attr("min", -1.0f)
      .Attr("max", 5.0f)
      .RowsInput("X", {4, 1}, {3, 0, 3}, {3, -2, 4})
      .ExpectRows("Out", 4, {0, 3}, {-1, 5});
  OpTest("clip")
      .InPlace("X", "Out")
      .Attr("min", 0.0f)
      .Attr("max", 0.0f)
      .RowsInput("X", {4, 1}, {3}, {3})
      .Input("Min", {1}, {-1})
      .Input("Max", {1}, {2})
      .ExpectRows("Out", 4, {3}, {2});
  OpTest("clip")
      .Attr("min", 1.0f)
      .Attr("max", 5.0f)
      .RowsInput("X", {4, 1}, {3}, {3})
      .ExpectError("clip.C4");
  OpTest("clip")
      .Attr("min", 0.0f)
      .Attr("max", 0.0f)
      .RowsInput("X", {4, 1}, {3}, {3})
      .TensorInput("Min", Tensor::Of<float>({1}, {1.0f}))
      .TensorInput("Max", Tensor::Of<float>({1}, {2.0f}))
      .ExpectError("0 must lie in [min, max] if X is selected rows, got [1, 2]");
}

// The norm of (3, 4), not of its parts.
TEST(SelectedRows, Norms) {
  const std::vector<double> parts = {1, 2, 2, 2};
  OpTest("clip_by_norm")
      .Attr("max_norm", 2.5f)
      .RowsInput("X", {4, 2}, {3, 3}, parts)
      .ExpectRows("Out", 4, {3}, {1.5, 2});
  OpTest("clip_by_norm")
      .Attr("max_norm", 5.0f)
      .RowsInput("X", {4, 2}, {3, 3}, parts)
      .ExpectRows("Out", 4, {3}, {3, 4});
  OpTest("squared_l2_norm").RowsInput("X", {4, 2}, {3, 3}, parts).Expect("Out", {1}, {25});
}

TEST(SelectedRows, IsFiniteAndCast) {
  for (double bad : {1.0, static_cast<double>(INFINITY), std::nan("")}) {
    const VarValues env =
        OpTest("isfinite").RowsInput("X", {4, 1}, {3, 3}, {2, bad}).Run(KernelMode::kAuto, false);
    EXPECT_EQ(std::get<Tensor>(env.at("Out.0")).Item<bool>(), bad == 1.0);
  }
  VarValues env = OpTest("cast")
                      .Attr("out_dtype", static_cast<int32_t>(DType::kFloat64))
                      .RowsInput("X", {4, 1}, {3, 3}, {2, 0.5})
                      .Run(KernelMode::kAuto, false);
  const auto& rows = std::get<SelectedRows>(env.at("Out.0"));
  EXPECT_EQ(rows.rows, (std::vector<int64_t>{3, 3}));
  EXPECT_TRUE(BitEqual(rows.value, Tensor::Of<double>({2, 1}, {2, 0.5})));
}

TEST(SelectedRows, Assign) {
  OpTest("assign").RowsInput("X", {4, 1}, {3, 3}, {2, 1}).ExpectRows("Out", 4, {3, 3}, {2, 1});
}

TEST(SelectedRows, Sgd) {
  OpTest("sgd")
      .Input("Param", {3, 2}, {1, 2, 3, 4, 5, 6})
      .RowsInput("Grad", {3, 2}, {2, 0, 2}, {10, 20, 30, 40, 1, 2})
      .Input("LearningRate", {1}, {0.5})
      .Expect("ParamOut", {3, 2}, {-14, -18, 3, 4, -0.5, -5});
  OpTest("sgd")
      .RandomInput("Param", {3, 2})
      .RowsInput("Grad", {4, 2}, {0}, {1, 2})
      .RandomInput("LearningRate", {1})
      .ExpectError("sgd.C1");
}

// v = 0.5 (4, 6, 8) + (0, 3, 0): the rows without a gradient move on too.
TEST(SelectedRows, MomentumMovesAllRows) {
  for (bool nesterov : {false, true}) {
    OpTest("momentum")
        .Attr("mu", 0.5f)
        .Attr("use_nesterov", nesterov)
        .Input("Param", {3, 1}, {10, 20, 30})
        .RowsInput("Grad", {3, 1}, {1, 1}, {1, 2})
        .Input("Velocity", {3, 1}, {4, 6, 8})
        .Input("LearningRate", {1}, {1})
        .Expect("VelocityOut", {3, 1}, {2, 6, 4})
        .Expect("ParamOut", {3, 1},
                nesterov ? std::vector<double>{9, 14, 28} : std::vector<double>{8, 14, 26});
  }
}

OpTest AdamTest(bool lazy) {
  OpTest test("adam");
  test.Attr("lazy_mode", lazy)
      .Attr("beta1", 0.5f)
      .Attr("beta2", 0.75f)
      .Attr("epsilon", 0.0f)
      .Input("Param", {3, 1}, {10, 20, 30})
      .Input("Moment1", {3, 1}, {4, 6, 8})
      .Input("Moment2", {3, 1}, {16, 4, 64})
      .Input("Beta1Pow", {1}, {0.5})
      .Input("Beta2Pow", {1}, {0.75})
      .Input("LearningRate", {1}, {1});
  return test;
}

// lr = sqrt(0.25) / 0.5 = 1. Row 1: m = 3 + 1 = 4, v = 3 + 1 = 4, step 2. Row 0 without gradient:
// m = 2, v = 12; row 2: m = 4, v = 48.
TEST(SelectedRows, AdamLazyOrNot) {
  const double root12 = std::sqrt(12.0), root48 = std::sqrt(48.0);
  AdamTest(true)
      .RowsInput("Grad", {3, 1}, {1, 1}, {-1, 3})
      .Expect("Moment1Out", {3, 1}, {4, 4, 8})
      .Expect("Moment2Out", {3, 1}, {16, 4, 64})
      .Expect("ParamOut", {3, 1}, {10, 18, 30})
      .Expect("Beta1PowOut", {1}, {0.25});
  AdamTest(false)
      .RowsInput("Grad", {3, 1}, {1, 1}, {-1, 3})
      .Expect("Moment1Out", {3, 1}, {2, 4, 4})
      .Expect("Moment2Out", {3, 1}, {12, 4, 48})
      .Expect("ParamOut", {3, 1}, {10 - 2 / root12, 18, 30 - 4 / root48});
}

// Every optimizer on selected rows with many duplicates: as on the dense gradient (of all rows,
// where it leaves rows alone), and the same bits with one thread and with four.
class SparseUpdate : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t kRows = 700, kWidth = 19, kStored = 3000;

  static OpTest Make(const std::string& type, bool sparse) {
    OpTest test(type);
    Philox random(3, 1, 0);
    std::vector<int64_t> rows(kStored);
    for (size_t i = 0; i < rows.size(); ++i) {
      const double u = random.UniformDouble(i);
      rows[i] = i < kRows ? static_cast<int64_t>(kRows - 1 - static_cast<int64_t>(i))
                          : static_cast<int64_t>(u * u * kRows);
    }
    std::vector<double> values(kStored * kWidth), dense(kRows * kWidth);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = random.UniformDouble(100000 + i) - 0.5;
      dense[static_cast<size_t>(rows[i / kWidth]) * kWidth + i % kWidth] += values[i];
    }
    const Shape shape = {kRows, kWidth};
    if (type == "momentum") test.Attr("mu", 0.9f);
    if (type == "adam") test.Attr("lazy_mode", true);
    test.RandomInput("Param", shape).Input("LearningRate", {1}, {0.1});
    if (type == "momentum") test.RandomInput("Velocity", shape);
    if (type == "adagrad") test.RandomInput("Moment", shape, 0, 1);
    if (type == "adam") {
      test.RandomInput("Moment1", shape).RandomInput("Moment2", shape, 0.1, 1);
      test.Input("Beta1Pow", {1}, {0.9}).Input("Beta2Pow", {1}, {0.999});
    }
    if (sparse)
      test.RowsInput("Grad", shape, rows, values);
    else
      test.Input("Grad", shape, dense);
    return test;
  }
  static Tensor Updated(const std::string& type, bool sparse, KernelMode mode, bool in_double) {
    return std::get<Tensor>(Make(type, sparse).Run(mode, in_double).at("ParamOut.0"));
  }
};

TEST_P(SparseUpdate, AsTheDenseGradientAndForAnyNumberOfThreads) {
  const int threads = NumThreads();
  for (bool in_double : {true, false}) {
    for (KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      SetNumThreads(1);
      const Tensor one = Updated(GetParam(), true, mode, in_double);
      const Tensor dense = Updated(GetParam(), false, mode, in_double);
      SetNumThreads(4);
      EXPECT_TRUE(BitEqual(one, Updated(GetParam(), true, mode, in_double)));
      const Tensor a = one.Cast(DType::kFloat64), b = dense.Cast(DType::kFloat64);
      double largest = 0;
      for (int64_t i = 0; i < a.numel(); ++i)
        largest = std::max(largest, std::abs(a.data<double>()[i] - b.data<double>()[i]));
      EXPECT_LT(largest, in_double ? 1e-12 : 2e-5);
      SetNumThreads(threads);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, SparseUpdate,
                         ::testing::Values("sgd", "momentum", "adagrad", "adam"));

// Values that a file or a caller can put into a variable.
TEST(SelectedRows, BadRows) {
  for (int64_t bad : {-1, 3}) {
    OpTest("sgd")
        .RandomInput("Param", {3, 1})
        .RowsInput("Grad", {3, 1}, {0, bad}, {1, 2})
        .RandomInput("LearningRate", {1})
        .ExpectError("sgd: Grad holds the row " + std::to_string(bad) + " at 1, outside [0, 3)");
  }
}

TEST(SelectedRows, OtherOpsRefuseThemAndSayWhatHelps) {
  OpTest("relu")
      .RowsInput("X", {3, 1}, {0}, {1})
      .ExpectError(
          "relu: input X must be a dense tensor, and 'X.0' is SELECTED_ROWS float32[3, 1]; "
          "get_tensor_from_selected_rows makes a dense tensor of it");
}
}  // namespace coracle::selected_rows_test

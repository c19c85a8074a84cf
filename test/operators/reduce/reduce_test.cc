#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <cmath>
#include <limits>

namespace coracle::reduce_test {

using Ints = std::vector<int32_t>;
const char* const kNumeric[] = {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min",
                                "reduce_prod"};

OpTest Over(const std::string& type, Ints dim, bool keep = false) {
  OpTest test(type);
  test.Attr("dim", std::move(dim)).Attr("keep_dim", keep);
  return test;
}
const std::vector<double> kSix = {1, 5, -2, 4, 3, 6};

TEST(Reduce, Values) {
  const auto rows = [](const char* type) {
    OpTest test = Over(type, {1});
    test.Input("X", {2, 3}, kSix);
    return test;
  };
  rows("reduce_sum").Expect("Out", {2}, {4, 13});
  rows("reduce_mean").Expect("Out", {2}, {4.0 / 3, 13.0 / 3});
  rows("reduce_max").Expect("Out", {2}, {5, 6});
  rows("reduce_min").Expect("Out", {2}, {-2, 3});
  rows("reduce_prod").Expect("Out", {2}, {-10, 72});
  // The default is dim 0.
  OpTest("reduce_sum").Input("X", {2, 3}, kSix).Expect("Out", {3}, {5, 8, 4});
}

TEST(Reduce, DimsAndShapes) {
  Over("reduce_sum", {-1}).Input("X", {2, 3}, kSix).Expect("Out", {2}, {4, 13});
  Over("reduce_sum", {1}, true).Input("X", {2, 3}, kSix).Expect("Out", {2, 1}, {4, 13});
  Over("reduce_sum", {1, 0}).Input("X", {2, 3}, kSix).Expect("Out", {1}, {17});
  Over("reduce_sum", {1, 0}, true).Input("X", {2, 3}, kSix).Expect("Out", {1, 1}, {17});
  Over("reduce_sum", {}).Input("X", {2, 3}, kSix).Expect("Out", {1}, {17});
  Over("reduce_sum", {0})
      .Attr("reduce_all", true)
      .Input("X", {2, 3}, kSix)
      .Expect("Out", {1}, {17});
  Over("reduce_sum", {0}).Input("X", {}, {3}).Expect("Out", {1}, {3});
  Over("reduce_sum", {0, 2}).Input("X", {2, 3, 1}, kSix).Expect("Out", {3}, {5, 8, 4});
  Over("reduce_sum", {1}).Input("X", {1, 2, 3}, kSix).Expect("Out", {1, 3}, {5, 8, 4});
}

TEST(Reduce, EmptyAndExtreme) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  Over("reduce_sum", {0}).Input("X", {0, 2}, {}).Expect("Out", {2}, {0, 0});
  Over("reduce_mean", {0}).Input("X", {0, 1}, {}).Expect("Out", {1}, {nan});
  Over("reduce_max", {0}).Input("X", {0, 1}, {}).Expect("Out", {1}, {-inf});
  Over("reduce_min", {0}).Input("X", {0, 1}, {}).Expect("Out", {1}, {inf});
  Over("reduce_sum", {0}).Input("X", {2, 0}, {}).Expect("Out", {0}, {});
  Over("reduce_max", {0}).Input("X", {3}, {1, nan, 2}).Expect("Out", {1}, {nan});
}

TEST(Reduce, IntegersAndTypes) {
  Over("reduce_sum", {0})
      .IntInput("X", {3}, {1, 2, 3}, DType::kInt32)
      .Expect("Out", {1}, {6})
      .ExpectDType("Out", DType::kInt32);
  Over("reduce_max", {0}).IntInput("X", {3}, {1, 9, 3}).Expect("Out", {1}, {9});
  Over("reduce_min", {0}).IntInput("X", {3}, {1, -9, 3}).Expect("Out", {1}, {-9});
  Over("reduce_mean", {0}).IntInput("X", {2}, {4, 7}).Expect("Out", {1}, {5});
  Over("reduce_prod", {0}).IntInput("X", {3}, {4, 7, -1}).Expect("Out", {1}, {-28});
  Over("reduce_sum", {0})
      .Attr("out_dtype", static_cast<int32_t>(DType::kInt64))
      .TensorInput("X", Tensor::Of<bool>({3}, {true, false, true}))
      .Expect("Out", {1}, {2})
      .ExpectDType("Out", DType::kInt64);
  Over("reduce_sum", {0})
      .Attr("out_dtype", static_cast<int32_t>(DType::kInt32))
      .IntInput("X", {2}, {4, 5})
      .Expect("Out", {1}, {9})
      .ExpectDType("Out", DType::kInt32);
  Over("reduce_sum", {0})
      .Attr("out_dtype", static_cast<int32_t>(DType::kFloat64))
      .Input("X", {2}, {1, 2})
      .Expect("Out", {1}, {3})
      .ExpectDType("Out", DType::kFloat64);
}

TEST(Reduce, Logic) {
  const Tensor x = Tensor::Of<bool>({2, 2}, {true, false, true, true});
  Over("reduce_any", {0}).TensorInput("X", x).Expect("Out", {2}, {1, 1});
  Over("reduce_all", {0}).TensorInput("X", x).Expect("Out", {2}, {1, 0});
  Over("reduce_any", {0})
      .TensorInput("X", Tensor::Zeros(DType::kBool, {0}))
      .Expect("Out", {1}, {0});
  Over("reduce_all", {0})
      .TensorInput("X", Tensor::Zeros(DType::kBool, {0}))
      .Expect("Out", {1}, {1});
}

TEST(Reduce, Gradients) {
  for (const char* type : kNumeric) {
    for (const Ints& dim : {Ints{0}, Ints{1}, Ints{2}, Ints{0, 2}, Ints{1, 2}, Ints{0, 1, 2}}) {
      for (bool keep : {false, true}) {
        SCOPED_TRACE(type);
        OpTest test = Over(type, dim, keep);
        test.RandomInput("X", {3, 2, 4}, 0.5, 2).CheckGradient({"X"}).CheckSecondGradient({"X"});
      }
    }
  }
  OpTest("reduce_sum").RandomInput("X", {}).CheckGradient({"X"});
}

TEST(Reduce, TiesGetTheWholeGradientEach) {
  for (const char* type : {"reduce_max_grad", "reduce_min_grad"}) {
    Over(type, {0})
        .Input("X", {3}, {2, 1, 2})
        .Input("Out", {1}, {2})
        .Input("Out@GRAD", {1}, {5})
        .Expect("X@GRAD", {3}, {5, 0, 5});
  }
}

TEST(Reduce, ProdGradientWithZeros) {
  const auto grad = [](const std::vector<double>& x, const std::vector<double>& expected) {
    Over("reduce_prod_grad", {0})
        .Input("X", {3}, x)
        .Input("Out@GRAD", {1}, {10})
        .Expect("X@GRAD", {3}, expected);
  };
  grad({2, 3, 4}, {120, 80, 60});
  grad({2, 0, 4}, {0, 80, 0});
  grad({0, 0, 4}, {0, 0, 0});
}

// x y z with (x, y, z) = (0, 2, 3), u = (1, 10, 100), DOut = 5: the slope of the product is 1 y z =
// 6; dX: 5 (10 z + 100 y) = 1150, 5 (1 z + 100 x) = 15, 5 (1 y + 10 x) = 10. The products of the
// other elements are floats, although the product of all overflows.
TEST(Reduce, ProdGradientsOfExtremeValues) {
  const auto gradient = [](const std::vector<float>& x) {
    const Tensor tensor = Tensor::Of<float>({static_cast<int64_t>(x.size())}, x);
    return NumbersOf(GradientOf("reduce_prod", {}, {{"X", tensor}}, "X"));
  };
  const double inf = std::numeric_limits<double>::infinity();
  const auto expect = [](const std::vector<double>& got, const std::vector<double>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isinf(want[i]))
        EXPECT_EQ(got[i], want[i]);
      else
        EXPECT_NEAR(got[i], want[i], 1e-6 * want[i]);
    }
  };
  expect(gradient({1e-30f, 1e-30f, 1e30f, 1e30f}), {1e30, 1e30, 1e-30, 1e-30});
  expect(gradient({1e30f, 1e30f, 1e-30f}), {1, 1, inf});
}

TEST(Reduce, ProdSecondGradientWithZeros) {
  const auto second = [](const std::vector<double>& x, const std::vector<double>& dx,
                         double ddout) {
    Over("reduce_prod_grad_grad", {0})
        .Input("X", {3}, x)
        .Input("DOut", {1}, {5})
        .Input("DDX", {3}, {1, 10, 100})
        .Expect("DX", {3}, dx)
        .Expect("DDOut", {1}, {ddout});
  };
  second({0, 2, 3}, {1150, 15, 10}, 6);
  second({0, 0, 3}, {150, 15, 0}, 0);
  second({0, 0, 0}, {0, 0, 0}, 0);
  Over("reduce_prod_grad_grad", {1})
      .Input("X", {2, 0}, {})
      .Input("DOut", {2}, {1, 1})
      .Input("DDX", {2, 0}, {})
      .Expect("DDOut", {2}, {0, 0})
      .Expect("DX", {2, 0}, {});
  Over("reduce_prod_grad_grad", {1})
      .Input("X", {0, 2}, {})
      .Input("DOut", {0}, {})
      .Input("DDX", {0, 2}, {})
      .Expect("DDOut", {0}, {});
}

TEST(Reduce, FastAgainstReference) {
  for (const Shape& shape : {Shape{7}, Shape{70001}, Shape{50, 33}, Shape{700, 300},
                             Shape{40, 6, 700}, Shape{3, 1, 2, 5, 4}, Shape{2, 3000, 3}}) {
    for (int mask = 1; mask < (1 << shape.rank()); ++mask) {
      Ints dim;
      for (int i = 0; i < shape.rank(); ++i)
        if (mask >> i & 1) dim.push_back(i);
      SCOPED_TRACE(shape.ToString() + " mask " + std::to_string(mask));
      for (const char* type : {"reduce_sum", "reduce_mean"})
        Over(type, dim).RandomInput("X", shape, 0.1, 1).CheckFast(1e-5);
    }
  }
}

// The split of the work follows from the shape alone.
TEST(Reduce, SameBitsForAnyNumberOfThreads) {
  const int before = NumThreads();
  for (const Ints& dim : {Ints{0}, Ints{1}, Ints{0, 1}}) {
    const auto with = [&](int threads) {
      SetNumThreads(threads);
      return Over("reduce_sum", dim).RandomInput("X", {9001, 37}).Output("Out");
    };
    const Tensor one = with(1), three = with(3);
    SetNumThreads(before);
    EXPECT_TRUE(BitEqual(one, three));
  }
}

TEST(Reduce, UnknownDims) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetShape({-1, 3});
  InferOp(block, block.AppendOp("reduce_sum", {{"X", {"x"}}}, {{"Out", {"o"}}}, {{"dim", Ints{1}}}),
          DefaultOps());
  EXPECT_EQ(block.FindVar("o")->meta().shape, Shape({-1}));
}

TEST(Reduce, Constraints) {
  for (const char* name : kNumeric) {
    const std::string type = name, grad = type + "_grad";
    Over(type, {2}).RandomInput("X", {2, 2}).ExpectError(type + ".C1");
    Over(type, {-3}).RandomInput("X", {2, 2}).ExpectError(type + ".C1");
    Over(type, {1, -1}).RandomInput("X", {2, 2}).ExpectError(type + ".C2");
    Over(type, {0}).Attr("out_dtype", 99).RandomInput("X", {2}).ExpectError(type + ".C3");
    const auto bad = [&](Ints dim, const Shape& out, const std::string& id) {
      OpTest test = Over(grad, std::move(dim));
      test.RandomInput("X", {2, 2}).RandomInput("Out@GRAD", out);
      if (DefaultOps().Get(grad).FindInput("Out")) test.RandomInput("Out", out);
      test.ExpectError(std::string(grad).append(".").append(id));
    };
    bad({2}, {2}, "C1");
    bad({0, 0}, {2}, "C2");
    bad({0}, {3}, "C4");
    OpTest test = Over(grad, {0});
    test.RandomInput("X", {2}).IntInput("Out@GRAD", {1}, {1});
    if (DefaultOps().Get(grad).FindInput("Out")) test.RandomInput("Out", {1});
    test.ExpectError(grad + ".C5");
  }
  const auto second = [](Ints dim, const Shape& dout, const Shape& ddx, const std::string& id) {
    Over("reduce_prod_grad_grad", std::move(dim))
        .RandomInput("X", {2, 2})
        .RandomInput("DOut", dout)
        .RandomInput("DDX", ddx)
        .ExpectError("reduce_prod_grad_grad." + id);
  };
  second({2}, {2}, {2, 2}, "C1");
  second({0, 0}, {2}, {2, 2}, "C2");
  second({0}, {3}, {2, 2}, "C4");
  second({0}, {2}, {2, 3}, "C6");
  Over("reduce_prod_grad_grad", {0})
      .RandomInput("X", {2})
      .RandomInput("DDX", {2})
      .IntInput("DOut", {1}, {1})
      .ExpectError("reduce_prod_grad_grad.C5");
  for (const char* name : {"reduce_any", "reduce_all"}) {
    const std::string type = name;
    const Tensor x = Tensor::Zeros(DType::kBool, {2, 2});
    Over(type, {2}).TensorInput("X", x).ExpectError(type + ".C1");
    Over(type, {1, 1}).TensorInput("X", x).ExpectError(type + ".C2");
    Over(type, {0}).Attr("out_dtype", 99).TensorInput("X", x).ExpectError(type + ".C3");
  }
}

TEST(FrobeniusNorm, Values) {
  const std::vector<double> x = {3, 4, 0, -5};
  Over("frobenius_norm", {1}).Input("X", {2, 2}, x).Expect("Out", {2}, {5, 5});
  Over("frobenius_norm", {0, 1}).Input("X", {2, 2}, x).Expect("Out", {1}, {std::sqrt(50)});
  Over("frobenius_norm", {0}, true).Input("X", {2, 2}, x).Expect("Out", {1, 2}, {3, std::sqrt(41)});
  Over("frobenius_norm", {0}).Attr("reduce_all", true).Input("X", {}, {-2}).Expect("Out", {1}, {2});
  Over("frobenius_norm", {1}).Input("X", {2, 0}, {}).Expect("Out", {2}, {0, 0});
}

TEST(FrobeniusNorm, Gradients) {
  for (const Ints& dim : {Ints{0}, Ints{1}, Ints{0, 2}, Ints{}}) {
    for (bool keep : {false, true}) {
      OpTest test = Over("frobenius_norm", dim, keep);
      test.RandomInput("X", {2, 3, 2}).CheckGradient({"X"});
    }
  }
  Over("frobenius_norm", {0}).RandomInput("X", {}).CheckGradient({"X"});
  Over("frobenius_norm", {1}).RandomInput("X", {2, 3}).CheckHigherGradients();
}

TEST(FrobeniusNorm, Constraints) {
  Over("frobenius_norm", {2}).RandomInput("X", {2, 2}).ExpectError("frobenius_norm.C1");
  Over("frobenius_norm", {1, 1}).RandomInput("X", {2, 2}).ExpectError("frobenius_norm.C2");
  Over("frobenius_norm", {0})
      .Attr("out_dtype", 99)
      .RandomInput("X", {2, 2})
      .ExpectError("frobenius_norm.C3");
}

TEST(ReduceGrad, GradientWithoutDims) {
  for (const Shape& shape : {Shape{}, Shape{1}}) {
    OpTest("reduce_sum_grad")
        .Attr("reduce_all", true)
        .RandomInput("X", {1, 2})
        .Input("Out@GRAD", shape, {3})
        .Expect("X@GRAD", {1, 2}, {3, 3});
    OpTest("reduce_max_grad")
        .Attr("reduce_all", true)
        .Input("X", {1, 2}, {1, 2})
        .Input("Out", shape, {2})
        .Input("Out@GRAD", shape, {3})
        .Expect("X@GRAD", {1, 2}, {0, 3});
  }
}

TEST(Reduce, UInt64) {
  const uint64_t big = uint64_t{1} << 63;
  const auto reduced = [&](const char* type) {
    OpTest op(type);
    op.TensorInput("X", Tensor::Of<uint64_t>({3}, {big, 3, big + 2})).Attr("reduce_all", true);
    return op.Output("Out").Item<uint64_t>();
  };
  EXPECT_EQ(reduced("reduce_sum"), 5u);
  EXPECT_EQ(reduced("reduce_prod"), 0u);
  EXPECT_EQ(reduced("reduce_max"), big + 2);
  EXPECT_EQ(reduced("reduce_min"), 3u);
  EXPECT_THROW(reduced("reduce_mean"), Error);
}

}  // namespace coracle::reduce_test

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>

namespace coracle::transpose_test {

using Ints = std::vector<int32_t>;

// Element by element, by the definition.
Tensor Expected(const Tensor& x, const Ints& axes) {
  const int rank = x.shape().rank();
  Shape shape;
  for (int32_t axis : axes) shape.Append(x.shape()[axis]);
  Tensor out(x.dtype(), shape);
  const size_t size = SizeOf(x.dtype());
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t index[9], rest = i, to = 0;
    for (int d = rank - 1; d >= 0; --d) {
      index[d] = rest % x.shape()[d];
      rest /= x.shape()[d];
    }
    for (int d = 0; d < rank; ++d) to = to * shape[d] + index[axes[static_cast<size_t>(d)]];
    std::copy_n(static_cast<const char*>(x.raw()) + i * static_cast<int64_t>(size), size,
                static_cast<char*>(out.raw()) + to * static_cast<int64_t>(size));
  }
  return out;
}

Tensor Count(DType dtype, const Shape& shape) {
  Tensor x(DType::kInt64, shape);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<int64_t>()[i] = i % 120;
  return x.Cast(dtype);
}

TEST(Transpose, Values) {
  for (const char* type : {"transpose", "transpose2"}) {
    OpTest(type)
        .Attr("axis", Ints{1, 0})
        .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
        .Expect("Out", {3, 2}, {1, 4, 2, 5, 3, 6})
        .CheckGradient({"X"})
        .CheckSecondGradient({"X"});
    OpTest(type).Attr("axis", Ints{}).Input("X", {}, {3}).Expect("Out", {}, {3});
    OpTest(type).Attr("axis", Ints{1, 0}).Input("X", {0, 3}, {}).Expect("Out", {3, 0}, {});
    OpTest(type)
        .Attr("axis", Ints{2, 0, 1})
        .RandomInput("X", {2, 3, 4})
        .CheckGradient({"X"})
        .CheckSecondGradient({"X"});
  }
}

TEST(Transpose, EveryElementSizeAndTile) {
  const std::vector<std::pair<Shape, Ints>> cases = {{{5, 7}, {1, 0}},
                                                     {{33, 70}, {1, 0}},
                                                     {{2, 3, 17, 19}, {0, 2, 3, 1}},
                                                     {{2, 9, 11, 40}, {0, 3, 1, 2}},
                                                     {{3, 4, 5}, {2, 1, 0}},
                                                     {{3, 4, 5}, {1, 0, 2}},
                                                     {{2, 1, 6}, {1, 2, 0}},
                                                     {{2, 3, 2, 3, 2}, {4, 2, 0, 3, 1}},
                                                     {{1, 130, 1, 65}, {3, 2, 1, 0}}};
  for (const auto& [shape, axes] : cases) {
    for (DType dtype : {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kInt64}) {
      Tensor x = Count(dtype, shape);
      Tensor out = OpTest("transpose2").Attr("axis", axes).TensorInput("X", x).Output("Out");
      EXPECT_TRUE(BitEqual(Expected(x, axes), out)) << shape.ToString() << ToString(dtype);
    }
  }
}

TEST(Transpose, Threads) {
  const int before = NumThreads();
  SetNumThreads(3);
  for (const auto& axes : {Ints{0, 2, 3, 1}, Ints{1, 0, 2, 3}, Ints{3, 2, 1, 0}}) {
    Tensor x = Count(DType::kFloat32, {4, 30, 61, 63});
    Tensor out = OpTest("transpose2").Attr("axis", axes).TensorInput("X", x).Output("Out");
    EXPECT_TRUE(BitEqual(Expected(x, axes), out));
  }
  SetNumThreads(before);
}

TEST(Transpose, UnknownDimensions) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetShape({-1, 3});
  block.Var("out");
  AttrList attrs = {{"axis", Ints{1, 0}}};
  InferOp(block, block.AppendOp("transpose", {{"X", {"x"}}}, {{"Out", {"out"}}}, attrs),
          DefaultOps());
  EXPECT_EQ("[3, -1]", block.FindVarRecursive("out")->shape().ToString());
}

TEST(Transpose, C1_NoPermutation) {
  for (const char* type : {"transpose", "transpose2"}) {
    const std::string name = type;
    for (const Ints& axes : {Ints{0}, Ints{0, 0}, Ints{0, 2}, Ints{-1, 0}}) {
      OpTest(type).Attr("axis", axes).Input("X", {1, 1}, {1}).ExpectError(name + ".C1");
      OpTest(name + "_grad")
          .Attr("axis", axes)
          .Input("Out@GRAD", {1, 1}, {1})
          .ExpectError(name + "_grad.C1");
    }
  }
}

}  // namespace coracle::transpose_test

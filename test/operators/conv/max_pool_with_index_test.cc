#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

#include <algorithm>

namespace coracle::max_pool_with_index_test {

using Ints = std::vector<int32_t>;

OpTest Pool(const std::string& type, const Ints& ksize) {
  OpTest test(type);
  test.Attr("ksize", ksize);
  return test;
}

// Distinct values.
std::vector<double> Distinct(int64_t n) {
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) * 0.1 - 2;
  std::shuffle(values.begin(), values.end(), std::mt19937(3));
  return values;
}

OpTest Unpool(const std::vector<int64_t>& indices) {
  OpTest test("unpool");
  test.Attr("ksize", Ints{2, 2})
      .Attr("strides", Ints{2, 2})
      .Attr("unpooling_type", std::string("max"));
  test.Input("X", {1, 2, 1, 2}, {5, 6, 7, 8}).IntInput("Indices", {1, 2, 1, 2}, indices);
  return test;
}

TEST(MaxPoolWithIndex, Images) {
  // The first of equal elements wins; padding is not an element.
  Pool("max_pool2d_with_index", {2, 2})
      .Attr("strides", Ints{2, 2})
      .Input("X", {1, 2, 2, 4}, {1, 5, -3, -3, 5, 0, -3, -4, 0, 0, 9, 1, 0, 0, 2, 9})
      .Expect("Out", {1, 2, 1, 2}, {5, -3, 0, 9})
      .Expect("Mask", {1, 2, 1, 2}, {1, 2, 0, 2})
      .ExpectDType("Mask", DType::kInt32);
  Pool("max_pool2d_with_index", {1, 2})
      .Attr("paddings", Ints{0, 1})
      .Input("X", {1, 1, 1, 2}, {-5, -7})
      .Expect("Out", {1, 1, 1, 3}, {-5, -5, -7})
      .Expect("Mask", {1, 1, 1, 3}, {0, 0, 1});
  Pool("max_pool2d_with_index", {1, 3})
      .Attr("adaptive", true)
      .Input("X", {1, 1, 1, 5}, {1, 2, 3, 4, 5})
      .Expect("Out", {1, 1, 1, 3}, {2, 4, 5})
      .Expect("Mask", {1, 1, 1, 3}, {1, 3, 4});
  Pool("max_pool2d_with_index", {7, 7})
      .Attr("global_pooling", true)
      .Input("X", {1, 1, 2, 2}, {1, 2, 3, 0})
      .Expect("Out", {1, 1, 1, 1}, {3})
      .Expect("Mask", {1, 1, 1, 1}, {2});
  // The whole channel as the size of an adaptive result.
  Pool("max_pool2d_with_index", {7, 7})
      .Attr("global_pooling", true)
      .Attr("adaptive", true)
      .Input("X", {1, 1, 2, 2}, {1, 2, 3, 0})
      .Expect("Out", {1, 1, 2, 2}, {1, 2, 3, 0})
      .Expect("Mask", {1, 1, 2, 2}, {0, 1, 2, 3});
  Pool("max_pool2d_with_index", {1, 1})
      .Input("X", {0, 1, 2, 2}, {})
      .Expect("Out", {0, 1, 2, 2}, {});
}

TEST(MaxPoolWithIndex, Volumes) {
  Pool("max_pool3d_with_index", {2, 1, 2})
      .Input("X", {1, 1, 2, 2, 2}, {1, 8, -3, 4, 5, 0, 7, -2})
      .Expect("Out", {1, 1, 1, 2, 1}, {8, 7})
      .Expect("Mask", {1, 1, 1, 2, 1}, {1, 6});
}

TEST(MaxPoolWithIndex, Gradients) {
  OpTest images = Pool("max_pool2d_with_index", {3, 2});
  images.Attr("paddings", Ints{1, 1})
      .Attr("strides", Ints{2, 1})
      .Input("X", {2, 2, 4, 3}, Distinct(48));
  images.CheckGradient({"X"}).CheckHigherGradients();
  OpTest volumes = Pool("max_pool3d_with_index", {2, 2, 2});
  volumes.Attr("paddings", Ints{1, 0, 1}).Input("X", {1, 2, 2, 3, 2}, Distinct(24));
  volumes.CheckGradient({"X"}).CheckHigherGradients();
}

TEST(MaxPoolWithIndex, Constraints) {
  for (const std::string type : {"max_pool2d_with_index", "max_pool3d_with_index"}) {
    const bool volumes = type == "max_pool3d_with_index";
    const Ints ones = volumes ? Ints{1, 1, 1} : Ints{1, 1};
    const Ints twos = volumes ? Ints{2, 2, 2} : Ints{2, 2};
    const auto op = [&](const Ints& ksize) {
      return std::move(
          Pool(type, ksize).RandomInput("X", volumes ? Shape{1, 1, 2, 2, 2} : Shape{1, 1, 2, 2}));
    };
    Pool(type, ones).RandomInput("X", {2, 2}).ExpectError(type + ".C1");
    op({1}).ExpectError(type + ".C2");
    op(ones).Attr("strides", Ints{1, 0}).ExpectError(type + ".C2");
    op(ones).Attr("paddings", Ints{-1, 0}).ExpectError(type + ".C2");
    op(ones).Attr("paddings", ones).ExpectError(type + ".C3");
    op(volumes ? Ints{3, 1, 1} : Ints{3, 1}).ExpectError(type + ".C4");
    // Padding alone would make windows without any element.
    Pool(type, volumes ? Ints{2, 1, 1} : Ints{2, 1})
        .Attr("paddings", volumes ? Ints{1, 0, 0} : Ints{1, 0})
        .RandomInput("X", volumes ? Shape{1, 1, 0, 2, 2} : Shape{1, 1, 0, 2})
        .ExpectError(type + ".C4");
    ExpectRefused(
        type,
        {{"X",
          {VarType::kLoDTensor, DType::kFloat32,
           volumes ? Shape{1, 1, 1, 1 << 16, 1 << 16} : Shape{1, 1, 1 << 16, 1 << 16}, 0}}},
        {{"ksize", twos}, {"adaptive", true}}, type + ".C5");
  }
}

TEST(Unpool, Values) {
  Unpool({3, 4, 0, 7})
      .Expect("Out", {1, 2, 2, 4}, {0, 0, 0, 5, 6, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 8})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  Unpool({3, 3, 1, 0})
      .Expect("Out", {1, 2, 2, 4}, {0, 0, 0, 6, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  Unpool({3, 8, 1, 0}).ExpectError("unpool: Indices holds 8 at 1, outside [0, 8)");
}

// Paddle's programs name Out.
TEST(Unpool, GradientWithOut) {
  OpTest("unpool_grad")
      .Attr("ksize", Ints{1, 2})
      .Attr("unpooling_type", std::string("max"))
      .RandomInput("X", {1, 1, 1, 1})
      .IntInput("Indices", {1, 1, 1, 1}, {1})
      .RandomInput("Out", {1, 1, 1, 2})
      .Input("Out@GRAD", {1, 1, 1, 2}, {3, 5})
      .Expect("X@GRAD", {1, 1, 1, 1}, {5});
}

TEST(Unpool, Constraints) {
  Unpool({0, 0, 0, 0}).Attr("paddings", Ints{1, -1}).ExpectError("unpool.C3");
  Unpool({0, 0, 0, 0}).Attr("paddings", Ints{1, 1}).ExpectError("unpool.C4");
  const auto op = [](const Shape& x) {
    return std::move(OpTest("unpool")
                         .Attr("ksize", Ints{2, 2})
                         .Attr("unpooling_type", std::string("max"))
                         .RandomInput("X", x));
  };
  op({1, 1, 2, 2}).IntInput("Indices", {1, 1}, {0}).ExpectError("unpool.C1");
  op({1, 1, 1, 1})
      .IntInput("Indices", {1, 1, 1, 1}, {0})
      .Attr("strides", Ints{0, 1})
      .ExpectError("unpool.C3");
  op({1, 1, 1, 1}).RandomInput("Indices", {1, 1, 1, 1}).ExpectError("unpool.C2");
  OpTest("unpool_grad")
      .Attr("ksize", Ints{2, 2})
      .RandomInput("X", {1, 1, 1, 1})
      .IntInput("Indices", {1, 1, 1, 1}, {0})
      .RandomInput("Out@GRAD", {1, 1, 3, 2})
      .ExpectError("unpool_grad.C5");
}

}  // namespace coracle::max_pool_with_index_test

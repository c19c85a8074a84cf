#include <coracle/test/op_test.h>

namespace coracle::affine_channel_test {

OpTest Affine(const std::string& layout) {
  OpTest test("affine_channel");
  test.Attr("data_layout", layout);
  return test;
}

TEST(AffineChannel, Values) {
  Affine("AnyLayout")
      .Input("X", {1, 2, 1, 2}, {1, 2, 3, 4})
      .Input("Scale", {2}, {10, 100})
      .Input("Bias", {2}, {0.5, -1})
      .Expect("Out", {1, 2, 1, 2}, {10.5, 20.5, 299, 399});
  Affine("NHWC")
      .Input("X", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Input("Scale", {2}, {10, 100})
      .Input("Bias", {2}, {0.5, -1})
      .Expect("Out", {1, 1, 2, 2}, {10.5, 199, 30.5, 399});
  Affine("NCHW")
      .Input("X", {0, 1, 2, 2}, {})
      .Input("Scale", {1}, {1})
      .Input("Bias", {1}, {1})
      .Expect("Out", {0, 1, 2, 2}, {});
}

TEST(AffineChannel, Gradients) {
  for (const std::string layout : {"NCHW", "NHWC"}) {
    for (const Shape& x : {layout == "NCHW" ? Shape{2, 3, 4, 5} : Shape{2, 4, 5, 3}, Shape{4, 3}}) {
      OpTest test = Affine(layout);
      test.RandomInput("X", x).RandomInput("Scale", {3}).RandomInput("Bias", {3});
      test.CheckGradient({"X", "Scale", "Bias"}).CheckFast();
    }
  }
  Affine("NCHW")
      .RandomInput("X", {1, 2, 1, 2})
      .RandomInput("Scale", {2})
      .RandomInput("Bias", {2})
      .CheckHigherGradients();
}

TEST(AffineChannel, Constraints) {
  const auto op = [](const Shape& x, const Shape& scale) {
    return std::move(Affine("NCHW").RandomInput("X", x).RandomInput("Scale", scale));
  };
  op({1, 2, 3}, {2}).RandomInput("Bias", {2}).ExpectError("affine_channel.C1");
  op({1, 2}, {3}).RandomInput("Bias", {2}).ExpectError("affine_channel.C2");
  op({1, 2}, {2})
      .TensorInput("Bias", Tensor::Zeros(DType::kFloat16, {2}))
      .ExpectError("affine_channel.C3");
}

}  // namespace coracle::affine_channel_test

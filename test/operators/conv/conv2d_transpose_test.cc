#include <coracle/test/op_test.h>

#include <array>

namespace coracle::conv2d_transpose_test {

using Ints = std::vector<int32_t>;

TEST(Conv2dTranspose, Values) {
  // Each element of Input times the filter, windows two apart.
  OpTest("conv2d_transpose")
      .Attr("strides", Ints{2, 2})
      .Input("Input", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Input("Filter", {1, 1, 2, 2}, {1, 10, 100, 1000})
      .Expect("Output", {1, 1, 4, 4},
              {1, 10, 2, 20, 100, 1000, 200, 2000, 3, 30, 4, 40, 300, 3000, 400, 4000});
  // Overlapping windows along depth; one slice is cut off before, and one place is added after.
  OpTest("conv2d_transpose")
      .Attr("paddings", Ints{1, 1})
      .Input("Input", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Input("Filter", {1, 1, 3, 3}, {1, 1, 1, 1, 1, 1, 1, 1, 1})
      .Expect("Output", {1, 1, 2, 2}, {10, 10, 10, 10});
  OpTest("conv2d_transpose")
      .Input("Input", {1, 1, 1, 1}, {3})
      .Input("Filter", {1, 2, 1, 1}, {1, 2})
      .Input("Bias", {2}, {10, 20})
      .Expect("Output", {1, 2, 1, 1}, {13, 26});
}

TEST(Conv2dTranspose, ExtraSize) {
  OpTest("conv2d_transpose")
      .Attr("strides", Ints{2, 2})
      .Attr("output_padding", Ints{1, 0})
      .Input("Input", {1, 1, 1, 1}, {3})
      .Input("Filter", {1, 1, 1, 2}, {1, 2})
      .Expect("Output", {1, 1, 2, 2}, {3, 6, 0, 0});
  OpTest("conv2d_transpose")
      .Attr("strides", Ints{2, 2})
      .Attr("output_size", Ints{1, 3})
      .Input("Input", {1, 1, 1, 1}, {3})
      .Input("Filter", {1, 1, 1, 2}, {1, 2})
      .Expect("Output", {1, 1, 1, 3}, {3, 6, 0});
}

TEST(Conv2dTranspose, GradientsAndFastKernel) {
  for (const char* format : {"NCHW", "NHWC"}) {
    for (int groups : {1, 2}) {
      const Ints pads = groups == 1 ? Ints{1, 0} : Ints{0, 1, 1, 0};
      OpTest("conv2d_transpose")
          .Attr("strides", Ints{2, 1})
          .Attr("paddings", pads)
          .Attr("dilations", Ints{1, 2})
          .Attr("groups", groups)
          .Attr("output_padding", Ints{1, 0})
          .Attr("data_format", std::string(format))
          .RandomInput("Input", format[1] == 'C' ? Shape{2, 4, 3, 5} : Shape{2, 3, 5, 4})
          .RandomInput("Filter", {4, 3, 3, 2})
          .CheckGradient({"Input", "Filter"})
          .CheckFast();
    }
  }
  OpTest("conv2d_transpose")
      .Attr("padding_algorithm", std::string("SAME"))
      .Attr("strides", Ints{2, 2})
      .RandomInput("Input", {1, 2, 5, 4})
      .RandomInput("Filter", {2, 2, 3, 3})
      .RandomInput("Bias", {2})
      .CheckGradient({"Input", "Filter", "Bias"})
      .CheckFast();
  OpTest("depthwise_conv2d_transpose")
      .Attr("groups", 8)
      .Attr("strides", Ints{2, 2})
      .RandomInput("Input", {1, 8, 5, 4})
      .RandomInput("Filter", {8, 1, 2, 2})
      .CheckGradient({"Input", "Filter"})
      .CheckFast();
}

// The activation follows the bias.
TEST(Conv2dTranspose, Activation) {
  for (const char* format : {"NCHW", "NHWC"}) {
    OpTest("conv2d_transpose")
        .Attr("data_format", std::string(format))
        .Attr("fuse_activation", std::string("relu6"))
        .Attr("fuse_alpha", 5.0f)
        .Input("Input", {1, 1, 1, 1}, {3})
        .Input("Filter", {1, 3, 1, 1}, {1, 2, -1})
        .Input("Bias", {3}, {1, 2, 2})
        .Expect("Output", format[1] == 'C' ? Shape{1, 3, 1, 1} : Shape{1, 1, 1, 3}, {4, 5, 0});
    for (const char* name : {"sigmoid", "hard_swish", "tanh"}) {
      OpTest("conv2d_transpose")
          .Attr("data_format", std::string(format))
          .Attr("fuse_activation", std::string(name))
          .Attr("strides", Ints{2, 2})
          .RandomInput("Input", {2, 3, 4, 3})
          .RandomInput("Filter", {3, 5, 2, 3})
          .RandomInput("Bias", {5})
          .CheckGradient({"Input", "Filter"})
          .CheckFast();
    }
  }
}

// Windows that lie side by side.
TEST(Conv2dTranspose, UpsamplingFastAgainstReference) {
  for (const char* name : {"", "relu", "sigmoid"}) {
    for (const auto& [kh, kw, in, out] :
         {std::array<int32_t, 4>{2, 2, 24, 24}, {2, 2, 24, 1}, {1, 3, 5, 17}, {3, 1, 1, 40}}) {
      for (const bool bias : {false, true}) {
        OpTest test("conv2d_transpose");
        test.Attr("data_format", std::string("NHWC")).Attr("strides", Ints{kh, kw});
        test.Attr("fuse_activation", std::string(name));
        test.RandomInput("Input", {2, 5, 19, in}).RandomInput("Filter", {in, out, kh, kw});
        if (bias) test.RandomInput("Bias", {out});
        test.CheckFast(2e-5);
      }
    }
  }
}

TEST(Conv2dTranspose, EmptyBatch) {
  OpTest("conv2d_transpose")
      .Input("Input", {0, 1, 2, 2}, {})
      .Input("Filter", {1, 1, 1, 1}, {1})
      .Expect("Output", {0, 1, 2, 2}, {});
}

TEST(Conv2dTranspose, Constraints) {
  for (const std::string type : {"conv2d_transpose", "depthwise_conv2d_transpose"}) {
    auto op = [&] {
      OpTest test(type);
      test.Input("Input", {1, 2, 2, 2}, std::vector<double>(8, 1));
      test.Input("Filter", {2, 1, 2, 2}, std::vector<double>(8, 1));
      return test;
    };
    OpTest(type)
        .Input("Input", {1, 1}, {1})
        .Input("Filter", {1, 1, 1, 1}, {1})
        .ExpectError(type + ".C1");
    OpTest(type)
        .Input("Input", {1, 1, 1, 1}, {1})
        .Input("Filter", {1, 1}, {1})
        .ExpectError(type + ".C2");
    op().Attr("strides", Ints{0, 1}).ExpectError(type + ".C3");
    op().Attr("paddings", Ints{-1, 1}).ExpectError(type + ".C3");
    op().Attr("dilations", Ints{1}).ExpectError(type + ".C3");
    op().Attr("groups", 0).ExpectError(type + ".C4");
    op().Attr("groups", 3).ExpectError(type + ".C4");
    op().Attr("output_size", Ints{1}).ExpectError(type + ".C5");
    op().Attr("output_size", Ints{4, 3}).ExpectError(type + ".C6");
    op().Attr("output_padding", Ints{1, 0}).ExpectError(type + ".C6");
    op().Attr("paddings", Ints{2, 2}).ExpectError(type + ".C7");
    OpTest(type)
        .Input("Input", {1, 1, 1, 1}, {1})
        .IntInput("Filter", {1, 1, 1, 1}, {1})
        .ExpectError(type + ".C8");
    op().Input("Bias", {2}, {1, 2}).ExpectError(type + ".C9");
  }
}

// Volumes [2, 2, 1] are spread by stride {2, 1, 3} over kernels {2, 1, 2}: no windows overlap along
// depth and width.
TEST(Conv3dTranspose, Values) {
  OpTest("conv3d_transpose")
      .Attr("strides", Ints{2, 1, 3})
      .Input("Input", {1, 1, 2, 2, 1}, {1, 2, 3, 4})
      .Input("Filter", {1, 1, 2, 1, 2}, {1, 10, 100, 1000})
      .Input("Bias", {1}, {0.5})
      .Expect("Output", {1, 1, 4, 2, 2},
              {1.5, 10.5, 2.5, 20.5, 100.5, 1000.5, 200.5, 2000.5, 3.5, 30.5, 4.5, 40.5, 300.5,
               3000.5, 400.5, 4000.5});
  // Overlapping windows along depth; one slice is cut off before, one place is added behind.
  OpTest("conv3d_transpose")
      .Attr("paddings", Ints{1, 0, 0, 0, 0, 0})
      .Attr("strides", Ints{1, 1, 2})
      .Attr("output_padding", Ints{0, 0, 1})
      .Attr("data_format", std::string("NHWC"))
      .Input("Input", {1, 2, 1, 1, 1}, {1, 2})
      .Input("Filter", {1, 1, 2, 1, 1}, {3, 5})
      .Expect("Output", {1, 2, 1, 2, 1}, {1 * 5 + 2 * 3, 0, 2 * 5, 0});
  OpTest("conv3d_transpose")
      .Input("Input", {0, 1, 1, 2, 2}, {})
      .Input("Filter", {1, 1, 1, 1, 1}, {1})
      .Expect("Output", {0, 1, 1, 2, 2}, {});
}

TEST(Conv3dTranspose, GradientsAndFastKernel) {
  for (const std::string format : {"NCDHW", "NDHWC", "NHWC"}) {
    for (const int64_t groups : {1, 2}) {
      OpTest test("conv3d_transpose");
      test.Attr("data_format", format)
          .Attr("groups", static_cast<int32_t>(groups))
          .Attr("strides", Ints{1, 2, 1})
          .Attr("paddings", Ints{1, 0, 1})
          .Attr("dilations", Ints{2, 1, 1})
          .Attr("output_size", groups == 1 ? Ints{2, 7, 4} : Ints{})
          .RandomInput("Input", format == "NCDHW" ? Shape{2, 4, 2, 3, 4} : Shape{2, 2, 3, 4, 4})
          .RandomInput("Filter", {4, 3, 2, 2, 3})
          .RandomInput("Bias", {3 * groups});
      test.CheckGradient({"Input", "Filter", "Bias"}).CheckFast();
    }
  }
  OpTest("conv3d_transpose")
      .RandomInput("Input", {1, 2, 2, 2, 1})
      .RandomInput("Filter", {2, 1, 1, 2, 2})
      .CheckHigherGradients();
}

TEST(Conv3dTranspose, Constraints) {
  const std::string type = "conv3d_transpose";
  const auto conv = [&](const Shape& input, const Shape& filter) {
    return std::move(OpTest(type).RandomInput("Input", input).RandomInput("Filter", filter));
  };
  const auto op = [&] { return conv({1, 2, 2, 2, 2}, {2, 1, 2, 2, 2}); };
  conv({1, 2, 2, 2}, {2, 1, 2, 2, 2}).ExpectError(type + ".C1");
  conv({1, 2, 2, 2, 2}, {2, 1, 2, 2}).ExpectError(type + ".C2");
  op().Attr("strides", Ints{1, 1}).ExpectError(type + ".C3");
  op().Attr("paddings", Ints{1, 1, 1, 1}).ExpectError(type + ".C3");
  op().Attr("groups", 3).ExpectError(type + ".C4");
  op().Attr("output_size", Ints{1, 1}).ExpectError(type + ".C5");
  op().Attr("output_padding", Ints{0, 1, 0}).ExpectError(type + ".C6");
  op().Attr("paddings", Ints{2, 0, 0}).ExpectError(type + ".C7");
  conv({1, 1, 1, 1, 1}, {1, 1, 1, 1, 1})
      .TensorInput("Bias", Tensor::Zeros(DType::kFloat16, {1}))
      .ExpectError(type + ".C8");
  op().Input("Bias", {2}, {1, 2}).ExpectError(type + ".C9");
}

}  // namespace coracle::conv2d_transpose_test

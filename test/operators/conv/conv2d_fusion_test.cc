#include <coracle/test/op_test.h>

namespace coracle::conv2d_fusion_test {

// Two filters of one element on an image of 1 x 4: x and -2 x + 1, plus what is added.
OpTest Fusion(const std::string& activation) {
  return std::move(OpTest("conv2d_fusion")
                       .Attr("activation", activation)
                       .Input("Input", {1, 1, 1, 4}, {-3, -0.5, 1, 7})
                       .Input("Filter", {2, 1, 1, 1}, {1, -2})
                       .Input("Bias", {2}, {0, 1})
                       .Outputs("Outputs", 0));
}

TEST(Conv2dFusion, Activations) {
  const std::vector<double> sums = {-3, -0.5, 1, 7, 7, 2, -1, -13};
  const auto with = [&](const std::string& activation, double (*f)(double)) {
    SCOPED_TRACE(activation);
    std::vector<double> values;
    for (double x : sums) values.push_back(f(x));
    Fusion(activation).Expect("Output", {1, 2, 1, 4}, values);
  };
  with("identity", [](double x) { return x; });
  with("relu", [](double x) { return std::max(x, 0.0); });
  with("relu6", [](double x) { return std::min(std::max(x, 0.0), 6.0); });
  with("sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); });
  with("tanh", [](double x) { return std::tanh(x); });
}

TEST(Conv2dFusion, ResidualDataAndParts) {
  OpTest("conv2d_fusion")
      .Attr("split_channels", std::vector<int32_t>{1, 2})
      .Input("Input", {2, 1, 1, 2}, {1, 2, 3, 4})
      .Input("Filter", {3, 1, 1, 1}, {1, 10, -1})
      .Input("ResidualData", {2, 3, 1, 2}, {0, 0, 0, 0, 0, 3, 0, 0, 1, 1, 0, 0})
      .Outputs("Outputs", 2)
      .Expect("Output", {2, 3, 1, 2}, {1, 2, 10, 20, 0, 1, 3, 4, 31, 41, 0, 0})
      .Expect("Outputs", {2, 1, 1, 2}, {1, 2, 3, 4}, 1e-5, 0)
      .Expect("Outputs", {2, 2, 1, 2}, {10, 20, 0, 1, 31, 41, 0, 0}, 1e-5, 1);
}

TEST(Conv2dFusion, Gradients) {
  for (const char* activation : {"identity", "tanh"}) {
    OpTest("conv2d_fusion")
        .Attr("activation", std::string(activation))
        .Attr("split_channels", std::vector<int32_t>{1, 2})
        .Attr("paddings", std::vector<int32_t>{1, 1})
        .RandomInput("Input", {2, 2, 3, 3})
        .RandomInput("Filter", {3, 2, 3, 3})
        .RandomInput("Bias", {3})
        .RandomInput("ResidualData", {2, 3, 3, 3})
        .Outputs("Outputs", 2)
        .CheckGradient({"Input", "Filter", "Bias", "ResidualData"});
  }
}

TEST(Conv2dFusion, LastChannels) {
  OpTest("conv2d_fusion")
      .Attr("data_format", std::string("NHWC"))
      .Attr("split_channels", std::vector<int32_t>{1, 1})
      .Input("Input", {1, 1, 2, 1}, {1, 2})
      .Input("Filter", {2, 1, 1, 1}, {1, 10})
      .Outputs("Outputs", 2)
      .Expect("Output", {1, 1, 2, 2}, {1, 10, 2, 20})
      .Expect("Outputs", {1, 1, 2, 1}, {1, 2}, 1e-5, 0)
      .Expect("Outputs", {1, 1, 2, 1}, {10, 20}, 1e-5, 1);
}

TEST(Conv2dFusion, Constraints) {
  Fusion("relu").Outputs("Outputs", 1).ExpectError("conv2d_fusion.C11");
  Fusion("relu")
      .Attr("split_channels", std::vector<int32_t>{1, 2})
      .Outputs("Outputs", 2)
      .ExpectError("conv2d_fusion.C11");
  Fusion("relu")
      .Attr("split_channels", std::vector<int32_t>{2, 0})
      .Outputs("Outputs", 2)
      .ExpectError("conv2d_fusion.C11");
}
}  // namespace coracle::conv2d_fusion_test

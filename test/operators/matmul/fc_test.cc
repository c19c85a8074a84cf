#include <coracle/backward/backward.h>

#include "../../op_test.h"

namespace coracle {
namespace {

OpTest Repeated(const Shape& x, const std::vector<Shape>& weights) {
  OpTest test("fusion_repeated_fc_relu");
  test.RandomInput("X", x);
  for (const Shape& w : weights) test.RandomInput("W", w).RandomInput("Bias", {w[1]});
  test.Outputs("ReluOut", static_cast<int>(weights.size()) - 1);
  return test;
}

}  // namespace

TEST(Fc, Values) {
  OpTest("fc")
      .Input("Input", {2, 2}, {1, 2, 3, -4})
      .Input("W", {2, 2}, {1, 10, 100, 1000})
      .Input("Bias", {1, 2}, {0.5, -1})
      .Expect("Out", {2, 2}, {201.5, 2009, -396.5, -3971});
  OpTest("fc")
      .Attr("activation_type", std::string("relu"))
      .Input("Input", {2, 1, 2}, {1, 2, 3, -4})
      .Input("W", {2, 1}, {1, 100})
      .Expect("Out", {2, 1}, {201, 0});
  OpTest("fc")
      .Attr("in_num_col_dims", 2)
      .Input("Input", {1, 2, 2}, {1, 2, 3, -4})
      .Input("W", {2, 1}, {1, 100})
      .Input("Bias", {1}, {1})
      .Expect("Out", {1, 2, 1}, {202, -396});
  // Rows and columns at the end of W do not count.
  std::vector<double> w(30, 7);
  w[0] = 1;
  w[5] = 100;
  OpTest("fc")
      .Attr("padding_weights", true)
      .Input("Input", {1, 2}, {1, 2})
      .Input("W", {6, 5}, w)
      .Expect("Out", {1, 1}, {201});
  OpTest("fc").Input("Input", {0, 2}, {}).RandomInput("W", {2, 3}).Expect("Out", {0, 3}, {});
}

// The padding is counted from the end of W, whose size only the run knows.
TEST(Fc, GradientOfPaddedWeightsOfUnknownSize) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetShape({1, 2});
  block.Var("w").SetShape({-1, -1});
  const Writer writer{block, DefaultOps()};
  const Variable out =
      writer.Make("fc", {{"Input", {"x"}}, {"W", {"w"}}}, {{"padding_weights", true}});
  const auto grads = Gradients({out}, {Variable::Of(block, "x"), Variable::Of(block, "w")});
  VarValues env;
  env["x"] = Tensor::Of<float>({1, 2}, {1, 2});
  Tensor w = Tensor::Zeros(DType::kFloat32, {6, 5});
  w.data<float>()[0] = 1;
  w.data<float>()[5] = 100;
  env["w"] = w;
  Interpret(block, DefaultOps(), env);
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at(grads.at(0))), Tensor::Of<float>({1, 2}, {1, 100})));
  Tensor dw = Tensor::Zeros(DType::kFloat32, {6, 5});
  dw.data<float>()[0] = 1;
  dw.data<float>()[5] = 2;
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at(grads.at(1))), dw));
}

TEST(Fc, Gradients) {
  for (const char* activation : {"", "relu"}) {
    for (const bool padded : {false, true}) {
      OpTest test("fc");
      test.Attr("activation_type", std::string(activation))
          .Attr("in_num_col_dims", 2)
          .Attr("padding_weights", padded)
          .RandomInput("Input", {2, 3, 4})
          .RandomInput("W", padded ? Shape{8, 9} : Shape{4, 5})
          .RandomInput("Bias", padded ? Shape{1, 5} : Shape{5});
      test.CheckGradient({"Input", "W", "Bias"}).CheckFast();
    }
  }
  OpTest("fc")
      .RandomInput("Input", {2, 3})
      .RandomInput("W", {3, 2})
      .RandomInput("Bias", {2})
      .CheckHigherGradients();
}

TEST(Fc, Constraints) {
  const auto op = [](const Shape& input, const Shape& w) {
    return std::move(OpTest("fc").RandomInput("Input", input).RandomInput("W", w));
  };
  op({2}, {2, 1}).ExpectError("fc.C1");
  op({2, 3}, {2, 1}).ExpectError("fc.C2");
  op({2, 3}, {7, 3}).Attr("padding_weights", true).ExpectError("fc.C2");
  op({2, 3}, {3, 2}).RandomInput("Bias", {2, 2}).ExpectError("fc.C3");
  op({2, 3}, {3, 2}).TensorInput("Bias", Tensor::Zeros(DType::kFloat16, {2})).ExpectError("fc.C4");
}

TEST(FusionRepeatedFcRelu, Values) {
  OpTest("fusion_repeated_fc_relu")
      .Input("X", {2, 1}, {1, -1})
      .Input("W", {1, 2}, {2, -3})
      .Input("Bias", {2}, {1, 1})
      .Input("W", {2, 1}, {1, 10})
      .Input("Bias", {1, 1}, {-5})
      .Expect("ReluOut", {2, 2}, {3, 0, 0, 4})
      .Expect("Out", {2, 1}, {0, 35});
  Repeated({5, 4}, {{4, 7}, {7, 3}, {3, 9}}).CheckFast();
  Repeated({5, 4}, {{4, 7}, {7, 3}}).NoOutput("ReluOut").CheckFast();
}

TEST(FusionRepeatedFcRelu, Constraints) {
  const std::string type = "fusion_repeated_fc_relu";
  Repeated({4}, {{4, 7}, {7, 3}}).ExpectError(type + ".C1");
  Repeated({1, 4}, {{4, 7}}).NoOutput("ReluOut").ExpectError(type + ".C2");
  Repeated({1, 4}, {{4, 7}, {7, 3}}).RandomInput("W", {3, 3}).ExpectError(type + ".C2");
  Repeated({1, 4}, {{4, 7}, {6, 3}}).ExpectError(type + ".C3");
  Repeated({1, 4}, {{4, 7}, {7, 3}})
      .RandomInput("W", {3, 2})
      .TensorInput("Bias", Tensor::Zeros(DType::kFloat16, {2}))
      .Outputs("ReluOut", 2)
      .ExpectError(type + ".C4");
}

}  // namespace coracle

#include <coracle/backward/backward.h>
#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <cmath>

namespace coracle::fc_test {

OpTest Repeated(const Shape& x, const std::vector<Shape>& weights) {
  OpTest test("fusion_repeated_fc_relu");
  test.RandomInput("X", x);
  for (const Shape& w : weights) test.RandomInput("W", w).RandomInput("Bias", {w[1]});
  test.Outputs("ReluOut", static_cast<int>(weights.size()) - 1);
  return test;
}

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

TEST(Fc, Activations) {
  struct Case {
    const char* name;
    double at_minus_1, at_2;
  };
  const auto normal = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2)); };
  const auto gelu_tanh = [](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const Case cases[] = {{"relu", 0, 2},
                        {"relu6", 0, 2},
                        {"sigmoid", sigmoid(-1), sigmoid(2)},
                        {"tanh", std::tanh(-1), std::tanh(2)},
                        {"gelu", -normal(-1), 2 * normal(2)},
                        {"gelu_tanh", gelu_tanh(-1), gelu_tanh(2)},
                        {"swish", -sigmoid(-1), 2 * sigmoid(2)},
                        {"hard_swish", -1 * 2 / 6.0, 2 * 5 / 6.0}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    OpTest("fc")
        .Attr("activation_type", std::string(c.name))
        .Input("Input", {1, 1}, {2})
        .Input("W", {1, 2}, {-1, 0.5})
        .Input("Bias", {2}, {1, 1})
        .Expect("Out", {1, 2}, {c.at_minus_1, c.at_2});
    OpTest test("fc");
    test.Attr("activation_type", std::string(c.name))
        .Attr("in_num_col_dims", -1)
        .RandomInput("Input", {2, 3, 5})
        .RandomInput("W", {5, 19})
        .RandomInput("Bias", {19})
        .CheckGradient({"Input", "W", "Bias"})
        .CheckFast(1e-5);
  }
  OpTest("fc")
      .Attr("activation_type", std::string("relu6"))
      .Input("Input", {1, 1}, {7})
      .Input("W", {1, 1}, {1})
      .Expect("Out", {1, 1}, {6});
}

TEST(Fc, FastAgainstReference) {
  for (const Shape& s : {Shape{1, 1, 1}, Shape{0, 3, 4}, Shape{2, 3, 0}, Shape{3, 0, 2},
                         Shape{1, 300, 70}, Shape{129, 65, 131}, Shape{300, 40, 200}}) {
    OpTest("fc")
        .Attr("activation_type", std::string("gelu"))
        .RandomInput("Input", {s[0], s[1]})
        .RandomInput("W", {s[1], s[2]})
        .RandomInput("Bias", {s[2]})
        .NoOutput("Z")
        .CheckFast();
  }
}

// So large that the products are finished in strips, and deeper than they are then.
TEST(Fc, LargeFastAgainstReference) {
  for (const int threads : {1, 2}) {
    const Threads set(threads);
    for (const Shape& s :
         {Shape{130, 5, 9001}, Shape{1100, 3, 1001}, Shape{700, 512, 800}, Shape{700, 513, 800}}) {
      OpTest("fc")
          .Attr("activation_type", std::string("tanh"))
          .RandomInput("Input", {s[0], s[1]})
          .RandomInput("W", {s[1], s[2]})
          .RandomInput("Bias", {s[2]})
          .CheckFast(1e-3);  // gradients are sums of up to 9001 products
    }
  }
}

TEST(FcGradients, Values) {
  // dZ = dOut; dInput = dZ W^T; dW = Input^T dZ.
  OpTest("fc_gradients")
      .Input("Input", {2, 2}, {1, 2, 3, 4})
      .Input("W", {2, 2}, {1, 10, 100, 1000})
      .Input("Out@GRAD", {2, 2}, {1, 2, 3, -1})
      .Expect("Input@GRAD", {2, 2}, {21, 2100, -7, -700})
      .Expect("W@GRAD", {2, 2}, {10, -1, 14, 0})
      .Expect("Bias@GRAD", {2}, {4, 1});
  // relu let only the first and the last of Out through.
  OpTest("fc_gradients")
      .Attr("activation_type", std::string("relu"))
      .Attr("in_num_col_dims", -1)
      .Input("Input", {1, 2, 2}, {1, 2, 3, 4})
      .Input("W", {2, 2}, {1, 10, 100, 1000})
      .Input("Out", {1, 2, 2}, {5, 0, 0, 6})
      .Input("Out@GRAD", {1, 2, 2}, {1, 2, 3, -1})
      .Expect("Input@GRAD", {1, 2, 2}, {1, 100, -10, -1000})
      .Expect("W@GRAD", {2, 2}, {1, -3, 2, -4})
      .Expect("Bias@GRAD", {2}, {1, -1})
      .Expect("Z@GRAD", {1, 2, 2}, {1, 0, 0, -1});
}

// Elements that relu set to 0 get no gradient, not even a nan; a nan in Out was not set to 0. The
// op agrees with the ops that fc's gradient consists of.
TEST(FcGradients, NanBehindRelu) {
  const double nan = std::nan("");
  OpTest("fc_gradients")
      .Attr("activation_type", std::string("relu"))
      .Input("Input", {1, 1}, {1})
      .Input("W", {1, 3}, {1, 10, 100})
      .Input("Out", {1, 3}, {0, nan, 5})
      .Input("Out@GRAD", {1, 3}, {nan, 3, 2})
      .Expect("Z@GRAD", {1, 3}, {0, 3, 2})
      .Expect("Input@GRAD", {1, 1}, {230})
      .Expect("Bias@GRAD", {3}, {0, 3, 2});
}
TEST(Fc, GradientOfNanBehindRelu) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetShape({1, 1});
  block.Var("w").SetShape({1, 2});
  block.Var("d").SetShape({1, 2});
  const Writer writer{block, DefaultOps()};
  const Variable out = writer.Make("fc", {{"Input", {"x"}}, {"W", {"w"}}},
                                   {{"activation_type", std::string("relu")}});
  const Variable scaled = writer.Make("elementwise_mul", {{"X", {out.name()}}, {"Y", {"d"}}});
  const auto grads = Gradients({scaled}, {Variable::Of(block, "w")});
  VarValues env;
  env["x"] = Tensor::Of<float>({1, 1}, {1});
  env["w"] = Tensor::Of<float>({1, 2}, {-1, NAN});
  env["d"] = Tensor::Of<float>({1, 2}, {NAN, 3});
  Interpret(block, DefaultOps(), env);
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at(grads.at(0))), Tensor::Of<float>({1, 2}, {0, 3})));
}

// Far from 0 gelu is relu; at 0 its slope is 1 / 2.
TEST(FcGradients, ActivationsThatReadZ) {
  for (const char* activation : {"gelu", "gelu_tanh", "swish"}) {
    OpTest("fc_gradients")
        .Attr("activation_type", std::string(activation))
        .Input("Input", {2, 2}, {1, 2, 3, 4})
        .Input("W", {2, 2}, {1, 10, 100, 1000})
        .Input("Z", {2, 2}, {0, 60, -60, 0})
        .Input("Out@GRAD", {2, 2}, {2, 2, 3, -2})
        .Expect("Z@GRAD", {2, 2}, {1, 2, 0, -1})
        .Expect("Input@GRAD", {2, 2}, {21, 2100, -10, -1000})
        .Expect("W@GRAD", {2, 2}, {1, -1, 2, 0})
        .Expect("Bias@GRAD", {2}, {1, 1});
  }
}

TEST(Fc, KeepsZ) {
  for (const char* activation : {"", "gelu", "relu"}) {
    OpTest("fc")
        .Attr("activation_type", std::string(activation))
        .Input("Input", {1, 1}, {2})
        .Input("W", {1, 3}, {10, -10, 20})
        .Input("Bias", {3}, {1, 20, 2})
        .Expect("Z", {1, 3}, {21, 0, 42})
        .Expect("Out", {1, 3}, {21, 0, 42});
  }
  for (const char* activation : {"", "gelu", "gelu_tanh", "swish", "tanh"})
    OpTest("fc")
        .Attr("activation_type", std::string(activation))
        .RandomInput("Input", {3, 2})
        .RandomInput("W", {2, 4})
        .RandomInput("Bias", {4})
        .CheckGradient({"Input", "W", "Bias"});
  for (const Shape& s : {Shape{1, 1, 1}, Shape{0, 3, 4}, Shape{129, 65, 131}, Shape{300, 40, 200}})
    OpTest("fc")
        .Attr("activation_type", std::string("gelu"))
        .RandomInput("Input", {s[0], s[1]})
        .RandomInput("W", {s[1], s[2]})
        .RandomInput("Bias", {s[2]})
        .CheckFast();
}

TEST(FcGradients, InPlace) {
  OpTest("fc_gradients")
      .InPlace("Out@GRAD", "Z@GRAD")
      .Attr("activation_type", std::string("relu"))
      .Input("Input", {2, 1}, {1, 3})
      .Input("W", {1, 2}, {1, 10})
      .Input("Bias", {1, 2}, {0, 0})
      .Input("Out", {2, 2}, {5, 0, 0, 6})
      .Input("Out@GRAD", {2, 2}, {1, 2, 3, -1})
      .Expect("Input@GRAD", {2, 1}, {1, -10})
      .Expect("W@GRAD", {1, 2}, {1, -3})
      .Expect("Bias@GRAD", {1, 2}, {1, -1});
}

TEST(FcGradients, FastAgainstReference) {
  for (const char* activation : {"", "relu", "gelu", "gelu_tanh", "swish"}) {
    for (const Shape& s :
         {Shape{1, 1, 1}, Shape{0, 3, 4}, Shape{2, 3, 0}, Shape{3, 0, 2}, Shape{1, 300, 70},
          Shape{129, 65, 131}, Shape{300, 40, 200}, Shape{2000, 3, 5}}) {
      for (const char* none : {"", "Input@GRAD", "W@GRAD", "Bias@GRAD", "Z@GRAD"}) {
        OpTest test("fc_gradients");
        test.Attr("activation_type", std::string(activation))
            .RandomInput("Input", {s[0], s[1]})
            .RandomInput("W", {s[1], s[2]})
            .RandomInput("Out", {s[0], s[2]})
            .RandomInput("Z", {s[0], s[2]}, -4, 4)
            .RandomInput("Out@GRAD", {s[0], s[2]});
        if (*none) test.NoOutput(none);
        test.CheckFast();
      }
    }
  }
}

TEST(FcGradients, Constraints) {
  const auto op = [](const Shape& input, const Shape& w, const Shape& dout) {
    return std::move(OpTest("fc_gradients")
                         .RandomInput("Input", input)
                         .RandomInput("W", w)
                         .RandomInput("Out@GRAD", dout));
  };
  op({2}, {2, 1}, {2, 1}).ExpectError("fc_gradients.C1");
  op({2, 3}, {2, 1}, {2, 1}).ExpectError("fc_gradients.C2");
  op({2, 3}, {3, 1}, {2, 1}).RandomInput("Bias", {2}).ExpectError("fc_gradients.C3");
  op({2, 3}, {3, 1}, {3, 1}).ExpectError("fc_gradients.C5");
  op({2, 3}, {3, 1}, {2, 1})
      .Attr("activation_type", std::string("relu"))
      .ExpectError("fc_gradients.C6");
  op({2, 3}, {3, 1}, {2, 1})
      .Attr("activation_type", std::string("gelu"))
      .RandomInput("Z", {1, 1})
      .ExpectError("fc_gradients.C6");
  OpTest("fc_gradients")
      .RandomInput("Input", {2, 3})
      .TensorInput("W", Tensor::Zeros(DType::kFloat16, {3, 1}))
      .RandomInput("Out@GRAD", {2, 1})
      .ExpectError("fc_gradients.C4");
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

// A weight of bfloat16 with float32 rows: float32 sums, bias and activation.
TEST(Fc, HalfWeight) {
  Tensor wide(DType::kFloat32, {3, 2});
  for (int64_t i = 0; i < 6; ++i) wide.data<float>()[i] = 0.1f * static_cast<float>(i + 1);
  const auto op = [&](DType dtype) {
    return std::move(OpTest("fc")
                         .TensorInput("Input", Tensor::Of<float>({2, 3}, {1, 2, -3, 0.5, -1, 4}))
                         .TensorInput("W", wide.Cast(dtype))
                         .TensorInput("Bias", Tensor::Of<float>({2}, {1e-3f, -1}))
                         .Attr("activation_type", "relu"));
  };
  const Tensor w = wide.Cast(DType::kBFloat16).Cast(DType::kFloat32);
  const auto at = [&](int64_t i) { return static_cast<double>(w.data<float>()[i]); };
  const std::vector<double> want = {0, 0, 0.5 * at(0) - at(2) + 4 * at(4) + 1e-3,
                                    0.5 * at(1) - at(3) + 4 * at(5) - 1};
  for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
    const Tensor out = op(DType::kBFloat16).Output("Out", mode);
    ASSERT_EQ(out.dtype(), DType::kFloat32);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(static_cast<double>(out.span<float>()[i]), want[i], 1e-6) << i;
  }
  op(DType::kFloat16).ExpectError("fc.C4");
}

TEST(Fc, Constraints) {
  const auto op = [](const Shape& input, const Shape& w) {
    return std::move(OpTest("fc").RandomInput("Input", input).RandomInput("W", w));
  };
  op({2}, {2, 1}).ExpectError("fc.C1");
  op({2, 2}, {2, 1}).Attr("in_num_col_dims", -2).ExpectError("fc.C1");
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

TEST(FusionRepeatedFcRelu, Gradients) {
  OpTest("fusion_repeated_fc_relu")
      .RandomInput("X", {2, 3}, 0.1, 1)
      .RandomInput("W", {3, 4}, 0.1, 1)
      .RandomInput("Bias", {4}, 0.1, 1)
      .RandomInput("W", {4, 2}, 0.1, 1)
      .RandomInput("Bias", {2}, 0.1, 1)
      .NoOutput("ReluOut")
      .CheckGradient({"X", "W", "Bias"});
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

}  // namespace coracle::fc_test

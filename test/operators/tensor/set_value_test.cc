#include <coracle/test/op_test.h>

#include <limits>

namespace coracle::set_value_test {

using Longs = std::vector<int64_t>;

OpTest Set(Longs axes, Longs starts, Longs ends, Longs steps = {}) {
  OpTest test("set_value");
  test.Attr("axes", std::move(axes)).Attr("starts", std::move(starts)).Attr("ends", ends);
  if (!steps.empty()) test.Attr("steps", std::move(steps));
  return test;
}

const std::vector<double> kCount = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
const std::vector<std::string> kBoth = {"Input", "ValueTensor"};

// x[1:3, 0:2] = value
TEST(SetValue, APartOfTheSameShape) {
  Set({0, 1}, {1, 0}, {3, 2})
      .Input("Input", {3, 4}, kCount)
      .Input("ValueTensor", {2, 2}, {-1, -2, -3, -4})
      .Expect("Out", {3, 4}, {0, 1, 2, 3, -1, -2, 6, 7, -3, -4, 10, 11})
      .CheckGradient(kBoth)
      .CheckSecondGradient(kBoth);
}

// x[:, 1:4:2] = value of one row; of one column; of one element.
TEST(SetValue, TheValueIsStretched) {
  Set({1}, {1}, {4}, {2})
      .Input("Input", {3, 4}, kCount)
      .Input("ValueTensor", {2}, {-1, -2})
      .Expect("Out", {3, 4}, {0, -1, 2, -2, 4, -1, 6, -2, 8, -1, 10, -2})
      .CheckGradient(kBoth)
      .CheckSecondGradient(kBoth);
  Set({1}, {1}, {4}, {2})
      .Input("Input", {3, 4}, kCount)
      .Input("ValueTensor", {3, 1}, {-1, -2, -3})
      .Expect("Out", {3, 4}, {0, -1, 2, -1, 4, -2, 6, -2, 8, -3, 10, -3})
      .CheckGradient(kBoth);
  Set({0}, {0}, {2})
      .Input("Input", {3, 2}, {0, 1, 2, 3, 4, 5})
      .Input("ValueTensor", {1, 1, 1}, {9})
      .Expect("Out", {3, 2}, {9, 9, 9, 9, 4, 5})
      .CheckGradient(kBoth);
}

// One element is a step from nothing: no step is too large.
TEST(SetValue, OneElementInAnyStep) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (int64_t step : {most, -most}) {
    Set({0}, {1}, {step > 0 ? 2 : 0}, {step})
        .Input("Input", {3, 4}, kCount)
        .Input("ValueTensor", {4}, {-1, -2, -3, -4})
        .Expect("Out", {3, 4}, {0, 1, 2, 3, -1, -2, -3, -4, 8, 9, 10, 11})
        .CheckGradient(kBoth);
  }
}

// x[2:0:-1] = value: the first row of the value goes to row 2. An end of -1 is before row 0.
TEST(SetValue, Backwards) {
  Set({0}, {2}, {0}, {-1})
      .Input("Input", {3, 2}, {0, 1, 2, 3, 4, 5})
      .Input("ValueTensor", {2, 2}, {-1, -2, -3, -4})
      .Expect("Out", {3, 2}, {0, 1, -3, -4, -1, -2})
      .CheckGradient(kBoth)
      .CheckSecondGradient(kBoth);
  Set({0}, {2}, {-1}, {-2})
      .Input("Input", {3}, {0, 1, 2})
      .Input("ValueTensor", {2}, {7, 8})
      .Expect("Out", {3}, {8, 1, 7});
}

// x[:, 2] = value, x[-1] = value, x[1, 2] = value; x[1, None] = value.
TEST(SetValue, DimensionsThatTheValueLacks) {
  Set({1}, {2}, {3})
      .Attr("decrease_axes", Longs{1})
      .Input("Input", {3, 4}, kCount)
      .Input("ValueTensor", {3}, {-1, -2, -3})
      .Expect("Out", {3, 4}, {0, 1, -1, 3, 4, 5, -2, 7, 8, 9, -3, 11})
      .CheckGradient(kBoth)
      .CheckSecondGradient(kBoth);
  Set({0}, {-1}, {0})
      .Attr("decrease_axes", Longs{0})
      .Input("Input", {3, 2}, {0, 1, 2, 3, 4, 5})
      .Input("ValueTensor", {2}, {-1, -2})
      .Expect("Out", {3, 2}, {0, 1, 2, 3, -1, -2});
  Set({0, 1}, {1, 2}, {2, 3})
      .Attr("decrease_axes", Longs{0, 1})
      .Input("Input", {3, 4}, kCount)
      .Input("ValueTensor", {1}, {-1})
      .Expect("Out", {3, 4}, {0, 1, 2, 3, 4, 5, -1, 7, 8, 9, 10, 11})
      .CheckGradient(kBoth);
  Set({0}, {1}, {2})
      .Attr("decrease_axes", Longs{0})
      .Attr("none_axes", Longs{1})
      .Input("Input", {2, 3}, {0, 1, 2, 3, 4, 5})
      .Input("ValueTensor", {1, 3}, {7, 8, 9})
      .Expect("Out", {2, 3}, {0, 1, 2, 7, 8, 9})
      .CheckGradient(kBoth);
}

TEST(SetValue, BoundsInTensors) {
  OpTest("set_value")
      .Attr("axes", Longs{1})
      .Attr("decrease_axes", Longs{1})
      .Input("Input", {2, 3}, {0, 1, 2, 3, 4, 5})
      .Input("ValueTensor", {2}, {-1, -2})
      .IntInput("StartsTensorList", {1}, {1})
      .IntInput("EndsTensorList", {1}, {2}, DType::kInt32)
      .Expect("Out", {2, 3}, {0, -1, 2, 3, -2, 5})
      .CheckGradient(kBoth)
      .CheckSecondGradient(kBoth);
  OpTest("set_value")
      .Attr("axes", Longs{0})
      .Input("Input", {4}, {0, 1, 2, 3})
      .Input("ValueTensor", {2}, {-1, -2})
      .IntInput("StartsTensorList", {1}, {0})
      .IntInput("EndsTensorList", {1}, {4})
      .IntInput("StepsTensorList", {1}, {2})
      .Expect("Out", {4}, {-1, 1, -2, 3});
}

// Known only at run time: the part is larger than the value, or a step is 0.
TEST(SetValue, BoundsInTensorsThatDoNotFit) {
  auto run = [](int64_t end, int64_t step) {
    OpTest("set_value")
        .Attr("axes", Longs{0})
        .Input("Input", {4}, {0, 1, 2, 3})
        .Input("ValueTensor", {2}, {-1, -2})
        .IntInput("StartsTensorList", {1}, {0})
        .IntInput("EndsTensorList", {1}, {end})
        .IntInput("StepsTensorList", {1}, {step})
        .ExpectError(step == 0 ? "a step must not be 0" : "3 elements along axis 0");
  };
  run(3, 1);
  run(4, 0);
}

// Where nothing flows to Input the gradient op has one output, and a gradient itself.
TEST(SetValue, GradientOfTheValueAlone) {
  Set({0}, {1}, {3})
      .Input("Input", {3, 2}, {0, 1, 2, 3, 4, 5})
      .Input("ValueTensor", {2}, {-1, -2})
      .Expect("Out", {3, 2}, {0, 1, -1, -2, -1, -2})
      .CheckGradient({"ValueTensor"})
      .CheckSecondGradient({"ValueTensor"});
}

TEST(SetValue, AValueInTheAttrs) {
  Set({0}, {1}, {2})
      .Attr("dtype", static_cast<int32_t>(DType::kInt64))
      .Attr("shape", Longs{2})
      .Attr("int64_values", Longs{8, 9})
      .IntInput("Input", {2, 2}, {0, 1, 2, 3})
      .Expect("Out", {2, 2}, {0, 1, 8, 9})
      .ExpectDType("Out", DType::kInt64);
  Set({0}, {0}, {1})
      .Attr("dtype", static_cast<int32_t>(DType::kBool))
      .Attr("shape", Longs{1})
      .Attr("bool_values", std::vector<int32_t>{1})
      .TensorInput("Input", Tensor::Of<bool>({2}, {false, false}))
      .Expect("Out", {2}, {1, 0});
}

TEST(SetValue, NothingToSet) {
  Set({0}, {2}, {1})
      .Input("Input", {3}, {1, 2, 3})
      .Input("ValueTensor", {1}, {9})
      .Expect("Out", {3}, {1, 2, 3});
  Set({0}, {0}, {5})
      .Input("Input", {0, 2}, {})
      .Input("ValueTensor", {1}, {9})
      .Expect("Out", {0, 2}, {});
}

OpTest Small(Longs axes, Longs starts, Longs ends, Longs steps = {}) {
  OpTest test = Set(std::move(axes), std::move(starts), std::move(ends), std::move(steps));
  test.Input("Input", {2, 2}, {0, 1, 2, 3});
  return test;
}

TEST(SetValue, C1_Axes) {
  Small({2}, {0}, {1}).Input("ValueTensor", {1}, {0}).ExpectError("set_value.C1");
  Small({0, 0}, {0, 0}, {1, 1}).Input("ValueTensor", {1}, {0}).ExpectError("set_value.C1");
}
TEST(SetValue, C2_Lengths) {
  Small({0}, {0, 0}, {1}).Input("ValueTensor", {1}, {0}).ExpectError("set_value.C2");
}
TEST(SetValue, C3_StepOfZero) {
  Small({0}, {0}, {1}, {0}).Input("ValueTensor", {1}, {0}).ExpectError("set_value.C3");
}
TEST(SetValue, C4_DecreaseAxes) {
  Small({0}, {0}, {2})
      .Attr("decrease_axes", Longs{0})
      .Input("ValueTensor", {1}, {0})
      .ExpectError("set_value.C4");
}
TEST(SetValue, C5_DType) {
  Small({0}, {0}, {2}).IntInput("ValueTensor", {1}, {0}).ExpectError("set_value.C5");
  Small({0}, {0}, {2}).Attr("dtype", 3).ExpectError("set_value.C5");
}
TEST(SetValue, C6_Misfit) {
  Small({0}, {0}, {2}).Input("ValueTensor", {3}, {0, 0, 0}).ExpectError("set_value.C6");
  Small({0}, {0}, {2}).Input("ValueTensor", {2, 1, 1}, {0, 0}).ExpectError("set_value.C6");
}
TEST(SetValueGrad, C5_C6_ValueTensor) {
  const auto grad = [] {
    OpTest test("set_value_grad");
    test.Attr("axes", Longs{0}).Attr("starts", Longs{0}).Attr("ends", Longs{2});
    test.Input("Out@GRAD", {4}, {1, 2, 3, 4});
    return test;
  };
  grad().IntInput("ValueTensor", {1}, {0}).ExpectError("set_value_grad.C5");
  grad().Input("ValueTensor", {3}, {0, 0, 0}).ExpectError("set_value_grad.C6");
  grad().ExpectError("set_value_grad.C6");
}
TEST(SetValue, C7_NoneAxes) {
  Small({0}, {0}, {2})
      .Attr("none_axes", Longs{3})
      .Input("ValueTensor", {1}, {0})
      .ExpectError("set_value.C7");
}
TEST(SetValue, C8_Shape) {
  auto ints = [](Longs shape, Longs values) {
    OpTest test = Set({0}, {0}, {1});
    test.Attr("dtype", 3).Attr("shape", std::move(shape)).Attr("int64_values", std::move(values));
    test.IntInput("Input", {2}, {0, 1}).ExpectError("set_value.C8");
  };
  ints({2}, {1});
  ints({-1}, {1});
}
}  // namespace coracle::set_value_test

#include <coracle/backward/backward.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/layers/builder.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace variable_functions_test {

using namespace coracle;  // NOLINT: as users write it

// User functions with these names, together with the functions on Variables.
double Min(double a, double b) { return a < b ? a : b; }
struct Log {
  int lines = 0;
};
enum Sum { kSmall, kLarge };

class VariableFunctions : public ::testing::Test {
 protected:
  Variable Data(const std::string& name, const Tensor& value) {
    env[name] = value;
    return net.Data(name, value.shape(), value.dtype(), {.stop_gradient = false});
  }
  template <class T = float>
  std::vector<T> Values(const Variable& var) {
    VarValues values = env;
    Interpret(main.Root(), DefaultOps(), values);
    const auto span = std::get<Tensor>(values.at(var.name())).span<T>();
    return {span.begin(), span.end()};
  }
  size_t NumOps(const char* type) const {
    size_t n = 0;
    main.Root().ForEachOp([&](const OpDesc& op) { n += op.type() == type; });
    return n;
  }
  static std::string MessageOf(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& error) {
      return error.message();
    }
    return "nothing";
  }

  ProgramDesc main, startup;
  Builder net{main, startup};
  VarValues env;
};
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

TEST_F(VariableFunctions, ALossAsItIsWritten) {
  const Variable h = Data("h", Tensor::Of<float>({2, 2}, {1, 2, 3, 4}));
  const Variable y = Data("y", Tensor::Of<float>({2, 2}, {0, 2, 5, 3}));
  const Variable w = Data("w", Tensor::Of<float>({3}, {-1, 2, -3}));
  const Variable loss = Mean(Square(h - y)) + 0.1 * Mean(Abs(w));
  EXPECT_EQ(loss.shape(), Shape({1}));
  EXPECT_FLOAT_EQ(Values(loss)[0], 6.0f / 4 + 0.1f * 2);
  const CheckGradientReport report = CheckGradient(main, {.loss = loss.name(), .wrt = {"h", "w"}});
  EXPECT_TRUE(report.passed()) << report.ToString();
  EXPECT_EQ(Log().lines + kSmall, 0);
  EXPECT_EQ(Min(1, 2), 1);
}

TEST_F(VariableFunctions, NumbersOnEitherSide) {
  const Variable x = Data("x", Tensor::Of<float>({2}, {4, -1}));
  const std::vector<std::pair<Variable, Floats>> cases = {
      {x + 2, {6, 1}},   {2 + x, {6, 1}},   {x - 2, {2, -3}},    {2 - x, {-2, 3}},
      {x * 3, {12, -3}}, {3 * x, {12, -3}}, {x / 2, {2, -0.5f}}, {-x, {-4, 1}}};
  EXPECT_EQ(main.Root().NumOps(), cases.size());
  EXPECT_EQ(NumOps("scale"), cases.size());
  for (const auto& [var, expected] : cases) EXPECT_EQ(Values(var), expected) << var.name();
  EXPECT_EQ(Values(2 / x), Floats({0.5f, -2}));
  EXPECT_EQ(Values(x / 3), Floats({4 / 3.0f, -1 / 3.0f}));
  EXPECT_EQ(NumOps("elementwise_div"), 2u);
  EXPECT_EQ(Values(Max(x, 0)), Floats({4, 0}));
  EXPECT_EQ(Values(variable_functions::Min(x, 0)), Floats({0, -1}));
  EXPECT_EQ(Values(Pow(x, 2)), Floats({16, 1}));
  EXPECT_EQ(Values(Pow(2, x)), Floats({16, 0.5f}));
}

// An attr of type float would round these.
TEST_F(VariableFunctions, NumbersAreExactInDouble) {
  const Variable x = Data("x", Tensor::Of<double>({1}, {3}));
  EXPECT_EQ(Values<double>(x * 0.1), Doubles{3 * 0.1});
  EXPECT_EQ(Values<double>(x + 1e-10), Doubles{3 + 1e-10});
  EXPECT_EQ(Values<double>(0.1 - x), Doubles{0.1 - 3});
  EXPECT_EQ(Values<double>(x / 0.7), Doubles{3 / 0.7});
  EXPECT_EQ(Values<double>(0.7 / x), Doubles{0.7 / 3});
  EXPECT_EQ(Values<double>(Pow(x, 0.1)), Doubles{std::pow(3, 0.1)});
  EXPECT_EQ(Values<double>(x * 0.5 + 2), Doubles{3.5});
  EXPECT_EQ(NumOps("scale"), 3u);  // x * 0.1 takes its number as a tensor
}

TEST_F(VariableFunctions, Integers) {
  const Variable i = Data("i", Tensor::Of<int64_t>({2}, {7, -2}));
  EXPECT_EQ(Values<int64_t>(2 * i + 1), (std::vector<int64_t>{15, -3}));
  EXPECT_EQ(Values<int64_t>(i * 123456789012), (std::vector<int64_t>{864197523084, -246913578024}));
  const size_t before = main.Root().NumOps();
  EXPECT_EQ(MessageOf([&] { i * 0.5; }),
            "the number 0.5 used with 'i' does not fit int64; Cast the Variable first");
  EXPECT_EQ(MessageOf([&] { 1e300 + i; }),
            "the number 1e+300 used with 'i' does not fit int64; Cast the Variable first");
  const Variable narrow = Data("narrow", Tensor::Of<int32_t>({2}, {5, 6}));
  EXPECT_EQ(MessageOf([&] { narrow + 3e9; }),
            "the number 3000000000 used with 'narrow' does not fit int32; Cast the Variable first");
  EXPECT_THROW(narrow * 3e9, Error);
  EXPECT_THROW(3e9 - narrow, Error);
  const Variable bytes = Data("bytes", Tensor::Of<uint8_t>({2}, {5, 6}));
  EXPECT_THROW(-bytes, Error);
  EXPECT_THROW(bytes + 256, Error);
  EXPECT_EQ(main.Root().NumOps(), before);
  EXPECT_EQ(Values(0.5 * Cast(i, DType::kFloat32)), Floats({3.5f, -1}));
}

TEST_F(VariableFunctions, OperandsAreTheOpsToCheck) {
  const Variable x = Data("x", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  const Variable row = Data("row", Tensor::Of<float>({3}, {10, 20, 30}));
  const Variable wide = Data("wide", Tensor::Of<double>({3}, {1, 2, 3}));
  EXPECT_EQ(Values(x + row), Floats({11, 22, 33, 14, 25, 36}));
  EXPECT_EQ(Values(x * Cast(wide, DType::kFloat32)), Floats({1, 4, 9, 4, 10, 18}));
  EXPECT_NE(MessageOf([&] { x + wide; }).find("[elementwise_add.C"), std::string::npos);
  const Variable two = Data("two", Tensor::Of<float>({2, 2}, {1, 2, 3, 4}));
  EXPECT_NE(MessageOf([&] { x - two; }).find("[elementwise_sub.C"), std::string::npos);
}

TEST_F(VariableFunctions, ComparisonsAndChoice) {
  const Variable x = Data("x", Tensor::Of<float>({3}, {1, 2, 3}));
  const Variable y = Data("y", Tensor::Of<float>({3}, {3, 2, 1}));
  EXPECT_EQ(Values(Where(Less(x, y), x, y)), Floats({1, 2, 1}));
  EXPECT_EQ(Values(Cast(Equal(x, y), DType::kFloat32)), Floats({0, 1, 0}));
  EXPECT_EQ(Values(Cast(And(GreaterEqual(x, 2), Not(Greater(x, y))), DType::kFloat32)),
            Floats({0, 1, 0}));
  EXPECT_EQ(Values(Cast(Or(Less(x, 2), Greater(x, 2)), DType::kFloat32)), Floats({1, 0, 1}));
  EXPECT_EQ(Values(Cast(IsFinite(1 / (x - 1)), DType::kFloat32)), Floats{0});
}

TEST_F(VariableFunctions, ReductionsAndShapes) {
  const Variable x = Data("x", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Values(variable_functions::Sum(x)), Floats{21});
  EXPECT_EQ(Values(variable_functions::Sum(x, {0})), Floats({5, 7, 9}));
  EXPECT_EQ(variable_functions::Sum(x, {1}, true).shape(), Shape({2, 1}));
  EXPECT_EQ(Values(Max(x)), Floats{6});
  EXPECT_EQ(Values(AddAll(std::vector{x, x})), Floats({2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(Concat(std::vector{x, x}, 0).shape(), Shape({4, 3}));
  EXPECT_EQ(Reshape(x, {3, -1}).shape(), Shape({3, 2}));
  EXPECT_EQ(Values(FillLike(x, 1) + ZerosLike(x)), Floats(6, 1));
  EXPECT_EQ(Values(Scale(x, Cast(FillLike(Mean(x), 2), DType::kFloat64)))[5], 12);
  const Variable exact = Data("exact", Tensor::Of<double>({2}, {0, 5}));
  EXPECT_EQ(Values<double>(FillLike(exact, 0.1)), Doubles(2, 0.1)) << "the attr is a float";
  EXPECT_EQ(MessageOf([&] { AddAll(std::vector<Variable>()); }),
            "a sum needs at least one Variable");
}

TEST_F(VariableFunctions, Formulas) {
  const Variable x = Data("x", Tensor::Of<double>({2}, {0.5, 2.25}));
  const std::vector<std::pair<Variable, double (*)(double)>> cases = {
      {Exp(x), std::exp},     {Sqrt(x), std::sqrt}, {Cos(x), std::cos},
      {Floor(x), std::floor}, {Abs(-x), std::fabs}, {variable_functions::Log(x), std::log}};
  for (const auto& [var, f] : cases)
    for (size_t k = 0; k < 2; ++k)
      EXPECT_NEAR(Values<double>(var)[k], f(k == 0 ? 0.5 : 2.25), 1e-14) << var.name();
  EXPECT_NEAR(Values<double>(Sigmoid(x))[0], 1 / (1 + std::exp(-0.5)), 1e-14);
  EXPECT_EQ(Values<double>(Sign(x - 1)), Doubles({-1, 1}));
}

}  // namespace variable_functions_test

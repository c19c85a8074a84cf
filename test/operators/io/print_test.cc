#include <coracle/framework/tensor/complex.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace coracle::print_test {

// The log of what `run` does.
template <class F>
std::string LogOf(F run) {
  std::string log;
  LogSink before = SetLogSink([&](MessageLevel, const std::string& line) { log += line + "\n"; });
  run();
  SetLogSink(std::move(before));
  return log;
}

std::string Printed(OpTest& test) {
  return LogOf([&] { test.Run(KernelMode::kReference, false); });
}

TEST(Print, Lines) {
  OpTest test("print");
  test.Attr("message", std::string("here")).Attr("summarize", 2).Input("In", {3}, {1, -2.5, 3});
  EXPECT_EQ(Printed(test), "here In.0 float32[3] [1, -2.5, ...]\n");
  OpTest brief("print");
  brief.Attr("print_tensor_name", false)
      .Attr("print_tensor_type", false)
      .Attr("print_tensor_shape", false)
      .IntInput("In", {2}, {4, 5});
  EXPECT_EQ(Printed(brief), "[4, 5]\n");
  OpTest complex("print");
  complex.TensorInput("In", Tensor::Of<complex64>({2}, {complex64(1, -2.5f), complex64(0, 3)}));
  EXPECT_EQ(Printed(complex), "In.0 complex64[2] [1-2.5i, 0+3i]\n");
  OpTest empty("print");
  empty.Input("In", {0}, {});
  EXPECT_EQ(Printed(empty), "In.0 float32[0] []\n");
}

TEST(Print, PhaseAndCopy) {
  OpTest test("print");
  test.Attr("print_phase", std::string("BACKWARD")).Input("In", {2}, {1, 2});
  EXPECT_EQ(Printed(test), "");
  test.Expect("Out", {2}, {1, 2});
  const std::string log = LogOf([&] { test.CheckGradient({"In"}); });
  EXPECT_NE(log.find("@GRAD"), std::string::npos);
}

TEST(Print, IsBounded) {
  OpTest all("print");
  all.Attr("summarize", -1).IntInput("In", {2000}, std::vector<int64_t>(2000, 7));
  const std::string few = Printed(all);
  EXPECT_EQ(std::count(few.begin(), few.end(), '7'), 1000);
  EXPECT_NE(few.find(", ...]"), std::string::npos);
  OpTest long_message("print");
  long_message.Attr("message", std::string(100000, 'm')).Input("In", {1}, {1});
  EXPECT_LT(Printed(long_message).size(), 17000u);
}

TEST(Print, C1) {
  ExpectRefused("print", {{"In", {VarType::kLoDTensorArray, DType::kFloat32, {2}, 0}}}, {},
                "print.C1");
}

TEST(Assert, TrueAndFalse) {
  auto test = [](bool holds) {
    OpTest made("assert");
    made.TensorInput("Cond", Tensor::Full<bool>({1}, holds)).Input("Data", {2}, {1, 2});
    return made;
  };
  OpTest(test(true)).Run(KernelMode::kReference, false);
  OpTest(test(false)).ExpectError("assert: Cond is false");
  OpTest("assert").Input("Cond", {1}, {1}).ExpectError("assert.C1");
  OpTest("assert").TensorInput("Cond", Tensor::Full<bool>({2}, true)).ExpectError("assert.C1");
}
}  // namespace coracle::print_test

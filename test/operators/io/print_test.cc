#include <gtest/gtest.h>

#include "../../completeness.h"
#include "../../op_test.h"

namespace coracle {
namespace {

std::string Printed(OpTest& test) {
  ::testing::internal::CaptureStderr();
  test.Run(KernelMode::kReference, false);
  return ::testing::internal::GetCapturedStderr();
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
  OpTest empty("print");
  empty.Input("In", {0}, {});
  EXPECT_EQ(Printed(empty), "In.0 float32[0] []\n");
}

TEST(Print, PhaseAndCopy) {
  OpTest test("print");
  test.Attr("print_phase", std::string("BACKWARD")).Input("In", {2}, {1, 2});
  EXPECT_EQ(Printed(test), "");
  test.Expect("Out", {2}, {1, 2});
  ::testing::internal::CaptureStderr();
  test.CheckGradient({"In"});
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("@GRAD"), std::string::npos);
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

}  // namespace
}  // namespace coracle

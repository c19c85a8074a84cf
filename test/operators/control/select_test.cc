#include <coracle/layers/builder.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::select_test {

OpTest Select(int64_t mask) {
  OpTest test("select_input");
  test.Input("X", {2}, {1, 2}).Input("X", {2}, {3, 4}).IntInput("Mask", {1}, {mask});
  return test;
}

TEST(SelectInput, Values) {
  Select(0).Expect("Out", {2}, {1, 2});
  Select(1).Expect("Out", {2}, {3, 4});
  OpTest("select_input")
      .Input("X", {2}, {1, 2})
      .Input("X", {1, 3}, {3, 4, 5})
      .IntInput("Mask", {1}, {1}, DType::kInt32)
      .Expect("Out", {1, 3}, {3, 4, 5});
}

TEST(SelectInput, MaskOutOfRange) {
  Select(2).ExpectError("select_input: Mask is 2, outside [0, 2)");
  Select(-1).ExpectError("Mask must not be negative, got -1");
}

TEST(SelectInput, Constraints) {
  OpTest("select_input")
      .Input("X", {2}, {1, 2})
      .IntInput("Mask", {2}, {0, 0})
      .ExpectError("select_input.C1");
  OpTest("select_input")
      .Input("X", {2}, {1, 2})
      .IntInput("X", {2}, {1, 2})
      .IntInput("Mask", {1}, {0})
      .ExpectError("select_input.C2");
  const VarMeta x{VarType::kLoDTensor, DType::kFloat32, {2}, 0};
  ExpectRefused("select_input_grad", {{"X", x}, {"Mask", x}, {"Out@GRAD", x}}, {},
                "select_input_grad.C1");
  OpTest("select_input_grad")
      .Input("X", {2}, {1, 2})
      .IntInput("Mask", {1}, {0})
      .Input("Out@GRAD", {2}, {1, 1})
      .Outputs("X@GRAD", 2)
      .ExpectError("select_input_grad.C2");
}

TEST(SelectInput, Gradient) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable a = net.Data("a", {2}, DType::kFloat64, {.stop_gradient = false});
  Variable b = net.Data("b", {2}, DType::kFloat64, {.stop_gradient = false});
  Variable mask = FillConstant(net, {1}, DType::kInt32, 1);
  Variable y = net.Make("select_input", {{"X", {a.name(), b.name()}}, {"Mask", {mask.name()}}});
  Variable loss = net.Reshape(net.ReduceSum(net.Mul(net.Mul(y, y), net.Add(a, y)), {}), {1});
  CheckProgramGradient(
      {"select_input"}, main, loss.name(), {"a", "b"},
      {{"a", Tensor::Of<double>({2}, {0.5, -1.5})}, {"b", Tensor::Of<double>({2}, {0.75, 2})}});
}

TEST(SelectOutput, Values) {
  OpTest("select_output")
      .Input("X", {2}, {1, 2})
      .IntInput("Mask", {1}, {1})
      .Outputs("Out", 2)
      .Expect("Out", {2}, {0, 0}, 1e-5, 0)
      .Expect("Out", {2}, {1, 2}, 1e-5, 1)
      .CheckGradient({"X"});
  OpTest("select_output")
      .Input("X", {2}, {1, 2})
      .IntInput("Mask", {1}, {2})
      .Outputs("Out", 2)
      .ExpectError("outside [0, 2)");
  OpTest("select_output")
      .Input("X", {2}, {1, 2})
      .Input("Mask", {1}, {1})
      .ExpectError("select_output.C1");
}
}  // namespace coracle::select_test

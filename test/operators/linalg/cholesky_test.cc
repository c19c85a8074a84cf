#include <coracle/backward/backward.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/stopped.h>

namespace coracle::cholesky_test {

// loss = sum of weights * cholesky(B B^T + 2), a symmetric matrix whatever B is.
struct Factored {
  explicit Factored(bool upper) {
    BlockDesc& block = program.Root();
    for (const char* name : {"b", "weights"}) {
      VarDesc& var = block.Var(name);
      var.SetShape({2, 3, 3});
      var.SetDType(DType::kFloat64);
      var.SetStopGradient(std::string(name) != "b");
    }
    Tensor weights(DType::kFloat64, {2, 3, 3}), b(DType::kFloat64, {2, 3, 3});
    for (int64_t i = 0; i < 18; ++i) {
      weights.data<double>()[i] = 0.5 + 0.1 * static_cast<double>(i % 7);
      b.data<double>()[i] = 0.3 * static_cast<double>((i * 5) % 11) - 1;
    }
    values["b"] = b;
    values["weights"] = weights;
    const Writer& w = writer;
    const Variable a = w.Make("matmul_v2", {{"X", {"b"}}, {"Y", {"b"}}}, {{"trans_y", true}});
    const Variable shifted =
        w.Make("diag", {{"Diagonal", {FillConstant(w, DType::kFloat64, 2, {3}).name()}}}) + a;
    const Variable l = w.Make("cholesky", {{"X", {shifted.name()}}}, {{"upper", upper}});
    loss = Sum(l * w.Var("weights"));
  }
  ProgramDesc program;
  Writer writer{program.Root(), DefaultOps()};
  VarValues values;
  Variable loss;
};

OpTest Upper(bool upper) {
  OpTest test("cholesky");
  test.Attr("upper", upper);
  return test;
}

TEST(Cholesky, Values) {
  Upper(false).Input("X", {2, 2}, {4, 99, 2, 10}).Expect("Out", {2, 2}, {2, 0, 1, 3});
  Upper(true).Input("X", {2, 2}, {4, 2, 99, 10}).Expect("Out", {2, 2}, {2, 1, 0, 3});
  Upper(false).Input("X", {2, 1, 1}, {4, 9}).Expect("Out", {2, 1, 1}, {2, 3});
  Upper(false).Input("X", {0, 2, 2}, {}).Expect("Out", {0, 2, 2}, {});
}

TEST(Cholesky, Gradients) {
  for (bool upper : {false, true}) {
    Factored f(upper);
    CheckProgramGradient({"cholesky"}, f.program, f.loss.name(), {"b"}, f.values);
    // The gradient of the squared first gradient.
    Factored second(upper);
    const std::string first =
        Gradients({second.loss}, {Variable::Of(second.program.Root(), "b")}).at(0);
    const Variable squares = Sum(Square(second.writer.Var(first)));
    CheckProgramGradient({"cholesky"}, second.program, squares.name(), {"b"}, second.values);
  }
  HigherGradientsAreChecked("cholesky");
}

TEST(Cholesky, StopsInTime) {
  const Stopped stopped;
  std::vector<double> identity(32 * 32, 0.0);
  for (size_t i = 0; i < 32; ++i) identity[33 * i] = 1;
  Upper(false).Input("X", {32, 32}, identity).ExpectError("factorising a matrix");
}

TEST(Cholesky, Constraints) {
  Upper(false).RandomInput("X", {4}).ExpectError("cholesky.C1");
  Upper(false).RandomInput("X", {2, 3}).ExpectError("cholesky.C1");
  Upper(false).Input("X", {2, 2}, {1, 2, 2, 1}).ExpectError("cholesky.C2");
}

}  // namespace coracle::cholesky_test

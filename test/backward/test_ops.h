#pragma once
// Ops of the backward tests, in a registry of their own, and a short way to build programs of them.

#include <coracle/backward/backward.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>

#include <string>
#include <vector>

namespace coracle {

// t_add, t_mul (X, Y -> Out); t_square, t_tanh, t_relu (X -> Out; gradients read X, Out, Out);
// t_two (X -> A = 2 X, B = X^2); t_shift (X -> X + 1); t_flatten (X -> its elements in one row);
// t_sum_all (X -> Out [1]); without gradient: t_floor (X -> Out), t_index (X -> Out int64);
// t_like (X -> zeros of its shape, shape only); t_silent (gradient rule that yields nothing);
// t_wrong (its gradient has a wrong shape). Besides them what backward itself emits, and clip.
const OpRegistry& TestOps();
void RegisterTestOps(OpRegistry& ops);

class TestProgram {
 public:
  explicit TestProgram(const Shape& shape = {2, 3}, DType dtype = DType::kFloat64)
      : shape_(shape), dtype_(dtype) {}

  ProgramDesc program;
  BlockDesc& root() { return program.Root(); }

  VarDesc& Param(const std::string& name);
  VarDesc& Data(const std::string& name);  // stop_gradient set
  // One op with slots X (and Y) and Out; `out` is returned.
  static void AppendTo(BlockDesc& block, const std::string& type,
                       const std::vector<std::string>& in, const std::string& out);
  std::string Op(const std::string& type, const std::vector<std::string>& in,
                 const std::string& out);
  Variable Loss(const std::string& in);  // sum of all elements of `in`, named "loss"
  Variable Var(const std::string& name) { return Variable::Of(root(), name); }

  // Fills parameters and data with numbers from -1 to 1 that depend on the name.
  VarValues Inputs() const;
  VarValues Run(VarValues inputs) const;
  int CountOps(const std::string& type) const;
  std::string Listing() const;  // "Out = type(X, Y)" per op

 private:
  Shape shape_;
  DType dtype_;
};

std::vector<double> Values(const VarValues& env, const std::string& name);

// Compares env[grad] of each pair with central differences of `loss`, which is the sum of its
// elements. The program is run as it is: with its gradient ops.
void ExpectGradients(const TestProgram& test, const std::vector<ParamAndGrad>& pairs,
                     const std::string& loss = "loss");

}  // namespace coracle

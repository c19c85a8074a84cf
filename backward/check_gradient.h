#pragma once
// CheckGradient compares the gradients of a whole program with central differences, in double
// precision. If they disagree, it finds the first op whose own gradient is wrong.

#include <coracle/backward/backward.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace coracle {

struct CheckGradientOptions {
  // The variable to differentiate, with one element. "": the output of the op with role Loss.
  std::string loss = {};
  // The variables to differentiate with respect to. Empty: all trainable parameters.
  std::vector<std::string> wrt = {};
  // Values of fed and persistable variables. If the program declares a floating-point dtype, a
  // value may have any floating-point dtype. Missing values are random: normal numbers, scaled by
  // the fan-in for parameters (numbers between 0.5 and 1.5 for parameters with one dimension); 0 or
  // 1 for integers.
  std::map<std::string, Tensor> feeds = {};
  const Scope* scope = nullptr;
  int64_t batch_size = 2;  // for unknown dimensions
  uint64_t seed = 1;
  int directions = 1;  // random directions for each variable
  // Limit for |gradient - difference|, divided by the larger of the two.
  double tolerance = 1e-6;
  std::string allow_files = {};     // see CompileOptions
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct GradientCheck {
  std::string var;
  std::string gradient;      // "" if the loss does not depend on the variable
  double by_gradient = 0;    // gradient times direction
  double by_difference = 0;  // derivative of the loss along the direction
  double error = 0;          // relative
  bool passed = false;
};

struct CheckGradientReport {
  double loss = 0;
  std::vector<GradientCheck> checks;
  // The first op in program order whose own gradient is wrong: "relu, op 3 of block 0, input X:
  // gradient 0.5, difference 1". "" if there is none, or if all checks of the program pass.
  std::string wrong_op;
  bool passed() const;
  std::string ToString() const;  // lines of text
};

// Works on a copy of the program: removes its gradient, update and schedule ops, makes
// floating-point variables and dtype attrs float64 (complex ones complex128), and appends the
// gradients again. Random ops draw the same numbers every time. Compares with the best match among
// differences with a few step sizes, since a step may cross a kink. Throws the errors of
// AppendBackward, Executor and the ops.
CheckGradientReport CheckGradient(const ProgramDesc& program,
                                  const CheckGradientOptions& options = {});

// A copy of the program with float64 instead of all floating-point types and complex128 instead of
// all complex ones.
ProgramDesc InDouble(const ProgramDesc& program);

// ExplainGradient says why a variable has a gradient, or where the path to it ends.

// One op on the path back from the differentiated variable.
struct GradientStep {
  // The gradient of the output `from` contributes to the gradient of the input `to`.
  std::string from, to;
  std::string op;         // "mul, op 3 of block 0, from net.pbtxt:7:1"
  std::string from_slot;  // "" for a variable that only the op's sub-block writes
  std::string to_slot;    // "" for a variable that only the op's sub-block reads
  std::string obstacle;   // why no gradient passes here; "" if it does
  int depth = 0;          // at least 1: inside the sub-block of the previous step
};

struct GradientExplanation {
  std::string of, wrt;
  std::string gradient;  // the name that backward gives it; "" if there is none
  bool depends = false;  // a chain of ops leads from `wrt` to `of`
  // The path from `of` to `wrt` with the fewest obstacles.
  std::vector<GradientStep> path;
  std::string reason;  // why no gradient exists: the first obstacle, or an error of backward
  // The ops and slots whose contributions are summed, "mul, op 3 of block 0, X".
  std::vector<std::string> contributions;

  std::string ToString() const;  // lines of text
};

// Explains d(of) / d(wrt); both may be of any shape. The program is not changed. Throws kNotFound
// for an unknown name.
GradientExplanation ExplainGradient(const ProgramDesc& program, const std::string& of,
                                    const std::string& wrt, const BackwardOptions& options = {});

}  // namespace coracle

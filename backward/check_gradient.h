#pragma once
// CheckGradient: compares the gradients of a whole program with central differences, in double. If
// they disagree, it finds the first op whose own gradient is wrong.

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
  // The variable that is differentiated, of one element. "": the output of the op with role Loss.
  std::string loss = {};
  // The variables to differentiate with respect to. Empty: all trainable parameters.
  std::vector<std::string> wrt = {};
  // Values of fed and of persistable variables; where the program declares a floating-point dtype,
  // any of these dtypes will do. Missing values are drawn: normal numbers, for parameters scaled by
  // their fan-in (numbers between 0.5 and 1.5 if they have one dimension); 0 or 1 for integers.
  std::map<std::string, Tensor> feeds = {};
  const Scope* scope = nullptr;
  int64_t batch_size = 2;  // for unknown dimensions
  uint64_t seed = 1;
  int directions = 1;               // random directions for each variable
  double tolerance = 1e-6;          // for |gradient - difference| over the larger of the two
  std::string allow_files = {};     // see CompileOptions
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct GradientCheck {
  std::string var;
  std::string gradient;      // "" when the loss does not depend on it
  double by_gradient = 0;    // gradient times direction
  double by_difference = 0;  // of the loss along the direction
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

// Works on a copy: removes its gradient, update and schedule ops, makes floating-point variables
// and dtype attrs float64 (complex ones complex128), and appends the gradients again. Random ops
// draw the same numbers every time. Of central differences with a few step sizes the best match
// counts, since a step may cross a kink. Throws what AppendBackward, Executor and ops throw.
CheckGradientReport CheckGradient(const ProgramDesc& program,
                                  const CheckGradientOptions& options = {});

// A copy of the program in which all floating-point types are float64, complex ones complex128.
ProgramDesc InDouble(const ProgramDesc& program);

// ExplainGradient: why a variable has a gradient, or where the path to it ends.

// One op on the path back from the variable that is differentiated.
struct GradientStep {
  std::string from, to;   // the gradient of `from`, an output, gives one to `to`, an input
  std::string op;         // "mul, op 3 of block 0, from net.pbtxt:7:1"
  std::string from_slot;  // "" for a variable that only the op's sub-block writes
  std::string to_slot;    // "" for a variable that only the op's sub-block reads
  std::string obstacle;   // why no gradient passes here; "" when it does
  int depth = 0;          // 1 and more: inside the sub-block of the step before
};

struct GradientExplanation {
  std::string of, wrt;
  std::string gradient;  // the name that backward gives it; "" when there is none
  bool depends = false;  // some chain of ops leads from `wrt` to `of`
  // The path from `of` to `wrt` with the fewest obstacles.
  std::vector<GradientStep> path;
  std::string reason;  // why there is no gradient: the first obstacle, or an error of backward
  // The ops and slots whose contributions are summed, "mul, op 3 of block 0, X".
  std::vector<std::string> contributions;

  std::string ToString() const;  // lines of text
};

// Explains d(of) / d(wrt); both may be of any shape. The program is not changed. Throws kNotFound
// for an unknown name.
GradientExplanation ExplainGradient(const ProgramDesc& program, const std::string& of,
                                    const std::string& wrt, const BackwardOptions& options = {});

}  // namespace coracle

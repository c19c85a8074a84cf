#pragma once
// CheckGradient: compares the gradients of a whole program with differences, in double; when they
// disagree, finds the first op whose own gradient is wrong.

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
  // What is differentiated: one element. "": the output of the op with the role Loss.
  std::string loss = {};
  // By which variables. Empty: all trainable parameters.
  std::vector<std::string> wrt = {};
  // Values of fed variables and of persistable ones, of any floating-point dtype where the program
  // says one. What is missing is drawn: normal numbers, parameters scaled by their fan-in (between
  // 0.5 and 1.5 where they have one dimension), integers of 0 and 1.
  std::map<std::string, Tensor> feeds = {};
  const Scope* scope = nullptr;
  int64_t batch_size = 2;  // for unknown dimensions
  uint64_t seed = 1;
  int directions = 1;               // random ones, for each variable
  double tolerance = 1e-6;          // of |gradient - difference|, relative to the larger of the two
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
  // The first op, in the order of the program, whose gradient is wrong by itself: "relu, op 3 of
  // block 0, input X: gradient 0.5, difference 1". "" when there is none, and for a program whose
  // checks all pass.
  std::string wrong_op;
  bool passed() const;
  std::string ToString() const;  // lines of text
};

// The program's gradient, update and schedule ops are taken out and its gradients made anew; the
// program given is not changed. Floating-point variables and dtype attrs become float64. Random
// ops draw the same numbers every time. The difference is central, with the step that agrees best
// among a few (a step may cross a kink). Throws as AppendBackward, Executor and ops do.
CheckGradientReport CheckGradient(const ProgramDesc& program,
                                  const CheckGradientOptions& options = {});

// The program with float64 in the place of every other floating-point type.
ProgramDesc InDouble(const ProgramDesc& program);

// ExplainGradient: why a variable has a gradient, or where the path to it ends.

// One op on the way back from the variable that is differentiated.
struct GradientStep {
  std::string from, to;   // the gradient of `from`, an output, gives one to `to`, an input
  std::string op;         // "mul, op 3 of block 0, from net.pbtxt:7:1"
  std::string from_slot;  // "" for what only the op's sub-block writes
  std::string to_slot;    // "" for what only the op's sub-block reads
  std::string obstacle;   // why no gradient passes here; "" when it does
  int depth = 0;          // 1 and more: inside the sub-block of the step before
};

struct GradientExplanation {
  std::string of, wrt;
  std::string gradient;  // the name that backward gives it; "" when there is none
  bool depends = false;  // some chain of ops leads from `wrt` to `of`
  // From `of` to `wrt`, the way with the fewest obstacles.
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

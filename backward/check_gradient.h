#pragma once
// CheckGradient: compares the gradients of a whole program with differences, in double; when they
// disagree, finds the first op whose own gradient is wrong.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/scope.h>

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

}  // namespace coracle

#pragma once
// AppendBackward: appends to a program the ops that compute the gradients of a loss.

#include <coracle/framework/ir/variable.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/default_ops.h>

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle {

// Gradient variable -> forward variable, of every gradient that is complete (partial contributions
// are not in it).
using GradToVar = std::unordered_map<std::string, std::string>;

// Runs after each appended gradient op, which is the last op of `block`; may append ops behind it.
using BackwardCallback = std::function<void(BlockDesc& block, const GradToVar& grad_to_var)>;

struct BackwardOptions {
  std::vector<std::string> parameter_list;  // empty: all trainable parameters of the program
  std::vector<std::string>
      no_grad_set;  // variables that no gradient flows into, besides those with stop_gradient
  std::vector<BackwardCallback> callbacks;
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct ParamAndGrad {
  std::string param;
  std::string grad;  // "" when the loss does not depend on the parameter
};

// Appends d(loss)/d(parameter) for each parameter, to the block of the loss. The loss must hold one
// element. Gradient ops get the role Backward and, where they complete a parameter's gradient,
// op_role_var = {param, grad}. Throws kInvalidArgument for a loss of another size or dtype,
// kNotFound for an unknown parameter name, kUnimplemented for an op without gradient rule on the
// path (naming op, variable and reason). Linear in the size of the program.
std::vector<ParamAndGrad> AppendBackward(const Variable& loss, const BackwardOptions& options = {},
                                         GradToVar* grad_to_var = nullptr);

}  // namespace coracle

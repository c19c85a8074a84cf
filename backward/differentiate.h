#pragma once
// Appends the gradient ops of targets in one block. AppendBackward and Gradients use it.

#include <coracle/backward/backward.h>
#include <coracle/backward/open_types.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

struct Target {
  std::string name;
  std::string seed;  // variable with the gradient that enters; "": ones
};

// The targets to differentiate, and the variables. The names are checked already.
struct Request {
  const char* who;
  BlockDesc& block;
  const BackwardOptions& options;
  const OpRegistry& ops;
  std::vector<Target> targets;
  std::vector<std::string> wanted;
  std::vector<std::string> inputs;  // the wanted variables whose gradients are returned
  // AppendBackward: the target is the loss, and the inputs are parameters; op_role and op_role_var
  // mark them. Without it, only the ops between inputs and targets are examined, so that the cost
  // does not depend on the size of the block.
  bool of_loss = false;
};

// Appends the ops and returns the gradients of the inputs, "" for none. If that fails on an invalid
// program, restores the program and throws the verifier's error instead. (Verifying every program
// first would cost as much as differentiating it.)
std::vector<std::string> Differentiate(const Request& request, OpenTypes& open,
                                       GradToVar* grad_to_var);

}  // namespace coracle::inline internal

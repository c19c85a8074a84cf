#pragma once
// A program as JSON: the output of `coracle dump --json`. docs/json.md describes each field.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// Empty functions and an empty list select everything.
struct ProgramJsonOptions {
  // Leaves out attrs with the default values of their ops (IsDefaultAttr), and the attrs that every
  // op may have (op_role, op_callstack, ...), which stage, layer and origin describe.
  bool hide_default_attrs = true;
  std::vector<int> blocks = {};  // only these
  std::function<bool(const OpDesc& op)> keep_op = {};
  std::function<bool(const VarDesc& var)> keep_var = {};
};

// Writes one line for each variable and op. Linear in the size of the program; safe for unverified
// programs. If an op has two slots or attrs of one name, writes only the first.
std::string ProgramJson(const ProgramDesc& program, const OpRegistry& ops,
                        const ProgramJsonOptions& options = {});

// Pairs of a gradient and its variable, found by their names: x@GRAD, x@GRAD@1 (for another value
// of x) and x@GRAD_0 (of a second backward) belong to x if there is an x. Partial sums and clipped
// gradients are excluded. In the order of the variables, each gradient once.
std::vector<std::pair<std::string, std::string>> GradientPairs(const ProgramDesc& program);

}  // namespace coracle

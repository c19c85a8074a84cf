#pragma once
// Runs an op on its inputs before their transposes. Internal to passes/.

#include <coracle/framework/ir/program.h>
#include <coracle/passes/pass.h>
#include <coracle/passes/transposes.h>
#include <coracle/passes/value_flow.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace coracle::inline internal {

// The ops that replace one op, and that read its inputs before their transposes.
struct MovedOp {
  std::vector<OpDesc> ops;             // the last one writes its outputs
  std::set<std::string> inputs;        // the transposed ones
  std::vector<std::string> constants;  // frozen ones, to be transposed like the inputs
  bool plain = false;                  // the outputs do not depend on the order of axes
};

// Transposes with one list of axes: v[i] = u[axes[i]].
struct TransposeScene {
  ProgramDesc& program;  // for new names
  const BlockDesc& block;
  const PassContext& context;
  const ValueFlow& flow;
  const Ints& axes;
  // Whether a variable is a v: written by such a transpose, or by an op that moves.
  std::function<bool(const std::string& name)> is_form;
};

// nullopt if no input of the op is transposed, or if the op cannot run before the transposes.
std::optional<MovedOp> MoveBeforeTranspose(const OpDesc& op, const TransposeScene& scene);

}  // namespace coracle::inline internal

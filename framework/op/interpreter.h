#pragma once
// Interpret: runs the ops of a block one by one, each prepared on the spot, every variable in its
// own memory. The plainest meaning of a program: tests compare the executor with it, and the
// planner folds constants with it.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/op_spec.h>

#include <string>
#include <unordered_map>

namespace coracle {

// The static type of a value; of selected rows that of the tensor they stand for; of a tensor array
// that of its elements: shape [-1] when they differ, [-1, -1] when none was written.
VarMeta MetaOfValue(const VarValue& value);

using VarValues = std::unordered_map<std::string, VarValue>;

struct InterpretOptions {
  KernelMode kernels = KernelMode::kReference;
  uint64_t seed = 0;
  uint64_t step = 0;
  std::string allow_files = {};  // the directory below which ops may touch files; "": none
};

// Runs `block` on `env`, which holds its inputs and afterwards every variable written. Shapes
// are inferred from the actual values. feed and fetch ops do nothing: env has what they would
// move. Throws kNotFound for an unknown op type or a variable without a value, and what the
// thread's ResourceLimits throw.
void Interpret(const BlockDesc& block, const OpRegistry& ops, VarValues& env,
               const InterpretOptions& options = {});
// One op.
void InterpretOp(const OpDesc& op, const OpRegistry& ops, VarValues& env,
                 const InterpretOptions& options = {});

}  // namespace coracle

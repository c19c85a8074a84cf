#pragma once
// Interpret: runs the ops of a block one by one, preparing each just before it runs, with separate
// memory for every variable. It defines the meaning of a program: tests compare the executor with
// it, and the planner folds constants with it.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <unordered_map>

namespace coracle::inline internal {

// The static type of a value. For selected rows, the type of the tensor they represent. For a
// tensor array, the type of its elements, with shape [-1] if they differ and [-1, -1] if none
// was written.
VarMeta MetaOfValue(const VarValue& value);

using VarValues = std::unordered_map<std::string, VarValue>;

struct InterpretOptions {
  KernelMode kernels = KernelMode::kReference;
  uint64_t seed = 0;
  uint64_t step = 0;
  std::string allow_files = {};  // the directory below which ops may access files; "": none
};

// Runs `block` on `env`, which holds its inputs and afterwards every variable written. Infers
// shapes from the actual values. feed and fetch ops do nothing: env already holds the values that
// they would move. Throws kNotFound for an unknown op type or a variable without a value, and the
// errors of the thread's ResourceLimits.
void Interpret(const BlockDesc& block, const OpRegistry& ops, VarValues& env,
               const InterpretOptions& options = {});
// Runs one op.
void InterpretOp(const OpDesc& op, const OpRegistry& ops, VarValues& env,
                 const InterpretOptions& options = {});

}  // namespace coracle::inline internal

#pragma once
// Passes: functions that rewrite a program for the executor. Saved programs keep Paddle's ops;
// passes work on the compiled copy. The list, in order and with reasons, is in pipeline.cc.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle {

// Values of persistable variables that are constants of the compiled program, by name.
using FrozenValues = std::unordered_map<std::string, Tensor>;

struct PassContext {
  const OpRegistry& ops;
  std::unordered_set<std::string> feeds;
  std::unordered_set<std::string> fetches;        // must keep their names, shapes and values
  std::unordered_set<std::string> captured = {};  // names in sub-blocks; RunPasses finds them
  FrozenValues* frozen = nullptr;                 // nullptr: no parameters are frozen

  // A variable that something outside the program's ops may read: fetched, persistable, or used
  // in a sub-block.
  bool IsVisible(const BlockDesc& block, const std::string& name) const;

  // The value of a frozen parameter; nullptr for any other variable.
  const Tensor* FrozenValue(const std::string& name) const;
  // Makes another one of the root block, called like `prefix`, and returns its
  // name. REQUIRES: frozen.
  std::string AddFrozen(ProgramDesc& program, const std::string& prefix, Tensor value) const;
  // No op reads it from now on: its memory is released unless it is fetched. REQUIRES: frozen.
  void ReleaseFrozen(const std::string& name) const;
};

struct Pass {
  std::string name;
  std::string reason;
  void (*run)(ProgramDesc& program, const PassContext& context);
};

// All passes in the order in which Compile runs them.
const std::vector<Pass>& Pipeline();

// Runs the passes of the given names (all of the pipeline when empty) in the pipeline's order,
// verifying after each; `after_each` sees the program then. Throws kNotFound for an unknown name,
// InternalError when a pass breaks the program.
void RunPasses(ProgramDesc& program, const PassContext& context,
               const std::vector<std::string>& names = {},
               const std::function<void(const Pass&, const ProgramDesc&)>& after_each = {});

// --- the passes, one file each ---

// Removes the ops of the root block whose outputs nobody can see.
void EliminateDeadCode(ProgramDesc& program, const PassContext& context);

// A batch_norm with fixed statistics behind a convolution or mul (and perhaps a bias) becomes a
// bias, and its scale a part of the filter, where all parameters are frozen.
void FoldBatchNorm(ProgramDesc& program, const PassContext& context);

// conv2d + elementwise_add of a per-channel bias becomes one conv2d with Bias, and so
// do their gradients.
void FuseConvBias(ProgramDesc& program, const PassContext& context);

// Runs image ops in NHWC: they get data_format NHWC, elementwise ops between them follow, and
// transpose2 (for one channel squeeze2 and unsqueeze2, which copy nothing) convert at the borders.
// The layout of visible variables does not change.
void UseNhwcLayout(ProgramDesc& program, const PassContext& context);

// In every block, ops of the role Optimize that differ in nothing but the tensors they work on (see
// OpDef::MultiTensor) become one op in the place of the last of them, unless an op between reads or
// writes what they write, or writes what they read.
void MergeUpdates(ProgramDesc& program, const PassContext& context);

// InlineCalls: replaces each `call`, and the gradients of calls, by the ops of its block.

// Afterwards the program has no op `call` or `call_grad`; the blocks of functions stay, and no op
// names them. The variables of a call are those of its block, with a prefix of its own; the blocks
// that the function's ops run (loops, branches) are copied for each call, and then stand before all
// gradient blocks. Values, names of arguments and results, and the order of all other ops stay.
// Handles on variables of sub-blocks are not valid afterwards.
// Throws kInvalidArgument for a function that calls itself. REQUIRES: blocks whose parents and
// forward blocks are blocks (Verify). Returns whether there was a call.
bool InlineCalls(ProgramDesc& program);

// The same, but for calls whose gradient is given (by gradient_block or gradient_function): their
// blocks are not what they are differentiated by.
bool InlineDerivedCalls(ProgramDesc& program);

}  // namespace coracle

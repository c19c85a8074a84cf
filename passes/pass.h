#pragma once
// Passes: functions that rewrite a program for the executor. Saved programs keep Paddle's ops;
// passes work on the compiled copy. The list, in order and with reasons, is in pipeline.cc.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle {

class ProgramOrigins;

// Values of persistable variables that are constants of the compiled program, by name.
using FrozenValues = std::unordered_map<std::string, Tensor>;

struct PassContext {
  const OpRegistry& ops;
  std::unordered_set<std::string> feeds;
  std::unordered_set<std::string> fetches;        // must keep their names, shapes and values
  std::unordered_set<std::string> captured = {};  // names in sub-blocks; RunPasses finds them
  FrozenValues* frozen = nullptr;                 // nullptr: no parameters are frozen
  KernelMode kernels = KernelMode::kAuto;         // of ops that a pass runs

  // A variable that something outside the program's ops may read: fetched, persistable, or used
  // in a sub-block.
  bool IsVisible(const BlockDesc& block, const std::string& name) const;

  // The value of a frozen parameter; nullptr for any other variable.
  const Tensor* FrozenValue(const std::string& name) const;
  // Adds a frozen parameter to the root block and returns its name, which begins with
  // `prefix`. REQUIRES: frozen.
  std::string AddFrozen(ProgramDesc& program, const std::string& prefix, Tensor value) const;
  // Declares that no op reads the parameter any more, so that its memory is released unless it is
  // fetched. REQUIRES: frozen.
  void ReleaseFrozen(const std::string& name) const;

  // Notes that a variable which the pass has made holds `from`, an older one; with its axes in
  // another order, `writer` is the op that wrote `from` (VarOrigin).
  void NoteMade(const std::string& made, const std::string& from,
                const std::vector<int32_t>& axes = {},
                std::shared_ptr<const OpDesc> writer = nullptr) const;

  std::vector<std::string> disabled = {};  // names of passes that RunPasses leaves out
  ProgramOrigins* origins = nullptr;       // of the variables that passes make
};

struct Pass {
  std::string name;
  std::string reason;
  void (*run)(ProgramDesc& program, const PassContext& context);
  // What ops compute on the way is not seen any more, so that a run which checks the result of each
  // op (check_nan_inf) goes without the pass.
  bool hides_results = false;
};

// All passes in the order in which Compile runs them.
const std::vector<Pass>& Pipeline();
// The names of its passes but for those of `disabled`. Throws kNotFound for an unknown name.
std::vector<std::string> PassesWithout(const std::vector<std::string>& disabled);

// Ops that a pass makes have the origins of those whose work they do (AddOrigins): Rewrites,
// ValueFlow::Replace and CopyRemarks see to that, as do copies of ops.

// What a pass did.
struct PassRun {
  const Pass& pass;
  const ProgramDesc &before, &after;
  double seconds;  // of the pass alone
};
using PassObserver = std::function<void(const PassRun&)>;

// Runs the passes of the given names (all of the pipeline when empty) in the pipeline's order. The
// program is verified once, after the last pass, since that takes longer than most passes do; with
// `after_each`, after each pass, before `after_each` sees it. Throws kNotFound for an unknown name,
// InternalError if a pass breaks the program, with the name of the pass (also where a later pass
// then fails); an error that a pass throws on a sound program is passed on.
void RunPasses(ProgramDesc& program, const PassContext& context,
               const std::vector<std::string>& names = {}, const PassObserver& after_each = {});
// The same for passes that need not be among the pipeline's.
void RunPassList(ProgramDesc& program, const PassContext& context, const std::vector<Pass>& passes,
                 const PassObserver& after_each = {});

// InlineCalls: replaces each `call`, and the gradients of calls, by the ops of its block.

// Afterwards the program has no op `call` or `call_grad`; the blocks of functions stay, and no op
// names them. The variables of a call are those of its block, with a prefix unique to the call. The
// blocks that the function's ops run (loops, branches) are copied for each call, and stand before
// all gradient blocks. Values, names of arguments and results, and the order of all other ops do
// not change. Handles on variables of sub-blocks become invalid. Throws kInvalidArgument for a
// function that calls itself. REQUIRES: parents and forward blocks of all blocks exist (Verify
// checks this). Returns whether there was a call. `origins` gets those of the variables and blocks.
bool InlineCalls(ProgramDesc& program, ProgramOrigins* origins = nullptr);

// The same, except that calls whose gradient is given (by gradient_block or gradient_function)
// stay: their gradient is not that of their block.
bool InlineDerivedCalls(ProgramDesc& program);

// Some ops read what their output held before, and name it under no input slot (see
// framework/op/kept_outputs.h). They get that variable as an input if it has a value: if it is
// persistable or fed, belongs to a block around, or was written by an op before.
void BindKeptOutputs(ProgramDesc& program, const OpRegistry& ops,
                     const std::vector<std::string>& feeds);

}  // namespace coracle

#pragma once
// Passes: functions that rewrite a program for the executor. Saved programs keep Paddle's ops;
// passes work on the compiled copy. The list, in order and with reasons, is in pipeline.cc.

#include <coracle/framework/ir/origin.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle::inline internal {

// Values of persistable variables that are constants of the compiled program, by name.
using FrozenValues = std::unordered_map<std::string, Tensor>;

struct PassContext {
  const OpRegistry& ops;
  std::unordered_set<std::string> feeds;
  std::unordered_set<std::string> fetches;        // must keep their names, shapes and values
  std::unordered_set<std::string> captured = {};  // names in sub-blocks; RunPasses finds them
  FrozenValues* frozen = nullptr;                 // nullptr: no parameters are frozen
  KernelMode kernels = KernelMode::kAuto;         // for ops that a pass runs

  // Whether the variable may be read outside of the block's ops: it is fetched, persistable or used
  // in a sub-block.
  bool IsVisible(const BlockDesc& block, const std::string& name) const;

  // The value of a frozen parameter; nullptr for any other variable.
  const Tensor* FrozenValue(const std::string& name) const;
  // Adds a frozen parameter to the root block and returns its name, which begins with
  // `prefix`. REQUIRES: frozen.
  std::string AddFrozen(ProgramDesc& program, const std::string& prefix, Tensor value) const;
  // The same for the value of `from` in another form: the name begins with from + suffix, and
  // NoteMade records it.
  std::string AddFrozenForm(ProgramDesc& program, const std::string& from, const char* suffix,
                            Tensor value, const std::vector<int32_t>& axes = {}) const;
  // Declares that no op reads the parameter any more. Releases its memory, unless it is fetched.
  void ReleaseFrozen(const std::string& name) const;

  // Records that `made`, a variable created by the pass, holds the value of `from`. If `axes` are
  // given, its axes are permuted by them, and `writer` is the op that wrote `from` (VarOrigin).
  void NoteMade(const std::string& made, const std::string& from,
                const std::vector<int32_t>& axes = {},
                std::shared_ptr<const OpDesc> writer = nullptr) const;
  // Adds a variable of that type to the root block for the value of `from` in another form, as
  // AddFrozenForm does for constants. Returns its name.
  std::string AddForm(ProgramDesc& program, const std::string& from, const char* suffix,
                      const VarMeta& meta, const std::vector<int32_t>& axes = {},
                      std::shared_ptr<const OpDesc> writer = nullptr) const;
  // The same with the type of `from` in another dtype.
  std::string AddForm(ProgramDesc& program, const std::string& from, const char* suffix,
                      DType dtype) const;

  std::vector<std::string> disabled = {};  // names of passes that RunPasses leaves out
  ProgramOrigins* origins = nullptr;       // for the variables that passes make
  DType precision = DType::kFloat32;       // what layers with frozen weights compute in
  std::vector<OpOrigin> float32_ops = {};  // sorted: given ops that compute in float32 all the same
};

// Whether the condition holds for an op of the block.
template <class F>
bool AnyOp(const BlockDesc& block, const F& is) {
  for (size_t i = 0; i < block.NumOps(); ++i) {
    if (is(block.op(i))) return true;
  }
  return false;
}

// Calls f(op), then f for the ops of all blocks that the op runs.
template <class F>
void ForEachRunBy(const ProgramDesc& program, const OpDesc& op, const F& f) {
  f(op);
  if (!op.HasSubBlock()) return;
  for (const BlockDesc* inner : program.BlocksRunBy(op)) inner->ForEachOp(f);
}

// The names that ops of sub-blocks read or write.
std::unordered_set<std::string> NamesInSubBlocks(const ProgramDesc& program);

struct Pass {
  std::string name;
  std::string reason;
  // New ops must get the origins of the ops that they replace (AddOrigins). Rewrites,
  // ValueFlow::Replace and CopyRemarks do that, and a copy of an op keeps its origins.
  void (*run)(ProgramDesc& program, const PassContext& context);
  // The pass hides intermediate results, so check_nan_inf turns it off.
  bool hides_results = false;
};

// All passes in the order in which Compile runs them.
const std::vector<Pass>& Pipeline();
// The names of all its passes except `disabled`. Throws kNotFound for an unknown name.
std::vector<std::string> PassesWithout(const std::vector<std::string>& disabled);

// The effect of one pass.
struct PassRun {
  const Pass& pass;
  const ProgramDesc &before, &after;
  double seconds;  // duration of the pass alone
};
using PassObserver = std::function<void(const PassRun&)>;

// Runs the passes with the given names (all passes of the pipeline if empty), in the pipeline's
// order. Verifies the program once after the last pass, because verification takes longer than most
// passes; with `after_each`, after each pass that changed the program, before calling `after_each`.
// Throws kNotFound for an unknown name. Throws InternalError with the name of the pass if a pass
// breaks the program, also if only a later pass fails on the result. Passes on an error that a pass
// throws on a sound program.
void RunPasses(ProgramDesc& program, const PassContext& context,
               const std::vector<std::string>& names = {}, const PassObserver& after_each = {});
// The same for an arbitrary list of passes.
void RunPassList(ProgramDesc& program, const PassContext& context, const std::vector<Pass>& passes,
                 const PassObserver& after_each = {});

// Replaces each `call`, and the gradients of calls, by the ops of its block.
//
// The result has no op `call` or `call_grad`; the blocks of functions stay but are not used. A
// call's variables are those of its block, with a prefix unique to the call. Each call gets its own
// copies of the blocks that the function's ops run (loops, branches), before all gradient blocks.
// Values, names of arguments and results, and the order of all other ops do not change. Handles on
// variables of sub-blocks become invalid. Throws kInvalidArgument for a function that calls itself.
// REQUIRES: parents and forward blocks of all blocks exist (Verify checks this). Returns whether
// there was a call. Adds the origins of the new variables and blocks to `origins`.
bool InlineCalls(ProgramDesc& program, ProgramOrigins* origins = nullptr);

// The same, but skips calls with a given gradient (gradient_block or gradient_function), because
// that is not the gradient of their block.
bool InlineDerivedCalls(ProgramDesc& program);

// Replaces each op that only joins others (OpDef::Expands) by these, at the same place and in every
// block. The values of the op's outputs do not change; the new ops do not write some intermediate
// outputs (ColMat, FCOut). Returns whether there was such an op. Without `trains`, no gradient of
// the new ops will be taken, so they need not write what only gradients read. REQUIRES: the program
// is sound (Verify).
bool ExpandOps(ProgramDesc& program, const OpRegistry& ops, bool trains = true);

// Some ops read the previous value of their output although it is not in any input slot (see
// framework/op/kernel/kept_outputs.h). Adds that variable as an input if it has a value: if it is
// persistable or fed, belongs to an outer block, or was written by an earlier op.
void BindKeptOutputs(ProgramDesc& program, const OpRegistry& ops,
                     const std::vector<std::string>& feeds);

}  // namespace coracle::inline internal

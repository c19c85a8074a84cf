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

  std::vector<std::string> disabled = {};  // names of passes that RunPasses leaves out
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

// --- the passes, one file each ---

// Removes the ops of the root block whose outputs are neither read nor visible.
void EliminateDeadCode(ProgramDesc& program, const PassContext& context);

// Removes ops that pass on their input (assign, dropout in a test, scale by 1, cast to the same
// type, concat of one, ...): what reads their output reads the input. Of reshapes in a row, the
// last one stays.
void RemoveIdentities(ProgramDesc& program, const PassContext& context);

// Runs the ops that depend on frozen parameters and constants alone. Their results become frozen
// parameters, unless these would take more memory, by more than 1 MiB in all, than those that
// nobody reads any more.
void FoldConstants(ProgramDesc& program, const PassContext& context);

// Ops of equal type, attrs and inputs are done once. Copies that were computed again
// (recomputed_from) and their originals stay.
void JoinCommonSubexpressions(ProgramDesc& program, const PassContext& context);

// What a loop of the root block computes in each round, but does not change, is computed before it,
// if the loop has a round at all. Loops that are differentiated stay.
void HoistInvariants(ProgramDesc& program, const PassContext& context);

// Folds a batch_norm with fixed statistics into the convolution or mul before it (and a bias
// between them): its scale is multiplied into the filter, and the rest becomes a bias. Requires
// that all parameters are frozen.
void FoldBatchNorm(ProgramDesc& program, const PassContext& context);

// conv2d + elementwise_add of a per-channel bias becomes one conv2d with Bias, and so
// do their gradients.
void FuseConvBias(ProgramDesc& program, const PassContext& context);

// A convolution, what is added to it in its own shape, and the activation of the sum become one op.
void FuseConvEpilogue(ProgramDesc& program, const PassContext& context);

// In training, batch_norm + relu becomes fused_batch_norm_act, batch_norm + elementwise_add + relu
// becomes fused_bn_add_activation, and so do their gradients.
void FuseBatchNormActivation(ProgramDesc& program, const PassContext& context);

// mul or matmul with a matrix of parameters, elementwise_add of a bias along the last axis, and an
// activation if one follows and its gradient does not read their sum, become one fc; the gradients
// of the product and the addition, and that of relu before them, become one fc_gradients.
void FuseFc(ProgramDesc& program, const PassContext& context);

// softmax_with_cross_entropy, the mean of its loss and the gradients of both become one op that
// computes loss and gradient together. Elsewhere a Softmax that nobody reads is not stored.
void FuseSoftmaxCrossEntropy(ProgramDesc& program, const PassContext& context);

// softmax(Q K^T scale + mask) V becomes one scaled_dot_product_attention, with dropout of the
// weights and with the gradients of all of it: the matrix of scores never exists as a whole. So do
// transpositions and slices that make Q, K and V of [B, S, H, D] or [B, S, 3, H, D].
void FuseAttention(ProgramDesc& program, const PassContext& context);

// Runs ops on images and volumes with channels last: they and the elementwise ops between them get
// data_format NHWC, and transpose2 ops convert at the borders. The layout of visible variables does
// not change.
void UseNhwcLayout(ProgramDesc& program, const PassContext& context);

// Transposes in a row become one, or none; a product transposes its Y itself. A transpose before
// ops that any order of axes suits (elementwise ops, concat, split, reductions, pad, slice, shape,
// softmax) moves behind them where that leaves fewer or smaller ones.
void MoveTransposes(ProgramDesc& program, const PassContext& context);

// In the root block, connected elementwise ops on tensors of one shape become one op
// fused_elementwise at the place of the last of them, unless an op between them reads or writes
// what they write, or writes what they read. Updates (the role Optimize) and ops whose results are
// known before a run stay.
void FuseElementwise(ProgramDesc& program, const PassContext& context);

// In every block, joins ops of the role Optimize that differ only in their tensors (see
// OpDef::MultiTensor) into one op at the place of the last of them, unless an op between them reads
// or writes what they write, or writes what they read.
void MergeUpdates(ProgramDesc& program, const PassContext& context);

// InlineCalls: replaces each `call`, and the gradients of calls, by the ops of its block.

// Afterwards the program has no op `call` or `call_grad`; the blocks of functions stay, and no op
// names them. The variables of a call are those of its block, with a prefix unique to the call. The
// blocks that the function's ops run (loops, branches) are copied for each call, and stand before
// all gradient blocks. Values, names of arguments and results, and the order of all other ops do
// not change. Handles on variables of sub-blocks become invalid. Throws kInvalidArgument for a
// function that calls itself. REQUIRES: parents and forward blocks of all blocks exist (Verify
// checks this). Returns whether there was a call.
bool InlineCalls(ProgramDesc& program);

// The same, except that calls whose gradient is given (by gradient_block or gradient_function)
// stay: their gradient is not that of their block.
bool InlineDerivedCalls(ProgramDesc& program);

// Some ops read what their output held before, and name it under no input slot (see
// framework/op/kept_outputs.h). They get that variable as an input if it has a value: if it is
// persistable or fed, belongs to a block around, or was written by an op before.
void BindKeptOutputs(ProgramDesc& program, const OpRegistry& ops,
                     const std::vector<std::string>& feeds);

}  // namespace coracle

#pragma once
// Questions about programs, and ops, that the rewritings of distribute/ share. Internal to it.

#include <coracle/distribute/all_reduce.h>
#include <coracle/framework/op/op_inserter.h>

#include <algorithm>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Throw kInvalidArgument with "distribute: " and the place of the op before, or after, the text.
[[noreturn]] void Refuse(const std::string& what);
[[noreturn]] void Refuse(const OpDesc& op, const std::string& what);

const OpRegistry& OpsOf(const AllReduceOptions& options);

template <class Range, class T>
bool Contains(const Range& range, const T& value) {
  return std::find(range.begin(), range.end(), value) != range.end();
}

// Calls f(op) for the op, then for the ops of the blocks that it runs.
template <class F>
void ForEachOpRunBy(const OpDesc& op, F&& f) {
  f(op);
  for (const BlockDesc* block : op.block()->program().BlocksRunBy(op)) block->ForEachOp(f);
}

// The op's outputs, slot by slot, as the attr recomputed_from of copies lists them.
std::vector<std::string> OutputNames(const OpDesc& op);
// The variable that the block sees. Throws kNotFound.
const VarDesc& VarOf(const BlockDesc& block, const std::string& name);
// Declares a dense variable without a gradient.
VarDesc& DeclareDense(BlockDesc& block, const std::string& name, DType dtype, const Shape& shape);

// A fill_constant whose shape and value are attrs: equal on all ranks.
bool IsConstant(const OpDesc& op);

// The ops that begin the gradient of a loss.
std::vector<const OpDesc*> LossGradients(const ProgramDesc& main);
// The dtype of the share: the loss's; float32 in a program without gradients.
DType DTypeOfShare(const ProgramDesc& main);

// Declares the variable of the rank's share of the rows in the root block, unless it is there.
// Throws kInvalidArgument if it has another type or is not fed.
void DeclareShare(BlockDesc& root, const std::string& name, DType dtype);
// The same, but an existing variable may have any type.
void DeclareShareUnlessThere(BlockDesc& root, const std::string& name, DType dtype);

// The rank's rows divided by all rows [1]: the variable `share`, which is declared unless it is
// there, or 1 / nranks if `share` is "".
Variable ShareOfRows(const Writer& w, BlockDesc& root, const std::string& share, int nranks,
                     DType dtype);

// After the startup ops that fill them, all ranks get the persistable variables of rank 0,
// parameters or not. Constants that are not parameters (states of the optimizer) are left out.
// Returns the names.
std::vector<std::string> BroadcastParameters(const ProgramDesc& main, const ProgramDesc& startup,
                                             int ring_id, OpInserter* inserter);

// Multiplies the variable by the one element of `factor`, in place.
void ScaleInPlace(const Writer& w, const std::string& name, const Variable& factor);
// Replaces the variables by their sums over all ranks, in one exchange.
void SumInPlace(const Writer& w, const std::vector<std::string>& names, int ring_id);
// Appends an exchange that replaces each variable by its result.
void ExchangeInPlace(const Writer& w, const std::string& type,
                     const std::vector<std::string>& names, int ring_id);

}  // namespace coracle::inline internal

#pragma once
// Finds out which variables of the root block may replace others, and makes the edits that replace
// them. Internal to passes/.
//
//   ValueFlow flow(program, context);
//   program.Root().ForEachOp([&](OpDesc& op) {
//     if (!IsIdentity(op)) return;
//     const std::string &out = op.Output("Out")[0], source = flow.Source(op.Input("X")[0]);
//     if (!flow.IsOnlyOutput(op, out) || !flow.MayStandFor(source, op, out)) return;
//     flow.Forward(out, source);
//     flow.Remove(op);
//   });
//   flow.Apply();
//
// The block changes only in Apply, so its index of uses stays valid. Source returns the variable
// that an input will be.

#include <coracle/passes/pass.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle::inline internal {

class FlowTypes;

// Whether the op has an input in a slot other than `slot`.
bool HasOtherInput(const OpDesc& op, std::string_view slot);
// The only variable of a slot; "" if it has none or several.
std::string OnlyVariable(const std::vector<std::string>& args);
// Whether the op computes its outputs only from its inputs and attrs, in each run in the same way.
bool IsFunction(const OpSpec& spec);
// The dtype of a variable that is declared a dense tensor; nullopt for others.
std::optional<DType> DTypeOfTensor(const BlockDesc& block, const std::string& var);
// Infers the types of the block's variables, in the order of its ops. Those that ops with
// sub-blocks write stay as they are.
void InferAll(const BlockDesc& block, const OpRegistry& ops, FlowTypes& types);

// The ops that are computed again for a gradient, and the ops that compute them again
// (recomputed_from). The two give the same bits only if passes leave both unchanged or rewrite both
// in the same way.
class RecomputedOps {
 public:
  explicit RecomputedOps(const ProgramDesc& program);
  bool Contain(const OpDesc& op) const;

 private:
  std::unordered_set<std::string> originals_;  // named by the copies
};

class ValueFlow {
 public:
  ValueFlow(ProgramDesc& program, const PassContext& context);

  // Whether exactly one op of the root block writes it, only ops of the root block read it, and it
  // is declared a dense tensor.
  bool IsTemporary(const std::string& var) const;
  // Whether its value does not change during a run.
  bool IsConstantInARun(const std::string& var) const;
  // Whether no op reads it and it is not visible outside the program.
  bool IsUnread(const std::string& var) const;
  // Whether all outputs of the op except `out` are unread.
  bool IsOnlyOutput(const OpDesc& op, const std::string& out) const;
  // Whether ops that read `out`, an output of `op`, may read `source` instead, if both have the
  // same value when the op runs: `out` is a temporary, and no op writes `source` between `op` and
  // the last of these readers.
  bool MayStandFor(const std::string& source, const OpDesc& op, const std::string& out) const;
  // Whether the variable has the same value before `op` and before `later`.
  bool IsSame(const std::string& var, const OpDesc& op, const OpDesc& later) const;
  bool IsRecomputed(const OpDesc& op) const { return recomputed_.Contain(op); }
  // The only op that writes the temporary; nullptr if it is to be removed.
  OpDesc* WriterOf(const std::string& temporary) const;
  // The only op that reads the temporary, at one position. nullptr if several ops or positions read
  // it, if none does, or if the op is recomputed.
  const OpDesc* ReaderOf(const std::string& temporary) const;
  // The rank that a variable has for all feeds; -1 if it is unknown. (The program may declare
  // another shape than is fed.)
  int CertainRank(const std::string& var) const { return CertainRank(var, 0); }
  size_t NumReaders(const std::string& var) const { return block_.Uses(var).readers.size(); }

  // Makes ops that read `out` read `source` (or its own replacement).
  void Forward(const std::string& out, const std::string& source);
  void Remove(const OpDesc& op) { removed_.insert(&op); }
  // Replaces the op by one that also gets its origins.
  void Replace(const OpDesc& op, OpDesc with);
  bool IsRemoved(const OpDesc& op) const { return removed_.count(&op) > 0; }
  bool IsReplaced(const OpDesc& op) const { return replaced_.count(&op) > 0; }
  // The variable that an op which reads `var` will read.
  const std::string& Source(const std::string& var) const;
  bool Apply();  // returns whether there were edits

 private:
  bool IsSeen(const std::string& var) const;
  bool IsWrittenBetween(const std::string& var, size_t first, size_t last) const;
  int CertainRank(const std::string& var, int depth) const;
  int FindRank(const std::string& var, int depth) const;

  BlockDesc& block_;
  const PassContext& context_;
  const RecomputedOps recomputed_;
  std::unordered_set<std::string> inner_names_, inner_writes_;  // of sub-blocks
  mutable std::unordered_map<std::string, int> ranks_;          // results of CertainRank
  std::unordered_map<std::string, std::string> forwards_;
  std::unordered_set<const OpDesc*> removed_;
  std::unordered_map<const OpDesc*, std::unique_ptr<OpDesc>> replaced_;
};

// Finds out which variables of the root block may have LoD in a run.
class LodFlow {
 public:
  LodFlow(const BlockDesc& block, const PassContext& context) : block_(block), context_(context) {}
  bool MayHaveLod(const std::string& var) const;

 private:
  const BlockDesc& block_;
  const PassContext& context_;
  mutable std::unordered_map<std::string, bool> known_;
};

// The dtypes of variables of the root block that are certain: of feeds (which are checked)
// and of frozen values, and those that the ops' rules derive from them. A parameter that is not
// frozen may have another dtype in the scope than the program declares.
class CertainDTypes {
 public:
  CertainDTypes(const ProgramDesc& program, const PassContext& context);
  // nullopt if it is unknown.
  std::optional<DType> Find(const std::string& var) const;

 private:
  bool IsGiven(const BlockDesc& root, const PassContext& context, const std::string& var) const;

  std::unordered_map<std::string, DType> dtypes_;
};

}  // namespace coracle::inline internal

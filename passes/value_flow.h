#pragma once
// Which variables of the root block may stand for others, and the edits that let them. Internal to
// passes/.
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
// The block does not change before Apply, so that its index of uses holds; Source tells what an
// input will be.

#include <coracle/passes/pass.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle {

// Whether the op has an input in another slot.
bool HasOtherInput(const OpDesc& op, std::string_view slot);

// The ops that are computed again for a gradient, and those that compute them again
// (recomputed_from). Both have the same bits only if passes leave both as they are, or rewrite both
// alike.
class RecomputedOps {
 public:
  explicit RecomputedOps(const ProgramDesc& program);
  bool Contain(const OpDesc& op) const;

 private:
  std::unordered_set<std::string> originals_;  // that copies name
};

class ValueFlow {
 public:
  ValueFlow(ProgramDesc& program, const PassContext& context);

  // One op of the root block writes it, only ops of the root block read it, and it is declared a
  // dense tensor.
  bool IsTemporary(const std::string& var) const;
  // It has one value in a run, wherever it has one.
  bool IsConstantInARun(const std::string& var) const;
  // Nobody reads it, nor sees it.
  bool IsUnread(const std::string& var) const;
  // Of the op's outputs, those but `out` are unread.
  bool IsOnlyOutput(const OpDesc& op, const std::string& out) const;
  // Whether ops that read `out`, an output of `op`, may read `source` in its place, if it has the
  // same value when the op runs: `out` is a temporary, and nobody writes `source` after the op and
  // before the last of these ops.
  bool MayStandFor(const std::string& source, const OpDesc& op, const std::string& out) const;
  // Whether the variable's value before `op` is the one that it has before `later`.
  bool IsSame(const std::string& var, const OpDesc& op, const OpDesc& later) const;
  bool IsRecomputed(const OpDesc& op) const { return recomputed_.Contain(op); }
  // The only op that writes the temporary, unless it is to be removed.
  OpDesc* WriterOf(const std::string& temporary) const;
  // The rank that a variable has whatever is fed; -1 if that is not known. (A file may declare
  // another shape than is fed.)
  int CertainRank(const std::string& var) const { return CertainRank(var, 0); }
  size_t NumReaders(const std::string& var) const { return block_.Uses(var).readers.size(); }

  // Edits.
  //
  // Ops that read `out` are to read `source` (or what stands for that) from now on.
  void Forward(const std::string& out, const std::string& source);
  void Remove(const OpDesc& op) { removed_.insert(&op); }
  // The op is to be replaced by one that also has its origins.
  void Replace(const OpDesc& op, OpDesc with);
  bool IsRemoved(const OpDesc& op) const { return removed_.count(&op) > 0; }
  bool IsReplaced(const OpDesc& op) const { return replaced_.count(&op) > 0; }
  // What an op that reads `var` is to read.
  const std::string& Source(const std::string& var) const;
  bool HasEdits() const { return !forwards_.empty() || !removed_.empty() || !replaced_.empty(); }
  void Apply();

 private:
  bool IsSeen(const std::string& var) const;
  bool IsWrittenBetween(const std::string& var, size_t first, size_t last) const;
  int CertainRank(const std::string& var, int depth) const;
  int FindRank(const std::string& var, int depth) const;

  BlockDesc& block_;
  const PassContext& context_;
  const RecomputedOps recomputed_;
  std::unordered_set<std::string> inner_names_, inner_writes_;  // of sub-blocks
  mutable std::unordered_map<std::string, int> ranks_;          // that CertainRank has found
  std::unordered_map<std::string, std::string> forwards_;
  std::unordered_set<const OpDesc*> removed_;
  std::unordered_map<const OpDesc*, std::unique_ptr<OpDesc>> replaced_;
};

// Whether variables of the root block may have LoD in a run.
class LodFlow {
 public:
  LodFlow(const BlockDesc& block, const PassContext& context) : block_(block), context_(context) {}
  bool MayHaveLod(const std::string& var) const;

 private:
  const BlockDesc& block_;
  const PassContext& context_;
  mutable std::unordered_map<std::string, bool> known_;
};

// The dtypes that variables of the root block certainly have: those of feeds (which are checked)
// and of frozen values, and what follows from them by the ops' rules. A parameter that is not
// frozen may have another dtype in the scope than the program declares.
class CertainDTypes {
 public:
  CertainDTypes(const ProgramDesc& program, const PassContext& context);
  // nullopt when it is not known.
  std::optional<DType> Find(const std::string& var) const;

 private:
  bool IsGiven(const BlockDesc& root, const PassContext& context, const std::string& var) const;

  std::unordered_map<std::string, VarMeta> types_;
  std::unordered_set<std::string> certain_;
};

}  // namespace coracle

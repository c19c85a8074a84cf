#pragma once
// PartValues: how the values that ranks compute of their parts of a batch make that of the whole
// batch, by the forward ops of a program. Internal to distribute/.

#include <coracle/distribute/row_flow.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace coracle {

enum class PartKind : uint8_t {
  kSame,     // every rank has that of the whole batch
  kRows,     // the whole has the rows of the parts, one after the other
  kMean,     // the mean of the parts' values, by a weight
  kSum,      // their sum
  kUnknown,  // no rule tells
};

struct PartValue {
  PartKind kind = PartKind::kSame;
  // Of kRows: parts have no number of elements that is in proportion to the rows of the batch.
  bool ragged = false;
  bool padded = false;  // of kRows: to the longest of the rank's sequences
  bool places = false;  // of kRows: those of rows within the part
  // Of kRows: in the order of a rank table, the longest sequence first; such a table, or an array.
  bool sorted = false;
  RowPlace place = {};  // of kRows
  // Of kMean: "" the rows of the batch; else the elements of this variable, or with `counted` its
  // value, a sum.
  std::string weight = {};
  bool counted = false;
  std::string reason = {};  // of kUnknown: the op behind which no rule tells
  // Of kUnknown: as long as the rank's longest sequence, or whether a step is before its end.
  bool longest = false;

  bool MeanOfRows() const { return kind == PartKind::kMean && weight.empty(); }
  bool IsNumber() const { return kind == PartKind::kMean || kind == PartKind::kSum; }
  bool operator==(const PartValue&) const = default;
};

// An op whose input `name` must be replaced before Of is right about its outputs. Its gradient ops
// change with it, so that gradients stay the rank's part of those of the whole batch.
struct PartRead {
  const OpDesc* op;
  std::string name;
  // By no linear formula, such as the root of a mean or the division by a count: the op reads the
  // value of the whole batch, and then computes the same on all ranks. Else it adds what weighs
  // differently: it reads the rank's value times its weight, so that the ranks' results add up.
  bool whole = true;
  PartValue part = {};  // that of `name`

  bool operator<(const PartRead& other) const {
    return std::tie(op, name) < std::tie(other.op, other.name);
  }
};

// A gradient that gradient ops of an op write, and the last op that does.
struct PartGradient {
  std::string name;
  const OpDesc* writer;
};

class PartValues {
 public:
  // Rows are those of inputs with an open dimension, which nothing writes, and of what depends on
  // them. Blocks are followed as often as it takes for what they carry to stay the same. Program
  // and ops must outlive this.
  PartValues(const ProgramDesc& program, const OpRegistry& ops);

  const PartValue& Of(const std::string& name) const;
  // What must read other values, so that `name` is what Of tells.
  std::vector<PartRead> ReadsOf(const std::string& name) const;
  // The gradient ops of a forward op of the root block, as backward links them; of programs without
  // such links those that read the gradient of an output.
  const std::vector<const OpDesc*>& GradientOpsOf(const OpDesc& op) const;
  // What they contribute to the gradient of an input of the op.
  std::vector<PartGradient> GradientsInto(const OpDesc& op, const std::string& input) const;

 private:
  // What the block that is followed calls by the name: its own variable, or one around it.
  const VarDesc* Find(const std::string& name) const { return block_->FindVarRecursive(name); }
  std::string KeyOf(const std::string& name) const;
  bool IsOwn(const std::string& name) const;
  void Set(const std::string& name, PartValue value);
  static PartValue Join(const OpDesc& op, const PartValue& a, const PartValue& b);

  // See block_values.cc.
  void VisitBlocksOf(const OpDesc& op);
  void VisitRecurrent(const OpDesc& op, const BlockDesc& block);
  void VisitCall(const OpDesc& op, const BlockDesc& block);
  bool CarriesTheSame(const OpDesc& op, const BlockDesc& block, const std::function<bool()>& carry);
  void RunBlock(const BlockDesc& block);
  void Leave(const OpDesc& op, const BlockDesc& block, bool settled);
  static PartValue LeftBy(const OpDesc& op, const std::string& name, PartValue value, bool settled);
  PartValue ConditionOf(const OpDesc& op) const;
  std::optional<PartValue> OfSorted(const OpDesc& op, const std::string& out, bool unsorted) const;
  static PartValue Unknown(const OpDesc& op, const std::string& why);

  void VisitInput(const VarDesc& var);
  void Visit(const OpDesc& op);
  void VisitGradientOp(const OpDesc& op);
  PartValue Apply(const OpDesc& op, const std::string& out, const std::string& slot);
  PartValue OfNumbers(const OpDesc& op);
  PartValue OfSum(const OpDesc& op);
  PartValue OfReduced(const OpDesc& op, const std::string& out) const;
  PartValue OfRows(const OpDesc& op, const std::string& out, PartValue inputs) const;
  PartValue FlowInto(const OpDesc& op, const std::string& out, PartValue inputs) const;
  bool IsRagged(const OpDesc& op, const std::string& out) const;
  PartValue MeanOf(const std::string& x) const;
  bool AreSame(const OpDesc& op, const char* slot) const;
  bool IsLinear(const OpDesc& op, const std::string& name) const;
  bool IsFloat(const std::string& name) const;
  bool MayReplace(const OpDesc& op, const std::string& name) const;
  bool Replace(const OpDesc& op, const std::string& name, bool whole);
  bool ReadWhole(const OpDesc& op, const std::string& name) { return Replace(op, name, true); }
  void LinkGradientOp(const OpDesc& gradient);
  bool IsOpen(const std::string& name) const;

  const BlockDesc& root_;
  const BlockDesc* block_;              // the one that is followed
  std::vector<const BlockDesc*> open_;  // and those around it
  int runs_ = 0;                        // of blocks
  const OpRegistry& ops_;
  std::unordered_map<std::string, PartValue> values_;                    // by KeyOf
  std::unordered_map<std::string, std::vector<const OpDesc*>> forward_;  // writers, in order
  std::unordered_map<const OpDesc*, std::vector<const OpDesc*>> gradient_ops_;
  std::set<PartRead> reads_;
};

}  // namespace coracle

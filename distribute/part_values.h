#pragma once
// PartValues: how the values that ranks compute of their parts of a batch make that of the whole
// batch, by the forward ops of a program. Internal to distribute/.

#include <coracle/distribute/row_flow.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

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
  RowPlace place = {};  // of kRows
  // Of kMean: "" the rows of the batch; else the elements of this variable, or with `counted` its
  // value, a sum.
  std::string weight = {};
  bool counted = false;
  std::string reason = {};  // of kUnknown: the op behind which no rule tells

  bool MeanOfRows() const { return kind == PartKind::kMean && weight.empty(); }
  bool IsNumber() const { return kind == PartKind::kMean || kind == PartKind::kSum; }
  bool operator==(const PartValue&) const = default;
};

// An op that is no linear formula of a mean or sum which it reads, such as the division by a count:
// it has to read that of the whole batch, and then computes the same on all ranks. That is so for
// values through which no gradient flows. For others the result is kUnknown.
struct WholeRead {
  const OpDesc* op;
  std::string name;
  bool has_gradient = false;  // of the op: gradient ops that read `name` read what the op does

  bool operator<(const WholeRead& other) const {
    return std::tie(op, name) < std::tie(other.op, other.name);
  }
};

class PartValues {
 public:
  // Rows are those of inputs with an open dimension, which nothing writes, and of what depends on
  // them. Program and ops must outlive this.
  PartValues(const ProgramDesc& program, const OpRegistry& ops);

  const PartValue& Of(const std::string& name) const;
  // What must read values of the whole batch, so that `name` is what Of tells.
  std::vector<WholeRead> ReadsOf(const std::string& name) const;

 private:
  void VisitInput(const VarDesc& var);
  void Visit(const OpDesc& op);
  PartValue Apply(const OpDesc& op, const std::string& out, const std::string& slot);
  PartValue OfNumbers(const OpDesc& op);
  PartValue OfSum(const OpDesc& op) const;
  PartValue OfReduced(const OpDesc& op, const std::string& out) const;
  PartValue OfRows(const OpDesc& op, const std::string& out, PartValue inputs) const;
  PartValue FlowInto(const OpDesc& op, const std::string& out, PartValue inputs) const;
  bool IsRagged(const OpDesc& op, const std::string& out) const;
  PartValue MeanOf(const std::string& x) const;
  bool AreSame(const OpDesc& op, const char* slot) const;
  bool IsLinear(const OpDesc& op, const std::string& name) const;
  bool IsFloat(const std::string& name) const;
  bool HasGradient(const OpDesc& op) const;
  bool MayReadWhole(const OpDesc& op, const std::string& name) const;
  bool ReadWhole(const OpDesc& op, const std::string& name);
  bool IsOpen(const std::string& name) const;

  const BlockDesc& root_;
  const OpRegistry& ops_;
  std::unordered_map<std::string, PartValue> values_;
  std::unordered_map<std::string, std::vector<const OpDesc*>> forward_;  // writers, in order
  std::set<WholeRead> whole_reads_;
};

}  // namespace coracle

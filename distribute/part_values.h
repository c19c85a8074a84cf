#pragma once
// PartValues: how each variable of a rank's program combines to the value of the whole batch, by
// the declared traits of the forward ops. docs/distribute.md has the table of rules.

#include <coracle/distribute/row_flow.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace coracle::inline internal {

enum class PartKind : uint8_t {
  kSame,     // equal on all ranks
  kRows,     // the whole is the rows of all parts, one part after the other
  kMean,     // the whole is the mean of the parts, by their weights
  kSum,      // the whole is the sum of the parts
  kUnknown,  // no rule is known
};

// The value that a rank computes from its rows.
struct Part {
  PartKind kind = PartKind::kSame;
  RowPlace place = {};  // for kRows
  // For kRows: the number of elements is not proportional to the number of rows.
  bool ragged = false;
  // For kMean: the variable whose elements count, or if it is a sum over the rows, its value. "":
  // the rows of the batch count.
  std::string weight = {};
  std::string reason = {};  // for kUnknown: "slice mixes the rows of the batch"
  // For kSame: random ops made it, so each rank has drawn its own. It weighs like an equal value.
  bool drawn = false;

  bool IsNumber() const { return kind == PartKind::kMean || kind == PartKind::kSum; }
  bool MeanOfRows() const { return kind == PartKind::kMean && weight.empty(); }
  bool operator==(const Part&) const = default;
};

Part UnknownPart(const OpDesc& op, const std::string& why);

// An op whose input `name` must be replaced before PartValues::Of is right about its outputs. The
// gradient ops of the op change with it, so that gradients stay the rank's part.
struct PartRead {
  const OpDesc* op;
  std::string name;
  // true: the op is not linear in `name` (a root, a divisor). It must read the value of the whole
  // batch; then all ranks compute the same. false: the op adds terms of different weights. It reads
  // the rank's value times its weight, so that the results of the ranks add up.
  bool whole = true;
  Part part = {};  // of `name`

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
  // Inputs with an open dimension that no op writes have rows. What a loop or branch writes is
  // unknown if it reads anything that differs between the ranks, or replaces a value that does.
  // Program and ops must outlive this.
  PartValues(const ProgramDesc& program, const OpRegistry& ops);

  const Part& Of(const std::string& name) const;
  // The reads that must change so that `name` is what Of says.
  std::vector<PartRead> ReadsOf(const std::string& name) const;
  // The gradient ops of a forward op of the root block, as backward links them; without links, the
  // backward ops that read the gradient of an output.
  const std::vector<const OpDesc*>& GradientOpsOf(const OpDesc& op) const;
  // Their contributions to the gradient of an input of the op.
  std::vector<PartGradient> GradientsInto(const OpDesc& op, const std::string& input) const;

 private:
  RowPlaceOf Places() const;
  RowRule RuleOf(const OpDesc& op, const OpSpec& spec, const std::string& slot) const;
  bool IsOpen(const std::string& name) const;
  bool IsFloat(const std::string& name) const;
  bool IsRagged(const OpSpec& spec, const std::string& out) const;

  void VisitInput(const VarDesc& var);
  void Visit(const OpDesc& op);
  void VisitGradientOp(const OpDesc& op);
  void LinkGradientOp(const OpDesc& gradient);

  void VisitBlocks(const OpDesc& op);
  Part AfterBlock(const OpDesc& op, const std::string& name, const Part& made) const;
  Part Apply(const OpDesc& op, const OpSpec& spec, const std::string& out, const std::string& slot);
  bool IsStatistic(const OpDesc& op, const OpSpec& spec, const std::string& input_slot) const;
  Part OfNumbers(const OpDesc& op, const OpSpec& spec);
  Part OfTerms(const OpDesc& op, const std::vector<std::string>& terms);
  Part OfRows(const OpDesc& op, const OpSpec& spec, const std::string& out,
              const std::string& slot) const;
  Part OfReduced(const OpDesc& op, const OpSpec& spec, const std::string& out,
                 const RowEffect& effect) const;
  bool StaysLinear(const OpDesc& op, const OpSpec& spec, const std::string& name) const;
  bool MayReplace(const OpDesc& op, const std::string& name) const;
  bool Replace(const OpDesc& op, const std::string& name, bool whole);

  const BlockDesc& root_;
  const OpRegistry& ops_;
  std::unordered_map<std::string, Part> values_;
  std::unordered_map<std::string, std::vector<const OpDesc*>> writers_;  // forward ops of the root
  std::unordered_map<const OpDesc*, std::vector<const OpDesc*>> gradient_ops_;
  std::set<PartRead> reads_;
};

}  // namespace coracle::inline internal

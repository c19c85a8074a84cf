#pragma once
// WholeValues: makes the values of the whole batch from the values of the ranks' rows.

#include <coracle/distribute/all_reduce.h>
#include <coracle/distribute/part_values.h>
#include <coracle/framework/op/op_inserter.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Appends to the forward pass what makes the values of the whole batch for options.wanted:
// for sums over rows, means over elements (of sequences), and formulas with them, such as a sum
// divided by a count. Returns, by the wanted variable, the variable that holds its whole value on
// all ranks. Means over the rows of the batch, variables with a row for each row of the batch, and
// values that are equal on all ranks are left out. If no rule is known for a wanted variable, it is
// appended to `unknown` and left out, too; for a loss, options.loss_weight decides, or
// kInvalidArgument is thrown if it is not given.
std::map<std::string, std::string> InsertWholeValues(ProgramDesc& program,
                                                     const std::vector<std::string>& losses,
                                                     const AllReduceOptions& options,
                                                     std::vector<std::string>* unknown);

// Writes the ops that weigh and sum the ranks' values. Internal to distribute/.
class WholeWriter {
 public:
  // All arguments are used until the ops have been inserted.
  WholeWriter(ProgramDesc& program, const PartValues& parts, const AllReduceOptions& options,
              OpInserter* inserter)
      : root_(program.Root()), parts_(parts), options_(options), inserter_(*inserter) {}

  // How `name` combines. From then on, the ops before it read whole or weighted values where that
  // is needed. If no rule is known for `name`, these ops stay unchanged. A later variable that
  // needs a change of one of them then counts as unknown, too.
  Part Settle(const std::string& name);
  // Settles a loss. If no rule is known, returns the declared part, or throws kInvalidArgument if
  // none is declared.
  Part SettleOrThrow(const std::string& loss);
  // The factor [1] by which the ranks' values must be multiplied so that they add up to the whole;
  // nullopt for 1.
  std::optional<Variable> Factor(const Writer& w, const Part& part, DType dtype) const;
  // The variable that has the whole value of `name`, which combines as `part`, a number.
  std::string WholeOf(const std::string& name, const Part& part);
  // See InsertWholeValues.
  std::map<std::string, std::string> WholeOfWanted(const std::vector<std::string>& losses,
                                                   std::vector<std::string>* unknown);
  // 1, or 0 if the rank's rows do not count; nullopt if all ranks' rows count.
  std::optional<Variable> Counts(const Writer& w, DType dtype) const;

 private:
  // A value times its weight, and the weight.
  struct Weighted {
    std::string name;
    std::optional<Variable> factor;
  };
  Variable ShareOfRows(const Writer& w, DType dtype) const;
  Part DeclaredPartOf(const std::string& loss);
  Variable ShareOfElements(const Writer& w, const std::string& weight, DType dtype) const;
  Variable SumOverRanks(const Writer& w, const Variable& x) const;
  Weighted Weigh(const Writer& w, const std::string& name, const Part& part) const;
  const OpDesc& LastForwardWriter(const std::string& name) const;
  void Rewrite(const PartRead& read);

  BlockDesc& root_;
  const PartValues& parts_;
  const AllReduceOptions& options_;
  OpInserter& inserter_;
  std::map<std::string, Weighted> whole_;
  std::set<PartRead> rewritten_;
  std::map<PartRead, std::string> kept_;  // unchanged reads, and the variable that needs them so
};

}  // namespace coracle::inline internal

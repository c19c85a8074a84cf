#pragma once
// WholeWriter: the ops that weigh a rank's part of a batch. Internal to distribute/.

#include <coracle/distribute/op_inserter.h>
#include <coracle/distribute/part_values.h>
#include <coracle/distribute/whole_values.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace coracle {

class WholeWriter {
 public:
  // All are used until the ops have been inserted.
  WholeWriter(ProgramDesc& program, const PartValues& parts, const WholeValueOptions& options,
              OpInserter* inserter)
      : program_(program),
        root_(program.Root()),
        parts_(parts),
        options_(options),
        inserter_(*inserter) {}

  // How `name` of a part weighs. The ops behind it now read values of the whole batch, or weighed
  // ones, where that takes it. Where no rule tells how it weighs they read what they did; and so do
  // those behind a later `name` that they share, of which no rule tells then.
  PartValue Settle(const std::string& name);
  // Behind the op: the factor [1] of the dtype by which parts of that kind are added up to the
  // whole; "" for 1. What is not known weighs by rows.
  std::string Factor(const PartValue& part, DType dtype, const OpDesc& behind, int role);
  // The variable that has the value of the whole batch of `name`, which is settled and a number.
  std::string WholeOf(const std::string& name);
  // A gradient that `writer` makes of the rows alone becomes 0 on ranks whose rows do not count.
  void LeaveOutRowsThatDoNotCount(const std::string& grad, const OpDesc& writer);
  // The values of the whole batch of those that are wanted, see InsertWholeValues.
  WholeValues WholeOf(const std::vector<std::string>& wanted);
  // "" unless no rule tells how the variable, which is that part, weighs.
  static std::string Complaint(const std::string& name, const PartValue& part);

 private:
  struct Place {
    const OpDesc& op;
    int role;
    bool before = false;
  };
  // The part's value times its weight: those of all ranks add up to the whole's.
  struct Weighed {
    std::string name, factor;  // factor "": 1
  };
  // An op with one output, a new variable [1].
  std::string Make(const Place& place, const std::string& type, SlotList inputs, AttrList attrs,
                   DType dtype, const std::string& hint);
  std::string CastTo(const Place& place, const std::string& name, DType from, DType to);
  std::string SumOverRanks(const Place& place, const std::string& name, DType dtype);
  std::string Constant(const Place& place, double value, DType dtype);
  std::string Share(const Place& place, DType dtype);
  std::string Counts(const Place& place, DType dtype);
  std::string ShareOf(const PartValue& part, const Place& place, DType dtype);
  std::string FactorAt(const PartValue& part, const Place& place, DType dtype);
  Weighed Weigh(const std::string& name, const PartValue& part, const Place& place);
  void Rewrite(const PartRead& read);
  void RewriteGradients(const PartRead& read, const std::string& factor);
  const OpDesc& LastForwardWriter(const std::string& name) const;

  ProgramDesc& program_;
  BlockDesc& root_;
  const PartValues& parts_;
  const WholeValueOptions& options_;
  OpInserter& inserter_;
  std::map<std::string, Weighed> whole_;
  std::set<PartRead> rewritten_;
  std::map<PartRead, std::string> kept_;  // and for which variable
};

}  // namespace coracle

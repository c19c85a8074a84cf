#pragma once
// WholeValues: how a rank's loss weighs in that of the whole batch, and values of the whole batch
// in the forward pass of a rank.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <map>
#include <string>
#include <vector>

namespace coracle {

struct WholeValueOptions {
  int nranks = 1;
  std::string share = {};  // see AllReduceOptions
  int ring_id = 0;
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct WholeValues {
  // By those of the wanted variables whose parts do not weigh as their rows, and which ranks do not
  // have alike: the variable that has the value of the whole batch, on all ranks.
  std::map<std::string, std::string> of;
  // "'x' weighs by rows ..., since op reads ...": for those of which no rule tells how they weigh.
  std::vector<std::string> unknown;
};

// Appends to the forward pass what makes the values of the whole batch from those of the ranks'
// parts: for sums over rows (a reduce_sum), means over other things than rows (those of sequences),
// and formulas with them, such as a sum divided by the number of what does not lie in padding, or
// sums of those. Variables that are means over the rows, or have a row for each, stay what they
// are.
WholeValues InsertWholeValues(ProgramDesc& program, const std::vector<std::string>& wanted,
                              const WholeValueOptions& options);

}  // namespace coracle

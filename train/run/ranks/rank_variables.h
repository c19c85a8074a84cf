#pragma once
// RankVariables: the variables whose values differ between the ranks of a job, and how they become
// equal for an evaluation or a snapshot.

#include <coracle/communication/communicator.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/run/programs.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// Two kinds of variables differ: statistics of each rank's own rows, and the parts of a divided
// optimizer's state. All ranks must call the functions that exchange. For a rank alone, no function
// does anything.
class RankVariables {
 public:
  RankVariables() = default;
  RankVariables(const Ranks& ranks, const RankPrograms& programs);

  // Replaces statistics by their means over the ranks. Returns those that this rank had.
  NamedTensors MakeEqual(Scope& scope);
  // Names the statistics of all ranks, which MakeEqual returned, "NAME@RANK".
  NamedTensors Gather(const NamedTensors& own) const;

  // Collects the divided states on rank 0, which saves them.
  void JoinStates(Scope& scope);
  void RemoveJoinedStates(Scope& scope) const;
  // Divides the states that the scope has among the ranks.
  void DivideStates(Scope& scope);

 private:
  Ranks ranks_;
  std::vector<std::string> local_;  // statistics of own rows
  std::vector<ShardedState> states_;
};

// Restores the statistics that MakeEqual returned, so that snapshots and evaluations do not change
// the last bits of later results.
void RestoreStatistics(NamedTensors own, Scope& scope);

}  // namespace coracle::inline internal

#pragma once
// RankValues: which values of an update would differ between the ranks. Internal to distribute/.

#include <coracle/framework/ir/program.h>

#include <set>
#include <string>
#include <vector>

namespace coracle::inline internal {

// A bool flag [1] that the ranks must agree on, after the op that writes it, or before an op that
// reads it if backward writes it.
struct RankFlag {
  const OpDesc* place;
  bool after;
  std::string name;
  std::string reduction;  // the op: c_allreduce_min (true if all are), c_allreduce_max
};

// Follows values through the ops of the update, beginning with the values of forward and backward
// except `exchanged`. Returns the flags to agree on; then all persistable variables and conditions
// of the update are equal on all ranks. Throws kInvalidArgument if the ranks cannot be kept equal.
std::vector<RankFlag> FindRankFlags(const ProgramDesc& main,
                                    const std::set<std::string>& exchanged);

// Whether the op makes a flag that says whether its inputs are finite.
bool ChecksFinite(const OpDesc& op);

}  // namespace coracle::inline internal

#pragma once
// RankValues: which values of an update would differ from rank to rank. Internal to distribute/.

#include <coracle/framework/ir/program.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace coracle {

// A flag [1] of type bool that ranks must agree on, behind `writer`, or before `reader` where
// backward writes it.
struct RankFlag {
  const OpDesc* place;
  bool behind;
  std::string name;
  std::string reduction;  // the op: c_allreduce_min (true where all are), c_allreduce_max
};

// Follows the values through the ops of the update, which begin with those of forward and backward
// except `exchanged`. Returns the flags to be agreed on, after which all that is kept, and every
// condition, is the same on all ranks. Throws kInvalidArgument where that cannot be had.
std::vector<RankFlag> FindRankFlags(const ProgramDesc& main,
                                    const std::set<std::string>& exchanged);

}  // namespace coracle

#pragma once
// The differences between two matched ops. Internal to inspect/.

#include <coracle/inspect/inspect.h>
#include <coracle/inspect/op_matching.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// The correspondence of names and blocks between the two sides.
struct DiffSides {
  const NamePairs& names;
  const std::vector<int>& block_after;  // by index before; -1: none
  const OpRegistry& ops;

  // Whether both name the same variable, or are equal texts if they are not names of variables.
  bool IsSameName(const std::string& before, const std::string& after) const;
  bool IsSameBlock(int before, int after) const;
};

// "[a, b, c]", with long lists cut.
std::string NamesText(const std::vector<std::string>& names);

// A renamed variable is not a change where it is read. Where it is written, it is not a change if
// neither side has both names, or if it holds step scopes.
std::vector<DiffChange> ChangesOfOp(const OpDesc& before, const OpDesc& after,
                                    const DiffSides& sides);

}  // namespace coracle::inline internal

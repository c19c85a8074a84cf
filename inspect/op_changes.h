#pragma once
// What differs between two ops that are the same one. Internal to inspect/.

#include <coracle/inspect/diff.h>
#include <coracle/inspect/op_matching.h>

#include <string>
#include <vector>

namespace coracle {

// What stands for what on the two sides.
struct DiffSides {
  const NamePairs& names;
  const std::vector<int>& block_after;  // by index before; -1: none
  const OpRegistry& ops;

  // The same variable, or, where the text is no variable's name, the same text.
  bool IsSameName(const std::string& before, const std::string& after) const;
  bool IsSameBlock(int before, int after) const;
};

// "[a, b, c]", long lists cut.
std::string NamesText(const std::vector<std::string>& names);

// A variable that has another name now is no change where it is read; nor where it is written, if
// neither side has both names, or if it holds step scopes.
std::vector<DiffChange> ChangesOfOp(const OpDesc& before, const OpDesc& after,
                                    const DiffSides& sides);

}  // namespace coracle

#pragma once
// The families of Coracle's ops, for documentation: the folders of operators/.

#include <string>
#include <vector>

namespace coracle::inline internal {

struct OpFamily {
  std::string name;                // "activation"
  std::vector<std::string> types;  // sorted
};

// Sorted by name.
std::vector<OpFamily> OpFamilies();

}  // namespace coracle::inline internal

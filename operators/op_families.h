#pragma once
// The families of Coracle's ops: the folders of operators/, for documentation.

#include <string>
#include <vector>

namespace coracle {

struct OpFamily {
  std::string name;                // "activation"
  std::vector<std::string> types;  // sorted
};

// Sorted by name.
std::vector<OpFamily> OpFamilies();

}  // namespace coracle

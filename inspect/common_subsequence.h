#pragma once
// The common subsequence of two sequences, as in diff(1). Internal to inspect/.

#include <functional>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// Returns pairs of positions, ascending, of a longest common subsequence of two sequences of n and
// m elements, by a shortest edit script (E. Myers, An O(ND) Difference Algorithm and Its
// Variations, 1986). Stops after 500 edits and leaves the remaining elements unpaired, so that the
// time stays linear.
std::vector<std::pair<int, int>> CommonSubsequence(int n, int m,
                                                   const std::function<bool(int, int)>& equal);

}  // namespace coracle::inline internal

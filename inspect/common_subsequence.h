#pragma once
// What two sequences have in common, as diff(1) finds it. Internal to inspect/.

#include <functional>
#include <utility>
#include <vector>

namespace coracle {

// Pairs of positions, ascending, of a longest common subsequence of two sequences of n and m
// elements, by a shortest edit script (E. Myers, An O(ND) Difference Algorithm and Its Variations,
// 1986). Elements that only more than 500 edits lead to are not paired, so that the time stays
// linear.
std::vector<std::pair<int, int>> CommonSubsequence(int n, int m,
                                                   const std::function<bool(int, int)>& equal);

}  // namespace coracle

#include <coracle/inspect/common_subsequence.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>

namespace coracle::inline internal {
namespace {

size_t Index(int i) { return static_cast<size_t>(i); }

}  // namespace

std::vector<std::pair<int, int>> CommonSubsequence(int n, int m,
                                                   const std::function<bool(int, int)>& equal) {
  constexpr int kMostEdits = 500;
  std::vector<std::vector<int>> trace;  // furthest x on each diagonal, after each edit
  std::vector<int> reach(2 * kMostEdits + 3, 0);
  const auto at = [&](int k) -> int& { return reach[Index(k + kMostEdits + 1)]; };
  int edits = 0, end_x = 0, end_k = 0;
  for (bool done = false; edits <= kMostEdits && !done; ++edits) {
    for (int k = -edits; k <= edits; k += 2) {
      const bool down = k == -edits || (k != edits && at(k - 1) < at(k + 1));
      int x = edits == 0 ? 0 : down ? at(k + 1) : at(k - 1) + 1;
      while (x < n && x - k < m && x - k >= 0 && equal(x, x - k)) ++x;
      at(k) = x;
      if (x <= n && x - k <= m && 2 * x - k > 2 * end_x - end_k) {
        end_x = x;
        end_k = k;
      }
      if (x >= n && x - k >= m) {
        done = true;
        end_x = x;
        end_k = k;
        break;
      }
    }
    trace.emplace_back(reach.begin() + (kMostEdits + 1 - edits),
                       reach.begin() + (kMostEdits + 2 + edits));
  }
  // The end lies on one of the diagonals: goes back from it, edit by edit.
  std::vector<std::pair<int, int>> pairs;
  int x = end_x, k = end_k, d = static_cast<int>(trace.size()) - 1;
  const auto row = [&](int edit, int diagonal) {
    return trace[Index(edit)][Index(diagonal + edit)];
  };
  while (d > 0 && ((d - k) % 2 != 0 || std::abs(k) > d || row(d, k) != x)) --d;
  while (true) {
    const bool down = d > 0 && (k == -d || (k != d && row(d - 1, k - 1) < row(d - 1, k + 1)));
    const int start = d == 0 ? 0 : down ? row(d - 1, k + 1) : row(d - 1, k - 1) + 1;
    for (; x > start; --x) pairs.emplace_back(x - 1, x - 1 - k);
    if (d == 0) break;
    x = down ? start : start - 1;
    k = down ? k + 1 : k - 1;
    --d;
  }
  std::reverse(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace coracle::inline internal

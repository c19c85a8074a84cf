#pragma once
// Non-maximum suppression: keeps only the best of overlapping boxes.

#include <coracle/operators/detection/boxes.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace coracle::inline internal {

// Orders indices by descending scores, equal ones by the lower index; a nan comes last. Keeps the
// first `most` (all if negative).
void SortByScore(const double* scores, int64_t most, std::vector<int64_t>* indices);

struct NmsOptions {
  double threshold = 0.3;  // overlap at which a box is suppressed
  double eta = 1;          // if < 1, multiplies a threshold over 0.5 after each kept box
  double extra = 0;        // added to sizes; see boxes.h
  int64_t width = 4;       // numbers of a box; more than 4: a polygon
  int64_t most = std::numeric_limits<int64_t>::max();  // largest number of kept boxes
};

// Overlap of two boxes or polygons of `width` numbers.
double OverlapOf(const double* a, const double* b, int64_t width, double extra);

// The boxes of `sorted`, indices with the best one first, that overlap with no kept box by more
// than the threshold. Needs memory only for the kept boxes.
std::vector<int64_t> SuppressNonMaxima(const NmsOptions& options, const double* boxes,
                                       const std::vector<int64_t>& sorted);

}  // namespace coracle::inline internal

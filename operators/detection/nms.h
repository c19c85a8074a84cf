#pragma once
// Non-maximum suppression: of boxes that overlap, only the best is kept.

#include <coracle/operators/detection/boxes.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace coracle {

// Orders indices by descending scores, equal ones by the lower index; a nan comes last. Keeps the
// first `most`; below 0: all.
void SortByScore(const double* scores, int64_t most, std::vector<int64_t>* indices);

struct NmsOptions {
  double threshold = 0.3;  // overlap from which on a box is suppressed
  double eta = 1;          // after each kept box, a threshold over 0.5 is multiplied by it if < 1
  double extra = 0;        // of sizes; see boxes.h
  int64_t width = 4;       // numbers of a box; more than 4: a polygon
  int64_t most = std::numeric_limits<int64_t>::max();  // ends when so many are kept
};

// Overlap of two boxes or polygons of `width` numbers.
double OverlapOf(const double* a, const double* b, int64_t width, double extra);

// Those of `sorted`, the indices of boxes with the best one first, that overlap with no kept one by
// more than the threshold. Needs memory for the kept ones alone.
std::vector<int64_t> SuppressNonMaxima(const NmsOptions& options, const double* boxes,
                                       const std::vector<int64_t>& sorted);

}  // namespace coracle

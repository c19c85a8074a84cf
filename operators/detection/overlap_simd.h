#pragma once
// Computations of the box ops in the widest SIMD of the machine: boxes as columns of numbers,
// compared with one box; exponentials.

#include <coracle/operators/detection/boxes.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace coracle::inline internal {

struct BoxColumns {
  std::vector<double> x1, y1, x2, y2, area;

  int64_t size() const { return static_cast<int64_t>(x1.size()); }
  void Reserve(size_t n) {
    for (std::vector<double>* column : {&x1, &y1, &x2, &y2, &area}) column->reserve(n);
  }
  void Add(const Box& box, double extra) {
    x1.push_back(box.x1);
    y1.push_back(box.y1);
    x2.push_back(box.x2);
    y2.push_back(box.y2);
    area.push_back(Area(box, extra));
  }
  Box At(int64_t i) const {
    const auto k = static_cast<size_t>(i);
    return {x1[k], y1[k], x2[k], y2[k]};
  }
};

// Boxes and, in half of the memory, bounds around them: if the bounds do not overlap, the boxes
// need not be read.
struct BoundedBoxes {
  BoxColumns boxes;
  std::vector<float> x1, y1, x2, y2;

  void Add(const Box& box, double extra) {
    boxes.Add(box, extra);
    x1.push_back(Below(box.x1));
    y1.push_back(Below(box.y1));
    x2.push_back(-Below(-box.x2));
    y2.push_back(-Below(-box.y2));
  }
  // The float at or before a number.
  static float Below(double value) {
    const auto near = static_cast<float>(value);
    return near > value ? std::nextafter(near, -std::numeric_limits<float>::infinity()) : near;
  }
};

// The first of the boxes [begin, end) that may overlap with `box` by more than the threshold; `end`
// if there is none. Finds every box with Overlap(it, box, extra) > threshold, and perhaps some at
// most 1e-9 below it. REQUIRES: threshold >= 0.
int64_t FindOverlap(const BoundedBoxes& boxes, int64_t begin, int64_t end, const Box& box,
                    double extra, double threshold);

// The effect of a better box on the scores of boxes: the formula is f(IoU) / f(m), m being its own
// overlap with better boxes. `of_better` is m^2 for f(u) = exp(-sigma u^2). For f(u) = 1 - u it is
// 1 / (1 - m), or 0 if m is 1 or more, so that nothing is lowered.
struct Decay {
  double largest;  // IoU
  double least;    // m^2 - IoU^2, at most 0; or (1 - IoU) / (1 - m), at most 1
};
// Compares `box` with the first n boxes.
Decay FindDecay(const BoxColumns& boxes, int64_t n, const Box& box, double extra, bool gaussian,
                const double* of_better);

// out[i] = GrownCommonArea / (GrownUnion + 1e-10) of box and box i. `sizes[i]` is width times
// height of box i.
struct ColumnPointers {
  const double *x1, *y1, *x2, *y2, *sizes;
};
void GrownOverlaps(const ColumnPointers& boxes, int64_t n, const Box& box, double extra,
                   float* out);
void GrownOverlaps(const ColumnPointers& boxes, int64_t n, const Box& box, double extra,
                   double* out);

// values[i] = e^values[i], accurate to about one unit in the last place.
void Exponentials(double* values, int64_t n);

}  // namespace coracle::inline internal

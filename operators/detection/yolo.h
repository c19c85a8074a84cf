#pragma once
// Shared by the YOLO ops: the layout of a prediction map, and its boxes.

#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/detection/boxes.h>

#include <cmath>
#include <cstdint>

namespace coracle::inline internal {

// A map [N, anchors * (5 + classes), H, W] whose channels of an anchor are x, y, w, h, objectness
// and classes, after `skipped` other channels.
struct YoloMap {
  int64_t anchors, classes, rows, columns, skipped = 0;

  int64_t area() const { return rows * columns; }
  int64_t channels() const { return skipped + anchors * (5 + classes); }
  // Element of channel `entry` of an anchor; `cell` counts over rows and columns.
  int64_t At(int64_t image, int64_t anchor, int64_t entry, int64_t cell) const {
    return (image * channels() + skipped + anchor * (5 + classes) + entry) * area() + cell;
  }
};

// Centre and size, relative to the image, of the box predicted at elements at + k * step.
struct CentredBox {
  double x, y, w, h;
};
inline CentredBox YoloBoxAt(const Reals& x, const YoloMap& map, int64_t image, int64_t anchor,
                            int64_t cell, double anchor_w, double anchor_h, double scale,
                            double downsample) {
  const auto at = [&](int64_t entry) { return x[map.At(image, anchor, entry, cell)]; };
  const double bias = -(scale - 1) / 2;
  const auto column = static_cast<double>(cell % map.columns);
  const auto row = static_cast<double>(cell / map.columns);
  const auto w = static_cast<double>(map.columns), h = static_cast<double>(map.rows);
  return {(column + activation::SigmoidOf(at(0)) * scale + bias) / w,
          (row + activation::SigmoidOf(at(1)) * scale + bias) / h,
          std::exp(at(2)) * anchor_w / downsample / w, std::exp(at(3)) * anchor_h / downsample / h};
}

}  // namespace coracle::inline internal

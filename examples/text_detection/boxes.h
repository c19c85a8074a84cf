#pragma once
// Finds boxes around lines of text in a map of the probability that a pixel belongs to text: the
// post-processing of DB (Liao et al., "Real-time scene text detection with differentiable
// binarization", 2020).

#include <vector>

#include "picture.h"

struct BoxOptions {
  float threshold = 0.3f;     // pixels above it are text
  double min_score = 0.6;     // minimum mean of the map in the box
  double unclip_ratio = 1.5;  // the map shows the core of each line; the box grows by this ratio
  double min_side = 3;        // minimum side of the core, in pixels of the map
};

struct TextBox {
  Quad corners;  // clockwise from the top left, in pixels
  double score = 0;
};

// Finds boxes of all connected regions, in the order of their first rows. `map` has `height` rows.
std::vector<TextBox> FindBoxes(const float* map, int height, int width,
                               const BoxOptions& options = {});

// The smallest rectangle around points, at any angle.
Quad SmallestRectangle(std::vector<Point> points);

#pragma once
// From a map that says of each pixel how likely it belongs to text to boxes around the lines of
// text: the post-processing of DB (Liao et al., "Real-time scene text detection with differentiable
// binarization", 2020).

#include <vector>

#include "picture.h"

struct BoxOptions {
  float threshold = 0.3f;     // pixels above it are text
  double min_score = 0.6;     // mean of the map in the box
  double unclip_ratio = 1.5;  // the map shows the core of each line; the box grows by this
  double min_side = 3;        // of the core, in pixels of the map
};

struct TextBox {
  Quad corners;  // from top left, clockwise, in pixels
  double score = 0;
};

// Boxes of all connected regions, in the order of their first rows. `map` has `height` rows.
std::vector<TextBox> FindBoxes(const float* map, int height, int width,
                               const BoxOptions& options = {});

// The rectangle of smallest area, turned as need be, around points.
Quad SmallestRectangle(std::vector<Point> points);

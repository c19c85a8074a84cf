#pragma once
// Writes lines of text onto a picture. This gives pictures with text at known positions for trying
// the detector.

#include <string>
#include <vector>

#include "picture.h"

struct Line {
  std::string text;    // A to Z, 0 to 9, blanks and . , : - / +
  double x, y;         // top left corner
  double height;       // height of the letters, in pixels
  double degrees = 0;  // clockwise rotation
  Colour colour = {20, 20, 20};
};

// Returns the corners of the text, clockwise from its top left. Throws std::invalid_argument for a
// character without a glyph.
Quad Write(Picture& picture, const Line& line);

struct Sample {
  Picture picture;
  std::vector<Quad> places;  // corners of each line of text
};

// Draws a picture with lines in several sizes and colours, one of them rotated, and with shapes
// that are not text.
Sample DrawSample();

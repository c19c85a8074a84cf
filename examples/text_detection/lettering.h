#pragma once
// Writes lines of text onto a picture: pictures for trying the detector whose text stands at places
// that are known.

#include <string>
#include <vector>

#include "picture.h"

struct Line {
  std::string text;    // A to Z, 0 to 9, blanks and . , : - / +
  double x, y;         // of its top left corner
  double height;       // of the letters, in pixels
  double degrees = 0;  // by which it is turned, clockwise
  Colour colour = {20, 20, 20};
};

// Returns the corners of the text from its top left on, clockwise. Throws std::invalid_argument for
// a character that has no glyph.
Quad Write(Picture& picture, const Line& line);

struct Sample {
  Picture picture;
  std::vector<Quad> places;  // of each line of text
};

// A picture with lines in several sizes and colours, one of them turned, and with things that are
// no text.
Sample DrawSample();

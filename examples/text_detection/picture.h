#pragma once
// Pictures with 8 bits per colour, as PNG files.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

struct Point {
  double x = 0, y = 0;
};
using Quad = std::array<Point, 4>;  // corners in order around it

using Colour = std::array<uint8_t, 3>;  // red, green, blue

struct Picture {
  Picture(int width, int height, Colour colour = {255, 255, 255});

  uint8_t* At(int x, int y) { return &rgb[3 * Index(x, y)]; }
  const uint8_t* At(int x, int y) const { return &rgb[3 * Index(x, y)]; }
  size_t Index(int x, int y) const {
    return static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x);
  }

  int width, height;
  std::vector<uint8_t> rgb;
};

// Both throw std::runtime_error with the file's name.
Picture ReadPng(const std::string& path);
void WritePng(const Picture& picture, const std::string& path);

// Resizes a picture: bilinear where it grows, means of areas where it shrinks.
Picture Resized(const Picture& picture, int width, int height);

// Mixes the colour into a pixel; ignores pixels outside the picture.
void Blend(Picture& picture, int x, int y, Colour colour, double share);
// Draws the sides of a quad as lines of that width.
void DrawQuad(Picture& picture, const Quad& quad, Colour colour, double width);

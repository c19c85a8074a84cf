#include "picture.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace {

constexpr png_uint_32 kMaxSide = 10'000;  // in pixels

[[noreturn]] void Fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + ": " + what);
}

// libpng's description of a picture; the destructor frees it.
struct PngImage {
  png_image image = {};
  PngImage() {
    image.version = PNG_IMAGE_VERSION;
    image.format = PNG_FORMAT_RGB;
  }
  ~PngImage() { png_image_free(&image); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
};

// The old pixels that a pixel of the new picture covers along an axis, with weights.
struct Source {
  int first = 0;
  std::vector<double> weights;
};

// Uses a triangle filter as wide as a pixel of the coarser picture.
std::vector<Source> SourcesOf(int old_size, int new_size) {
  const double scale = static_cast<double>(old_size) / new_size, reach = std::max(1.0, scale);
  std::vector<Source> sources(static_cast<size_t>(new_size));
  for (int i = 0; i < new_size; ++i) {
    Source& source = sources[static_cast<size_t>(i)];
    const double centre = (i + 0.5) * scale - 0.5;
    source.first = std::max(0, static_cast<int>(std::ceil(centre - reach)));
    const int last = std::min(old_size - 1, static_cast<int>(std::floor(centre + reach)));
    double sum = 0;
    for (int k = source.first; k <= last; ++k) {
      source.weights.push_back(std::max(0.0, 1 - std::abs(k - centre) / reach));
      sum += source.weights.back();
    }
    for (double& weight : source.weights) weight /= sum;
  }
  return sources;
}

double DistanceToSegment(Point p, Point a, Point b) {
  const double dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy;
  const double along = ((p.x - a.x) * dx + (p.y - a.y) * dy) / std::max(square, 1e-12);
  const double t = std::clamp(along, 0.0, 1.0);
  return std::hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

}  // namespace

Picture::Picture(int width, int height, Colour colour)
    : width(width),
      height(height),
      rgb(3 * static_cast<size_t>(width) * static_cast<size_t>(height)) {
  for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = colour[i % 3];
}

Picture ReadPng(const std::string& path) {
  PngImage png;
  const bool begun = png_image_begin_read_from_file(&png.image, path.c_str()) != 0;
  if (!begun) Fail(path, png.image.message);
  if (std::max(png.image.width, png.image.height) > kMaxSide) Fail(path, "a side is too long");
  png.image.format = PNG_FORMAT_RGB;
  Picture picture(static_cast<int>(png.image.width), static_cast<int>(png.image.height));
  const png_color white = {255, 255, 255};  // background of transparent pixels
  if (!png_image_finish_read(&png.image, &white, picture.rgb.data(), 0, nullptr))
    Fail(path, png.image.message);
  return picture;
}

void WritePng(const Picture& picture, const std::string& path) {
  PngImage png;
  png.image.width = static_cast<png_uint_32>(picture.width);
  png.image.height = static_cast<png_uint_32>(picture.height);
  if (!png_image_write_to_file(&png.image, path.c_str(), 0, picture.rgb.data(), 0, nullptr))
    Fail(path, png.image.message);
}

Picture Resized(const Picture& picture, int width, int height) {
  const std::vector<Source> columns = SourcesOf(picture.width, width),
                            rows = SourcesOf(picture.height, height);
  // Resizes along the rows first.
  std::vector<double> narrow(3 * static_cast<size_t>(width) * static_cast<size_t>(picture.height));
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < width; ++x) {
      const Source& source = columns[static_cast<size_t>(x)];
      double* out = &narrow[3 * (static_cast<size_t>(y) * static_cast<size_t>(width) +
                                 static_cast<size_t>(x))];
      for (size_t k = 0; k < source.weights.size(); ++k) {
        const uint8_t* in = picture.At(source.first + static_cast<int>(k), y);
        for (int c = 0; c < 3; ++c) out[c] += source.weights[k] * in[c];
      }
    }
  }
  Picture result(width, height);
  const size_t row_size = 3 * static_cast<size_t>(width);
  std::vector<double> sums(row_size);
  for (int y = 0; y < height; ++y) {
    const Source& source = rows[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), 0.5);  // to round
    for (size_t k = 0; k < source.weights.size(); ++k) {
      const double* in = &narrow[(static_cast<size_t>(source.first) + k) * row_size];
      for (size_t i = 0; i < row_size; ++i) sums[i] += source.weights[k] * in[i];
    }
    uint8_t* out = result.At(0, y);
    for (size_t i = 0; i < row_size; ++i)
      out[i] = static_cast<uint8_t>(std::clamp(sums[i], 0.0, 255.0));
  }
  return result;
}

void Blend(Picture& picture, int x, int y, Colour colour, double share) {
  if (x < 0 || y < 0 || x >= picture.width || y >= picture.height || share <= 0) return;
  uint8_t* pixel = picture.At(x, y);
  for (size_t c = 0; c < 3; ++c)
    pixel[c] = static_cast<uint8_t>(std::lround(pixel[c] + share * (colour[c] - pixel[c])));
}

void DrawQuad(Picture& picture, const Quad& quad, Colour colour, double width) {
  for (size_t k = 0; k < 4; ++k) {
    const Point a = quad[k], b = quad[(k + 1) % 4];
    const int left = std::max(0, static_cast<int>(std::min(a.x, b.x) - width)),
              right = std::min(picture.width - 1, static_cast<int>(std::max(a.x, b.x) + width + 1)),
              top = std::max(0, static_cast<int>(std::min(a.y, b.y) - width)),
              bottom =
                  std::min(picture.height - 1, static_cast<int>(std::max(a.y, b.y) + width + 1));
    for (int y = top; y <= bottom; ++y) {
      for (int x = left; x <= right; ++x) {
        const Point p{static_cast<double>(x), static_cast<double>(y)};
        Blend(picture, x, y, colour,
              std::clamp(width / 2 + 0.5 - DistanceToSegment(p, a, b), 0.0, 1.0));
      }
    }
  }
}

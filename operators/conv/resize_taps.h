#pragma once
// Which elements of an axis make an element of the resized axis, by the rules of ONNX's Resize.

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

struct ResizeRule {
  std::string mode = "nearest";      // nearest, linear or cubic
  std::string place = "asymmetric";  // ONNX's coordinate_transformation_mode
  // ONNX's nearest_mode, or for its first Resize "simple": ceil if the axis is shortened, or floor.
  std::string nearest = "floor";
  double cubic_a = -0.75;
  bool exclude_outside = false, antialias = false;

  bool IsCrop() const { return place == "tf_crop_and_resize"; }
};

struct ResizeLengths {
  int64_t in = 1, out = 1;
  double scale = 1;           // positions are multiples of 1 / scale, or
  bool by_size = false;       // of in / out
  double begin = 0, end = 1;  // the region of a crop, as shares of the axis
};

// The position of element k of the result on the axis of X.
double ResizePlace(const ResizeRule& rule, const ResizeLengths& a, int64_t k);

// Whether element k of a crop lies outside X. Such an element gets the extrapolation value.
bool IsOutside(const ResizeRule& rule, const ResizeLengths& a, int64_t k);

struct ResizeTap {
  int64_t at;  // in [0, in)
  double weight;
};
// The largest number of taps of an element.
int64_t MaxTaps(const ResizeRule& rule, const ResizeLengths& a);
// The taps of element k; an element of X may occur several times. REQUIRES: a.in > 0.
void ResizeTaps(const ResizeRule& rule, const ResizeLengths& a, int64_t k,
                std::vector<ResizeTap>* taps);

}  // namespace coracle::inline internal

#pragma once
// Geometry of sliding windows (convolution, pooling), shared by shape rules and kernels. Images
// have two axes {h, w}, volumes three {d, h, w}.
//
// Output size of one axis: floor((in + before + after - (dilation * (kernel - 1) + 1)) / stride) +
// 1, rounded up instead with ceil_mode. padding_algorithm SAME: out = ceil(in / stride), total
// padding max((out - 1) * stride + kernel - in, 0), half of it (rounded down) before, dilation 1.
// VALID: no padding.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

struct WindowSpec {
  std::vector<int32_t> strides{1, 1};
  std::vector<int32_t> paddings{0, 0};  // one for each axis, or two: {top, bottom, left, right}
  std::vector<int32_t> dilations{1, 1, 1};
  std::string padding_algorithm = "EXPLICIT";  // or SAME, VALID
  bool ceil_mode = false;
};

struct WindowAxis {
  int64_t in = -1;
  int64_t kernel = -1;
  int64_t out = -1;  // -1: not known yet; 0: the window does not fit
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t before = 0, after = 0;  // padding

  // First input position of output `o`; negative inside the padding.
  int64_t Start(int64_t o) const { return o * stride - before; }
};

// Number of axes of an op type: 3 for conv3d, pool3d and similar types, else 2.
int AxesOf(std::string_view op_type);

// Whether there is one positive number for each axis; one or two that are not negative for each
// axis; one positive number for each axis.
bool StridesAreValid(const WindowSpec& spec, int axes);
bool PaddingsAreValid(const WindowSpec& spec, int axes);
bool DilationsAreValid(const WindowSpec& spec, int axes);

// Axis 0 is the first one, the width the last one. REQUIRES: the spec is valid. `in` and `kernel`
// may be any numbers.
WindowAxis ResolveAxis(const WindowSpec& spec, int axis, int64_t in, int64_t kernel);

// Where the axes of a tensor of images or volumes are.
struct ImageLayout {
  bool channels_last = false;
  int axes = 2;
  int channel() const { return channels_last ? 1 + axes : 1; }
  int axis(int i) const { return i + (channels_last ? 1 : 2); }
  int height() const { return axis(axes - 2); }
  int width() const { return axis(axes - 1); }
};
// "NHWC" and "NDHWC" are channels last; anything else (NCHW, AnyLayout) channels first.
ImageLayout ImageLayoutOf(const std::string& data_format, int axes = 2);

}  // namespace coracle::inline internal

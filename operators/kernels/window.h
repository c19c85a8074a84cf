#pragma once
// Geometry of sliding windows (convolution, pooling), shared by shape rules and kernels.
//
// Output size of one axis: floor((in + before + after - (dilation * (kernel - 1) + 1)) / stride) +
// 1, rounded up instead with ceil_mode. padding_algorithm SAME: out = ceil(in / stride), total
// padding max((out - 1) * stride + kernel - in, 0), half of it (rounded down) before, dilation 1.
// VALID: no padding.

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

struct WindowSpec {
  std::vector<int32_t> strides{1, 1};
  std::vector<int32_t> paddings{0, 0};  // {h, w} or {top, bottom, left, right}
  std::vector<int32_t> dilations{1, 1};
  std::string padding_algorithm = "EXPLICIT";
  bool ceil_mode = false;
};

struct WindowAxis {
  int64_t in = -1;
  int64_t kernel = -1;
  int64_t out = -1;  // -1: not known yet; 0: the window does not fit
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t before = 0, after = 0;  // padding

  // First input position of output `o`; negative within the padding.
  int64_t Start(int64_t o) const { return o * stride - before; }
};

// Two positive numbers; two or four that are not negative; two positive ones.
bool StridesAreValid(const WindowSpec& spec);
bool PaddingsAreValid(const WindowSpec& spec);
bool DilationsAreValid(const WindowSpec& spec);
// EXPLICIT, SAME or VALID.
bool PaddingAlgorithmIsKnown(const WindowSpec& spec);

// Axis 0 is height, 1 is width. REQUIRES: all of these hold. `in` and `kernel` may be
// anything.
WindowAxis ResolveAxis(const WindowSpec& spec, int axis, int64_t in, int64_t kernel);

// Where the axes of an image tensor are.
struct ImageLayout {
  bool channels_last = false;
  int channel() const { return channels_last ? 3 : 1; }
  int height() const { return channels_last ? 1 : 2; }
  int width() const { return channels_last ? 2 : 3; }
};
// "NHWC" is channels last; anything else (NCHW, AnyLayout) channels first.
ImageLayout ImageLayoutOf(const std::string& data_format);

}  // namespace coracle

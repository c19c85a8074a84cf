#pragma once
// Loops of convolutions with few products for each output, in which a separate sweep for bias and
// activation would be slow: depthwise, and 1 x 1 with few channels. They are applied in registers.
// Float32, channels last.

#include <cstdint>

namespace coracle::inline internal {

// One output row of a depthwise convolution, or two adjacent ones.
struct DepthwiseRows {
  const float* image = nullptr;  // of the input
  int64_t height = 0, width = 0, channels = 0;
  int64_t top = 0, left = 0;  // the first window's corner; it may lie outside
  int64_t kernel_h = 0, dilation_h = 1;
  const float* filter = nullptr;  // [kernel_h][kernel_w][channels]
  const float* bias = nullptr;    // [channels], or null
  float* out = nullptr;           // [rows][out_width][channels]
  int64_t rows = 1, out_width = 0;
  bool relu = false;
};

// Whether there is a loop for these sizes; channels must fill a vector.
bool HasDepthwiseLoop(int64_t kernel_w, int64_t stride_w, int64_t channels);
// The number of rows that may be computed at a time, 1 or 2; two read the input less often.
int64_t MaxDepthwiseRows(int64_t stride_h, int64_t stride_w, int64_t dilation_h);
void RunDepthwiseRows(const DepthwiseRows& rows, int64_t kernel_w, int64_t stride_w);

// The windows along a row.
struct DepthwiseWindows {
  int64_t kernel = 0, stride = 1, dilation = 1;
};
// Whether channels fill a vector.
bool HasAnyDepthwiseRow(int64_t channels);
// Computes one row, or a part of one, with windows of any size.
void RunAnyDepthwiseRow(const DepthwiseRows& row, const DepthwiseWindows& windows);

// out[p][m] = act(bias[m] + residual[p][m] + sum over c of in[p][c] * filter[c][m])
struct PointwiseRows {
  const float* in = nullptr;
  int64_t pixels = 0, in_channels = 0, out_channels = 0;
  const float* filter = nullptr;    // packed: panels, the last one padded with zeros
  const float* bias = nullptr;      // [out_channels, padded to whole vectors], or null
  const float* residual = nullptr;  // [pixels][out_channels]; may be out
  float* out = nullptr;
  bool relu = false;
};
void RunPointwiseRows(const PointwiseRows& rows);
// Computes only the panels [first, last), one after the other, for a filter that is too large for
// the cache: each panel is prefetched while the previous one is used.
void RunPointwisePanels(const PointwiseRows& rows, int64_t first, int64_t last);

constexpr int64_t kPointwisePanel = 32;  // adjacent columns in the packed filter
// Floats of a packed filter [out_channels, in_channels]: panels [in_channels][kPointwisePanel], the
// last one padded with zeros. The index of the weight of column m and input channel c in it.
inline int64_t PackedPointwiseAt(int64_t in_channels, int64_t m, int64_t c) {
  return m / kPointwisePanel * kPointwisePanel * in_channels + c * kPointwisePanel +
         m % kPointwisePanel;
}
int64_t PackedPointwiseSize(int64_t in_channels, int64_t out_channels);
}  // namespace coracle::inline internal

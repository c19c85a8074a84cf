#pragma once
// Depthwise convolution of uint8 images with the instructions of AVX512_VNNI, each of which adds
// 64 products. (oneDNN uses them for 16 products, since the taps of a channel are not adjacent.)

#include <cstdint>

namespace coracle::inline internal {

// The taps of a column of the kernel are taken four at a time; the last four may have zeros.
constexpr int64_t kTapsOfQuad = 4;
constexpr int64_t kBytesOfQuad = 256;  // four vectors of 16 channels or pixels with 4 taps each

// What follows the sums: round(act(sum scale + bias)) + zero, limited to [least, most].
struct DepthwiseFinish {
  enum class Curve { kNone, kLeaky, kHardSwish };
  Curve curve = Curve::kNone;
  float slope = 0;  // kLeaky: of numbers below 0
  float last = 0;   // kHardSwish: y = last x clamp(x + 3, 0, 6)
  int16_t zero = 0, least = 0, most = 0;
  bool is_signed = false;  // int8 outputs
};

// The constants of at most 64 channels. A vector holds `group` pixels of 64 / group channels. Its
// parts of 16 bytes are spread over four vectors of 32-bit sums, which have one number for each
// four bytes: OrderOf gives the order.
struct DepthwiseBlock {
  int64_t first = 0, channels = 0;  // of the images
  int64_t group = 1;                // 1, 2 or 4
  const int8_t* weights = nullptr;  // [columns of the kernel][quads][256]
  const int32_t* add = nullptr;     // [64]: the first value of each sum
  const float* scale = nullptr;     // [64]
  const float* bias = nullptr;      // [64]

  // The channel of sum `i` of the 64, from `first` on.
  static int64_t OrderOf(int64_t i, int64_t group) {
    const int64_t vector = i / 16, part = i % 16 / 4;
    return (part * 16 + vector * 4 + i % 4) % (64 / group);
  }
};

// One row of outputs of a block.
struct DepthwiseRow {
  const uint8_t* const* lines =
      nullptr;  // for each row of the kernel, the first pixel that it reads
  int64_t kernel_rows = 1, kernel_columns = 1, stride = 1, dilation = 1;
  int64_t image_channels = 1;
  int64_t pixels = 0;         // of the output
  uint8_t* buffer = nullptr;  // BufferSize bytes
  uint8_t* out = nullptr;     // the first channel of the block in the first pixel

  int64_t quads() const { return (kernel_rows + kTapsOfQuad - 1) / kTapsOfQuad; }
  // The images must be readable this far behind their end.
  static int64_t BytesAfter(int64_t channels, int64_t stride) { return 64 + 3 * stride * channels; }
  int64_t BufferSize() const;
};

bool HasDepthwiseVnni();
// REQUIRES: HasDepthwiseVnni().
void DepthwiseVnni(const DepthwiseBlock& block, const DepthwiseRow& row,
                   const DepthwiseFinish& finish);

}  // namespace coracle::inline internal

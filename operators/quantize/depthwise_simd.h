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
  const int8_t* weights = nullptr;  // [output rows][columns of the kernel][quads][256]
  const int32_t* add = nullptr;     // [64]: the first value of each sum
  const float* scale = nullptr;     // [64]
  const float* bias = nullptr;      // [64]

  // The channel of sum `i` of the 64, from `first` on.
  static int64_t OrderOf(int64_t i, int64_t group) {
    const int64_t vector = i / 16, part = i % 16 / 4;
    return (part * 16 + vector * 4 + i % 4) % (64 / group);
  }
};

// Some rows of outputs of a block that read the same lines of the image: with a kernel of 3 rows
// and stride 1, four lines give two rows.
struct DepthwiseByteRows {
  // For each tap of the quads, the first channel of the block in the first pixel of a line.
  const uint8_t* const* lines = nullptr;
  uint8_t flip = 0;     // 0x80: the images are int8
  uint8_t padding = 0;  // the zero point of the images as uint8
  int64_t quads = 1, kernel_columns = 1, stride = 1, dilation = 1;
  int64_t image_channels = 1;
  int64_t before = 0;         // columns of padding
  int64_t columns = 0;        // of the image
  int64_t pixels = 0;         // of an output row
  int64_t rows = 1;           // of the output
  uint8_t* buffer = nullptr;  // BufferSize() bytes
  uint8_t* out = nullptr;     // the first channel of the block in the first pixel

  int64_t BufferSize() const;
};

bool HasDepthwiseVnni();
// REQUIRES: HasDepthwiseVnni().
void DepthwiseVnni(const DepthwiseBlock& block, const DepthwiseByteRows& rows,
                   const DepthwiseFinish& finish);

}  // namespace coracle::inline internal

#pragma once
// Copies of 8-bit images for kernels of quantized_conv2d.

#include <coracle/operators/conv/conv.h>
#include <coracle/operators/quantize/conv_sums_simd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace coracle::inline internal {

// Copies the images of a part as uint8, with the pixels of the padding, so that the kernel
// sees neither int8 nor padding. Channels last.
struct ImageCopy {
  bool needed = false;
  bool flip = false;  // int8 images; their zero point grows by 128

  // The part's geometry as the kernel sees it.
  ConvGeometry Seen(const ConvGeometry& g) const {
    if (!needed) return g;
    ConvGeometry seen = g;
    for (WindowAxis* axis : {&seen.h, &seen.w}) {
      axis->in = (axis->out - 1) * axis->stride + axis->dilation * (axis->kernel - 1) + 1;
      axis->before = axis->after = 0;
    }
    return seen;
  }
  int64_t Size(const ConvGeometry& g) const {
    if (!needed) return 0;
    const ConvGeometry seen = Seen(g);
    return g.batch * seen.h.in * seen.w.in * g.in_channels;
  }

  void Pixels(const uint8_t* from, int64_t n, uint8_t* to) const {
    if (flip)
      FlipSigns(from, n, to);
    else
      std::memcpy(to, from, static_cast<size_t>(n));
  }
  void Run(const ConvGeometry& g, const uint8_t* from, uint8_t zero, uint8_t* to) const {
    const ConvGeometry seen = Seen(g);
    const int64_t c = g.in_channels, row = seen.w.in * c;
    // A part may begin with windows that lie entirely in the padding after the image.
    const int64_t left = std::clamp<int64_t>(g.w.before, 0, seen.w.in);
    const int64_t skipped = std::clamp<int64_t>(-g.w.before, 0, g.w.in);
    const int64_t inside = std::min(seen.w.in - left, g.w.in - skipped);
    for (int64_t i = 0; i < g.batch * seen.h.in; ++i, to += row) {
      const int64_t y = i % seen.h.in - g.h.before;
      if (y < 0 || y >= g.h.in) {
        std::fill_n(to, row, zero);
        continue;
      }
      const uint8_t* line = from + ((i / seen.h.in * g.h.in + y) * g.w.in + skipped) * c;
      std::fill_n(to, left * c, zero);
      Pixels(line, inside * c, to + left * c);
      std::fill_n(to + (left + inside) * c, row - (left + inside) * c, zero);
    }
  }
};

}  // namespace coracle::inline internal

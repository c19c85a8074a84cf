#pragma once
// Synthetic handwritten digits: data for a first training job without a download. A digit consists
// of a few pen strokes (splines through jittered control points) under a random rotation, shear,
// scale and shift. The pen has a random width, and noise and sometimes a stray stroke are added.

#include <coracle/train/data/data_source.h>

#include <array>
#include <cstdint>
#include <span>

namespace coracle::inline internal {

inline constexpr int kDigitSide = 28;
inline constexpr int kDigitPixels = kDigitSide * kDigitSide;

// Draws digit `index` of the stream (seed, split) into `pixels` (row by row; 0 is paper, 255 is
// ink). Returns its label, an index in `classes`. The result depends only on the arguments.
// Training streams and test streams never share a key, whatever the seeds.
inline constexpr std::array<int32_t, 10> kAllDigits = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
int DrawDigit(uint64_t seed, DigitSplit split, uint64_t index,
              std::span<uint8_t, kDigitPixels> pixels,
              std::span<const int32_t> classes = kAllDigits);

}  // namespace coracle::inline internal

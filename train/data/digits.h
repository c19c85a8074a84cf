#pragma once
// Handwritten-like digits, drawn by the library itself: data for a first training job without a
// download. A digit is a few pen strokes (splines through jittered control points) under a random
// rotation, shear, scale and shift, drawn with a pen of random width, with pixel noise and now and
// then a stray stroke.

#include <coracle/train/data/data_source.h>

#include <array>
#include <cstdint>
#include <span>

namespace coracle {

inline constexpr int kDigitSide = 28;
inline constexpr int kDigitPixels = kDigitSide * kDigitSide;

// Draws digit `index` of the stream that (seed, split) names into `pixels` (row by row, 0 is
// paper, 255 ink) and returns its label: which of `classes`, which are digits. A function of its
// arguments alone. Training and test streams have no key in common, whatever the seeds.
inline constexpr std::array<int32_t, 10> kAllDigits = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
int DrawDigit(uint64_t seed, DigitSplit split, uint64_t index,
              std::span<uint8_t, kDigitPixels> pixels,
              std::span<const int32_t> classes = kAllDigits);

}  // namespace coracle

#pragma once
// Random changes of images in training.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/data/data_source.h>

#include <cstdint>

namespace coracle::inline internal {

// A row of an epoch. Its random values depend on nothing else but the seed.
struct AugmentedRow {
  int64_t epoch = 0, row = 0;
};

// Throws kInvalidArgument for values out of range, and for a saturation of images that have neither
// one nor three channels.
void CheckAugmentation(const TransformOptions& options, int64_t channels);

// Rotates, zooms and shifts the image [C, H, W], then changes brightness, contrast and saturation.
void ChangeImage(const TransformOptions& options, const AugmentedRow& at, const Shape& shape,
                 float* image);
// Adds noise to the result of the transform, and erases a square of it.
void ChangeResult(const TransformOptions& options, const AugmentedRow& at, const Shape& shape,
                  float* result);
bool DrawsFlip(const TransformOptions& options, const AugmentedRow& at);

}  // namespace coracle::inline internal

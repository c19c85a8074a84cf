#pragma once
// Cuts a convolution into smaller ones that different threads compute.

#include <coracle/operators/conv/conv.h>

#include <vector>

namespace coracle::inline internal {

// A convolution of some of the images, or of some rows (RowsOf) of outputs of one image. Its input
// and output are contiguous pieces of the whole ones; it uses the whole filter.
struct ConvPart {
  ConvGeometry g;
  int64_t input = 0, output = 0;  // offset of the part in elements
};

// The axis along which images are cut, the first one with several positions: rows of images, slices
// of volumes, pixels of images that have one row.
const WindowAxis& RowsOf(const ConvGeometry& g);

// At most `wanted` parts, each of whole images.
std::vector<ConvPart> SplitImages(const ConvGeometry& g, int64_t wanted);

// About `wanted` parts that partition the outputs: whole images or, with channels last and fewer
// images than `wanted`, rows of outputs; neighbouring parts share rows of inputs.
std::vector<ConvPart> SplitOutputs(const ConvGeometry& g, int64_t wanted);

// The same for inputs; neighbouring parts share rows of outputs. A part has all outputs that depend
// on its inputs.
std::vector<ConvPart> SplitInputs(const ConvGeometry& g, int64_t wanted);

}  // namespace coracle::inline internal

#pragma once
// Cuts a convolution into smaller ones that different threads compute.

#include <coracle/operators/conv/conv.h>

#include <vector>

namespace coracle {

// A convolution of some of the images, or of some rows (of volumes: slices) of outputs of one
// image. Its input and its output are runs of memory within those of the whole; the filter is that
// of the whole.
struct ConvPart {
  ConvGeometry g;
  int64_t input = 0, output = 0;  // elements before those of the part
};

// Parts of whole images, `wanted` at most.
std::vector<ConvPart> SplitImages(const ConvGeometry& g, int64_t wanted);

// About `wanted` parts that have every output once: whole images, or, with channels last and fewer
// images than that, rows of outputs, where neighbours have rows of inputs in common.
std::vector<ConvPart> SplitOutputs(const ConvGeometry& g, int64_t wanted);

// The same for inputs: neighbours have rows of outputs in common. A part has all outputs that its
// inputs take part in.
std::vector<ConvPart> SplitInputs(const ConvGeometry& g, int64_t wanted);

}  // namespace coracle

#pragma once
// A convolution F(m x m, 3 x 3) of channels-last images as matrix products of transformed tiles:
// its parts, and the work of one part.

#include <coracle/operators/conv/winograd_simd.h>

namespace coracle::winograd {

struct Convolution {
  int m = 4;
  Tiling from, to;  // inputs and outputs
  int64_t batch = 0;
  FilterMatrix filter;

  // Each part has some tiles and some panels of the filter. It transforms `block` tiles at a time
  // and multiplies them with one panel after the other.
  int64_t tile_parts = 1, panel_parts = 1;
  int64_t block = kGroup;

  int64_t Tiles() const { return batch * to.rows * to.columns; }
  int64_t Parts() const { return tile_parts * panel_parts; }

  // Floats of the transformed filter.
  int64_t FilterFloats() const { return Panels(filter.columns) * FilterPanel(m, filter.rows); }
  // Whether each panel is used for one block of one part only. The part may then transform the
  // panel itself, just before.
  bool PanelsAreUsedOnce() const { return tile_parts == 1 && Tiles() <= block; }

  // Scratch memory of one part.
  int64_t ScratchFloats(bool packs) const;
  // Computes the outputs of a part. If `packed`, the transformed filter, is null, the part
  // transforms its panels of `plain`.
  void RunPart(int64_t part, const float* inputs, const float* plain, const float* packed,
               const Epilogue& epilogue, float* outputs, float* scratch) const;
};

// The filter gradient: the sum over all tiles of the products of transformed inputs and output
// gradients, transformed back.
struct FilterGradient {
  int m = 4;
  Tiling from, to;  // inputs and output gradients
  int64_t batch = 0;
  FilterMatrix filter;

  // Each part has some tiles and some panels. Parts with different tiles have separate sums.
  int64_t tile_parts = 1, panel_parts = 1;
  int64_t block = kGroup;

  int64_t Tiles() const { return batch * to.rows * to.columns; }
  int64_t Parts() const { return tile_parts * panel_parts; }

  // Whether one block has all tiles. Then a part transforms the sums of each panel at once;
  // otherwise the sums of all panels are kept for each part of the tiles, SumFloats() each.
  bool FinishesPanels() const { return tile_parts == 1 && Tiles() <= block; }
  int64_t SumFloats() const { return Panels(filter.columns) * FilterPanel(m, filter.rows); }

  // Scratch memory of one part.
  int64_t ScratchFloats() const;
  // If `sums` is null, the part finishes its panels.
  void RunPart(int64_t part, const float* inputs, const float* output_grads, float* sums,
               float* filter_grad, float* scratch) const;
  // Adds the sums of a panel, in order, and transforms them.
  void FinishPanel(int64_t panel, float* sums, float* filter_grad) const;
};

}  // namespace coracle::winograd

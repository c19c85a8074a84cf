#include <coracle/operators/conv/winograd_conv.h>

#include <algorithm>

namespace coracle::winograd {
namespace {

// Part i of [0, n), cut into `parts` about equal parts.
struct Range {
  int64_t begin, end;
};
Range Cut(int64_t n, int64_t parts, int64_t i) { return {n * i / parts, n * (i + 1) / parts}; }

// Calls f(tiles) for blocks of about equal size.
template <class F>
void ForBlocks(const Range& tiles, int64_t block, F&& f) {
  const int64_t n = tiles.end - tiles.begin, blocks = (n + block - 1) / block;
  for (int64_t i = 0; i < blocks; ++i) {
    const Range its = Cut(n, blocks, i);
    f(TileRange(tiles.begin + its.begin, tiles.begin + its.end));
  }
}

// Floats of a block of transformed tiles.
int64_t BlockFloats(int m, int64_t tiles, int64_t channels) {
  return (tiles + kGroup - 1) / kGroup * TileGroup(m, channels);
}

// Floats for the pixels outside of images.
int64_t ZeroFloats(int64_t channels) { return Chunks(channels) * kChunk; }

}  // namespace

int64_t Convolution::ScratchFloats(bool packs) const {
  return ZeroFloats(from.channels) + BlockFloats(m, block, from.channels) +
         BlockFloats(m, block, kPanel) + (packs ? FilterPanel(m, filter.rows) : 0);
}

void Convolution::RunPart(int64_t part, const float* inputs, const float* plain,
                          const float* packed, const Epilogue& epilogue, float* outputs,
                          float* scratch) const {
  float* zeros = scratch;
  float* v = zeros + ZeroFloats(from.channels);
  float* x = v + BlockFloats(m, block, from.channels);
  float* own = x + BlockFloats(m, block, kPanel);
  std::fill_n(zeros, from.channels, 0.0f);
  const Range panels = Cut(Panels(filter.columns), panel_parts, part % panel_parts);
  ForBlocks(Cut(Tiles(), tile_parts, part / panel_parts), block, [&](const TileRange& tiles) {
    TransformInputs(m, from, tiles, inputs, zeros, v);
    for (int64_t p = panels.begin; p < panels.end; ++p) {
      const int64_t columns = std::min(kPanel, filter.columns - p * kPanel);
      if (!packed) TransformFilter(m, filter, plain, p, p + 1, own);
      const float* u = packed ? packed + p * FilterPanel(m, filter.rows) : own;
      for (int64_t at = 0; at < Positions(m); ++at) {
        MultiplyTiles(m, tiles, filter.rows, columns, v + at * kTilePosition,
                      u + at * kFilterPosition, x + at * kTilePosition);
      }
      TransformOutputs(m, to, tiles, x, p * kPanel, columns, epilogue, outputs);
    }
  });
}

int64_t FilterGradient::ScratchFloats() const {
  return ZeroFloats(std::max(from.channels, to.channels)) + BlockFloats(m, block, from.channels) +
         BlockFloats(m, block, to.channels) + (FinishesPanels() ? FilterPanel(m, filter.rows) : 0);
}

void FilterGradient::RunPart(int64_t part, const float* inputs, const float* output_grads,
                             float* sums, float* filter_grad, float* scratch) const {
  const int64_t channels = std::max(from.channels, to.channels);
  float* zeros = scratch;
  float* v = zeros + ZeroFloats(channels);
  float* y = v + BlockFloats(m, block, from.channels);
  float* own = y + BlockFloats(m, block, to.channels);
  std::fill_n(zeros, channels, 0.0f);
  const Range panels = Cut(Panels(filter.columns), panel_parts, part % panel_parts);
  const int64_t tile_part = part / panel_parts, first = panels.begin * kPanel;
  const int64_t columns = std::min(panels.end * kPanel, filter.columns) - first;
  if (sums) sums += tile_part * SumFloats() + panels.begin * FilterPanel(m, filter.rows);
  bool add = false;
  ForBlocks(Cut(Tiles(), tile_parts, tile_part), block, [&](const TileRange& tiles) {
    TransformInputs(m, from, tiles, inputs, zeros, v);
    TransformOutputGrads(m, to, tiles, output_grads + first, zeros, columns, y);
    // Panel by panel, or position by position, so that reused data is in the cache.
    const int64_t step = sums ? panels.end - panels.begin : 1;
    for (int64_t p = panels.begin; p < panels.end; p += step) {
      const int64_t n = (p - panels.begin) * kPanel;
      float* to_sums = sums ? sums : own;
      for (int64_t at = 0; at < Positions(m); ++at) {
        MultiplyOverTiles(m, tiles, filter.rows, std::min(step * kPanel, columns - n), columns,
                          v + at * kTilePosition,
                          y + n / kChunk * TileChunk(m) + at * kTilePosition, add,
                          to_sums + at * kFilterPosition);
      }
      if (!sums) TransformFilterGrad(m, filter, own, p, p + 1, filter_grad);
    }
    add = true;
  });
}

void FilterGradient::FinishPanel(int64_t panel, float* sums, float* filter_grad) const {
  const int64_t size = FilterPanel(m, filter.rows);
  float* total = sums + panel * size;
  for (int64_t i = 1; i < tile_parts; ++i) {
    const float* more = total + i * SumFloats();
    for (int64_t k = 0; k < size; ++k) total[k] += more[k];
  }
  TransformFilterGrad(m, filter, total, panel, panel + 1, filter_grad);
}

}  // namespace coracle::winograd

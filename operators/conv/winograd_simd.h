#pragma once
// The loops of Winograd's convolutions F(m x m, 3 x 3) on channels-last images, in float32:
// transforms of tiles of n x n inputs, n = m + 2, of filters and of m x m outputs, and the matrix
// products between them.
//
// With the points p_0, ..., p_{n-2} and infinity, a row of outputs is A^T [(G g) o (B^T d)] for a
// row g of the filter and a row d of inputs (o: element-wise product). Row j of G holds 1, p_j,
// p_j^2, divided by the product of all p_j - p_k; row j of A holds 1, ..., p_j^(m-1); row j of B^T
// holds the coefficients of the product of all x - p_k, k != j. The points are 0, 1, -1 for m = 2,
// and 0, +-5/8, +-3/2 for m = 4: with 0, +-1, +-2 the error would be twice as large.
//
// A transformed tile has n * n positions; its elements at one position, for all channels, are
// contiguous. See Lavin and Gray, "Fast algorithms for convolutional neural networks", 2015, and,
// for the points, Barabasz et al., "Error analysis and improving the accuracy of Winograd
// convolution for deep neural networks", 2020.

#include <cstdint>

namespace coracle::winograd {

constexpr int kTaps = 9;        // taps of a filter
constexpr int64_t kChunk = 16;  // channels: the widest vector
constexpr int64_t kGroup = 12;  // tiles: rows of a product that registers can hold
constexpr int64_t kPanel = 32;  // columns of a filter: two of the widest vectors

constexpr int Points(int m) { return m + 2; }
constexpr int Positions(int m) { return Points(m) * Points(m); }
constexpr int64_t Chunks(int64_t channels) { return (channels + kChunk - 1) / kChunk; }
constexpr int64_t Panels(int64_t channels) { return (channels + kPanel - 1) / kPanel; }

// Transformed tiles are stored as [groups][chunks][positions][kGroup][kChunk]: the writes of one
// transform stay within a few pages, and the reads of one product within a few lines. The strides:
constexpr int64_t kTilePosition = kGroup * kChunk;
constexpr int64_t TileChunk(int m) { return Positions(m) * kTilePosition; }
constexpr int64_t TileGroup(int m, int64_t channels) { return Chunks(channels) * TileChunk(m); }

// Transformed filters, and sums that become filter gradients, are stored as [chunks of
// columns][chunks of rows][positions][kChunk][kChunk]; the positions begin in different cache sets.
constexpr int64_t kFilterPosition = kChunk * kChunk + kChunk;
constexpr int64_t FilterChunk(int m) { return Positions(m) * kFilterPosition; }
constexpr int64_t FilterColumns(int m, int64_t rows) { return Chunks(rows) * FilterChunk(m); }
constexpr int64_t FilterPanel(int m, int64_t rows) {
  return kPanel / kChunk * FilterColumns(m, rows);
}

// Images cut into tiles `step` pixels apart; the first tile begins `top` rows above and `left`
// columns left of the image. Pixels outside are read as zeros and skipped when written.
struct Tiling {
  int64_t height = 0, width = 0, channels = 0;  // of an image
  int64_t rows = 0, columns = 0;                // tiles of an image
  int64_t step = 0, top = 0, left = 0;
};

// Some tiles of all images, counted by rows, in groups of at most kGroup; all groups but the last
// have `in_group` tiles.
struct TileRange {
  int64_t first = 0, count = 0, in_group = kGroup;

  TileRange(int64_t from, int64_t to) : first(from), count(to - from) {
    const int64_t groups = Groups();
    if (groups > 0) in_group = (count + groups - 1) / groups;
  }
  int64_t Groups() const { return (count + kGroup - 1) / kGroup; }
  int64_t InGroup(int64_t group) const {
    return count - group * in_group < in_group ? count - group * in_group : in_group;
  }
};

// out = B^T d B, with n x n pixels d of all channels. `zeros` holds a zero for each channel.
void TransformInputs(int m, const Tiling& from, const TileRange& tiles, const float* images,
                     const float* zeros, float* out);

// out = A y A^T, with m x m pixels y of `channels` channels, the first of which `images` points to.
void TransformOutputGrads(int m, const Tiling& from, const TileRange& tiles, const float* images,
                          const float* zeros, int64_t channels, float* out);

// Operations on the outputs, in this order.
struct Epilogue {
  const float* bias = nullptr;      // [channels of the image]; null: none
  const float* residual = nullptr;  // images like the outputs, may be the same; null: none
  bool relu = false;                // negative sums become 0
  // Applied to runs of channels; null: none.
  void (*activation)(const void* context, float* x, int64_t n) = nullptr;
  const void* context = nullptr;
};

// The m x m pixels A^T x A of the channels [channel, channel + channels); x has only
// these channels.
void TransformOutputs(int m, const Tiling& to, const TileRange& tiles, const float* x,
                      int64_t channel, int64_t channels, const Epilogue& epilogue, float* images);

// A filter as a matrix of 3 x 3 kernels: the kernel of row k and column n begins at k * row + n *
// column. For a data gradient, the kernels are rotated by 180 degrees.
struct FilterMatrix {
  int64_t rows = 0, columns = 0;
  int64_t row = 0, column = 0;
  bool rotated = false;
};

// out = G f G^T for panels [begin, end).
void TransformFilter(int m, const FilterMatrix& matrix, const float* filter, int64_t begin,
                     int64_t end, float* out);

// G f G^T determines f up to rounding. To restore every bit, one number is kept for each element:
// the difference of its bits, as an integer, to those of the recovered element, or kListed if the
// difference does not fit; then the bits of the element are appended to a list. The numbers of a
// panel are stored as [chunks of columns][rows][kTaps][kChunk]; the order of the list depends on
// the vector size of the machine.
constexpr int8_t kListed = -128;
constexpr int64_t DifferencePanel(int64_t rows) { return kPanel * rows * kTaps; }
// Size of the list: whole vectors are written.
constexpr int64_t ListRoom(int64_t rows) { return DifferencePanel(rows) + kChunk; }

// TransformFilter for one panel, at which `out`, `differences` and `listed` begin. Returns the
// length of the list.
int64_t TransformFilterExactly(int m, const FilterMatrix& matrix, const float* filter,
                               int64_t panel, float* out, int8_t* differences, int32_t* listed);
// The inverse, for one panel of a matrix that is not rotated.
void RestoreFilter(int m, const FilterMatrix& matrix, const float* transformed,
                   const int8_t* differences, const int32_t* listed, int64_t panel, float* filter);

// The adjoint: filter = G^T x G for panels [begin, end), at the first of which x begins.
void TransformFilterGrad(int m, const FilterMatrix& matrix, const float* x, int64_t begin,
                         int64_t end, float* filter);

// Products at one position of all tiles with some panels of a filter, x = v u, for `rows` channels
// and `columns` columns. v, u and x begin at that position of the first panel.
void MultiplyTiles(int m, const TileRange& tiles, int64_t rows, int64_t columns, const float* v,
                   const float* u, float* x);

// Sums over tiles of products at one position, s (+)= v^T y, for `columns` of the `channels` of y.
void MultiplyOverTiles(int m, const TileRange& tiles, int64_t rows, int64_t columns,
                       int64_t channels, const float* v, const float* y, bool add, float* s);

}  // namespace coracle::winograd

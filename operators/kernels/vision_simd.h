#pragma once
// Loops over float32 images in the widest SIMD of the machine: weighted sums of elements at
// precomputed positions (resampling), of the four neighbours of given positions (bilinear samples),
// and slopes that are data (prelu).

#include <cstdint>
#include <vector>

namespace coracle::inline internal {

// --- resampling ---

// Maps a row to another row: element k of the result is the sum over t of weight(t, k) times
// element at(t, k) of the source. For one t, the positions do not decrease.
struct RowTaps {
  static constexpr int64_t kAlign = 16;  // at least the lanes of a vector

  int64_t out = 0, taps = 0, stride = 0;  // stride: out, rounded up to kAlign
  bool move = false;                      // one tap of weight 1: bits are moved unchanged
  bool ragged = false;                    // taps of weight 0 do not read anything
  std::vector<int32_t> at;                // [taps, stride]; the last ones repeat
  std::vector<float> weight;              // [taps, stride]
};

// out[i] = the sum over the `count` rows of weight * row[i].
void MixRows(const float* const* rows, const float* weights, int64_t count, int64_t n, float* out);
// Computes elements [begin, end) of the result from `in`, which holds the elements [low, high) of
// the source. REQUIRES: begin is a multiple of kAlign, and so is end unless it is taps.out.
void MixColumns(const RowTaps& taps, int64_t begin, int64_t end, const float* in, int64_t low,
                int64_t high, float* out);
// The same for rows of pixels of several elements, from the sum over `count` weighted rows; with
// `add`, adds to `out`.
void MixPixels(const RowTaps& taps, int64_t pixel, const float* const* rows, const float* weights,
               int64_t count, bool add, float* out);

// --- bilinear samples ---

// Up to kSize samples. Sample i is the sum over its four neighbours k of weight[k][i] times element
// at[k][i] of a plane; with -1 the neighbour counts as 0. dy and dx are the derivatives of the
// weights. Neighbours 0 and 1 are adjacent in a row of the plane; 2 and 3 are below them.
struct SampleTile {
  static constexpr int64_t kSize = 128;

  int64_t size = 0;
  int32_t at[4][kSize];
  float weight[4][kSize], dy[4][kSize], dx[4][kSize];

  // Sets sample i to `near`, a Bilinear<float>, with weights multiplied by `factor`.
  template <class Near>
  void Set(int64_t i, const Near& near, float factor = 1) {
    for (int k = 0; k < 4; ++k) {
      at[k][i] = static_cast<int32_t>(near.at[k]);
      weight[k][i] = near.weight[k] * factor;
      dy[k][i] = near.dy[k] * factor;
      dx[k][i] = near.dx[k] * factor;
    }
  }
  // Makes the unused samples up to a whole vector harmless. REQUIRES: Set was called for
  // all samples.
  void Finish(int64_t n);
};

// out[i] = sample i, times factors[i] unless `factors` is null.
void ReadSamples(const SampleTile& tile, const float* plane, const float* factors, float* out);
// plane += the samples' weights times values.
void SpreadSamples(const SampleTile& tile, const float* values, float* plane);
// along_y[i] += values[i] times the derivative of sample i, along_x[i] likewise, and sum[i] +=
// values[i] times sample i unless `sum` is null. REQUIRES: the arrays have kSize elements; in
// `values`, only the first tile.size are used.
void AddDerivatives(const SampleTile& tile, const float* plane, const float* values, float* sum,
                    float* along_y, float* along_x);

// --- slopes ---

// out[i] = x[i] > 0 ? v[i] : a v[i] with a = slope[i], or slope[0] if it is `shared`. out may be v.
void Incline(const float* x, const float* v, const float* slope, bool shared, int64_t n,
             float* out);
// The sum of x[i] v[i] over the elements without x[i] > 0.
double InclinedSum(const float* x, const float* v, int64_t n);
// sums[i] += x[i] v[i] unless x[i] > 0.
void AddInclined(const float* x, const float* v, int64_t n, float* sums);

}  // namespace coracle::inline internal

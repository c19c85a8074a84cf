#pragma once
// Resampling of float32 planes: each element is a weighted sum of elements of the source, and
// weights are products over the axes. Used for interpolation and its gradient.

#include <coracle/operators/kernels/vision_simd.h>

#include <array>
#include <cstdint>
#include <vector>

namespace coracle::inline internal {

// Element k of an axis is the sum of weight[i] times element at[i] of the source, over i in
// [begin[k], begin[k + 1]). The positions of one k do not decrease.
struct AxisMap {
  int64_t in = 1, out = 1;
  std::vector<int64_t> begin;
  std::vector<int32_t> at;
  std::vector<float> weight;
};

// The map of the gradient: every element receives from the positions that read it. Weights of equal
// positions are added, zeros are left out. REQUIRES: equal positions of one k are adjacent.
AxisMap Transposed(const AxisMap& map);

class Resample {
 public:
  // Maps of depth, height and width, with `pixel` adjacent elements at each position. With `move`,
  // each position has one tap of weight 1.
  Resample(std::array<AxisMap, 3> maps, int64_t planes, int64_t pixel, bool move);

  // False if positions are unordered, or too far apart, too many or too uneven for tables.
  bool usable() const { return usable_; }
  void operator()(const float* in, float* out) const;

 private:
  static constexpr int64_t kBuffer = 4096;
  static constexpr int64_t kSpan = 1024;
  static constexpr int64_t kGroup = 8;
  static constexpr int64_t kMostPlaces = int64_t{1} << 31;
  // Limits of the memory of the tables, for the rows and for the columns.
  static constexpr int64_t kMostTaps = int64_t{1} << 22;
  static constexpr int64_t kFewTaps = int64_t{1} << 18;

  // Columns [begin, end) of a row, at most kSpan, come from columns [low, high) of the source, at
  // most kBuffer.
  struct Span {
    int64_t begin, end, low, high;
  };
  // Rows of the source that are summed to a row.
  struct Sources {
    static constexpr int64_t kMost = 16;
    int64_t count;
    const float* rows[kMost];
    float weights[kMost];
  };
  bool MakeColumns(const AxisMap& width);
  bool MakeSpans();
  int64_t Find(int64_t r, int64_t plane, int64_t first, const float* in, Sources* sources) const;
  void MakeRows(int64_t r, int64_t n, const float* in, float* out) const;
  void MixSpan(const Span& span, const Sources* sources, int64_t n, bool add, float* out) const;

  AxisMap rows_;  // of depth and height together
  RowTaps columns_;
  std::vector<Span> spans_;
  int64_t planes_, pixel_, in_width_;
  int64_t group_ = kGroup;  // rows that are made together
  bool usable_ = false;
};

}  // namespace coracle::inline internal
